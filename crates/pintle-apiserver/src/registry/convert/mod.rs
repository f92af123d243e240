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

impl Conversion {
    /// From the stored form to the served one.
    pub(crate) fn out(self, mut tree: Tree) -> Tree {
        match self {
            Self::Events => {
                for (core, other) in EVENT_FIELDS {
                    rename(&mut tree, core, other);
                }
                // The core group writes these even when empty.
                for field in ["reportingController", "reportingInstance"] {
                    if tree.get(field).and_then(Value::as_str) == Some("") {
                        tree.remove(field);
                    }
                }
            }
            Self::Autoscalers => tree = autoscalers::out(tree),
        }
        tree
    }

    /// From the served form to the stored one.
    pub(crate) fn back(self, mut tree: Tree) -> Tree {
        match self {
            Self::Events => {
                for (core, other) in EVENT_FIELDS {
                    rename(&mut tree, other, core);
                }
                for field in ["reportingComponent", "reportingInstance"] {
                    tree.entry(field).or_insert_with(|| "".into());
                }
            }
            Self::Autoscalers => tree = autoscalers::back(tree),
        }
        tree
    }
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
        let other = Conversion::Events.out(core.clone());
        assert_eq!(other["regarding"], core["involvedObject"]);
        assert_eq!(other["note"], "m");
        assert_eq!(Conversion::Events.back(other), core);
    }
}
