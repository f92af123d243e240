//! Pruning of unspecified fields and defaulting.

use serde_json::Value;

use super::node::{Additional, Node};
use crate::schema::field_paths::FieldPaths;

/// Fields that every object has without its schema saying so.
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

/// Drops every field that the schema does not specify, and returns their paths. `apiVersion`,
/// `kind` and `metadata` are preserved at the root and in embedded resources.
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

/// Fills in defaults for fields that are missing, or null without being nullable.
pub(super) fn default(value: &mut Value, schema: &Node) {
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
                if missing {
                    map.insert(name.clone(), filler.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    default(value, property);
                } else if let Some(below) = schema.additional_schema() {
                    fill_null(value, below);
                    default(value, below);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = schema.items.as_deref() {
                for item in items {
                    fill_null(item, below);
                    default(item, below);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Node) {
    if value.is_null()
        && !schema.nullable
        && let Some(filler) = &schema.default
    {
        *value = filler.clone();
    }
}
