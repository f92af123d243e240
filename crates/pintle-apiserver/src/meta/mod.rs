//! Object metadata: accessors, validation, and label and field selectors.

pub(crate) mod field_selector;
pub(crate) mod label_selector;
pub(crate) mod names;
mod object_meta;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(crate) use self::{
    label_selector::LabelSelector,
    names::NameRule,
    object_meta::{check, check_annotations, check_labels, check_update, finalizer_warnings},
};

/// An object as a JSON tree.
pub(crate) type Tree = Map<String, Value>;

/// Returns the fields of an object, or an empty map if `object` is not one.
pub(crate) fn tree(object: &Value) -> &Tree {
    static NONE: LazyLock<Tree> = LazyLock::new(Tree::new);
    object.as_object().unwrap_or(&NONE)
}

/// Returns the metadata of an object, creating it if it is missing or not a map.
pub(crate) fn metadata(object: &mut Tree) -> &mut Tree {
    let entry = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    match entry {
        Value::Object(map) => map,
        _ => unreachable!("replaced by a map above"),
    }
}

/// Returns a string field of `metadata`, or the empty string.
pub(crate) fn text<'a>(object: &'a Tree, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the finalizers of an object.
pub(crate) fn finalizers(object: &Tree) -> Vec<&str> {
    match object.get("metadata").and_then(|m| m.get("finalizers")) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns true if the object has a `deletionTimestamp`.
pub(crate) fn is_deleting(object: &Tree) -> bool {
    object
        .get("metadata")
        .and_then(|m| m.get("deletionTimestamp"))
        .is_some_and(|v| !v.is_null())
}

/// Sets `metadata.generation`.
pub(crate) fn set_generation(object: &mut Tree, generation: i64) {
    metadata(object).insert("generation".into(), generation.into());
}

/// Returns `metadata.generation`, or 0.
pub(crate) fn generation(object: &Tree) -> i64 {
    object
        .get("metadata")
        .and_then(|m| m.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}
