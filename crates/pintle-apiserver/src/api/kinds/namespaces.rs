//! What the server itself knows of namespaces: their life cycle, and what may be created in them.

use serde_json::{Value, json};

use crate::api::{Api, ApiError};
use crate::{
    meta::{self, Tree},
    registry::Resource,
};

/// Namespaces that cannot be deleted.
pub(crate) const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Api {
    /// Whether an object may be created in `namespace`.
    pub(crate) fn check_namespace(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<(), ApiError> {
        let (true, Some(namespace)) = (resource.namespaced, namespace) else {
            return Ok(());
        };
        let stored = self
            .registry
            .builtin_collection("", "namespaces")
            .and_then(|collection| self.store.get(collection, namespace));
        match stored {
            None => Err(ApiError::not_found("", "namespaces", namespace)),
            Some(object) if object.header().deleting => Err(ApiError::namespace_terminating(
                &resource.group,
                &resource.plural,
                name,
                namespace,
            )),
            Some(_) => Ok(()),
        }
    }
}

/// A namespace carries its name as a label.
pub(crate) fn label(object: &mut Tree) {
    let name = meta::text(object, "name").to_owned();
    let labels = meta::metadata(object)
        .entry("labels")
        .or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
}

/// A plain update cannot touch a namespace's own finalizers.
pub(crate) fn keep_finalizers(object: &mut Tree, stored: &Tree) {
    if let Some(kept) = stored.get("spec").and_then(|spec| spec.get("finalizers")) {
        if !object.get("spec").is_some_and(Value::is_object) {
            object.insert("spec".into(), json!({}));
        }
        object["spec"]["finalizers"] = kept.clone();
    }
}

/// Whether the namespace's own finalizers hold it.
pub(crate) fn has_finalizers(object: &Tree) -> bool {
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
    finalizers
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}
