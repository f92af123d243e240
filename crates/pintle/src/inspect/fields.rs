//! Which fields differ between two states of an object, by path.
//!
//! A pure function of two JSON values. `resourceVersion`, `managedFields` and `generation` are set
//! by the server and explain nothing, so they are left out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::model::Changed;

/// The maximum number of fields listed for one change.
const MAX_FIELDS: usize = 24;

/// The maximum depth of a path. Below it, a value counts as changed as a whole.
const MAX_DEPTH: usize = 12;

/// Metadata fields that the server sets on writes.
const NOISE: [&str; 3] = ["resourceVersion", "managedFields", "generation"];

/// Returns the fields that differ. In each object, those missing from `after` come last.
pub(super) fn changed(before: &Value, after: &Value) -> Vec<Changed> {
    let mut found = Vec::new();
    differ(before, after, &mut String::new(), 0, &mut found);
    found
}

/// Returns the paths of a merge patch or apply configuration whose values differ from `before`, or
/// all paths if there is no `before`.
pub(super) fn written(before: Option<&Value>, patch: &Value) -> Vec<String> {
    let mut found = Vec::new();
    patched(before, patch, &mut String::new(), 0, &mut found);
    found
}

fn differ(
    before: &Value,
    after: &Value,
    path: &mut String,
    depth: usize,
    found: &mut Vec<Changed>,
) {
    if before == after || found.len() >= MAX_FIELDS {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) if depth < MAX_DEPTH => {
            for (name, value) in new {
                let known = old.get(name).unwrap_or(&Value::Null);
                inside(path, name, depth, |path| {
                    differ(known, value, path, depth + 1, found);
                });
            }
            for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                inside(path, name, depth, |path| {
                    differ(value, &Value::Null, path, depth + 1, found);
                });
            }
        }
        (Value::Array(old), Value::Array(new)) if depth < MAX_DEPTH => {
            for (label, before, after) in pairs(old, new) {
                let length = path.len();
                path.push_str(&label);
                differ(before, after, path, depth + 1, found);
                path.truncate(length);
            }
        }
        _ => found.push(Changed {
            path: path.clone(),
            before: before.clone(),
            after: after.clone(),
        }),
    }
}

fn patched(
    before: Option<&Value>,
    patch: &Value,
    path: &mut String,
    depth: usize,
    found: &mut Vec<String>,
) {
    if found.len() >= MAX_FIELDS || before.is_some_and(|before| before == patch) {
        return;
    }
    match patch {
        Value::Object(fields) if !fields.is_empty() && depth < MAX_DEPTH => {
            for (name, value) in fields {
                // These identify the object; a UID is also a precondition.
                if depth == 0 && matches!(name.as_str(), "apiVersion" | "kind")
                    || depth == 1 && path == "metadata" && is_identity(name)
                {
                    continue;
                }
                let known = before.map(|before| before.get(name).unwrap_or(&Value::Null));
                inside(path, name, depth, |path| {
                    patched(known, value, path, depth + 1, found);
                });
            }
        }
        _ => found.push(path.clone()),
    }
}

fn is_identity(name: &str) -> bool {
    matches!(name, "name" | "namespace" | "uid" | "creationTimestamp")
}

/// Calls `then` with a field appended to the path. Skips the [`NOISE`] in the metadata.
fn inside(path: &mut String, name: &str, depth: usize, then: impl FnOnce(&mut String)) {
    if depth == 1 && path == "metadata" && NOISE.contains(&name) {
        return;
    }
    let length = path.len();
    if name.contains(['.', '/']) {
        path.push_str("[\"");
        path.push_str(name);
        path.push_str("\"]");
    } else {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
    }
    then(path);
    path.truncate(length);
}

/// Pairs the items of two lists: by `name` or `type` if it is unique in both, or else by position.
fn pairs<'a>(old: &'a [Value], new: &'a [Value]) -> Vec<(String, &'a Value, &'a Value)> {
    const NONE: &Value = &Value::Null;
    for field in ["name", "type"] {
        if let (Some(old), Some(new)) = (named(old, field), named(new, field)) {
            let names: BTreeSet<&str> = new.keys().chain(old.keys()).copied().collect();
            let item = |list: &BTreeMap<&str, &'a Value>, name| *list.get(name).unwrap_or(&NONE);
            let pair = |name| (format!("[{name}]"), item(&old, name), item(&new, name));
            return names.into_iter().map(pair).collect();
        }
    }
    let longest = old.len().max(new.len());
    let item = |list: &'a [Value], at| list.get(at).unwrap_or(NONE);
    let pair = |at| (format!("[{at}]"), item(old, at), item(new, at));
    (0..longest).map(pair).collect()
}

/// Returns the items by the value of a field, if it identifies them.
fn named<'a>(list: &'a [Value], field: &str) -> Option<BTreeMap<&'a str, &'a Value>> {
    let named: Option<BTreeMap<_, _>> = list
        .iter()
        .map(|item| Some((item.get(field)?.as_str()?, item)))
        .collect();
    named.filter(|named| named.len() == list.len())
}

#[cfg(test)]
mod tests;
