//! Starts the parts of a program in order, and stops them in reverse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Component, Environment, Groups, Left, Manager, ManagerError, Stopped,
    builder::Common,
    election,
    member::{Member, Members, Writer, run_all},
    stage::Stage,
};
use crate::{cache::BoxError, clock, informer::InformerFactory};

pub(super) async fn run(
    manager: Manager,
    shutdown: &CancellationToken,
) -> Result<Stopped, ManagerError> {
    let (common, groups) = manager.into_groups()?;
    let control = Arc::new(Control::new(&common, shutdown));
    #[cfg(feature = "probes")]
    let probes = {
        let elected = groups.elected.iter();
        let elected: Vec<_> = elected
            .map(|group| group.elector.leadership().clone())
            .collect();
        super::probes::serve(&common, &control, &elected).await?
    };

    #[cfg(feature = "inspect")]
    let inspecting = serve_inspector(&common).await?;
    info!(manager = common.name, "starting");
    let mut running = Running::default();
    let started = running.start(&common, groups, &control).await;
    if started.is_ok() && !control.stop.is_cancelled() {
        control.started.store(true, Ordering::Relaxed);
        info!(manager = common.name, "started");
        control.stop.cancelled().await;
    }
    control.stop.cancel();
    info!(manager = common.name, limit = ?common.stop_within, "stopping");
    let stopped = running.stop(&common).await;
    #[cfg(feature = "probes")]
    if let Some(probes) = probes {
        probes.shutdown().await;
    }
    #[cfg(feature = "inspect")]
    if let Some(inspecting) = inspecting {
        inspecting.shutdown().await;
    }
    for left in &stopped.left {
        warn!(manager = common.name, %left, "stopped with unfinished work; dropping it");
    }
    info!(manager = common.name, "stopped");
    let failure = match started {
        Ok(()) => control.failure.lock().take(),
        Err(ManagerError::Component {
            component, source, ..
        }) => Some((component, source)),
        Err(error) => return Err(error),
    };
    match failure {
        Some((component, source)) => Err(ManagerError::Component {
            component,
            source,
            stopped,
        }),
        None => Ok(stopped),
    }
}

/// Serves the inspector, if the manager has an address for it.
#[cfg(feature = "inspect")]
async fn serve_inspector(common: &Common) -> Result<Option<crate::inspect::Serving>, ManagerError> {
    let (Some(address), Some(inspector)) = (&common.inspect, &common.inspector) else {
        return Ok(None);
    };
    let serving = inspector.serve(address).await;
    let serving = serving.map_err(|source| ManagerError::Inspect {
        address: address.clone(),
        source,
    })?;
    info!(
        manager = common.name,
        url = serving.logged_url(),
        "serving the inspector"
    );
    Ok(Some(serving))
}

/// The state shared by every running part of a manager.
pub(super) struct Control {
    /// Cancelled by the shutdown and by a component that fails.
    pub(super) stop: CancellationToken,
    failure: Mutex<Option<(String, BoxError)>>,
    /// Whether everything has started.
    pub(super) started: AtomicBool,
    /// How long components may take to stop.
    pub(super) work_limit: Duration,
    /// The environment of components. Each gets its own client, shutdown and readiness.
    pub(super) environment: Environment,
}

impl Control {
    pub(super) fn new(common: &Common, shutdown: &CancellationToken) -> Self {
        Self {
            stop: shutdown.child_token(),
            failure: Mutex::default(),
            started: AtomicBool::new(false),
            // The rest is for releasing the Lease, for caches, servers and events.
            work_limit: percent(common.stop_within, 80),
            environment: Environment {
                client: common.client.clone(),
                informers: common.informers.clone(),
                events: common.events.clone(),
                metrics: common.metrics.clone(),
                shutdown: CancellationToken::new(),
                ready: CancellationToken::new(),
                filled: CancellationToken::new(),
            },
        }
    }

    /// Returns the shared informers.
    pub(super) fn informers(&self) -> &InformerFactory {
        &self.environment.informers
    }

    /// Stops the manager. Only the first failure is reported.
    pub(super) fn fail(&self, component: &str, failure: BoxError) {
        let mut first = self.failure.lock();
        first.get_or_insert_with(|| (component.to_owned(), failure));
        self.stop.cancel();
    }
}

fn percent(limit: Duration, part: u32) -> Duration {
    limit / 100 * part
}

/// The running parts of a manager, in start order. Dropping it drops all of them.
#[derive(Default)]
struct Running {
    servers: Stage,
    informers: CancellationToken,
    work: Stage,
}

