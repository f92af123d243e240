//! Runs one scenario: plays the story in a fresh cluster, injects the faults of a plan, and records
//! the state whenever the cluster is idle.
//!
//! # Quiescence
//!
//! The clock is paused, so tokio advances it only when no task can run. The cluster is idle once
//! nothing was committed for a while and no fault is in progress. In the reference, "a while" is
//! longer than any timer that a controller is likely to have. Under faults it is short at first,
//! because a state that already equals the reference needs no waiting. Only if it differs does the
//! run wait longer, up to the time within which the controller has to converge.

mod defaults;
pub(crate) mod interference;
pub(crate) mod prepare;
pub(crate) mod timing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use pintle_apiserver::ApiServer;
use serde_json::Value;
use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    sync::mpsc,
    time::{Instant, sleep},
};

use self::timing::Timing;
use crate::{
    actors::{self, Cast},
    canonical::{Compare, Ignored, Snapshot, State, canonical, differences},
    check::Predicate,
    gateway::request::ResourceName,
    hub::{Hub, Signal},
    plan::{Fault, Pace, Plan},
    process::{self, Factory, supervise},
    random::Random,
    story::{Desired, Step},
    trace::{Abort, Checkpoint, Restless, Trace},
};

/// The number of requests of an idle controller after which it is not observed further.
const IDLE_REQUESTS: usize = 2000;
/// How many changes the cluster may take to become idle.
const MAX_CHANGES: u64 = 1000;

/// The state shared by all scenarios of a check.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) factory: Factory,
    pub(crate) crds: Vec<Value>,
    pub(crate) given: Vec<Desired>,
    pub(crate) ignored: Ignored,
    pub(crate) cast: Cast,
    pub(crate) within: Duration,
    pub(crate) timing: Timing,
    /// Whether the controller is a program, which runs in real time.
    pub(crate) is_program: bool,
    /// The program to run instead of the factory.
    #[cfg(feature = "cli")]
    pub(crate) program: Option<Arc<crate::program::Program>>,
    pub(crate) always: Vec<Predicate>,
    pub(crate) eventually: Vec<Predicate>,
    /// The namespaces of all objects, except `default`.
    pub(crate) namespaces: BTreeSet<String>,
    /// Added to the seeds of the controller's randomness.
    pub(crate) other_seed: u64,
    /// The values that the controller chooses at random.
    pub(crate) random: OnceLock<Random>,
    /// The server that scenarios start with a copy of.
    pub(crate) prepared: OnceLock<Result<ApiServer, String>>,
}

impl Setup {
    /// Returns the runtime of a scenario.
    fn runtime(&self) -> std::io::Result<LocalRuntime> {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(!self.is_program);
        #[cfg(feature = "cli")]
        if self.is_program {
            builder.enable_io();
        }
        builder.build_local(LocalOptions::default())
    }

    /// Starts the task that runs the controller's processes.
    fn start(&self, hub: &Arc<Hub>, signals: mpsc::UnboundedReceiver<Signal>) {
        #[cfg(feature = "cli")]
        if let Some(program) = &self.program {
            let supervisor =
                crate::program::supervise(Arc::clone(hub), Arc::clone(program), signals);
            tokio::task::spawn_local(supervisor);
            return;
        }
        let supervisor = supervise(Arc::clone(hub), Arc::clone(&self.factory), signals);
        tokio::task::spawn_local(supervisor);
    }

    /// Returns the kinds that exist before the story, with their versions.
    pub(crate) fn given_kinds(&self) -> BTreeMap<ResourceName, String> {
        let given = self.given.iter();
        let mut kinds: BTreeMap<ResourceName, String> = given
            .map(|object| (object.kind.resource.clone(), object.kind.version.clone()))
            .collect();
        if !self.namespaces.is_empty() {
            let namespaces = ResourceName {
                group: String::new(),
                plural: "namespaces".to_owned(),
            };
            kinds.insert(namespaces, "v1".to_owned());
        }
        kinds
    }
}

