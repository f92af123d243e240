//! Validates the type and metadata of embedded resources, regardless of the schema.

use serde_json::{Map, Value, json};

use super::node::Node;
use crate::{
    meta::{self, NameRule},
    schema::field::{FieldError, Path},
};

/// Checks the type and metadata of embedded resources. If `resource` is set, the value itself is
/// treated as one.
pub(super) fn check(
    value: &Value,
    schema: &Node,
    at: &Path<'_>,
    resource: bool,
    errors: &mut Vec<FieldError>,
) {
    if !resource && !schema.has_embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if resource || schema.embedded {
                check_type(map, at, errors);
                check_metadata(map, at, errors);
            }
            for (name, value) in map {
                if let Some(below) = schema.properties.get(name) {
                    check(value, below, &at.child(name), false, errors);
                } else if let Some(below) = schema.additional_schema() {
                    check(value, below, &at.key(name), false, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    check(item, below, &at.index(i), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn check_type(map: &Map<String, Value>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let text = match map.get(name) {
            None => {
                errors.push(FieldError::required(at.child(name), ""));
                continue;
            }
            Some(Value::String(text)) => text,
            Some(other) => {
                let why = "must be a string";
                errors.push(FieldError::invalid(at.child(name), other.clone(), why));
                continue;
            }
        };
        let why = if text.is_empty() {
            "must not be empty".to_owned()
        } else if name == "kind" {
            match NameRule::Label1035.problems(&text.to_lowercase(), false) {
                problems if problems.is_empty() => continue,
                problems => format!(
                    "may have mixed case, but should otherwise match: {}",
                    problems.join(",")
                ),
            }
        } else if text.matches('/').count() > 1 {
            format!("unexpected GroupVersion string: {text}")
        } else {
            continue;
        };
        errors.push(FieldError::invalid(at.child(name), text.as_str(), why));
    }
}

fn check_metadata(map: &Map<String, Value>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(metadata)) = map.get("metadata") else {
        return;
    };
    let mut metadata = metadata.clone();
    let text = |metadata: &Map<String, Value>, name: &str| {
        let text = metadata.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    // A name is not required.
    if text(&metadata, "name").is_empty() {
        metadata.insert("name".into(), "fakename".into());
    }
    let namespaced = !text(&metadata, "namespace").is_empty();
    let object = json!({ "metadata": metadata });
    let found = meta::check(
        meta::tree(&object),
        NameRule::PathSegment,
        namespaced,
        false,
    );
    errors.extend(found.into_iter().map(|error| FieldError {
        field: at.child(&error.field).to_string(),
        ..error
    }));
}
