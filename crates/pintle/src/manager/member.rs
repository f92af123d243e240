//! Runs components: restarts them after a failure, and starts them once per term of leadership.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Component, Environment, Left, ManagerError, Stopped,
    builder::Common,
    component::{OnFailure, Run, Work},
    metrics::ComponentMetrics,
    run::Control,
};
use crate::{
    cache::BoxError,
    client::describe,
    controller::{ControllerError, Defaults, Opened, Term},
    leader_election::Leadership,
    object::panic_message,
};

/// How long a component of a new leader waits for watches that an outage has interrupted.
const WATCHES_WITHIN: Duration = Duration::from_secs(30);
/// The first and the longest delay before a failed component is restarted.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A component that ran for this long before it failed is restarted with the first delay again.
const HEALTHY_AFTER: Duration = Duration::from_secs(120);

/// The client of the components of one group, and the election that gates it.
#[derive(Clone)]
pub(super) struct Writer {
    /// Writes only during a term, if there is an election.
    client: Client,
    leadership: Option<Leadership>,
}

impl Writer {
    pub(super) fn new(common: &Common, leadership: Option<&Leadership>) -> Self {
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
pub(super) struct Members {
    writer: Writer,
    pub(super) opened: Vec<Arc<Member>>,
    /// Components that must not hold up the start of the others.
    isolated: Vec<Component>,
}

impl Members {
    pub(super) fn new(
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

    pub(super) fn open_isolated(&mut self, common: &Common) -> Result<(), ManagerError> {
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
    pub(super) name: String,
    work: MemberWork,
    on_failure: OnFailure,
    /// Whether it failed and is not to run again.
    failed: AtomicBool,
    client: Client,
    leadership: Option<Leadership>,
    metrics: ComponentMetrics,
}

enum MemberWork {
    /// `None` once an isolated component has failed, which lets its informers stop.
    Controller(Mutex<Option<Arc<Opened>>>),
    Server(Run),
    Task(Run),
}

impl Member {
    pub(super) fn new(
        common: &Common,
        writer: &Writer,
        component: Component,
    ) -> Result<Self, ManagerError> {
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
                    inspector: common.inspector.clone(),
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

    /// Returns whether the component ends alone if it fails.
    pub(super) fn is_isolated(&self) -> bool {
        self.on_failure == OnFailure::Isolate
    }

    fn controller(&self) -> Option<Arc<Opened>> {
        match &self.work {
            MemberWork::Controller(controller) => controller.lock().clone(),
            MemberWork::Server(_) | MemberWork::Task(_) => None,
        }
    }

    /// Waits until the caches of a controller are filled, or until `stop`.
    pub(super) async fn synced(&self, stop: &CancellationToken) -> Result<(), ManagerError> {
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

    /// Drops the controller of a component that will not run again.
    fn retire(&self) {
        self.failed.store(true, Ordering::Relaxed);
        if let MemberWork::Controller(controller) = &self.work {
            controller.lock().take();
        }
    }

    /// Returns whether a failure at this point is only a consequence of the end of the term or the
    /// shutdown: writes are rejected, connections close.
    fn is_ending(&self, shutdown: &CancellationToken) -> bool {
        let lost = |leadership: &Leadership| !leadership.is_leader();
        shutdown.is_cancelled() || self.leadership.as_ref().is_some_and(lost)
    }

    /// Waits until the watches behind the caches are open. After an outage the Lease may be free
    /// before the watches have reconnected, while the caches still show what another leader has
    /// since changed. Which caches a task reads is unknown, so it waits for all of them.
    async fn wait_for_watches(&self, control: &Control) {
        if self.leadership.is_none() {
            return;
        }
        let stale = match self.controller() {
            Some(controller) => controller.wait_for_watches(WATCHES_WITHIN).await,
            None => control.informers().wait_for_watches(WATCHES_WITHIN).await,
        };
        if !stale.is_empty() {
            let (component, informers) = (&self.name, stale.join(", "));
            warn!(
                component,
                informers,
                "caches have no open watch at the start of a term; continuing with possibly stale caches"
            );
        }
    }

    /// Runs the component until `shutdown`, or until it ends. Returns the work that was dropped.
    pub(super) async fn run(
        self: Arc<Self>,
        control: Arc<Control>,
        shutdown: CancellationToken,
        ready: CancellationToken,
    ) -> Option<Left> {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = self.wait_for_watches(&control) => {}
        }
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
                    // Nothing waits for an isolated server that has failed.
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

    /// Calls a user's function on a separate task, so that it can be abandoned.
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
                    return Ended::Failed("the server returned before shutdown".into());
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
    /// It stopped on request or had nothing left to do, and dropped this work.
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

/// Runs components until `stop` and returns the work that was dropped.
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