/// The states that a scenario has to reach.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    /// The state after each step.
    pub(crate) steps: BTreeMap<usize, Arc<State>>,
    /// The state after the user deleted the object of the story at this step.
    pub(crate) absent: BTreeMap<usize, Arc<State>>,
    /// Earlier states of objects, as merge patches, by object.
    pub(crate) edits: BTreeMap<String, Value>,
}

impl Expected {
    /// Expects these namespaces to be gone, with everything in them.
    pub(crate) fn without_namespaces(&mut self, namespaces: &BTreeSet<String>) {
        for state in self.absent.values_mut() {
            let state = Arc::make_mut(state);
            let stays = |title: &String| {
                let (kind, name) = title.split_once(' ').unwrap_or((title, ""));
                let (namespace, _) = name.split_once('/').unwrap_or_default();
                let is_gone = kind == "Namespace" && namespaces.contains(name);
                !is_gone && !namespaces.contains(namespace)
            };
            state.objects.retain(|title, _| stays(title));
            state.ids.retain(|title, _| stays(title));
        }
    }
}

/// How thoroughly a run is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Waits for a long idle time after every step.
    Patient,
    /// Like `Patient`, and also observes the idle cluster for a day and through a restart.
    Thorough,
    /// Compares with the expected states.
    Trial,
}

/// Runs a scenario on this thread.
pub(crate) fn scenario(
    setup: &Setup,
    steps: &[Step],
    plan: &Plan,
    expected: Option<&Expected>,
    limit: usize,
    depth: Depth,
) -> Trace {
    let prepared = match setup.prepared() {
        Ok(prepared) => prepared,
        Err(why) => {
            return Trace {
                aborted: Some(Abort::Story(why.clone())),
                ..Trace::default()
            };
        }
    };
    process::collect_panics();
    let mut trace = match setup.runtime() {
        Ok(runtime) => {
            let driven = drive(setup, prepared, steps, plan, expected, limit, depth);
            let trace = runtime.block_on(driven);
            // Ignore panics in tasks that are dropped with the runtime.
            let panics = process::take_panics();
            process::collect_panics();
            drop(runtime);
            Trace { panics, ..trace }
        }
        Err(error) => Trace {
            aborted: Some(Abort::Story(format!("cannot start a runtime: {error}"))),
            ..Trace::default()
        },
    };
    process::take_panics();
    if trace.aborted.is_none() && !trace.is_fired() {
        trace.aborted = Some(Abort::Vanished);
    }
    trace
}

async fn drive(
    setup: &Setup,
    prepared: &ApiServer,
    steps: &[Step],
    plan: &Plan,
    expected: Option<&Expected>,
    limit: usize,
    depth: Depth,
) -> Trace {
    let (sender, signals) = mpsc::unbounded_channel();
    let hub = Hub::new(plan, steps.to_vec(), limit, setup, prepared, sender);
    let driver = Driver {
        setup,
        plan,
        expected,
        depth,
        hub: Arc::clone(&hub),
    };
    tokio::task::spawn_local(actors::run(Arc::clone(&hub), setup.cast.clone()));
    setup.start(&hub, signals);
    tokio::select! {
        biased;
        () = hub.abort.cancelled() => {}
        () = driver.play() => {}
    }
    hub.abort.cancel();
    let mut record = hub.record.lock();
    record.trace.ended = record.now();
    std::mem::take(&mut record.trace)
}

struct Driver<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    expected: Option<&'a Expected>,
    depth: Depth,
    hub: Arc<Hub>,
}

