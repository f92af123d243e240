//! Lists of type `set` and `map`: duplicate items, and matching items of old and new lists.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::Node;
use crate::schema::field::{FieldError, Path};

/// Reports every duplicate in lists of type `set` or `map`, at its second occurrence.
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

/// Returns the index of the second occurrence of each repeated value.
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

/// The old form of a value, with the schema that determines which of its parts correspond to new
/// ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Old<'a> {
    pub(super) value: &'a Value,
    pub(super) schema: &'a Node,
}

impl Old<'_> {
    /// Returns the old form of a field, if the schema specifies it.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        Some(Self {
            value: self.value.get(name)?,
            schema: self.schema.property(name)?,
        })
    }

    /// Returns true if nothing changed. As upstream, items of lists of type `map` are compared by
    /// their keys, in any order, and fields that the schema does not specify never equal old ones.
    pub(super) fn equals(self, new: &Value) -> bool {
        match (self.value, new) {
            (Value::Object(old), Value::Object(new)) => {
                let same = |(name, value): (&String, &Value)| {
                    self.field(name).is_some_and(|old| old.equals(value))
                };
                old.len() == new.len() && new.iter().all(same)
            }
            (Value::Array(old), Value::Array(new)) if self.is_map() => {
                let items = OldItems::of(Some(self));
                let same = |item| items.of_item(item).is_some_and(|old| old.equals(item));
                old.len() == new.len() && new.iter().all(same)
            }
            (old, new) => old == new,
        }
    }

    fn is_map(self) -> bool {
        self.schema.list_type.as_deref() == Some("map")
    }
}

/// Indexes the old items by their keys, so that each new item finds its predecessor in one look-up.
/// Empty unless the list is of type `map`, because other items have no identity.
pub(super) struct OldItems<'a> {
    keys: &'a [String],
    schema: Option<&'a Node>,
    items: BTreeMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(super) fn of(old: Option<Old<'a>>) -> Self {
        let old = old.filter(|old| old.is_map());
        let keys = old.map_or(&[][..], |old| &old.schema.list_map_keys);
        let mut items = BTreeMap::new();
        let all = old.and_then(|old| old.value.as_array());
        for item in all.into_iter().flatten() {
            // If several items have the same keys, use the first.
            items.entry(identity(item, keys)).or_insert(item);
        }
        Self {
            keys,
            schema: old.and_then(|old| old.schema.items.as_deref()),
            items,
        }
    }

    /// Returns the old item with the same keys.
    pub(super) fn of_item(&self, item: &Value) -> Option<Old<'a>> {
        if self.items.is_empty() {
            return None;
        }
        let value = self.items.get(&identity(item, self.keys)).copied()?;
        let schema = self.schema?;
        Some(Old { value, schema })
    }
}

/// Encodes the keys of an item. Encodings are equal if and only if the keys are.
fn identity(item: &Value, keys: &[String]) -> String {
    #[cfg(test)]
    IDENTIFIED.set(IDENTIFIED.get() + 1);
    let mut text = String::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            text.push_str(&value.to_string());
        }
        text.push(',');
    }
    text
}

#[cfg(test)]
thread_local! {
    /// Counts items identified on this thread, so that tests can measure work.
    static IDENTIFIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests;
