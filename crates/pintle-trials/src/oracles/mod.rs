//! The oracles: decide whether the trace of a run is correct.
//!
//! Each oracle is a pure function of traces. Some judge a reference on its own; the others compare
//! a run under faults with the reference.

mod leases;
mod reference;
mod trial;

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

pub(crate) use self::{
    reference::{fresh, judge as judge_reference, same_requests},
    trial::judge as judge_trial,
};
use crate::{canonical::Difference, gateway::request::Verb, trace::Trace};

/// A property that a check verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oracle {
    /// Every run reaches the state of the reference.
    SameEnd,
    /// The state depends only on the objects that users want now, not on earlier ones.
    PathFree,
    /// An idle controller writes nothing for a day.
    Quiescent,
    /// A restart of an idle controller writes nothing.
    Idempotent,
    /// No child outlives the object it was created for.
    NoOrphan,
    /// Deletions complete.
    NoStuck,
    /// The controller does not change objects of other users.
    OwnOnly,
    /// `status.observedGeneration` equals `metadata.generation` once the cluster is idle.
    StatusTrue,
    /// No object is deleted more often than in the reference.
    NoExtraDelete,
    /// A generated child does not exist more often than in the reference.
    NoDuplicate,
    /// A process that held a Lease does not write while another one holds it.
    Fenced,
    /// Changes of other writers are not overwritten without being read, and properties that the
    /// controller does not know are not removed.
    NoLostUpdate,
    /// Requests are not repeated in a tight loop.
    NoHotLoop,
    /// The process does not exit repeatedly.
    NoCrashLoop,
    /// No task panics.
    NoPanic,
    /// Two runs end in the same state.
    Deterministic,
    /// The conditions of the user hold.
    User,
    /// Every step of the story can be applied.
    Story,
    /// A replayed fault can still be injected: the controller still sends the request it applies
    /// to.
    Vanished,
}

impl Oracle {
    /// Returns the name that reports show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameEnd => "same-end",
            Self::PathFree => "path-free",
            Self::Quiescent => "quiescent",
            Self::Idempotent => "idempotent",
            Self::NoOrphan => "no-orphan",
            Self::NoStuck => "no-stuck",
            Self::OwnOnly => "own-only",
            Self::StatusTrue => "status-true",
            Self::NoExtraDelete => "no-extra-delete",
            Self::NoDuplicate => "no-duplicate",
            Self::Fenced => "fenced",
            Self::NoLostUpdate => "no-lost-update",
            Self::NoHotLoop => "no-hot-loop",
            Self::NoCrashLoop => "no-crash-loop",
            Self::NoPanic => "no-panic",
            Self::Deterministic => "deterministic",
            Self::User => "user",
            Self::Story => "story",
            Self::Vanished => "vanished",
        }
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A violation of an oracle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that found it.
    pub oracle: Oracle,
    /// The step after which it was found, if there is one.
    pub step: Option<usize>,
    /// The violation, in one line.
    pub text: String,
    /// How the state differs from the reference.
    pub differences: Vec<Difference>,
}

impl Violation {
    pub(crate) fn new(oracle: Oracle, text: impl Into<String>) -> Self {
        Self {
            oracle,
            step: None,
            text: text.into(),
            differences: Vec::new(),
        }
    }

    fn at(self, step: usize) -> Self {
        Self {
            step: Some(step),
            ..self
        }
    }

    /// Returns whether there are more generated children than expected.
    fn is_duplicate(&self) -> bool {
        let count = |it: Option<&Value>| it.and_then(Value::as_u64);
        self.differences.first().is_some_and(|first| {
            first.path == "(number of objects)"
                && count(first.got.as_ref()) > count(first.want.as_ref())
        })
    }

    fn differing(oracle: Oracle, step: usize, differences: Vec<Difference>) -> Option<Self> {
        let first = differences.first()?;
        let more = match differences.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        let text = format!("{}{more}", first.describe());
        Some(Self {
            differences,
            ..Self::new(oracle, text).at(step)
        })
    }
}

/// Kinds whose objects hold data that cannot be recreated.
const PRECIOUS: [&str; 4] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "secrets",
    "namespaces",
];

/// Counts how often the controller deleted each object whose name it chose itself.
pub(crate) fn removals(trace: &Trace) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in &trace.requests {
        let target = &request.target;
        if target.verb == Verb::Delete
            && !request.commits.is_empty()
            && !request.fingerprint.contains('*')
        {
            let namespace = target.namespace.as_deref().unwrap_or_default();
            let what = format!("{} {namespace}/{}", target.resource, target.name);
            *counts.entry(what).or_insert(0) += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests;
