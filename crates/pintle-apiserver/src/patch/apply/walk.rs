//! Walks over objects: collecting fields, comparing, merging, removing and schema checks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{FieldSet, Node};
use super::shape::{Atom, List, ListKind, Place, Scalar};

/// Returns true if a value is owned as a whole.
fn is_leaf(atom: &Atom<'_>) -> bool {
    match atom {
        Atom::Scalar(_) => true,
        Atom::List(list) => matches!(list.kind, ListKind::Atomic),
        Atom::Map { atomic, .. } => *atomic,
    }
}

/// Returns the fields that are set in an object.
pub(super) fn field_set(value: &Value, place: Place<'_>) -> FieldSet {
    fields(value, place).below
}

/// Returns the path element of a field. Formatting it instead takes twice as long.
fn field_step(name: &str) -> String {
    ["f:", name].concat()
}

fn fields(value: &Value, place: Place<'_>) -> Node {
    let atom = place.atom(value);
    if is_leaf(&atom) {
        return Node::leaf();
    }
    let mut node = Node::default();
    match (atom, value) {
        (Atom::List(list), Value::Array(items)) => {
            let mut steps: BTreeMap<String, (usize, &Value)> = BTreeMap::new();
            for item in items {
                let Ok(step) = list.step(item) else { continue };
                steps.entry(step).or_insert((0, item)).0 += 1;
            }
            for (step, (times, item)) in steps {
                // Duplicate items count as one field, since they cannot be distinguished.
                let mut below = if times > 1 {
                    Node::leaf()
                } else {
                    fields(item, list.item)
                };
                below.member = true;
                node.below.put(step, below);
            }
        }
        (Atom::Map { of, .. }, Value::Object(map)) => {
            for (name, value) in map {
                let (place, declared) = of.field(name).unwrap_or((Place::Open, false));
                let mut below = fields(value, place);
                let empty = match value {
                    Value::Null => true,
                    Value::Object(map) => map.is_empty(),
                    _ => false,
                };
                below.member |= empty || !declared;
                node.below.put(field_step(name), below);
            }
        }
        // Null has no fields; values of the wrong type count as one.
        (_, Value::Null) => {}
        _ => node.member = true,
    }
    node
}

/// The difference between two objects.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
}

impl Changes {
    /// Returns the fields whose value differs from before.
    pub(super) fn changed(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

#[derive(Default)]
struct Diff {
    added: Node,
    removed: Node,
    modified: Node,
}

impl Diff {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.modified.is_empty()
    }

    fn put(&mut self, step: &str, diff: Self) {
        self.added.below.put(step, diff.added);
        self.removed.below.put(step, diff.removed);
        self.modified.below.put(step, diff.modified);
    }
}

/// Compares two objects.
pub(super) fn compare(before: &Value, after: &Value, place: Place<'_>) -> Changes {
    let diff = diff(Some(before), Some(after), place);
    Changes {
        added: diff.added.below,
        removed: diff.removed.below,
        modified: diff.modified.below,
    }
}

fn diff(before: Option<&Value>, after: Option<&Value>, place: Place<'_>) -> Diff {
    let mut out = Diff::default();
    if before == after {
        return out;
    }
    let Some(shown) = after.or(before) else {
        return out;
    };
    let shown = if shown.is_null() {
        before.unwrap_or(shown)
    } else {
        shown
    };
    let atom = place.atom(shown);
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    };
    let fits = |value: Option<&Value>| {
        matches!(
            (&atom, value),
            (_, None | Some(Value::Null))
                | (Atom::List(_), Some(Value::Array(_)))
                | (Atom::Map { .. }, Some(Value::Object(_)))
        )
    };
    let both_empty = empty(before) && empty(after);
    if is_leaf(&atom) || both_empty || !fits(before) || !fits(after) {
        let node = match (before, after) {
            (None, _) => &mut out.added,
            (_, None) => &mut out.removed,
            _ => &mut out.modified,
        };
        node.member = true;
        return out;
    }
    match atom {
        Atom::List(list) => diff_lists(before, after, &list, &mut out),
        Atom::Map { of, .. } => {
            let none = Map::new();
            let before = before.and_then(Value::as_object).unwrap_or(&none);
            let after = after.and_then(Value::as_object).unwrap_or(&none);
            for name in before
                .keys()
                .chain(after.keys().filter(|k| !before.contains_key(*k)))
            {
                let (place, _) = of.field(name).unwrap_or((Place::Open, false));
                let below = diff(before.get(name), after.get(name), place);
                if !below.is_empty() {
                    out.put(&field_step(name), below);
                }
            }
        }
        Atom::Scalar(_) => {}
    }
    out.added.member |= before.is_none();
    out.removed.member |= after.is_none();
    out
}

