//! `APIService` objects: which groups and versions there are, and that this server serves them itself.
//!
//! Every built-in group and version has one from the start, and those of custom resource definitions
//! come and go with them. One that names a service elsewhere asks for API aggregation, which this
//! server does not do: it is refused.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::{Api, ApiError, request::options::WriteOptions};
use crate::{
    meta::{self, Tree},
    registry::{Group, Resource},
    schema::field::FieldError,
    store::{Change, Expect, Refused, key_of},
};

pub(crate) const GROUP: &str = "apiregistration.k8s.io";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Where groups of definitions stand in discovery, and their versions in the group.
const PRIORITIES: (i64, i64) = (1000, 100);

/// The versions that have an `APIService`, by the group of the definitions they come from.
#[derive(Debug, Default)]
pub(crate) struct Registered(Mutex<BTreeMap<String, Vec<String>>>);

pub(crate) fn is_one(resource: &Resource) -> bool {
    resource.is(GROUP, "apiservices")
}

/// Refuses what another server would have to answer.
pub(crate) fn check(service: &Tree) -> Result<Vec<FieldError>, ApiError> {
    let name = meta::text(service, "name");
    let spec = service.get("spec").unwrap_or(&Value::Null);
    if !spec["service"].is_null() {
        return Err(ApiError::not_implemented(&format!(
            "API aggregation: APIService {name:?} must not have a spec.service"
        )));
    }
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    let wanted = format!("{}.{}", text("version"), text("group"));
    if name != wanted {
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec[field].as_i64().unwrap_or(0);
        if !(1..=most).contains(&priority) {
            let why = format!("must be positive and less than {most}");
            let field = format!("spec.{field}");
            errors.push(FieldError::invalid(field, priority, why));
        }
    }
    Ok(errors)
}

/// Marks a new one as available: what the server serves itself always is.
pub(crate) fn prepare(service: &mut Tree, now: &str) {
    let available = json!({"conditions": [{"lastTransitionTime": now,
        "message": "Local APIServices are always available", "reason": "Local",
        "status": "True", "type": "Available"}]});
    service.insert("status".into(), available);
}

impl Api {
    /// Makes the `APIService` objects of a group of definitions those of the versions it serves.
    pub(crate) fn register_group(&self, group: &str) {
        // Held throughout: the last one to look at the catalog is the last one to write.
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

    /// Removes what [`register`](Self::register) made, unless somebody else did.
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
                // Somebody came between: what they made of it goes next.
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
        self.mark_managers(resource, "", &options, None, &mut service);
        self.prepare_create(resource, &mut service, &options.warnings);
        let Some(collection) = resource.collection else {
            return;
        };
        let put = Change::Put(Arc::new(resource.encode(service)));
        // Somebody else registered it: then it is registered.
        let _ = self
            .store
            .commit(collection, &key_of(None, &name), Expect::Absent, put);
    }
}
