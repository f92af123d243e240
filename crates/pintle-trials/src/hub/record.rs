//! The mutable state of a scenario: its trace so far, and the faults that have not been injected
//! yet.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use pintle_apiserver::{Points, Write};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::Origin;
use crate::{
    canonical::Snapshot,
    gateway::request::{ResourceName, Target, Verb, is_bookkeeping},
    plan::{Fault, Pace, Point},
    random::Random,
    story::Desired,
    trace::{Commit, Mark, Numbers, Request, Trace},
};

/// After this idle time, requests are attributed to a timer.
const PERIODIC: Duration = Duration::from_secs(60);

/// An armed fault.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) fault: Fault,
    pub(super) point: Point,
    /// How often its point has occurred.
    pub(super) seen: u32,
    /// The number of injections left.
    pub(super) left: u32,
}

/// A feed that is disconnected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    pub(super) until: Instant,
    pub(super) after_step: Option<usize>,
}

/// The mutable state of a scenario.
pub(crate) struct Record {
    pub(super) start: Instant,
    pub(crate) trace: Trace,
    /// The origin of the request that is being polled.
    pub(super) current: Origin,
    /// The incarnation of the program that runs.
    pub(crate) process: u32,
    pub(super) pace: Pace,
    /// The numbers of requests and deliveries.
    pub(super) numbers: Numbers,
    /// The numbers of the steps, in a shrunk story.
    pub(super) steps: Vec<usize>,
    pub(super) armed: Vec<Armed>,
    /// Resources that changed since the last snapshot.
    pub(super) dirty: BTreeSet<ResourceName>,
    /// The API version in which each resource was requested.
    pub(super) versions: BTreeMap<ResourceName, String>,
    pub(super) last_commit: Instant,
    /// The cluster does not count as idle before this time.
    pub(super) busy_until: Instant,
    /// Actions of users that wait for something.
    pub(crate) pending: usize,
    /// The time until which the watch events of a resource are held back.
    pub(super) holds: BTreeMap<ResourceName, Instant>,
    /// Resources whose feeds are disconnected.
    pub(super) away: BTreeMap<ResourceName, Away>,
    /// Resources whose next resumed watch has expired.
    pub(super) expired: BTreeSet<ResourceName>,
    /// The time until which the API server is down.
    pub(super) down_until: Option<Instant>,
    /// The times of the requests in the last minute.
    pub(super) window: VecDeque<Instant>,
    /// The number of requests per minute above which the controller is in a hot loop.
    pub(crate) limit: usize,
    /// The step of the story that was applied last.
    pub(crate) step: usize,
    /// The index of the next step of the story.
    pub(super) next_step: usize,
    /// The newest `resourceVersion` before the last step.
    pub(crate) before_step: u64,
    /// The user deleted the object for good; the rest of the story is skipped.
    pub(crate) ended: bool,
    /// The values that the controller chooses at random.
    pub(super) random: Random,
    /// Generated names, with their prefix and `*`.
    pub(super) generated: BTreeMap<String, String>,
    /// The objects that users want, by path.
    pub(super) desired: BTreeMap<String, Desired>,
    /// The number of the last action of users on each object, by path.
    pub(super) actions: BTreeMap<String, u64>,
    /// The number of changes by the competing writer.
    pub(super) rivals: u32,
    /// While the server lags: the revision from which it serves lists of any version, and until
    /// when.
    pub(super) past: Option<(u64, Instant)>,
    /// The entries of external services, by service and id.
    pub(crate) externals: BTreeMap<String, BTreeMap<String, Value>>,
    /// The kind whose CRD was upgraded: users set its new property.
    pub(crate) upgraded: Option<String>,
    /// The last snapshot; resources in `dirty` have changed since.
    pub(super) snapshot: Snapshot,
}

/// Injects a fault right after a commit of a program.
pub(crate) type Inject = Box<dyn Fn(Fault) + Send + Sync>;

/// Records every commit, and injects the fault that is armed for a write of a program.
pub(super) struct Hook {
    pub(super) record: Arc<Mutex<Record>>,
    pub(super) notified: [Arc<Notify>; 2],
    pub(super) inject: Arc<OnceLock<Inject>>,
}

impl Points for Hook {
    fn after_commit(&self, write: &Write<'_>, revision: u64) {
        let mut record = self.record.lock();
        let resource = ResourceName {
            group: write.group.to_owned(),
            plural: write.resource.to_owned(),
        };
        if is_bookkeeping(&resource) {
            if let Origin::Controller(_) = record.current {
                record.trace_commit(write, resource, revision);
            }
            return;
        }
        record.last_commit = Instant::now();
        record.dirty.insert(resource.clone());
        let fault = if record.current == Origin::Program {
            record.trace_write(write, resource, revision)
        } else {
            record.trace_commit(write, resource, revision);
            None
        };
        drop(record);
        self.notified.iter().for_each(|notify| notify.notify_one());
        if let (Some(fault), Some(inject)) = (fault, self.inject.get()) {
            inject(fault);
        }
    }
}