impl Running {
    /// Starts everything; returns once all servers listen and all caches are filled, or at
    /// shutdown.
    async fn start(
        &mut self,
        common: &Common,
        groups: Groups,
        control: &Arc<Control>,
    ) -> Result<(), ManagerError> {
        if common.starts_recording {
            common.events.start_recording(common.client.clone());
        }
        // Informers do not run yet: a controller that cannot be opened is reported before anything
        // is watched or any server starts.
        let ungated = Writer::new(common, None);
        let mut everywhere = Members::new(common, ungated, groups.everywhere)?;
        let mut elected = Vec::new();
        for group in groups.elected {
            let gated = Writer::new(common, Some(group.elector.leadership()));
            let members = Members::new(common, gated, group.members)?;
            elected.push((group.elector, members));
        }

        // First of all: the API server may need a conversion webhook to answer a list.
        self.start_servers(common, groups.servers, control).await?;
        if control.stop.is_cancelled() {
            return Ok(());
        }

        common.informers.start(&self.informers);
        let members = elected.iter().flat_map(|(_, members)| &members.opened);
        let members: Vec<_> = everywhere.opened.iter().chain(members).cloned().collect();
        let synced = async {
            let each = members.iter().map(|member| member.synced(&control.stop));
            try_join_all(each).await?;
            let all = common.informers.wait_for_sync_within(common.sync_timeout);
            all.await.map_err(ManagerError::NotSynced)
        };
        tokio::select! {
            biased;
            () = control.stop.cancelled() => return Ok(()),
            synced = synced => synced?,
        }
        control.environment.filled.cancel();
        // These wait for their caches without holding up the others.
        everywhere.open_isolated(common)?;
        for (_, members) in &mut elected {
            members.open_isolated(common)?;
        }

        let everywhere = everywhere.opened;
        let (shared, stop) = (Arc::clone(control), self.work.stop.clone());
        let run = async move {
            let left = run_all(&everywhere, &shared, &stop).await;
            for member in &everywhere {
                member.close().await;
            }
            left
        };
        self.work.spawn(Left::Task("components".to_owned()), run);
        for (elector, Members { opened, .. }) in elected {
            let lease = elector.leadership().lease().to_owned();
            let (shared, stop) = (Arc::clone(control), self.work.stop.clone());
            let lead = election::lead(elector, opened, shared, stop);
            self.work.spawn(Left::Lease(lease), lead);
        }
        Ok(())
    }

    /// Starts the servers, and waits until all of them are ready.
    async fn start_servers(
        &mut self,
        common: &Common,
        servers: Vec<Component>,
        control: &Arc<Control>,
    ) -> Result<(), ManagerError> {
        let ungated = Writer::new(common, None);
        let mut starting = Vec::new();
        for server in servers {
            let server = Arc::new(Member::new(common, &ungated, server)?);
            let ready = CancellationToken::new();
            let (shared, stop) = (Arc::clone(control), self.servers.stop.clone());
            let run = Arc::clone(&server).run(shared, stop, ready.clone());
            let run = async move { Vec::from_iter(run.await) };
            self.servers.spawn(Left::Task(server.name.clone()), run);
            starting.push((server, ready));
        }
        let deadline = clock::after(Instant::now(), common.sync_timeout);
        for (server, ready) in starting {
            let ready = tokio::select! {
                biased;
                () = control.stop.cancelled() => return Ok(()),
                ready = timeout_at(deadline, ready.cancelled()) => ready,
            };
            if ready.is_ok() {
                continue;
            }
            let late = format!("not ready within {:?}", common.sync_timeout);
            if server.is_isolated() {
                let component = &server.name;
                error!(
                    component,
                    error = late,
                    "server not ready; continuing without it"
                );
                continue;
            }
            return Err(ManagerError::Component {
                component: server.name.clone(),
                source: late.into(),
                stopped: Stopped::default(),
            });
        }
        Ok(())
    }

    /// Stops everything in reverse order. No stage can use up the time of the next ones.
    async fn stop(mut self, common: &Common) -> Stopped {
        let begun = Instant::now();
        let by = |part| clock::after(begun, percent(common.stop_within, part));
        let mut left = self.work.stop(by(90)).await;
        self.informers.cancel();
        if timeout_at(by(94), common.informers.shutdown())
            .await
            .is_err()
        {
            left.push(Left::Task("informers".to_owned()));
        }
        left.extend(self.servers.stop(by(98)).await);
        let flush = by(100).saturating_duration_since(Instant::now());
        let events = common.events.shutdown(flush).await;
        if events.left > 0 {
            left.push(Left::Events(events.left));
        }
        Stopped { left }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.informers.cancel();
    }
}
