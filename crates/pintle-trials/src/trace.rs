//! The record of one scenario: requests, deliveries, steps of the story and states of the idle
//! cluster.
//!
//! Planners and oracles are functions of traces. A trace holds virtual times only, so equal runs
//! have equal traces.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    canonical::State,
    gateway::request::{ResourceName, Target},
    plan::Pace,
};

/// The record of one scenario.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Requests from the controller, in the order in which they were sent.
    pub requests: Vec<Request>,
    /// Watch events that were delivered to the controller.
    pub deliveries: Vec<Delivery>,
    /// Everything else that happened: steps, crashes, restarts, faults.
    pub marks: Vec<Mark>,
    /// The states of the idle cluster.
    pub checkpoints: Vec<Checkpoint>,
    /// Why the scenario ended early, if it did.
    pub aborted: Option<Abort>,
    /// Panics that did not end the process.
    pub panics: Vec<String>,
    /// Which faults of the plan were injected.
    pub fired: Vec<bool>,
    /// Changes that the controller made in the idle cluster, by observed period.
    pub restless: Vec<Restless>,
    /// Changes of the competing writer that the controller overwrote without reading them.
    pub overwritten: Vec<String>,
    /// Objects from which the controller removed the finalizer of another user.
    pub unheld: Vec<String>,
    /// Objects that lost a property which a user set and the controller does not know.
    pub dropped: Vec<String>,
    /// Conditions of the user that did not hold.
    pub unmet: Vec<String>,
    /// Virtual time at the end.
    pub ended: Duration,
}

/// A request from the controller.
#[derive(Debug, Clone)]
pub struct Request {
    /// The parsed request.
    pub target: Target,
    /// Its stable name.
    pub fingerprint: String,
    /// The number of this request among those with its fingerprint, from 1: in the same step, or in a
    /// rapid story, since its start.
    pub nth: u32,
    /// The incarnation of the process that sent it, from 1.
    pub process: u32,
    /// The step of the story that was applied last.
    pub step: usize,
    /// When the controller issued it.
    pub issued: Duration,
    /// When it left the process: later if the process was cut off.
    pub at: Duration,
    /// The body.
    pub body: Bytes,
    /// The status code, if there was a response.
    pub status: Option<u16>,
    /// The objects it changed.
    pub commits: Vec<Commit>,
    /// The fault that hit it.
    pub fault: Option<String>,
}

impl Request {
    /// Returns whether the request changed something that counts as state.
    pub fn changed_state(&self) -> bool {
        !self.target.is_bookkeeping() && !self.commits.is_empty()
    }
}

/// A change that the server committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The resource.
    pub resource: ResourceName,
    /// The namespace and name.
    pub key: String,
    /// Whether the object was removed.
    pub removes: bool,
    /// The new `resourceVersion`.
    pub revision: u64,
}

/// A watch event that reached the controller.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `ADDED/pods/default/web-0`.
    pub fingerprint: String,
    /// The number of this delivery among those with its fingerprint, counted like requests.
    pub nth: u32,
    /// The resource.
    pub resource: ResourceName,
    /// The incarnation of the process, from 1.
    pub process: u32,
    /// The step of the story that was applied last.
    pub step: usize,
    /// When it was delivered.
    pub at: Duration,
    /// The `resourceVersion` of the object.
    pub revision: u64,
    /// How many commits the process was behind.
    pub lag: u64,
    /// The fault that hit it.
    pub fault: Option<String>,
}

/// An event outside the controller.
#[derive(Debug, Clone)]
pub struct Mark {
    /// When it happened.
    pub at: Duration,
    /// The number of requests before it.
    pub request: usize,
    /// What happened.
    pub text: String,
}

/// The state of the idle cluster after a step.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The step after which the cluster became idle.
    pub step: usize,
    /// When the state was recorded.
    pub at: Duration,
    /// The canonical state.
    pub state: Arc<State>,
    /// Statuses that do not describe the current generation.
    pub stale_status: Vec<String>,
    /// How long it took to converge, beyond the usual wait.
    pub late: Duration,
    /// Whether a fault deleted the object of the story.
    pub deleted: bool,
}

/// Changes that the controller made in an idle cluster.
#[derive(Debug, Clone)]
pub struct Restless {
    /// The observed period: `24 idle hours`, `a restart while idle`.
    pub during: &'static str,
    /// The requests that changed something.
    pub requests: Vec<String>,
    /// How many there were.
    pub count: usize,
}

/// Why a scenario ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abort {
    /// The controller sent more than this many requests within a virtual minute.
    HotLoop(usize, String),
    /// The process exited on its own this many times.
    CrashLoop(usize, String),
    /// The cluster was not idle within this many minutes.
    Restless(u64),
    /// A step of the story could not be applied.
    Story(String),
    /// The fault's point did not occur.
    Vanished,
}

impl Trace {
    /// Returns the last checkpoint.
    pub fn end(&self) -> Option<&Checkpoint> {
        self.checkpoints.last()
    }

    /// Returns whether every fault of the plan was injected.
    pub fn is_fired(&self) -> bool {
        self.fired.iter().all(|fired| *fired)
    }
}

/// Numbers what has the same name: from 1 in each step of a paced story, or across a rapid one.
#[derive(Debug)]
pub(crate) struct Numbers {
    pace: Pace,
    /// The last number of each name, and its step.
    last: BTreeMap<String, (usize, u32)>,
}

impl Numbers {
    pub(crate) fn new(pace: Pace) -> Self {
        let last = BTreeMap::new();
        Self { pace, last }
    }

    /// Returns the next number of a name.
    pub(crate) fn next(&mut self, step: usize, name: &str) -> u32 {
        let step = if self.pace == Pace::Paced { step } else { 0 };
        if let Some((of, number)) = self.last.get_mut(name) {
            *number = if *of == step { *number + 1 } else { 1 };
            *of = step;
            return *number;
        }
        self.last.insert(name.to_owned(), (step, 1));
        1
    }
}
