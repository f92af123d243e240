//! Validation: names and metadata, the schema, and the rules of the kind.

pub(crate) mod rules;

use std::sync::Arc;

use serde_json::Value;

use super::{Attributes, Part};
use crate::{
    api::ApiError,
    meta::{self, Tree},
    registry::Resource,
    schema::{
        field::{FieldError, Path},
        structural::Structural,
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
    let mut errors = meta::check(tree, rule, resource.namespaced, resource.custom.is_none());
    if let Some(old) = old {
        errors.extend(meta::check_update(tree, old));
    }
    match (&resource.custom, part) {
        (Some(custom), part) => {
            let old = old.map(|old| with_type(resource, old));
            let new = with_type(resource, tree);
            errors.extend(custom_object(&custom.schema, part, new, old).await);
        }
        (None, Part::Status) => errors.extend(resource.rules.status(object)),
        (None, Part::Main) => errors.extend(match stored {
            Some(stored) => resource.rules.update(object, stored),
            None => resource.rules.create(object),
        }),
        _ => {}
    }
    hooks.validate(part, tree, old, &mut errors)?;
    if errors.is_empty() {
        return Ok(());
    }
    let group = hooks.error_group().unwrap_or(&resource.group);
    let name = meta::text(tree, "name");
    Err(ApiError::invalid(group, &resource.kind, name, errors))
}

/// Validates a custom resource. Rules over many values may take long, so they run on a thread of
/// their own, where they do not delay other requests.
async fn custom_object(
    schema: &Arc<Structural>,
    part: Part,
    new: Value,
    old: Option<Value>,
) -> Vec<FieldError> {
    let run = move |schema: &Structural, new: &Value, old: Option<&Value>| match part {
        Part::Status => schema.validate_status(new, old),
        _ => schema.validate(new, old),
    };
    let handle = tokio::runtime::Handle::try_current();
    let (Ok(handle), true) = (handle, schema.rules_may_take_long(&new)) else {
        return run(schema, &new, old.as_ref());
    };
    let schema = schema.clone();
    let done = handle.spawn_blocking(move || run(&schema, &new, old.as_ref()));
    done.await.unwrap_or_else(|_| {
        let why = "validation rules could not be evaluated";
        vec![FieldError::invalid(Path::Root, Value::Null, why)]
    })
}

/// Returns the object with its type, as the schema of a CRD describes it.
fn with_type(resource: &Resource, object: &Tree) -> Value {
    let mut object = object.clone();
    object.insert("apiVersion".into(), resource.api_version().into());
    object.insert("kind".into(), resource.kind.clone().into());
    Value::Object(object)
}
