//! Sets of fields, and their one spelling in `managedFields`.
//!
//! A set is a tree. An edge is a step down: `f:name` to a field, `k:{"name":"x"}` to an item of a
//! list by its keys, `v:"x"` to a value of a set. A node says whether the path that ends there is
//! in the set. In JSON the tree is written as it is, with `.` for a node that is in the set and
//! has others below.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::MAX_DEPTH;

/// A set of paths to fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    steps: BTreeMap<Box<str>, Node>,
}

/// The end of a step: in the set or not, and what is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

impl Node {
    pub(super) fn leaf() -> Self {
        Self {
            member: true,
            below: FieldSet::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// The set of these paths of field names.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let Some((last, ways)) = path.split_last() else {
                continue;
            };
            let mut at = &mut set;
            for name in ways {
                at = &mut at
                    .steps
                    .entry(format!("f:{name}").into())
                    .or_default()
                    .below;
            }
            at.steps
                .entry(format!("f:{last}").into())
                .or_default()
                .member = true;
        }
        set
    }

    /// True if no path is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn put(&mut self, step: impl Into<Box<str>>, node: Node) {
        if !node.is_empty() {
            self.steps.insert(step.into(), node);
        }
    }

    pub(super) fn get(&self, step: &str) -> Option<&Node> {
        self.steps.get(step)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.steps.iter().map(|(step, node)| (&**step, node))
    }

    /// Paths in either.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add(other.clone());
        out
    }

    /// Puts in what is in the other.
    pub(crate) fn add(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (step, node) in other.steps {
            let at = self.steps.entry(step).or_default();
            at.member |= node.member;
            at.below.add(node.below);
        }
    }

    /// Paths in both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (step, node) in &self.steps {
            if let Some(theirs) = other.steps.get(step) {
                out.put(
                    step.clone(),
                    Node {
                        member: node.member && theirs.member,
                        below: node.below.intersection(&theirs.below),
                    },
                );
            }
        }
        out
    }

    /// Paths in this set and not in the other.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.remove(other);
        out
    }

    /// Takes out what is in the other.
    pub(crate) fn remove(&mut self, other: &Self) {
        for (step, theirs) in &other.steps {
            let Some(node) = self.steps.get_mut(step) else {
                continue;
            };
            node.member &= !theirs.member;
            node.below.remove(&theirs.below);
            if node.is_empty() {
                self.steps.remove(step);
            }
        }
    }

    /// Paths in this set that are neither in the other nor below one that is.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (step, node) in &self.steps {
            let left = match other.steps.get(step) {
                None => node.clone(),
                Some(theirs) if theirs.member => continue,
                Some(theirs) => Node {
                    member: node.member,
                    below: node.below.without(&theirs.below),
                },
            };
            out.put(step.clone(), left);
        }
        out
    }

    /// The paths as people read them, sorted level by level: `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        let shown: Vec<(String, &Node)> = self
            .steps
            .iter()
            .map(|(step, node)| (format!("{prefix}{}", show(step)), node))
            .collect();
        out.extend(
            shown
                .iter()
                .filter(|(_, node)| node.member)
                .map(|(path, _)| path.clone()),
        );
        for (path, node) in &shown {
            node.below.collect(path, out);
        }
    }

    /// A step as people read it: `[name="a"]`.
    pub(super) fn shown(step: &str) -> String {
        show(step)
    }

    /// The set as `fieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (step, node) in &self.steps {
            let mut below = match node.below.to_json() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            if node.member && !node.below.is_empty() {
                below.insert(".".into(), Value::Object(Map::new()));
            }
            map.insert(step.to_string(), Value::Object(below));
        }
        Value::Object(map)
    }

    /// Reads `fieldsV1`. Steps nobody knows are skipped.
    pub(crate) fn from_json(fields: &Value) -> Option<Self> {
        Self::read(fields, 0)
    }

    fn read(fields: &Value, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut set = Self::default();
        for (step, value) in fields.as_object()? {
            if !["f:", "k:", "v:", "i:"]
                .iter()
                .any(|kind| step.starts_with(kind))
            {
                continue;
            }
            let below = Self::read(value, depth + 1)?;
            // Nothing below means the path itself is meant.
            let member = below.is_empty() || value.get(".").is_some();
            set.put(step.as_str(), Node { member, below });
        }
        Some(set)
    }
}

/// A step as people read it.
fn show(step: &str) -> String {
    let (kind, rest) = step.split_at_checked(2).unwrap_or((step, ""));
    match kind {
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let each = keys.iter().map(|(name, value)| format!("{name}={value}"));
            format!("[{}]", each.collect::<Vec<_>>().join(","))
        }
        "v:" => format!("[={rest}]"),
        "i:" => format!("[{rest}]"),
        _ => format!(".{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Proves apply/managed-fields.
    #[test]
    fn sets_are_written_as_clients_know_them() {
        let json = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
        });
        let set = FieldSet::from_json(&json).unwrap();
        assert_eq!(set.to_json(), json);
        assert_eq!(
            set.paths(),
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"a/b\"]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
            ]
        );
        assert!(FieldSet::from_json(&json!([])).is_none());
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let leaf = Just(json!({}));
        let tree = leaf.prop_recursive(3, 12, 3, |inner| {
            let step = prop_oneof![
                Just("f:a"),
                Just("f:b"),
                Just("v:\"x\""),
                Just("k:{\"n\":1}"),
                Just(".")
            ];
            prop::collection::btree_map(step, inner, 0..3).prop_map(|map| {
                Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            })
        });
        tree.prop_map(|json| FieldSet::from_json(&json).unwrap())
    }

    proptest! {
        // Proves apply/managed-fields.
        #[test]
        fn sets_are_sets(a in any_set(), b in any_set()) {
            prop_assert_eq!(FieldSet::from_json(&a.to_json()), Some(a.clone()));
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.union(&a), a.clone());
            prop_assert!(a.difference(&a).is_empty());
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.without(&b).intersection(&b).is_empty());
        }
    }
}
