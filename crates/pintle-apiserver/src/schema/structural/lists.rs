//! Lists that are sets or maps hold each item once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::Node;
use crate::schema::field::{FieldError, Path};

/// Every item that stands twice in a list of type `set` or `map`, told at its second place.
pub(super) fn duplicates(value: &Value, schema: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &Path::Root, &mut errors);
    errors
}

fn walk(value: &Value, schema: &Node, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if let Some(below) = schema.additional_schema() {
                for (name, value) in map {
                    walk(value, below, &path.key(name), errors);
                }
            }
            for (name, value) in map {
                if let Some(below) = schema.properties.get(name) {
                    walk(value, below, &path.child(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    for i in repeated(items.iter()) {
                        errors.push(FieldError::duplicate(path.index(i), items[i].clone()));
                    }
                }
                Some("map") => keyed(items, &schema.list_map_keys, path, errors),
                _ => {}
            }
            if let Some(below) = schema.items.as_deref() {
                for (i, item) in items.iter().enumerate() {
                    walk(item, below, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn keyed(items: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let odd = items
        .iter()
        .position(|item| !item.is_object() && !item.is_null());
    if let Some(i) = odd {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i), items[i].clone(), detail));
        return;
    }
    let of = |item: &Value| -> Value {
        let named = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(named.collect::<Map<_, _>>())
    };
    let identities: Vec<Value> = items.iter().map(of).collect();
    for i in repeated(identities.iter()) {
        errors.push(FieldError::duplicate(path.index(i), identities[i].clone()));
    }
}

/// The place where each repeated value stands for the second time.
fn repeated<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut second = Vec::new();
    for (i, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            second.push(i);
        }
    }
    second
}
