//! Sets of fields, and their encoding in `managedFields`.
//!
//! A set is a tree whose edges are path elements: `f:name` for a field, `k:{"name":"x"}` for a list
//! item by its keys, `v:"x"` for a value of a set. A node records whether the path that ends there
//! is a member. The JSON form mirrors the tree, with `.` marking a member that has others below it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::MAX_DEPTH;

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    steps: BTreeMap<Box<str>, Node>,
}

/// A tree node: whether its path is a member, and the members below it.
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
    /// Returns the set of these paths of field names.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let Some((last, parents)) = path.split_last() else {
                continue;
            };
            let mut at = &mut set;
            for name in parents {
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

    /// Returns true if the set has no members.
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

    /// Returns the paths in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add(other.clone());
        out
    }

    /// Adds the paths of another set.
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

    /// Returns the paths in both sets.
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

    /// Returns the paths in this set but not in the other.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.remove(other);
        out
    }

    /// Removes the paths of another set.
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

    /// Returns the paths that are neither in the other set nor below one of its paths.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (step, node) in &self.steps {
            let left = match other.steps.get(step) {
                None => node.clone(),
                Some(theirs) if theirs.member => continue,
                Some(theirs) => Node {
                    member: node.member,
                    below: node.below.recursive_difference(&theirs.below),
                },
            };
            out.put(step.clone(), left);
        }
        out
    }

    /// Returns readable paths, parents before children: `.spec.containers[name="a"].image`.
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

    /// Returns a path element in readable form: `[name="a"]`.
    pub(super) fn shown(step: &str) -> String {
        show(step)
    }

    /// Encodes the set as `fieldsV1`.
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

    /// Decodes `fieldsV1`, skipping unknown path elements.
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
            // A leaf represents its own path.
            let member = below.is_empty() || value.get(".").is_some();
            set.put(step.as_str(), Node { member, below });
        }
        Some(set)
    }
}

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
mod tests;
