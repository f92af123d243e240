//! Validation: names and metadata, the schema, and the rules of the kind.

pub(crate) mod rules;

use serde_json::Value;

use super::{Attributes, Part};
use crate::{
    api::ApiError,
    meta::{self, Tree},
    registry::Resource,
};

/// Validates an object that is about to be stored, against the stored one if there is one.
pub(super) fn object(
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
            errors.extend(match part {
                Part::Status => custom.schema.validate_status(&new, old.as_ref()),
                _ => custom.schema.validate(&new, old.as_ref()),
            });
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

/// Returns the object with its type, as the schema of a CRD describes it.
fn with_type(resource: &Resource, object: &Tree) -> Value {
    let mut object = object.clone();
    object.insert("apiVersion".into(), resource.api_version().into());
    object.insert("kind".into(), resource.kind.clone().into());
    Value::Object(object)
}
