//! Decodes the type and metadata of embedded resources, whose form does not depend on the schema.

use std::sync::LazyLock;

use serde_json::Value;

use super::node::Node;
use crate::schema::{
    builtin::{TypeRef, named},
    field::{FieldError, Path},
    typed,
};

static METADATA: LazyLock<Option<TypeRef>> =
    LazyLock::new(|| named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));

/// Drops unknown metadata of embedded resources and adds its paths to `unknown`. If `resource` is
/// set, the value itself is treated as one. Fails if a field has the wrong type.
pub(super) fn coerce(
    value: &mut Value,
    schema: &Node,
    at: &Path<'_>,
    resource: bool,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !resource && !schema.has_embedded {
        return Ok(());
    }
    match value {
        Value::Object(map) => {
            if resource || schema.embedded {
                for name in ["apiVersion", "kind"] {
                    if let Some(found) = map.get(name).filter(|found| !found.is_string()) {
                        let why = "must be a string";
                        return Err(FieldError::invalid(at.child(name), found.clone(), why));
                    }
                }
                if let Some(found) = map.get_mut("metadata") {
                    metadata(found, at, unknown)?;
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(below) = schema.properties.get(name) {
                    coerce(value, below, &at.child(name), false, unknown)?;
                } else if let Some(below) = schema.additional_schema() {
                    coerce(value, below, &at.key(name), false, unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                for (i, item) in items.iter_mut().enumerate() {
                    coerce(item, below, &at.index(i), false, unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Drops unknown metadata of the resource at `at` and adds its paths to `unknown`. Fails if a field
/// has the wrong type.
pub(super) fn metadata(
    metadata: &mut Value,
    at: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let Some(ty) = *METADATA else {
        return Ok(());
    };
    let here = at.child("metadata");
    let sent = metadata.clone();
    match typed::canonicalize(metadata, ty) {
        Ok(found) => {
            unknown.extend(found.iter().map(|name| format!("{here}.{name}")));
            Ok(())
        }
        Err(why) => Err(FieldError::invalid(here, sent, why.to_string())),
    }
}
