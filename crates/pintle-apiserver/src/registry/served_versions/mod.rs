//! Conversion of resources that are served in a different version from the one they are stored in.

mod autoscalers;

use serde_json::Value;

use crate::{
    meta::Tree,
    schema::builtin::{self, TypeRef},
};

/// How a served version differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// `events.k8s.io/v1` over core `v1` events: the same data under different field names.
    Events,
    /// `autoscaling/v1` over `autoscaling/v2` for `HorizontalPodAutoscaler`.
    Autoscalers,
}

/// Event fields whose names differ: core `v1`, then `events.k8s.io/v1`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts an object from one version to another.
pub(crate) type Convert = fn(Tree) -> Tree;

/// The other version of a kind that is served in two versions. Either may be the stored one.
///
/// `managedFields` entries of the peer version are converted with it. Writes through
/// `events.k8s.io` have no peer: they drop core `v1` managers, as in Kubernetes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerVersion {
    /// For example `autoscaling/v1`.
    pub(crate) api_version: &'static str,
    pub(crate) to_peer: Convert,
    pub(crate) from_peer: Convert,
}

impl PeerVersion {
    /// Returns the peer of a built-in kind, if it has one.
    pub(super) fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        let (other, conversion, is_stored) = match (group, version, kind) {
            ("", "v1", "Event") => ("events.k8s.io/v1", Conversion::Events, true),
            ("autoscaling", "v2", "HorizontalPodAutoscaler") => {
                ("autoscaling/v1", Conversion::Autoscalers, true)
            }
            ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
                ("autoscaling/v2", Conversion::Autoscalers, false)
            }
            _ => return None,
        };
        let (to_served, to_stored) = conversion.functions();
        let (to_peer, from_peer) = if is_stored {
            (to_served, to_stored)
        } else {
            (to_stored, to_served)
        };
        Some(Self {
            api_version: other,
            to_peer,
            from_peer,
        })
    }
}

impl Conversion {
    fn functions(self) -> (Convert, Convert) {
        match self {
            Self::Events => (core_to_events, events_to_core),
            Self::Autoscalers => (autoscalers::to_v1, autoscalers::to_v2),
        }
    }

    /// Returns the type of stored objects.
    pub(super) fn stored_type(self) -> Option<TypeRef> {
        match self {
            Self::Events => builtin::kind("", "v1", "Event"),
            Self::Autoscalers => builtin::kind("autoscaling", "v2", "HorizontalPodAutoscaler"),
        }
    }

    /// Converts from the stored version to the served one.
    pub(crate) fn to_served(self, tree: Tree) -> Tree {
        self.functions().0(tree)
    }

    /// Converts from the served version to the stored one.
    pub(crate) fn to_stored(self, tree: Tree) -> Tree {
        self.functions().1(tree)
    }
}

fn core_to_events(mut tree: Tree) -> Tree {
    for (core, other) in EVENT_FIELDS {
        rename(&mut tree, core, other);
    }
    // Core `v1` encodes these even when they are empty.
    for field in ["reportingController", "reportingInstance"] {
        if tree.get(field).and_then(Value::as_str) == Some("") {
            tree.remove(field);
        }
    }
    tree
}

fn events_to_core(mut tree: Tree) -> Tree {
    for (core, other) in EVENT_FIELDS {
        rename(&mut tree, other, core);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        tree.entry(field).or_insert_with(|| "".into());
    }
    tree
}

fn rename(tree: &mut Tree, from: &str, to: &str) {
    if let Some(value) = tree.remove(from) {
        tree.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
