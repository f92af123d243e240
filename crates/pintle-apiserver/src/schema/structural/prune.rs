//! Pruning of unspecified fields and defaulting.

use serde_json::Value;

use super::node::{Additional, Node};
use crate::schema::field_paths::FieldPaths;

/// Fields that every object has, whether or not its schema specifies them.
pub(super) const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The path of the current field, and the unknown fields found so far.
#[derive(Default)]
struct Walk {
    path: String,
    unknown: FieldPaths,
}

impl Walk {
    /// Runs `f` one field deeper.
    fn inside(&mut self, name: &str, f: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        f(self);
        self.path.truncate(length);
    }

    fn item(&mut self, index: usize, f: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('[');
        self.path.push_str(&index.to_string());
        self.path.push(']');
        f(self);
        self.path.truncate(length);
    }

    fn record(&mut self, name: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.unknown.add([self.path.as_str(), dot, name]);
    }
}

/// Drops every field that the schema does not specify. Returns the sorted paths of these fields, at
/// most `MAX_PATHS`. `apiVersion`, `kind` and `metadata` are preserved at the root and in embedded
/// resources.
pub(super) fn prune(value: &mut Value, schema: &Node, root: bool) -> Vec<String> {
    let mut walk = Walk::default();
    walk.prune(value, Some(schema), root);
    let mut unknown = walk.unknown.into_vec();
    unknown.sort();
    unknown
}

impl Walk {
    fn prune(&mut self, value: &mut Value, schema: Option<&Node>, root: bool) {
        match (value, schema) {
            (value, Some(schema)) if schema.preserve_unknown => self.preserve(value, schema, root),
            (Value::Object(map), Some(schema)) => {
                let resource = schema.embedded || root;
                let top = self.path.is_empty();
                map.retain(|name, value| {
                    let meta = META_FIELDS.contains(&name.as_str());
                    if resource && meta {
                        return true;
                    }
                    if let Some(property) = schema.properties.get(name) {
                        self.inside(name, |walk| walk.prune(value, Some(property), false));
                    } else if let Some(additional) = &schema.additional {
                        let below = match additional {
                            Additional::Schema(node) => Some(&**node),
                            Additional::Bool(_) => None,
                        };
                        self.inside(name, |walk| walk.prune(value, below, false));
                    } else {
                        if !(meta && top) {
                            self.record(name);
                        }
                        return false;
                    }
                    true
                });
            }
            (Value::Object(map), None) => {
                for name in map.keys() {
                    self.record(name);
                }
                map.clear();
            }
            (Value::Array(items), schema) => {
                let below = schema.and_then(|schema| schema.items.as_deref());
                for (i, item) in items.iter_mut().enumerate() {
                    self.item(i, |walk| walk.prune(item, below, false));
                }
            }
            _ => {}
        }
    }

