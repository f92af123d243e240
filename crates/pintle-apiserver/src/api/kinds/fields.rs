//! Access to nested fields of a JSON tree, for hooks that prepare objects.

use serde_json::{Value, json};

use crate::meta::Tree;

/// Returns a field that is a map.
pub(super) fn child<'a>(map: &'a mut Tree, name: &str) -> Option<&'a mut Tree> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

/// Returns a field that is a map, creating it if it is missing or null.
pub(super) fn ensure_map<'a>(map: &'a mut Tree, name: &str) -> Option<&'a mut Tree> {
    let value = map.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Returns a field that is a list, creating it if it is missing or null.
pub(super) fn ensure_list<'a>(map: &'a mut Tree, name: &str) -> Option<&'a mut Vec<Value>> {
    let value = map.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut()
}

/// Adds a string to a list unless it is already there.
pub(super) fn add(map: &mut Tree, list: &str, text: &str) {
    if let Some(items) = ensure_list(map, list)
        && !items.iter().any(|item| item == text)
    {
        items.push(text.into());
    }
}
