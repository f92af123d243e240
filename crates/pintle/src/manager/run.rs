//! Starting the parts of a program in order, and stopping them in reverse.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::try_join_all};
use kube::Client;
use parking_lot::Mutex;
use tokio::{
    task::{self, JoinSet},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Component, Environment, Groups, Left, Manager, ManagerError, Stopped,
    builder::Common,
    component::{OnFailure, Run, Work},
    election,
    metrics::ComponentMetrics,
};
use crate::{
    cache::BoxError,
    client::describe,
    clock,
    controller::{ControllerError, Defaults, Opened, Term},
    informer::InformerFactory,
    leader_election::Leadership,
    object::panic_message,
};

/// The first and the longest delay before a failed component is started again.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A component that ran for this long before it failed starts over with the first delay.
const HEALTHY_AFTER: Duration = Duration::from_secs(120);

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
    for left in &stopped.left {
        warn!(manager = common.name, "stopped, but {left}");
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

/// What every running part of a manager refers to.
pub(super) struct Control {
    /// Cancelled by the shutdown and by a component that fails.
    pub(super) stop: CancellationToken,
    failure: Mutex<Option<(String, BoxError)>>,
    /// Whether everything has started.
    pub(super) started: AtomicBool,
    /// How long controllers and tasks may take to stop.
    work_limit: Duration,
    /// The environment of components that are not elected.
    environment: Environment,
}

impl Control {
    pub(super) fn new(common: &Common, shutdown: &CancellationToken) -> Self {
        Self {
            stop: shutdown.child_token(),
            failure: Mutex::default(),
            started: AtomicBool::new(false),
            // The rest is for releasing the Lease, for servers and for events.
            work_limit: common.stop_within / 5 * 4,
            environment: Environment {
                client: common.client.clone(),
                informers: common.informers.clone(),
                events: common.events.clone(),
                metrics: common.metrics.clone(),
                shutdown: CancellationToken::new(),
                ready: CancellationToken::new(),
            },
        }
    }

    /// Returns the shared informers.
    pub(super) fn informers(&self) -> &InformerFactory {
        &self.environment.informers
    }

    /// Stops the manager. The first failure is the one that is reported.
    fn fail(&self, component: &str, failure: BoxError) {
        let mut first = self.failure.lock();
        first.get_or_insert_with(|| (component.to_owned(), failure));
        self.stop.cancel();
    }
}

/// The running parts of a manager, in the order of their start. Dropping it drops all of them.
#[derive(Default)]
struct Running {
    informers: CancellationToken,
    servers: Stage,
    work: Stage,
}

/// Parts that start and stop together.
#[derive(Default)]
struct Stage {
    stop: CancellationToken,
    tasks: JoinSet<Vec<Left>>,
    /// What to report of each task that does not end in time.
    running: Vec<(task::Id, Left)>,
}

impl Running {
    /// Starts everything; returns once all caches are filled and all servers listen, or at shutdown.
    async fn start(
        &mut self,
        common: &Common,
        groups: Groups,
        control: &Arc<Control>,
    ) -> Result<(), ManagerError> {
        if common.starts_recording {
            common.events.start_recording(common.client.clone());
        }
        let ungated = Writer::new(common, None);
        let mut everywhere = Members::new(common, ungated, groups.everywhere)?;
        let mut elected = Vec::new();
        for group in groups.elected {
            let gated = Writer::new(common, Some(group.elector.leadership()));
            let members = Members::new(common, gated, group.members)?;
            elected.push((group.elector, members));
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
        // These wait for their caches without holding up the others.
        everywhere.open_isolated(common)?;
        for (_, members) in &mut elected {
            members.open_isolated(common)?;
        }

        for server in groups.servers {
            self.start_server(common, server, control).await?;
        }
        if control.stop.is_cancelled() {
            return Ok(());
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

    /// Starts a server and waits until it is ready.
    async fn start_server(
        &mut self,
        common: &Common,
        server: Component,
        control: &Arc<Control>,
    ) -> Result<(), ManagerError> {
        let ungated = Writer::new(common, None);
        let server = Arc::new(Member::new(common, &ungated, server)?);
        let ready = CancellationToken::new();
        let name = server.name.clone();
        let task = Arc::clone(&server).run(
            Arc::clone(control),
            self.servers.stop.clone(),
            ready.clone(),
        );
        let run = async move { Vec::from_iter(task.await) };
        self.servers.spawn(Left::Task(name.clone()), run);
        let ready = tokio::select! {
            biased;
            () = control.stop.cancelled() => return Ok(()),
            ready = timeout(common.sync_timeout, ready.cancelled()) => ready,
        };
        ready.map_err(|_| ManagerError::Component {
            component: name,
            source: format!("not ready within {:?}", common.sync_timeout).into(),
            stopped: Stopped::default(),
        })
    }

    /// Stops everything in reverse order.
    async fn stop(mut self, common: &Common) -> Stopped {
        let deadline = clock::after(Instant::now(), common.stop_within);
        let mut left = self.work.stop(deadline).await;
        left.extend(self.servers.stop(deadline).await);
        self.informers.cancel();
        if timeout_at(deadline, common.informers.shutdown())
            .await
            .is_err()
        {
            left.push(Left::Task("informers".to_owned()));
        }
        let flush = deadline.saturating_duration_since(Instant::now());
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

impl Stage {
    /// Starts a task, to be reported as `unless_ended` if it does not end in time.
    fn spawn<F>(&mut self, unless_ended: Left, run: F)
    where
        F: Future<Output = Vec<Left>> + Send + 'static,
    {
        let id = self.tasks.spawn(run).id();
        self.running.push((id, unless_ended));
    }

    /// Stops all tasks and returns what was left at the deadline.
    async fn stop(&mut self, deadline: Instant) -> Vec<Left> {
        self.stop.cancel();
        let mut left = Vec::new();
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            let id = match ended {
                Ok((id, reported)) => {
                    left.extend(reported);
                    id
                }
                Err(error) => {
                    error!(%error, "task of the manager ended abnormally");
                    error.id()
                }
            };
            self.running.retain(|(running, _)| *running != id);
        }
        self.tasks.abort_all();
        left.extend(self.running.drain(..).map(|(_, left)| left));
        left
    }
}

/// What the components of one group write with.
#[derive(Clone)]
struct Writer {
    /// Writes only during a term, if there is an election.
    client: Client,
    leadership: Option<Leadership>,
}

impl Writer {
    fn new(common: &Common, leadership: Option<&Leadership>) -> Self {
        let client = match leadership {
            Some(leadership) => leadership.gate(&common.client),
            None => common.client.clone(),
        };
        Self {
            client,
            leadership: leadership.cloned(),
        }
    }
}

/// The components of one group.
struct Members {
    writer: Writer,
    opened: Vec<Arc<Member>>,
    /// Components that must not hold up the start of the others.
    isolated: Vec<Component>,
}

impl Members {
    fn new(
        common: &Common,
        writer: Writer,
        components: Vec<Component>,
    ) -> Result<Self, ManagerError> {
        let is_isolated = |component: &Component| component.on_failure == OnFailure::Isolate;
        let (isolated, components): (Vec<_>, Vec<_>) =
            components.into_iter().partition(is_isolated);
        let mut members = Self {
            writer,
            opened: Vec::new(),
            isolated,
        };
        members.open(common, components)?;
        Ok(members)
    }

    fn open_isolated(&mut self, common: &Common) -> Result<(), ManagerError> {
        let isolated = std::mem::take(&mut self.isolated);
        self.open(common, isolated)
    }

    fn open(&mut self, common: &Common, components: Vec<Component>) -> Result<(), ManagerError> {
        for component in components {
            let member = Member::new(common, &self.writer, component)?;
            self.opened.push(Arc::new(member));
        }
        Ok(())
    }
}

/// A component that is ready to run, any number of times.
pub(super) struct Member {
    name: String,
    work: MemberWork,
    on_failure: OnFailure,
    /// Whether it failed and is not to run again.
    failed: AtomicBool,
    client: Client,
    leadership: Option<Leadership>,
    metrics: ComponentMetrics,
}

enum MemberWork {
    /// None once it has failed alone, so that its informers are no longer in use.
    Controller(Mutex<Option<Arc<Opened>>>),
    Server(Run),
    Task(Run),
}

impl Member {
    fn new(common: &Common, writer: &Writer, component: Component) -> Result<Self, ManagerError> {
        let Component {
            name,
            work,
            on_failure,
            ..
        } = component;
        let work = match work {
            Work::Controller(controller) => {
                let opened = controller.open(Defaults {
                    client: Some(writer.client.clone()),
                    leadership: writer.leadership.clone(),
                    metrics: Some(common.metrics.clone()),
                    clock: Some(common.clock.clone()),
                    events: Some(common.events.clone()),
                });
                let opened = opened.map_err(|error| failed(&name, error))?;
                if !opened.uses(&common.informers) {
                    return Err(ManagerError::OtherInformers(name));
                }
                MemberWork::Controller(Mutex::new(Some(Arc::new(opened))))
            }
            Work::Server(run) => MemberWork::Server(run),
            Work::Task(run) => MemberWork::Task(run),
        };
        Ok(Self {
            metrics: common.own_metrics.of(&name),
            name,
            work,
            on_failure,
            failed: AtomicBool::new(false),
            client: writer.client.clone(),
            leadership: writer.leadership.clone(),
        })
    }

    fn controller(&self) -> Option<Arc<Opened>> {
        match &self.work {
            MemberWork::Controller(controller) => controller.lock().clone(),
            MemberWork::Server(_) | MemberWork::Task(_) => None,
        }
    }

    /// Waits until the caches of a controller are filled, or `stop`.
    async fn synced(&self, stop: &CancellationToken) -> Result<(), ManagerError> {
        if let Some(controller) = self.controller() {
            let synced = controller.synced(stop).await;
            synced.map_err(|error| failed(&self.name, error))?;
        }
        Ok(())
    }

    pub(super) fn begin_another_term(&self) {
        if let Some(controller) = self.controller() {
            controller.begin_another_term();
        }
    }

    pub(super) async fn drop_gone_keys(&self) {
        if let Some(controller) = self.controller() {
            controller.drop_gone_keys().await;
        }
    }

    /// Stops the sources of a controller and writes its last events.
    pub(super) async fn close(&self) {
        if let Some(controller) = self.controller() {
            controller.close().await;
        }
    }

    /// Takes a component that has failed out of use.
    fn retire(&self) {
        self.failed.store(true, Ordering::Relaxed);
        if let MemberWork::Controller(controller) = &self.work {
            controller.lock().take();
        }
    }

    /// Returns whether a failure now is only the end of the term or the shutdown, seen by the
    /// component: writes are refused, connections close.
    fn is_ending(&self, shutdown: &CancellationToken) -> bool {
        let lost = |leadership: &Leadership| !leadership.is_leader();
        shutdown.is_cancelled() || self.leadership.as_ref().is_some_and(lost)
    }

    /// Runs the component until `shutdown` or its end. Returns what was dropped at the end.
    async fn run(
        self: Arc<Self>,
        control: Arc<Control>,
        shutdown: CancellationToken,
        ready: CancellationToken,
    ) -> Option<Left> {
        let mut delay = RESTART_DELAY.0;
        while !self.failed.load(Ordering::Relaxed) && !shutdown.is_cancelled() {
            let started = Instant::now();
            let running = self.metrics.running();
            let ended = match &self.work {
                MemberWork::Controller(_) => match self.controller() {
                    Some(controller) => work(&controller, &shutdown, control.work_limit).await,
                    None => return None,
                },
                MemberWork::Server(run) | MemberWork::Task(run) => {
                    let environment = Environment {
                        client: self.client.clone(),
                        shutdown: shutdown.clone(),
                        ready: ready.clone(),
                        ..control.environment.clone()
                    };
                    self.call(run, environment, control.work_limit).await
                }
            };
            drop(running);
            let failure = match ended {
                Ended::Stopped(left) => return left,
                Ended::Failed(failure) => failure,
            };
            if self.is_ending(&shutdown) {
                let (component, error) = (&self.name, describe(&*failure));
                info!(component, error, "component failed at the end of its term");
                return None;
            }
            self.metrics.failures.inc();
            let (name, text) = (&self.name, describe(&*failure));
            match self.on_failure {
                OnFailure::Stop => {
                    error!(
                        component = name,
                        error = text,
                        "component failed; stopping the manager"
                    );
                    control.fail(name, failure);
                    return None;
                }
                OnFailure::Isolate => {
                    error!(
                        component = name,
                        error = text,
                        "component failed; the others continue"
                    );
                    self.retire();
                    // Nothing waits for a server that has failed alone.
                    ready.cancel();
                    return None;
                }
                OnFailure::Restart => {
                    if started.elapsed() >= HEALTHY_AFTER {
                        delay = RESTART_DELAY.0;
                    }
                    error!(component = name, error = text, restart_in = ?delay, "component failed; restarting");
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return None,
                        () = sleep(delay) => {}
                    }
                    delay = (delay * 2).min(RESTART_DELAY.1);
                }
            }
        }
        None
    }

    /// Calls a user's function on a task of its own, so that it can be abandoned.
    async fn call(&self, run: &Run, environment: Environment, limit: Duration) -> Ended {
        let (run, shutdown) = (Arc::clone(run), environment.shutdown.clone());
        let mut task = JoinSet::new();
        task.spawn(AssertUnwindSafe(async move { run(environment).await }).catch_unwind());
        let overdue = async {
            shutdown.cancelled().await;
            sleep(limit).await;
        };
        let ended = tokio::select! {
            biased;
            ended = task.join_next() => ended,
            () = overdue => return Ended::Stopped(Some(Left::Task(self.name.clone()))),
        };
        match ended {
            Some(Ok(Ok(Ok(())))) => {
                if matches!(self.work, MemberWork::Server(_)) && !shutdown.is_cancelled() {
                    return Ended::Failed("the server ended by itself".into());
                }
                Ended::Stopped(None)
            }
            Some(Ok(Ok(Err(error)))) => Ended::Failed(error),
            Some(Ok(Err(panic))) => Ended::Failed(panic_message(&*panic).into()),
            // The task was aborted with the runtime.
            Some(Err(_)) | None => Ended::Stopped(None),
        }
    }
}

/// The result of one run of a component.
enum Ended {
    /// It stopped when it was asked to or had nothing left to do, and dropped this.
    Stopped(Option<Left>),
    Failed(BoxError),
}

async fn work(controller: &Opened, shutdown: &CancellationToken, limit: Duration) -> Ended {
    match controller.synced(shutdown).await {
        Ok(true) => {}
        Ok(false) => return Ended::Stopped(None),
        Err(error) => return Ended::Failed(error.into()),
    }
    match controller.work(shutdown, limit, Term::OneOfMany).await {
        Ok(stopped) if stopped.unfinished.is_empty() => Ended::Stopped(None),
        Ok(stopped) => Ended::Stopped(Some(Left::Reconciles {
            controller: controller.name().to_owned(),
            keys: stopped.unfinished,
        })),
        Err(error) => Ended::Failed(error.into()),
    }
}

fn failed(component: &str, error: ControllerError) -> ManagerError {
    ManagerError::Component {
        component: component.to_owned(),
        source: error.into(),
        stopped: Stopped::default(),
    }
}

/// Runs components until `stop` and returns what was dropped at the end.
pub(super) async fn run_all(
    members: &[Arc<Member>],
    control: &Arc<Control>,
    stop: &CancellationToken,
) -> Vec<Left> {
    let mut tasks = JoinSet::new();
    for member in members {
        let run =
            Arc::clone(member).run(Arc::clone(control), stop.clone(), CancellationToken::new());
        tasks.spawn(run);
    }
    let mut left = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(reported) => left.extend(reported),
            Err(error) if error.is_panic() => control.fail("a component", error.into()),
            Err(_) => {} // Aborted with the runtime.
        }
    }
    left
}
