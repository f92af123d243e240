//! Applies the patch of a mutating webhook to an object on its way to the store.

use std::sync::Arc;

use serde_json::Value;

use super::{call::shown, matching::Invocation};
use crate::{
    admission::Request,
    api::{
        Api, ApiError, FieldValidation, Source, WriteOptions, check_metadata_types, prune,
        write::with_value,
    },
    meta::Tree,
    patch,
    registry::Resource,
    schema::{builtin, defaults, typed},
};

/// Applies a JSON patch to an object, in the version that the webhook has seen, and returns the
/// object in the form of the write. Applies the defaults of the patched version, and drops fields
/// that the storage version does not know.
pub(super) async fn patched(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    object: &Tree,
    operations: &Value,
) -> Result<Tree, ApiError> {
    let mut value = shown(api, request, invocation, Some(object)).await?;
    patch::json::apply(&mut value, operations).map_err(ApiError::internal)?;
    patched_object(api, request, invocation, value).await
}

/// Decodes a patched object from the version that a webhook or policy has seen to the form of the
/// write.
pub(in crate::admission) async fn patched_object(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    value: Value,
) -> Result<Tree, ApiError> {
    let Value::Object(mut tree) = value else {
        let why = "json: cannot unmarshal the patched document into an object";
        return Err(ApiError::internal(why));
    };
    tree.remove("apiVersion");
    tree.remove("kind");
    match tree.get("metadata") {
        None | Some(Value::Object(_) | Value::Null) => {}
        Some(_) => return Err(ApiError::internal("metadata: an object is expected")),
    }
    check_metadata_types(&tree).map_err(|error| ApiError::internal(error.message()))?;
    if let Some(kind) = request.exchanged {
        return decoded(kind.group, kind.version, kind.kind, tree);
    }
    let (seen, own) = (&invocation.resource, request.resource);
    let Some(custom) = seen.custom.as_ref().filter(|_| !Arc::ptr_eq(seen, own)) else {
        pruned(seen, &mut tree)?;
        let tree = seen.to_stored(tree);
        if Arc::ptr_eq(seen, own) {
            return Ok(tree);
        }
        return api.convert_between(seen, own, tree).await;
    };
    with_value(&mut tree, |value| _ = custom.schema.default(value));
    let tree = api.convert_between(seen, own, tree).await?;
    if own.is_converted() {
        return Ok(tree);
    }
    Ok(own.pruned(own.storage_version(), tree))
}

/// Drops unknown fields of an object and applies defaults.
fn pruned(resource: &Resource, tree: &mut Tree) -> Result<(), ApiError> {
    let options = WriteOptions {
        field_validation: FieldValidation::Ignore,
        ..WriteOptions::default()
    };
    prune(resource, tree, Source::CLEAN, &options).map_err(|error| {
        // Keep only the decoder's reason: its prefix is about request bodies.
        let message = error.message();
        let why = message.split_once(" cannot be handled as a ");
        let why = why.and_then(|(_, rest)| rest.split_once(": "));
        ApiError::internal(why.map_or(message, |(_, why)| why))
    })
}

/// Decodes an object of a kind that is not stored.
fn decoded(group: &str, version: &str, kind: &str, tree: Tree) -> Result<Tree, ApiError> {
    let mut value = Value::Object(tree);
    if let Some(ty) = builtin::kind(group, version, kind) {
        typed::canonicalize(&mut value, ty).map_err(ApiError::internal)?;
        defaults::apply(&mut value, ty);
    }
    match value {
        Value::Object(tree) => Ok(tree),
        _ => Ok(Tree::new()),
    }
}
