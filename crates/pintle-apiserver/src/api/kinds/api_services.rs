//! `APIServices`: one for each group and version the server serves.
//!
//! The objects of built-in groups exist from the start; the objects of CRDs are created and deleted
//! with them. The server rejects an `APIService` that names a Service: it does not implement API
//! aggregation.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Kind;
use crate::{
    api::{Api, ApiError, request::options::WriteOptions, write::Part},
    meta::{self, Tree},
    registry::{Group, Resource},
    schema::field::FieldError,
    store::{Change, Expect, Refused, key_of},
};

const GROUP: &str = "apiregistration.k8s.io";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The group and version priorities of CRDs.
const PRIORITIES: (i64, i64) = (1000, 100);

/// The versions of CRDs that have an `APIService`, by group.
#[derive(Debug, Default)]
pub(crate) struct Registered(Mutex<BTreeMap<String, Vec<String>>>);

impl Clone for Registered {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}

/// `apiregistration.k8s.io/apiservices`.
#[derive(Debug)]
pub(super) struct ApiServices;

impl Kind for ApiServices {
    /// Marks a new `APIService` as available: groups that the server itself serves always are.
    fn prepare_create(&self, service: &mut Tree, now: &str) {
        let available = json!({"conditions": [{"lastTransitionTime": now,
            "message": "Local APIServices are always available", "reason": "Local",
            "status": "True", "type": "Available"}]});
        service.insert("status".into(), available);
    }

    /// Rejects aggregation, and names and priorities that Kubernetes rejects.
    fn validate(
        &self,
        part: Part,
        service: &Tree,
        _stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        if part != Part::Main {
            return Ok(());
        }
        let name = meta::text(service, "name");
        let spec = service.get("spec").unwrap_or(&Value::Null);
        if !spec["service"].is_null() {
            return Err(ApiError::not_implemented(&format!(
                "API aggregation: APIService {name:?} must not have a spec.service"
            )));
        }
        let text = |field: &str| spec[field].as_str().unwrap_or_default();
        let wanted = format!("{}.{}", text("version"), text("group"));
        if name != wanted {
            let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
        for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec[field].as_i64().unwrap_or(0);
            if !(1..=max).contains(&priority) {
                let why = format!("must be positive and less than {max}");
                let field = format!("spec.{field}");
                errors.push(FieldError::invalid(field, priority, why));
            }
        }
        Ok(())
    }
}

impl Api {
    /// Creates and deletes the `APIServices` of a group of CRDs to match the versions it serves.
    pub(crate) fn register_group(&self, group: &str) {
        // Hold the lock throughout, so that the last caller to read the catalog is the last to
        // write.
        let mut registered = self.registered.0.lock();
        let catalog = self.registry.catalog();
        let Some(resource) = catalog.find(GROUP, "v1", "apiservices") else {
            return;
        };
        let found = catalog.group(group).filter(|group| !group.builtin);
        let versions = found.map_or(&[][..], |group: &Group| &group.versions);
        let before = registered.remove(group).unwrap_or_default();
        for version in versions.iter().filter(|version| !before.contains(version)) {
            self.register(resource, group, version);
        }
        for version in before.iter().filter(|version| !versions.contains(version)) {
            self.unregister(resource, group, version);
        }
        if !versions.is_empty() {
            registered.insert(group.to_owned(), versions.to_vec());
        }
    }

    /// Deletes the `APIService` that [`register`](Self::register) created, unless a user has taken
    /// it over.
    fn unregister(&self, resource: &Resource, group: &str, version: &str) {
        let Some(collection) = resource.collection else {
            return;
        };
        let key = key_of(None, &format!("{version}.{group}"));
        while let Some(current) = self.store.get(collection, &key) {
            if !current.header().labels.contains_key(MANAGED) {
                return;
            }
            let gone = Change::Delete(Arc::clone(&current.content));
            let expect = Expect::Revision(current.revision);
            match self.store.commit(collection, &key, expect, gone) {
                // A concurrent write won: read it again.
                Err(Refused::Mismatch) => {}
                Ok(_) | Err(Refused::NotServed) => return,
            }
        }
    }

    fn register(&self, resource: &Resource, group: &str, version: &str) {
        let (group_priority, version_priority) = PRIORITIES;
        let name = format!("{version}.{group}");
        let service = json!({
            "metadata": {"name": name, "labels": {MANAGED: "true"}},
            "spec": {"group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": version_priority},
        });
        let Value::Object(mut service) = service else {
            return;
        };
        let options = WriteOptions {
            manager: "kube-apiserver".to_owned(),
            ..WriteOptions::default()
        };
        self.record_manager(resource, "", &options, None, &mut service);
        self.prepare_create(resource, &mut service);
        let Some(collection) = resource.collection else {
            return;
        };
        let put = Change::Put(Arc::new(resource.encode(service)));
        // If an APIService with that name already exists, it stays unchanged.
        let _ = self
            .store
            .commit(collection, &key_of(None, &name), Expect::Absent, put);
    }
}
