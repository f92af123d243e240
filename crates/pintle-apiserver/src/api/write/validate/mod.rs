//! Validation: names and metadata, the schema, and the rules of the kind.

pub(crate) mod rules;

use std::sync::Arc;

use serde_json::Value;

use super::{Attributes, Part};
use crate::{
    api::ApiError,
    meta::{self, Tree},
    patch::go_text,
    registry::{Resource, crd::LazySchema},
    schema::{
        field::{FieldError, Path},
        structural::{Findings, Structural},
    },
};

/// Validates an object that is about to be stored, against the stored one if there is one.
pub(super) async fn object(
    write: &Attributes<'_>,
    object: &Value,
    stored: Option<&Value>,
) -> Result<(), ApiError> {
    let Attributes { resource, part, .. } = *write;
    let hooks = resource.hooks;
    let (tree, old) = (meta::tree(object), stored.map(meta::tree));
    let rule = hooks.name_rule(stored.is_some());
    let rule = rule.unwrap_or(resource.name_rule);
    let core = resource.custom.is_none() && hooks.knows_plain_finalizers();
    let mut errors = meta::check(tree, rule, resource.namespaced, core);
    if let Some(old) = old {
        errors.extend(meta::check_update(tree, old));
    }
    match (&resource.custom, part) {
        (Some(custom), part) => {
            let old = old.map(|old| with_type(resource, old));
            let new = with_type(resource, tree);
            let scale = scale(&custom.version["subresources"]["scale"], part, &new);
            let found = custom_object(&custom.schema, part, new, old, scale).await;
            errors.extend(found.errors);
            for warning in found.warnings {
                write.options.warnings.add(warning);
            }
        }
        (None, _) => errors = own_rules(resource, part, object, stored, errors).await?,
    }
    if errors.is_empty() {
        return Ok(());
    }
    let group = hooks.error_group().unwrap_or(&resource.group);
    let name = meta::text(tree, "name");
    Err(ApiError::invalid(group, &resource.kind, name, errors))
}

/// Applies the rules of a built-in kind. Compiling what a large object contains may take long, so
/// it happens on a separate thread, where it does not delay other requests.
async fn own_rules(
    resource: &Arc<Resource>,
    part: Part,
    object: &Value,
    stored: Option<&Value>,
    mut errors: Vec<FieldError>,
) -> Result<Vec<FieldError>, ApiError> {
    fn apply(
        resource: &Resource,
        part: Part,
        object: &Value,
        stored: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        match (part, stored) {
            (Part::Status, _) => errors.extend(resource.rules.status(object)),
            (Part::Main, Some(stored)) => errors.extend(resource.rules.update(object, stored)),
            (Part::Main, None) => errors.extend(resource.rules.create(object)),
            (Part::EphemeralContainers, Some(stored)) => {
                errors.extend(rules::ephemeral_containers(object, stored));
            }
            _ => {}
        }
        let (tree, old) = (meta::tree(object), stored.map(meta::tree));
        resource.hooks.validate(part, tree, old, errors)
    }
    let handle = tokio::runtime::Handle::try_current();
    let (Ok(handle), true) = (handle, resource.hooks.compiles() && is_large(object)) else {
        apply(resource, part, object, stored, &mut errors)?;
        return Ok(errors);
    };
    let (resource, object, stored) = (Arc::clone(resource), object.clone(), stored.cloned());
    let done = handle.spawn_blocking(move || {
        apply(&resource, part, &object, stored.as_ref(), &mut errors)?;
        Ok::<_, ApiError>(errors)
    });
    done.await.unwrap_or_else(|_| {
        let why = "the object could not be validated";
        Ok(vec![FieldError::invalid(Path::Root, Value::Null, why)])
    })
}

/// Returns true if an object has many values or long strings.
fn is_large(object: &Value) -> bool {
    const LARGE: usize = 16 * 1024;
    let mut open = vec![object];
    let mut size = 0;
    while let Some(value) = open.pop() {
        size += match value {
            Value::String(text) => text.len(),
            _ => 8,
        };
        if size > LARGE {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.values()),
            _ => {}
        }
    }
    false
}

/// Validates a custom resource. Rules over many values may take long, so they run on a separate
/// thread, where they do not delay other requests.
async fn custom_object(
    schema: &Arc<LazySchema>,
    part: Part,
    new: Value,
    old: Option<Value>,
    scale: Vec<FieldError>,
) -> Findings {
    let run = move |schema: &Structural, new: &Value, old: Option<&Value>| match part {
        Part::Status => schema.validate_status(new, old, scale),
        _ => schema.validate_with(new, old, scale),
    };
    let handle = tokio::runtime::Handle::try_current();
    let (Ok(handle), true) = (handle, schema.rules_may_take_long(&new)) else {
        return run(schema, &new, old.as_ref());
    };
    let schema = schema.clone();
    let done = handle.spawn_blocking(move || run(&schema, &new, old.as_ref()));
    done.await.unwrap_or_else(|_| {
        let why = "validation rules could not be evaluated";
        Findings {
            errors: vec![FieldError::invalid(Path::Root, Value::Null, why)],
            warnings: Vec::new(),
        }
    })
}

/// Returns the object with its type, as the schema of a CRD describes it.
fn with_type(resource: &Resource, object: &Tree) -> Value {
    let mut object = object.clone();
    object.insert("apiVersion".into(), resource.api_version().into());
    object.insert("kind".into(), resource.kind.clone().into());
    Value::Object(object)
}

/// Validates the values that the scale subresource shows: replicas and selector.
pub(crate) fn scale(scale: &Value, part: Part, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut number = |name: &str| {
        let Some(path) = scale[name].as_str() else {
            return;
        };
        match nested(object, path, "int64", Value::as_i64) {
            Err(why) => errors.push(FieldError::invalid(path, 0, why)),
            Ok(Some(n)) if n < 0 => {
                errors.push(FieldError::invalid(
                    path,
                    n,
                    "should be a non-negative integer",
                ));
            }
            Ok(Some(n)) if n > i64::from(i32::MAX) => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(path, n, why));
            }
            Ok(_) => {}
        }
    };
    if part != Part::Status {
        number("specReplicasPath");
    }
    number("statusReplicasPath");
    if let Some(path) = scale["labelSelectorPath"].as_str()
        && let Err(why) = nested(object, path, "string", |value| value.as_str().map(drop))
    {
        errors.push(FieldError::invalid(path, "", why));
    }
    errors
}

/// Returns the value at a simple path, or why it does not have the wanted type.
fn nested<T>(
    object: &Value,
    path: &str,
    wanted: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let names: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let mut here = object;
    for (i, name) in names.iter().enumerate() {
        let Value::Object(map) = here else {
            let place = names[..=i].join(".");
            return Err(format!(
                ".{place} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                go_text(here),
                go_type(here)
            ));
        };
        match map.get(*name) {
            Some(value) => here = value,
            None => return Ok(None),
        }
    }
    read(here).map(Some).ok_or_else(|| {
        format!(
            ".{} accessor error: {} is of the type {}, expected {wanted}",
            names.join("."),
            go_text(here),
            go_type(here)
        )
    })
}

/// Names a JSON value's type like Go.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
