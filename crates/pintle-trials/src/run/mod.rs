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

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use pintle_apiserver::ApiServer;
use serde_json::Value;
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::{
    actors::{self, Cast},
    canonical::{Compare, Ignored, Snapshot, State, canonical, differences},
    check::Predicate,
    gateway::request::ResourceName,
    hub::{Hub, Signal},
    plan::{Fault, Pace, Plan},
    process::{self, Factory, supervise},
    story::{Desired, Step},
    trace::{Abort, Checkpoint, Restless, Trace},
};

/// How long nothing may change before the cluster of a reference counts as idle.
const LONG_IDLE: Duration = Duration::from_secs(15 * 60);
/// The idle time of a run that is compared with the reference.
const SHORT_IDLE: Duration = Duration::from_secs(5);
/// The idle time of such a run at the end of the story.
const LAST_IDLE: Duration = Duration::from_secs(40);
/// The time between two steps of a rapid story.
const GAP: Duration = Duration::from_millis(7);
/// How long the idle reference is observed at the end.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of requests of an idle controller after which it is not observed further.
const IDLE_REQUESTS: usize = 2000;
/// How long the cluster may take to become idle, not counting the idle time itself.
const IDLE_DEADLINE: Duration = Duration::from_secs(20 * 60);

/// How often to check whether the cluster is idle.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
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
    pub(crate) always: Vec<Predicate>,
    pub(crate) eventually: Vec<Predicate>,
    /// The namespaces of all objects, except `default`.
    pub(crate) namespaces: BTreeSet<String>,
    /// The server that scenarios start with a copy of.
    pub(crate) prepared: OnceLock<Result<ApiServer, String>>,
}

impl Setup {
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
    /// After the user deleted the object of the story at this step.
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
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(LocalOptions::default());
    let mut trace = match runtime {
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
    let supervisor = supervise(Arc::clone(&hub), Arc::clone(&setup.factory), signals);
    tokio::task::spawn_local(supervisor);
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
        sleep(Duration::from_millis(50)).await;
        loop {
            let faults = self.before_step().await;
            if !self.hub.advance().await {
                break;
            }
            self.after_step(&faults).await;
            if self.plan.pace == Pace::Rapid {
                sleep(GAP).await;
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
        // Fights over defaults may take their time.
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
        let quiet = match self.depth {
            Depth::Trial if last => LAST_IDLE,
            Depth::Trial => SHORT_IDLE,
            _ => LONG_IDLE,
        };
        self.idle_for(quiet).await;
    }

    async fn idle_for(&self, quiet: Duration) {
        let deadline = Instant::now() + quiet + IDLE_DEADLINE;
        let mut most = self.hub.newest() + MAX_CHANGES;
        loop {
            match self.hub.idle_time() {
                Some(since) if since >= quiet => return,
                Some(since) => sleep(quiet.saturating_sub(since).min(POLL_INTERVAL)).await,
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
                let took = Instant::now() + quiet + IDLE_DEADLINE - deadline;
                self.hub.give_up(Abort::Restless(took.as_secs() / 60 + 1));
                return;
            }
        }
    }

    /// Records the state, waiting for the expected one if it differs.
    async fn checkpoint(&self) {
        let waits = [25, 95, 480, 1200, 1800, 7200];
        let mut late = Duration::ZERO;
        let mut waits = waits.into_iter().map(Duration::from_secs);
        loop {
            let snapshot = self.hub.snapshot().await;
            let mut state = canonical(&snapshot, &self.setup.ignored);
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
            self.idle_for(SHORT_IDLE).await;
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
            self.observe("a restart while idle", sleep(Duration::from_secs(120)))
                .await;
        }
    }

    /// Waits for a day, or until the controller has sent many requests, such as renewals of a Lease.
    async fn day(&self) {
        let requests = || self.hub.record.lock().trace.requests.len();
        let (before, end) = (requests(), Instant::now() + DAY);
        while Instant::now() < end && requests() - before < IDLE_REQUESTS {
            sleep(POLL_INTERVAL * 10).await;
        }
    }

    async fn observe(&self, during: &'static str, done: impl Future<Output = ()>) {
        let before = self.hub.record.lock().trace.requests.len();
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