impl Record {
    /// Records a write of a program, of which only the commit is known. Returns the fault that is
    /// armed for it.
    fn trace_write(
        &mut self,
        write: &Write<'_>,
        resource: ResourceName,
        revision: u64,
    ) -> Option<Fault> {
        let target = Target {
            verb: if write.removes {
                Verb::Delete
            } else {
                Verb::Update
            },
            resource: resource.clone(),
            version: String::new(),
            namespace: write.namespace.map(str::to_owned),
            name: write.name.to_owned(),
            subresource: String::new(),
            any_version: false,
        };
        let fingerprint = target.fingerprint();
        let nth = self.number(&fingerprint);
        let fault = self.fault(false, &fingerprint);
        let request = Request {
            target,
            fingerprint,
            nth,
            process: self.process,
            step: self.step,
            issued: self.now(),
            at: self.now(),
            body: Bytes::new(),
            status: Some(200),
            commits: Vec::new(),
            fault: fault.map(Fault::name),
        };
        self.trace.requests.push(request);
        self.current = Origin::Controller(self.trace.requests.len() - 1);
        self.trace_commit(write, resource, revision);
        self.current = Origin::Program;
        fault
    }

    fn trace_commit(&mut self, write: &Write<'_>, resource: ResourceName, revision: u64) {
        if let Origin::Controller(index) = self.current
            && let Some(request) = self.trace.requests.get_mut(index)
        {
            request.commits.push(Commit {
                resource,
                key: write.namespace.map_or_else(
                    || write.name.to_owned(),
                    |ns| format!("{ns}/{}", write.name),
                ),
                removes: write.removes,
                revision,
            });
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn mark(&mut self, text: impl Into<String>) {
        let mark = Mark {
            at: self.now(),
            request: self.trace.requests.len(),
            text: text.into(),
        };
        self.trace.marks.push(mark);
    }

    /// Returns the index of the next step, or `usize::MAX` if the story has ended.
    pub(crate) fn next_step(&self) -> usize {
        if self.ended {
            usize::MAX
        } else {
            self.next_step
        }
    }

    /// Numbers an action of a user.
    pub(super) fn new_action(&mut self, path: &str) -> u64 {
        let last = self.actions.entry(path.to_owned()).or_default();
        *last += 1;
        *last
    }

    /// Returns the number of the last action of users on an object.
    pub(super) fn last_action(&self, path: &str) -> u64 {
        self.actions.get(path).copied().unwrap_or_default()
    }

    /// Prevents the cluster from counting as idle for a while.
    pub(crate) fn busy_for(&mut self, duration: Duration) {
        self.busy_until = self.busy_until.max(Instant::now() + duration);
    }

    /// Returns whether nothing was committed, and no fault was in progress, for this long.
    fn is_idle_for(&self, time: Duration) -> bool {
        Instant::now() > self.last_commit.max(self.busy_until) + time
    }

    /// Returns the number of a request or a delivery.
    pub(crate) fn number(&mut self, fingerprint: &str) -> u32 {
        let step = self.step_number();
        self.numbers.next(step, fingerprint)
    }

    /// Returns the number of the current step in the whole story.
    fn step_number(&self) -> usize {
        if self.next_step == 0 {
            return 0;
        }
        self.steps.get(self.step).copied().unwrap_or(self.step)
    }

    /// Returns the name with a generated suffix replaced by `*`.
    pub(crate) fn stable_name(&self, name: &str) -> String {
        let generated = self.generated.get(name).cloned();
        generated.unwrap_or_else(|| self.random.renamed(name))
    }

    /// Returns the fault that is armed for a request or an event that occurs now, if any, and counts it
    /// as injected.
    pub(crate) fn fault(&mut self, event: bool, fingerprint: &str) -> Option<Fault> {
        if self.armed.is_empty() {
            return None;
        }
        let step = self.step_number();
        // Tokens without a step number a paced story as a whole. What a timer sends does not count:
        // a reference is idle for longer than a scenario.
        let periodic = !event && self.pace == Pace::Paced && self.is_idle_for(PERIODIC);
        let mut found = None;
        for (armed, fired) in self.armed.iter_mut().zip(&mut self.trace.fired) {
            let at = match &armed.point {
                Point::Request(at) if !event => at,
                Point::Event(at) if event => at,
                _ => continue,
            };
            if at.fingerprint != fingerprint {
                continue;
            }
            let counts = at.step.map_or(!periodic, |number| number == step);
            armed.seen += u32::from(counts);
            // A fault that hits several requests continues in the next step.
            let due = *fired || counts && armed.seen >= at.nth;
            if due && armed.left > 0 && found.is_none() {
                armed.left -= 1;
                *fired = true;
                found = Some(armed.fault);
            }
        }
        found
    }

    /// Counts a request, and reports whether the controller is in a hot loop.
    pub(crate) fn is_hot(&mut self) -> bool {
        let now = Instant::now();
        self.window.push_back(now);
        while self
            .window
            .front()
            .is_some_and(|first| now - *first > Duration::from_secs(60))
        {
            self.window.pop_front();
        }
        self.window.len() > self.limit
    }

    pub(crate) fn learn_generated(&mut self, object: &Value) {
        if let (Some(prefix), Some(name)) = (
            object["metadata"]["generateName"].as_str(),
            object["metadata"]["name"].as_str(),
        ) {
            self.generated
                .entry(name.to_owned())
                .or_insert_with(|| format!("{prefix}*"));
        }
    }
}
