//! Namespaces: their lifecycle, and whether an object may be created in one.

use pintle_clock::Clock;
use serde_json::{Value, json};

use super::{
    Kind,
    fields::{add, ensure_map},
};
use crate::{
    api::{Api, ApiError, write::Part},
    meta::{self, Tree},
    registry::Resource,
};

/// Namespaces that cannot be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `namespaces`.
#[derive(Debug)]
pub(super) struct Namespaces;

impl Kind for Namespaces {
    fn is_namespace(&self) -> bool {
        true
    }

    /// Labels a namespace with its name, and holds it until its content is gone.
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        if let Some(spec) = ensure_map(object, "spec") {
            add(spec, "finalizers", "kubernetes");
        }
        let name = meta::text(object, "name").to_owned();
        let labels = meta::metadata(object)
            .entry("labels")
            .or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = name.into();
    }

    /// Keeps `spec.finalizers`, which only `/finalize` changes.
    fn prepare_update(&self, part: Part, object: &mut Tree, stored: &Tree, _clock: &Clock) {
        if part != Part::Main {
            return;
        }
        if let Some(finalizers) = stored.get("spec").and_then(|spec| spec.get("finalizers")) {
            if !object.get("spec").is_some_and(Value::is_object) {
                object.insert("spec".into(), json!({}));
            }
            object["spec"]["finalizers"] = finalizers.clone();
        }
    }

    fn check_delete(&self, name: &str) -> Result<(), ApiError> {
        if !UNDELETABLE.contains(&name) {
            return Ok(());
        }
        let why = "this namespace may not be deleted";
        Err(ApiError::forbidden("", "namespaces", name, why))
    }

    fn prepare_delete(&self, object: &mut Tree, _clock: &Clock) {
        if !meta::is_deleting(object) {
            let status = object.entry("status").or_insert_with(|| json!({}));
            status["phase"] = "Terminating".into();
        }
    }

    fn has_own_lifecycle(&self) -> bool {
        true
    }

    /// Returns true while `spec.finalizers` is not empty.
    fn is_held(&self, object: &Tree) -> bool {
        let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
        finalizers
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    }
}

impl Api {
    /// Checks that `namespace` exists and accepts new objects.
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