    /// Preserves unknown fields here, but prunes specified ones by their own schema.
    fn preserve(&mut self, value: &mut Value, schema: &Node, root: bool) {
        match value {
            Value::Object(map) => {
                let resource = schema.embedded || root;
                for (name, value) in map.iter_mut() {
                    if resource && META_FIELDS.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(property) = schema.property(name) {
                        self.inside(name, |walk| walk.prune(value, Some(property), false));
                    } else if schema.additional.is_some() {
                        self.inside(name, |walk| walk.prune(value, None, false));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(below) = schema.items.as_deref() {
                    for (i, item) in items.iter_mut().enumerate() {
                        self.item(i, |walk| walk.preserve(item, below, false));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Drops nulls where the schema is not nullable and has no default to replace them.
pub(super) fn prune_nulls(value: &mut Value, schema: Option<&Node>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let below = schema.and_then(|schema| schema.property(name));
            let invalid = below.is_some_and(|node| !node.nullable && node.default.is_none());
            if value.is_null() && invalid {
                return false;
            }
            prune_nulls(value, below);
            true
        }),
        Value::Array(items) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                prune_nulls(item, below);
            }
        }
        _ => {}
    }
}

/// How much defaults may add to an object, in bytes of JSON. Once it is used up, further defaults
/// are left out: a large default for each of many items would exhaust the memory, and no object of
/// this size can be stored.
const MAX_DEFAULTS: usize = 3 * 1024 * 1024;

/// Fills in defaults for fields that are missing, or null without being nullable. Returns false if
/// the limit on their size was reached.
pub(super) fn default(value: &mut Value, schema: &Node) -> bool {
    let mut left = MAX_DEFAULTS;
    fill(value, schema, &mut left);
    left > 0
}

/// Deducts the size of a default from the remaining room. Returns false if none was left.
fn fits(filler: &Value, left: &mut usize) -> bool {
    let fits = *left > 0;
    *left = left.saturating_sub(size(filler));
    fits
}

/// Returns a lower bound for the size of a value in bytes of JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 1,
        Value::Object(map) => {
            let members = map.iter().map(|(name, value)| name.len() + 3 + size(value));
            members.sum::<usize>() + 2
        }
    }
}

fn fill(value: &mut Value, schema: &Node, left: &mut usize) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(filler) = &property.default else {
                    continue;
                };
                let missing = match map.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.nullable,
                };
                if missing && fits(filler, left) {
                    map.insert(name.clone(), filler.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    fill(value, property, left);
                } else if let Some(below) = schema.additional_schema() {
                    fill_null(value, below, left);
                    fill(value, below, left);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = schema.items.as_deref() {
                for item in items {
                    fill_null(item, below, left);
                    fill(item, below, left);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Node, left: &mut usize) {
    if value.is_null()
        && !schema.nullable
        && let Some(filler) = &schema.default
        && fits(filler, left)
    {
        *value = filler.clone();
    }
}

/// Returns true if pruning and defaulting would not change an object.
pub(super) fn is_settled(object: &Value, schema: &Node) -> bool {
    !has_unknown(object, Some(schema), true)
        && !has_invalid_nulls(object, Some(schema))
        && !lacks_defaults(object, schema)
}

/// Returns true if [`prune`] would drop a field.
fn has_unknown(value: &Value, schema: Option<&Node>, root: bool) -> bool {
    match (value, schema) {
        (value, Some(schema)) if schema.preserve_unknown => {
            preserved_has_unknown(value, schema, root)
        }
        (Value::Object(map), Some(schema)) => {
            let resource = schema.embedded || root;
            map.iter().any(|(name, value)| {
                if resource && META_FIELDS.contains(&name.as_str()) {
                    return false;
                }
                match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => has_unknown(value, Some(property), false),
                    (None, Some(Additional::Schema(node))) => has_unknown(value, Some(node), false),
                    (None, Some(Additional::Bool(_))) => has_unknown(value, None, false),
                    (None, None) => true,
                }
            })
        }
        (Value::Object(map), None) => !map.is_empty(),
        (Value::Array(items), schema) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            items.iter().any(|item| has_unknown(item, below, false))
        }
        _ => false,
    }
}

/// Like [`has_unknown`], where unknown fields are preserved.
fn preserved_has_unknown(value: &Value, schema: &Node, root: bool) -> bool {
    match value {
        Value::Object(map) => {
            let resource = schema.embedded || root;
            map.iter().any(|(name, value)| {
                if resource && META_FIELDS.contains(&name.as_str()) {
                    return false;
                }
                match schema.property(name) {
                    Some(property) => has_unknown(value, Some(property), false),
                    None => schema.additional.is_some() && has_unknown(value, None, false),
                }
            })
        }
        Value::Array(items) => schema.items.as_deref().is_some_and(|below| {
            let mut items = items.iter();
            items.any(|item| preserved_has_unknown(item, below, false))
        }),
        _ => false,
    }
}

/// Returns true if [`prune_nulls`] would drop a null.
fn has_invalid_nulls(value: &Value, schema: Option<&Node>) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| {
            let below = schema.and_then(|schema| schema.property(name));
            let invalid = below.is_some_and(|node| !node.nullable && node.default.is_none());
            value.is_null() && invalid || has_invalid_nulls(value, below)
        }),
        Value::Array(items) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            items.iter().any(|item| has_invalid_nulls(item, below))
        }
        _ => false,
    }
}

/// Returns true if [`default`] would fill in a field.
fn lacks_defaults(value: &Value, schema: &Node) -> bool {
    let lacks_below = |value: &Value, below: &Node| {
        value.is_null() && !below.nullable && below.default.is_some()
            || lacks_defaults(value, below)
    };
    match value {
        Value::Object(map) => {
            let missing = |(name, property): (&String, &Node)| {
                property.default.is_some() && !map.contains_key(name)
            };
            schema.properties.iter().any(missing)
                || map.iter().any(|(name, value)| {
                    let below = schema.property(name);
                    below.is_some_and(|below| lacks_below(value, below))
                })
        }
        Value::Array(items) => schema
            .items
            .as_deref()
            .is_some_and(|below| items.iter().any(|item| lacks_below(item, below))),
        _ => false,
    }
}