impl Driver<'_> {
    /// Plays the story.
    async fn play(&self) {
        if !self.setup.always.is_empty() {
            let (hub, always) = (Arc::clone(&self.hub), self.setup.always.clone());
            tokio::task::spawn_local(watch_always(hub, always));
        }
        // The controller starts before the first step, as it does in a cluster.
        sleep(self.setup.timing.start).await;
        loop {
            let faults = self.before_step().await;
            if !self.hub.advance().await {
                break;
            }
            self.after_step(&faults).await;
            if self.plan.pace == Pace::Rapid {
                sleep(self.setup.timing.gap).await;
                continue;
            }
            let last = self.is_last();
            self.wait_until_idle(last).await;
            if self.hub.is_waiting_for_step() && !last {
                continue;
            }
            self.checkpoint().await;
        }
        self.hub.lift(true);
        if self.plan.pace == Pace::Rapid {
            self.wait_until_idle(true).await;
            self.checkpoint().await;
        }
        self.drift().await;
        // A controller that fights over defaults may take a while to write again.
        if self.depth == Depth::Thorough || self.plan.has(|it| it == Fault::Defaulting) {
            self.observe_idle().await;
        }
    }

    fn is_last(&self) -> bool {
        let record = self.hub.record.lock();
        record.ended || record.step + 1 == self.hub.steps.len()
    }

    /// Waits until the cluster is idle.
    async fn wait_until_idle(&self, last: bool) {
        let timing = &self.setup.timing;
        let quiet = match self.depth {
            Depth::Trial if last => timing.last_idle,
            Depth::Trial => timing.short_idle,
            _ => timing.long_idle,
        };
        self.idle_for(quiet).await;
    }

    async fn idle_for(&self, quiet: Duration) {
        let limit = quiet + self.setup.timing.deadline;
        let (deadline, poll) = (Instant::now() + limit, self.setup.timing.poll);
        let mut most = self.hub.newest() + MAX_CHANGES;
        loop {
            match self.hub.idle_time() {
                Some(since) if since >= quiet => return,
                Some(since) => sleep(quiet.saturating_sub(since).min(poll)).await,
                None => {
                    // Changes during a fault do not count: for example, a controller that has not
                    // observed a deletion may restore what the garbage collector removes.
                    most = self.hub.newest() + MAX_CHANGES;
                    sleep(Duration::from_secs(1)).await;
                }
            }
            if self.hub.is_waiting_for_step() {
                return;
            }
            if Instant::now() > deadline || self.hub.newest() > most {
                let took = Instant::now() + limit - deadline;
                self.hub.give_up(Abort::Restless(took.as_secs() / 60 + 1));
                return;
            }
        }
    }

    /// Records the state, waiting for the expected one if it differs.
    async fn checkpoint(&self) {
        let mut late = Duration::ZERO;
        let waits = self.setup.timing.waits.iter().copied();
        let mut waits = waits.map(Duration::from_secs);
        loop {
            let snapshot = self.hub.snapshot().await;
            let mut state = canonical(&snapshot, &self.setup.ignored);
            if let Some(random) = self.setup.random.get() {
                state = random.masked(&state);
            }
            let (step, upgraded) = {
                let record = self.hub.record.lock();
                (record.step, record.upgraded.clone())
            };
            let dropped = upgraded.map_or_else(Vec::new, |kind| {
                interference::take_new_field(&kind, &mut state)
            });
            let stale = self.stale_status(&snapshot);
            let failed = self.unmet(&snapshot);
            let wanted = self.wanted(step);
            let fits = wanted.is_none_or(|wanted| {
                stale.is_empty()
                    && dropped.is_empty()
                    && failed.is_empty()
                    && differences(wanted, &state, self.compare()).is_empty()
            });
            let wait = waits
                .next()
                .filter(|wait| late + *wait <= self.setup.within);
            if fits || self.depth != Depth::Trial || wait.is_none() {
                let mut record = self.hub.record.lock();
                for name in failed {
                    record.mark(format!("not met: {name}"));
                    record.trace.unmet.push(name);
                }
                record.trace.dropped.extend(dropped);
                let checkpoint = Checkpoint {
                    step,
                    at: record.now(),
                    state: Arc::new(state),
                    stale_status: stale,
                    late,
                    deleted: record.ended,
                };
                record.mark(format!("idle after step {step}"));
                record.trace.checkpoints.push(checkpoint);
                return;
            }
            let wait = wait.unwrap_or_default();
            late += wait;
            sleep(wait).await;
            self.idle_for(self.setup.timing.short_idle).await;
        }
    }

    fn wanted(&self, step: usize) -> Option<&Arc<State>> {
        let expected = self.expected?;
        if self.hub.record.lock().ended {
            expected.absent.get(&step)
        } else {
            expected.steps.get(&step)
        }
    }

    fn compare(&self) -> Compare {
        if self.plan.pace == Pace::Rapid || self.plan.has(Fault::is_of_user) {
            Compare::PathFree
        } else {
            Compare::Exact
        }
    }

    fn unmet(&self, snapshot: &Snapshot) -> Vec<String> {
        let view = crate::View(snapshot);
        let unmet = self.setup.eventually.iter().filter(|it| !(it.holds)(&view));
        unmet.map(|it| it.name.clone()).collect()
    }

    /// Returns objects of the story whose status describes an older generation.
    fn stale_status(&self, snapshot: &Snapshot) -> Vec<String> {
        let mut stale = Vec::new();
        for (resource, object) in snapshot.objects() {
            let of_story = |step: &Step| step.object().kind.resource == *resource;
            let observed = object["status"]["observedGeneration"].as_i64();
            let current = object["metadata"]["generation"].as_i64();
            if let (Some(observed), Some(current)) = (observed, current)
                && observed != current
                && object["metadata"]["deletionTimestamp"].is_null()
                && self.hub.steps.iter().any(of_story)
            {
                let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
                let (kind, name) = (kind.as_str(), name.as_str());
                stale.push(format!(
                    "{} {}: status.observedGeneration is {observed}, metadata.generation is {current}",
                    kind.unwrap_or_default(),
                    name.unwrap_or_default(),
                ));
            }
        }
        stale
    }

    /// Observes the idle cluster for a day, then through a restart.
    async fn observe_idle(&self) {
        self.observe("24 idle hours", self.day()).await;
        let process = {
            let record = self.hub.record.lock();
            let requests = record.trace.requests.iter();
            requests.map(|request| request.process).max()
        };
        if let Some(process) = process {
            self.hub.record.lock().mark("restart while idle");
            let _ = self.hub.signals.send(Signal::Crash(process));
            let after = sleep(self.setup.timing.after_restart);
            self.observe("a restart while idle", after).await;
        }
    }

    /// Waits for a day, or until the controller has sent many requests, such as renewals of a
    /// Lease.
    async fn day(&self) {
        let requests = || self.hub.record.lock().trace.requests.len();
        let (day, interval) = self.setup.timing.day;
        let (before, end) = (requests(), Instant::now() + day);
        while Instant::now() < end && requests() - before < IDLE_REQUESTS {
            sleep(interval).await;
        }
    }

    async fn observe(&self, during: &'static str, done: impl Future<Output = ()>) {
        let (before, delivered) = {
            let trace = &self.hub.record.lock().trace;
            (trace.requests.len(), trace.deliveries.len())
        };
        done.await;
        let mut record = self.hub.record.lock();
        let changes: Vec<String> = record.trace.requests[before..]
            .iter()
            .filter(|request| request.changed_state())
            .map(|request| request.fingerprint.clone())
            .collect();
        if !changes.is_empty() {
            let count = changes.len();
            let mut requests = changes;
            requests.sort();
            requests.dedup();
            record.trace.restless.push(Restless {
                during,
                requests,
                count,
            });
        }
        // Comparisons and plans use only the story, so drop what follows it.
        record.trace.requests.truncate(before);
        record.trace.deliveries.truncate(delivered);
    }
}

/// Checks the conditions that must hold after every commit.
async fn watch_always(hub: Arc<Hub>, always: Vec<Predicate>) {
    let mut seen = 0;
    loop {
        let newest = hub.newest();
        if newest != seen {
            seen = newest;
            let snapshot = hub.snapshot().await;
            let view = crate::View(&snapshot);
            let broken: Vec<String> = always
                .iter()
                .filter(|it| !(it.holds)(&view))
                .map(|it| it.name.clone())
                .collect();
            let mut record = hub.record.lock();
            for name in broken {
                if !record.trace.unmet.contains(&name) {
                    record.mark(format!("not met: {name}"));
                    record.trace.unmet.push(name);
                }
            }
        }
        hub.checked.notified().await;
    }
}