/// Groups items by their path element; duplicates share one entry.
fn by_step<'a>(value: Option<&'a Value>, list: &List<'_>) -> BTreeMap<String, Vec<&'a Value>> {
    let mut steps: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(step) = list.step(item) {
            steps.entry(step).or_default().push(item);
        }
    }
    steps
}

fn diff_lists(before: Option<&Value>, after: Option<&Value>, list: &List<'_>, out: &mut Diff) {
    let (before, after) = (by_step(before, list), by_step(after, list));
    let none = Vec::new();
    let steps = before
        .keys()
        .chain(after.keys().filter(|step| !before.contains_key(*step)));
    for step in steps {
        let left = before.get(step).unwrap_or(&none).as_slice();
        let right = after.get(step).unwrap_or(&none).as_slice();
        let mut below = Diff::default();
        match (left, right) {
            ([] | [_], [] | [_]) => {
                below = diff(left.first().copied(), right.first().copied(), list.item);
            }
            ([_, _, ..], [_, _, ..]) => below.modified.member = left != right,
            ([_, _, ..], _) => {
                if let Some(right) = right.first() {
                    below = diff(None, Some(right), list.item);
                }
                below.removed.member = true;
            }
            (_, _) => {
                if let Some(left) = left.first() {
                    below = diff(Some(left), None, list.item);
                }
                below.added.member = true;
            }
        }
        out.put(step, below);
    }
}

/// Merges a configuration into an object.
pub(super) fn merge(live: &Value, config: &Value, place: Place<'_>) -> Value {
    merged(Some(live), Some(config), place).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merged(live: Option<&Value>, config: Option<&Value>, place: Place<'_>) -> Option<Value> {
    let (live, config) = match (live, config) {
        (Some(live), Some(config)) => (live, config),
        (live, config) => return config.or(live).cloned(),
    };
    match (
        place.atom(if config.is_null() { live } else { config }),
        live,
        config,
    ) {
        (Atom::Map { atomic: false, of }, Value::Object(live), Value::Object(config)) => {
            if live.is_empty() && config.is_empty() {
                return Some(Value::Object(Map::new()));
            }
            let mut out = Map::new();
            for name in live
                .keys()
                .chain(config.keys().filter(|k| !live.contains_key(*k)))
            {
                let (place, _) = of.field(name).unwrap_or((Place::Open, false));
                if let Some(value) = merged(live.get(name), config.get(name), place) {
                    out.insert(name.clone(), value);
                }
            }
            Some(Value::Object(out))
        }
        (Atom::List(list), Value::Array(live), Value::Array(config))
            if !matches!(list.kind, ListKind::Atomic) =>
        {
            Some(Value::Array(merge_items(live, config, &list)))
        }
        // A null configuration leaves granular maps and associative lists alone.
        (Atom::Map { atomic: false, .. }, Value::Object(map), Value::Null) if !map.is_empty() => {
            Some(live.clone())
        }
        (Atom::List(list), Value::Array(items), Value::Null)
            if !matches!(list.kind, ListKind::Atomic) && !items.is_empty() =>
        {
            Some(live.clone())
        }
        (_, _, config) => Some(config.clone()),
    }
}

/// Merges two associative lists: configured items in the configured order, the others in place.
fn merge_items(live: &[Value], config: &[Value], list: &List<'_>) -> Vec<Value> {
    let steps = |items: &[Value]| -> Vec<String> {
        items
            .iter()
            .filter_map(|item| list.step(item).ok())
            .collect()
    };
    let (left, right) = (steps(live), steps(config));
    let find = |items: &[Value], steps: &[String]| -> BTreeMap<String, Option<Value>> {
        let mut found: BTreeMap<String, Option<Value>> = BTreeMap::new();
        for (step, item) in steps.iter().zip(items) {
            // Duplicates cannot be merged; the configuration replaces them.
            found
                .entry(step.clone())
                .and_modify(|v| *v = None)
                .or_insert(Some(item.clone()));
        }
        found
    };
    if left.len() != live.len() || right.len() != config.len() {
        return config.to_vec();
    }
    let (ours, theirs) = (find(live, &left), find(config, &right));
    let one = |step: &String| {
        let live = ours.get(step).and_then(Option::as_ref);
        let config = theirs.get(step).and_then(Option::as_ref);
        merged(live, config, list.item)
    };
    let mut shared = right.iter().filter(|step| ours.contains_key(*step));
    let mut next = shared.next();
    let mut done = std::collections::BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(mine), Some(wanted)) = (left.get(l), right.get(r)) {
            if mine == wanted {
                done.insert(mine);
                out.extend(one(mine));
                l += 1;
                r += 1;
                next = shared.next();
                continue;
            }
            if theirs.contains_key(mine) && next.is_some_and(|next| next != mine) {
                // The item is emitted at its configured position.
                l += 1;
                continue;
            }
        }
        if let Some(mine) = left.get(l) {
            if !theirs.contains_key(mine) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if done.contains(mine) {
                l += 1;
            }
        }
        if let Some(wanted) = right.get(r) {
            done.insert(wanted);
            out.extend(one(wanted));
            r += 1;
            if next == Some(wanted) {
                next = shared.next();
            }
        }
    }
    out
}

