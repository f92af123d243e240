//! JSON patches for changes of typed objects.

use serde_json::{Map, Value, json};

/// Returns the JSON patch that applies the change from `before` to `after` to `document`.
///
/// `before` and `after` are typed views of the document: they drop unknown fields and add defaults.
/// The patch must contain neither difference.
pub(super) fn patch(document: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut changed = document.clone();
    transfer(&mut changed, before, after);
    let mut operations = Vec::new();
    diff("", document, &changed, &mut operations);
    operations
}

/// Applies the difference between two views to a document.
fn transfer(document: &mut Value, before: &Value, after: &Value) {
    if let (Value::Array(list), Value::Array(old), Value::Array(new)) =
        (&mut *document, before, after)
        && list.len() == old.len()
        && old != new
    {
        *list = transferred(list, old, new);
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            *document = after.clone();
        }
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(document) = document else {
        return;
    };
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        document.remove(name);
    }
    for (name, value) in new {
        let before = old.get(name);
        if before == Some(value) {
            continue;
        }
        let place = document.entry(name.clone()).or_insert(Value::Null);
        transfer(place, before.unwrap_or(&Value::Null), value);
    }
}

/// Returns a list with the items of `new`. Each keeps unknown fields of the old item it matches.
/// Items are matched by equality, then by `name`, then by index if the lengths are equal.
fn transferred(list: &[Value], old: &[Value], new: &[Value]) -> Vec<Value> {
    let mut origins: Vec<Option<usize>> = vec![None; new.len()];
    let mut used = vec![false; old.len()];
    let same_name = |a: &Value, b: &Value| a["name"].is_string() && a["name"] == b["name"];
    let same_length = old.len() == new.len();
    let rules: [&dyn Fn(usize, usize) -> bool; 3] = [
        &|i, j| old[j] == new[i],
        &|i, j| same_name(&old[j], &new[i]),
        &|i, j| i == j && same_length,
    ];
    for matches in rules {
        for (i, origin) in origins.iter_mut().enumerate() {
            if origin.is_none() {
                *origin = (0..old.len()).find(|j| !used[*j] && matches(i, *j));
                if let Some(j) = *origin {
                    used[j] = true;
                }
            }
        }
    }
    let items = new.iter().zip(origins).map(|(item, origin)| match origin {
        Some(j) => {
            let mut changed = list[j].clone();
            transfer(&mut changed, &old[j], item);
            changed
        }
        None => item.clone(),
    });
    items.collect()
}

/// Appends the operations that turn one document into another. Lists are replaced as a whole.
fn diff(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        if from != to {
            operations.push(json!({"op": "replace", "path": path, "value": to}));
        }
        return;
    };
    let at = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        operations.push(json!({"op": "remove", "path": at(name)}));
    }
    for (name, value) in new {
        match old.get(name) {
            Some(before) => diff(&at(name), before, value, operations),
            None => operations.push(json!({"op": "add", "path": at(name), "value": value})),
        }
    }
}

#[cfg(test)]
mod tests;
