//! Resources served in another form than they are kept in.

mod autoscalers;

use serde_json::Value;

use crate::meta::Tree;

/// How a resource differs from its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// `events.k8s.io` over the events of the core group: the same facts under other names.
    Events,
    /// `autoscaling/v1` over autoscalers of `autoscaling/v2`.
    Autoscalers,
}

/// The core group's name and the other group's name of each field that has two.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Makes one form of an object from another.
pub(crate) type Convert = fn(Tree) -> Tree;

/// The other form of a kind that has two, whichever of them is stored. Writes through
/// `events.k8s.io` know of none: they forget the managers of the core group, as in Kubernetes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerVersion {
    /// `autoscaling/v1`.
    pub(crate) api_version: &'static str,
    pub(crate) to_peer: Convert,
    pub(crate) from_peer: Convert,
}

impl PeerVersion {
    /// The other form of a built-in kind.
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

    /// From the stored form to the served one.
    pub(crate) fn to_served(self, tree: Tree) -> Tree {
        self.functions().0(tree)
    }

    /// From the served form to the stored one.
    pub(crate) fn to_stored(self, tree: Tree) -> Tree {
        self.functions().1(tree)
    }
}

fn core_to_events(mut tree: Tree) -> Tree {
    for (core, other) in EVENT_FIELDS {
        rename(&mut tree, core, other);
    }
    // The core group writes these even when empty.
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back_is_the_same_event() {
        let Value::Object(core) = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "message": "m", "reportingComponent": "", "reportingInstance": "", "reason": "r", "count": 2, "source": {"component": "c"}})
        else {
            panic!("an object")
        };
        let other = Conversion::Events.to_served(core.clone());
        assert_eq!(other["regarding"], core["involvedObject"]);
        assert_eq!(other["note"], "m");
        assert_eq!(Conversion::Events.to_stored(other), core);
    }
}