/// Removes fields from an object. Containers that become empty turn into null, which is distinct
/// from being removed.
pub(super) fn remove(value: &Value, gone: &FieldSet, place: Place<'_>) -> Option<Value> {
    let atom = place.atom(value);
    if is_leaf(&atom) {
        return match atom {
            Atom::Scalar(_) => Some(value.clone()),
            _ => None,
        };
    }
    match (atom, value) {
        (Atom::List(list), Value::Array(items)) => {
            let mut kept = Vec::new();
            for item in items {
                let node = list
                    .step(item)
                    .ok()
                    .and_then(|step| gone.get(&step).cloned());
                match node {
                    None => kept.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => kept.extend(remove(item, &node.below, list.item)),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Atom::Map { of, .. }, Value::Object(map)) => {
            let mut kept = Map::new();
            for (name, value) in map {
                let (place, _) = of.field(name).unwrap_or((Place::Open, false));
                match gone.get(&field_step(name)) {
                    None => {
                        kept.insert(name.clone(), value.clone());
                    }
                    Some(node) if node.member => {}
                    Some(node) => {
                        // Emptied, not removed: another manager may own the map itself.
                        let value = remove(value, &node.below, place);
                        kept.insert(name.clone(), value.unwrap_or_default());
                    }
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => Some(value.clone()),
    }
}

/// Adds the declared parents of each field: an owner of `.a.b` also owns `.a` if that is a struct.
pub(super) fn with_structs(set: &FieldSet, place: Place<'_>, value: &Value) -> FieldSet {
    let mut out = FieldSet::default();
    let atom = place.atom(value);
    for (step, node) in set.iter() {
        let (below_place, declared) = match (&atom, step.strip_prefix("f:")) {
            (Atom::Map { of, .. }, Some(name)) => of.field(name).unwrap_or((Place::Open, false)),
            (Atom::List(list), None) => (list.item, false),
            _ => (Place::Open, false),
        };
        let below_value = step.strip_prefix("f:").and_then(|name| value.get(name));
        let below = with_structs(
            &node.below,
            below_place,
            below_value.unwrap_or(&Value::Null),
        );
        let member = node.member || (declared && !node.below.is_empty());
        out.put(step, Node { member, below });
    }
    out
}

/// Checks a configuration against the schema. The error names the path.
pub(super) fn check(value: &Value, place: Place<'_>, path: &str) -> Result<(), String> {
    match (place.atom(value), value) {
        (_, Value::Null) => Ok(()),
        (Atom::Scalar(scalar), value) => check_scalar(scalar, value, path),
        (Atom::List(list), Value::Array(items)) => {
            let mut seen = std::collections::BTreeSet::new();
            for (i, item) in items.iter().enumerate() {
                let step = match &list.kind {
                    ListKind::Atomic => format!("i:{i}"),
                    _ => list
                        .step(item)
                        .map_err(|why| format!("{path}: element {i}: {why}"))?,
                };
                let shown = FieldSet::shown(&step);
                check(item, list.item, &format!("{path}{shown}"))?;
                if !seen.insert(step) {
                    return Err(format!("{path}: duplicate entries for key {shown}"));
                }
            }
            Ok(())
        }
        (Atom::List(_), value) => Err(format!("{path}: expected list, got {}", go_value(value))),
        (Atom::Map { of, .. }, Value::Object(map)) => {
            for (name, value) in map {
                let at = format!("{path}.{name}");
                let Some((place, _)) = of.field(name) else {
                    return Err(format!("{at}: field not declared in schema"));
                };
                check(value, place, &at)?;
            }
            Ok(())
        }
        (Atom::Map { .. }, value) => Err(format!("{path}: expected map, got {}", go_value(value))),
    }
}

/// Returns the paths of the atomic lists and maps in a configuration.
pub(super) fn atomic_fields(value: &Value, place: Place<'_>) -> Vec<String> {
    fn walk(value: &Value, place: Place<'_>, path: &str, found: &mut Vec<String>) {
        match (place.atom(value), value) {
            (Atom::List(list), Value::Array(items)) => {
                if matches!(list.kind, ListKind::Atomic) {
                    found.push(path.to_owned());
                }
                for (i, item) in items.iter().enumerate() {
                    walk(item, list.item, &format!("{path}[{i}]"), found);
                }
            }
            (Atom::Map { atomic, of }, Value::Object(map)) => {
                if atomic {
                    found.push(path.to_owned());
                }
                for (name, value) in map {
                    if let Some((place, true)) = of.field(name) {
                        walk(value, place, &format!("{path}.{name}"), found);
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, place, "", &mut found);
    found
}

/// Returns whether every value has the type that the schema declares. Unlike in a configuration,
/// items of a list may have the same keys.
pub(super) fn is_typed(value: &Value, place: Place<'_>) -> bool {
    match (place.atom(value), value) {
        (_, Value::Null) => true,
        (Atom::Scalar(scalar), value) => check_scalar(scalar, value, "").is_ok(),
        (Atom::List(list), Value::Array(items)) => {
            let atomic = matches!(list.kind, ListKind::Atomic);
            items
                .iter()
                .all(|item| (atomic || list.step(item).is_ok()) && is_typed(item, list.item))
        }
        (Atom::Map { of, .. }, Value::Object(map)) => map.iter().all(|(name, value)| {
            let declared = of.field(name);
            declared.is_none_or(|(place, _)| is_typed(value, place))
        }),
        _ => false,
    }
}

fn check_scalar(scalar: Scalar, value: &Value, path: &str) -> Result<(), String> {
    let kind = match value {
        Value::String(_) => "string",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    match (scalar, value) {
        (Scalar::Any, _)
        | (Scalar::Untyped, Value::String(_) | Value::Number(_) | Value::Bool(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Number, Value::Number(_))
        | (Scalar::Bool, Value::Bool(_)) => Ok(()),
        (Scalar::Number, _) => Err(format!(
            "{path}: expected numeric (int or float), got {kind}"
        )),
        (Scalar::Text, _) => Err(format!("{path}: expected string, got {}", go_value(value))),
        (Scalar::Untyped, _) => Err(format!(
            "{path}: expected any scalar, got {}",
            go_value(value)
        )),
        (Scalar::Bool, _) => Err(format!("{path}: expected boolean, got {}", go_value(value))),
    }
}

/// Formats a value as Go prints a pointer to it.
fn go_value(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go_text(value))
}
