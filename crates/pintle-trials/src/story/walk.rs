//! Derives a story from one object and the schema of its kind.
//!
//! The story creates the object, changes its properties one at a time, resets all of them at once,
//! deletes the object and creates it again. Integers go up and down, booleans flip, enums take
//! another value, maps and labels gain a key, optional properties appear. Resetting the object
//! removes the additions, where controllers tend to leave children behind. Values that the API
//! server rejects are skipped.

use serde_json::{Map, Value};

use super::{Desired, Step};

/// The maximum number of changed properties.
const CHANGES: usize = 5;
/// The maximum depth of changed properties.
const DEPTH: usize = 3;

/// A change of one property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The path of the property, such as `spec.replicas`.
    pub(crate) path: Vec<String>,
    /// The new value.
    pub(crate) value: Value,
    /// Changes with a lower rank come first.
    rank: u8,
}

impl Change {
    pub(crate) fn describe(&self) -> String {
        let value = self.value.to_string();
        let value = if value.len() > 40 { "..." } else { &value };
        format!("set {} to {value}", self.path.join("."))
    }

    pub(crate) fn apply(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let mut at = &mut object;
        for part in &self.path {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[part.as_str()];
        }
        *at = self.value.clone();
        object
    }
}

/// Returns the schema of the version that the object has.
fn schema_of<'a>(crd: &'a Value, version: &str) -> Option<&'a Value> {
    let versions = crd["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|it| it["name"] == version)?;
    Some(&version["schema"]["openAPIV3Schema"])
}

/// Returns changes of the object's properties, the most useful first.
pub(crate) fn changes(object: &Desired, crd: Option<&Value>) -> Vec<Change> {
    let mut found = Vec::new();
    let none = Value::Null;
    let schema = crd.and_then(|crd| schema_of(crd, &object.kind.version));
    let schema = schema.unwrap_or(&none);
    if let Some(fields) = object.value.as_object() {
        for (name, value) in fields {
            if matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
                continue;
            }
            let path = vec![name.clone()];
            walk(&schema["properties"][name], value, &path, DEPTH, &mut found);
        }
    }
    let mut labels = object.value["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    labels.insert("trials".to_owned(), "b".into());
    found.push(Change {
        path: vec!["metadata".to_owned(), "labels".to_owned()],
        value: labels.into(),
        rank: 2,
    });
    found.sort_by_key(|change| change.rank);
    found
}

fn walk(schema: &Value, value: &Value, path: &[String], depth: usize, found: &mut Vec<Change>) {
    let mut add = |value: Value, rank| {
        found.push(Change {
            path: path.to_vec(),
            value,
            rank,
        });
    };
    if let Some(options) = schema["enum"].as_array() {
        if let Some(other) = options.iter().find(|it| *it != value && !it.is_null()) {
            add(other.clone(), 1);
        }
        return;
    }
    match value {
        Value::Bool(on) => add((!on).into(), 0),
        Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
                let least = schema["minimum"].as_i64().unwrap_or(0);
                if number < most {
                    add(number.saturating_add(2).min(most).into(), 0);
                }
                if number > least {
                    add((number - 1).into(), 0);
                }
            }
        }
        Value::String(text) => {
            if let Some(other) = other_text(text) {
                add(other.into(), 3);
            }
        }
        Value::Array(items) => {
            if items.len() > 1 {
                add(items[..items.len() - 1].to_vec().into(), 1);
            }
            if let Some(Value::String(last)) = items.last() {
                let mut more = items.clone();
                more.push(format!("{last}-b").into());
                add(more.into(), 1);
            }
        }
        Value::Object(fields) => {
            if schema["additionalProperties"]["type"] == "string" {
                let mut more = fields.clone();
                more.insert("trials".to_owned(), "b".into());
                add(more.into(), 1);
                return;
            }
            if depth == 0 {
                return;
            }
            for (name, value) in fields {
                let mut path = path.to_vec();
                path.push(name.clone());
                walk(&schema["properties"][name], value, &path, depth - 1, found);
            }
            absent(schema, fields, path, found);
        }
        Value::Null => {}
    }
}

/// Adds optional properties that the object does not have.
fn absent(schema: &Value, fields: &Map<String, Value>, path: &[String], found: &mut Vec<Change>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if fields.contains_key(name) {
            continue;
        }
        let value: Value = match schema["type"].as_str() {
            _ if schema["enum"].is_array() => schema["enum"][0].clone(),
            Some("boolean") => true.into(),
            Some("integer") => schema["minimum"].as_i64().unwrap_or(1).max(1).into(),
            Some("string") if schema["format"].is_null() && schema["pattern"].is_null() => {
                "b".into()
            }
            Some("object") if schema["additionalProperties"]["type"] == "string" => {
                serde_json::json!({"trials": "b"})
            }
            Some("array") if schema["items"]["type"] == "string" => serde_json::json!(["b"]),
            _ => continue,
        };
        if value.is_null() || schema["default"] == value {
            continue;
        }
        let mut path = path.to_vec();
        path.push(name.clone());
        found.push(Change {
            path,
            value,
            rank: 4,
        });
    }
}

/// Returns a different string of the same shape.
fn other_text(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0
        && digits < 10
        && text[digits..]
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic())
    {
        let number: u64 = text[..digits].parse().ok()?;
        return Some(format!("{}{}", number + 1, &text[digits..]));
    }
    if text.is_empty() {
        return None;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    Some(if text.bytes().all(plain) {
        format!("{text}-b")
    } else {
        format!("{text} b")
    })
}

/// Returns the story. `accepts` returns whether the API server accepts an object.
pub(crate) fn story(
    base: &Desired,
    changes: Vec<Change>,
    mut accepts: impl FnMut(&Value) -> bool,
) -> Vec<Step> {
    let title = base.title();
    let apply = |value: &Value, what: String| {
        let object = Desired {
            value: value.clone(),
            ..base.clone()
        };
        Step::Apply(object, what)
    };
    let mut steps = vec![apply(&base.value, format!("create {title}"))];
    let mut current = base.value.clone();
    for change in changes {
        if steps.len() > CHANGES {
            break;
        }
        let next = change.apply(&current);
        if next != current && accepts(&next) {
            steps.push(apply(&next, change.describe()));
            current = next;
        }
    }
    if current != base.value {
        steps.push(apply(&base.value, format!("set {title} back")));
    }
    steps.push(Step::Delete(base.clone()));
    steps.push(apply(&base.value, format!("recreate {title}")));
    steps
}

#[cfg(test)]
mod tests;
