//! The oracles: what is wrong with a trace.
//!
//! Each is a function of traces. Those of the reference need no fault; the others compare a run under
//! faults with the reference.

mod reference;
mod trial;

use std::{collections::BTreeMap, fmt};

pub(crate) use self::{
    reference::{fresh, judge as judge_reference, same_requests},
    trial::judge as judge_trial,
};
use crate::{canonical::Difference, gateway::request::Verb, trace::Trace};

/// What a trial checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oracle {
    /// Every run reaches the state of the reference.
    SameEnd,
    /// The state depends on what is desired now, not on what was before.
    PathFree,
    /// Nothing is written at rest, for a day.
    AtRest,
    /// A restart at rest writes nothing.
    Idempotent,
    /// Nothing of a deleted object is left behind.
    NoOrphan,
    /// Deletions complete.
    NoStuck,
    /// Objects of others are left alone.
    OwnOnly,
    /// `status.observedGeneration` equals `metadata.generation` at rest.
    StatusTrue,
    /// Nothing is deleted that the reference keeps; claims, Secrets and namespaces least of all.
    NoExtraDelete,
    /// Changes of other writers are not overwritten unseen.
    NoLostUpdate,
    /// Requests do not repeat without a pause.
    NoHotLoop,
    /// The process does not keep ending.
    NoCrashLoop,
    /// No task panics.
    NoPanic,
    /// Two runs end in the same state.
    Deterministic,
    /// Predicates of the user.
    User,
    /// The story can be told.
    Story,
    /// A replayed fault still has a point to happen at.
    Vanished,
}

impl Oracle {
    /// Returns the name that reports show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameEnd => "same-end",
            Self::PathFree => "path-free",
            Self::AtRest => "at-rest",
            Self::Idempotent => "idempotent",
            Self::NoOrphan => "no-orphan",
            Self::NoStuck => "no-stuck",
            Self::OwnOnly => "own-only",
            Self::StatusTrue => "status-true",
            Self::NoExtraDelete => "no-extra-delete",
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

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that found it.
    pub oracle: Oracle,
    /// The step after which it was found, if there is one.
    pub step: Option<usize>,
    /// What is wrong, in one line.
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

/// Kinds that hold what cannot be made again.
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
