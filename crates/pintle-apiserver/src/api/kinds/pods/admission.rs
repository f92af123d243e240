//! Admission of new Pods: the service account and the priority class they name must exist.
//!
//! Follows the `ServiceAccount` and `Priority` admission plugins of Kubernetes, with one exception: the
//! account `default` is not looked up, because a server without the service account loop never
//! creates it.

use serde_json::Value;

use crate::api::{Api, ApiError};
use crate::{
    meta::{self, Tree},
    store::key_of,
};

/// The fields a Pod takes from its priority class.
struct Priority {
    class: String,
    value: i64,
    preemption: String,
}

impl Api {
    /// Checks the references of a new Pod and sets its priority.
    pub(super) fn admit_pod(&self, namespace: &str, pod: &mut Tree) -> Result<(), ApiError> {
        let name = match meta::text(pod, "name") {
            // The name has not been generated yet.
            "" => meta::text(pod, "generateName"),
            name => name,
        };
        let forbidden = |why: &str| ApiError::forbidden("", "pods", name, why);
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let text = |field: &str| spec[field].as_str().unwrap_or_default();
        let account = text("serviceAccountName");
        if !matches!(account, "" | "default") && !self.has_account(namespace, account) {
            return Err(forbidden(&format!(
                "error looking up service account {namespace}/{account}: serviceaccount \
                 {account:?} not found"
            )));
        }
        let class = text("priorityClassName");
        let Some(priority) = self.priority(class) else {
            return Err(forbidden(&format!(
                "no PriorityClass with name {class} was found"
            )));
        };
        if let Some(found) = spec["priority"]
            .as_i64()
            .filter(|found| *found != priority.value)
        {
            return Err(forbidden(&format!(
                "the integer value of priority ({found}) must not be provided in pod spec; priority \
                 admission controller computed {} from the given PriorityClass name",
                priority.value
            )));
        }
        let policy = text("preemptionPolicy");
        if !policy.is_empty() && policy != priority.preemption {
            return Err(forbidden(&format!(
                "the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; \
                 priority admission controller computed {} from the given PriorityClass name",
                priority.preemption
            )));
        }
        if let Some(Value::Object(spec)) = pod.get_mut("spec") {
            if !priority.class.is_empty() {
                spec.insert("priorityClassName".into(), priority.class.into());
            }
            spec.insert("priority".into(), priority.value.into());
            spec.insert("preemptionPolicy".into(), priority.preemption.into());
        }
        Ok(())
    }

    fn has_account(&self, namespace: &str, name: &str) -> bool {
        let collection = self.registry.builtin_collection("", "serviceaccounts");
        collection.is_none_or(|collection| {
            let key = key_of(Some(namespace), name);
            self.store.get(collection, &key).is_some()
        })
    }

    /// Returns the priority of a class, or `None` if there is no such class.
    ///
    /// Without a name, the default class with the lowest value applies; without one, priority 0.
    fn priority(&self, class: &str) -> Option<Priority> {
        let none = Priority {
            class: String::new(),
            value: 0,
            preemption: "PreemptLowerPriority".to_owned(),
        };
        let Some(collection) = self
            .registry
            .builtin_collection("scheduling.k8s.io", "priorityclasses")
        else {
            return Some(none);
        };
        if !class.is_empty() {
            let found = self.store.get(collection, class)?;
            return Some(read(&found.decode()));
        }
        let classes = self.store.snapshot(collection).ok()?;
        let classes = classes.objects.values();
        let classes = classes.filter(|class| class.content.mentions("\"globalDefault\":true"));
        let classes = classes.map(|class| class.decode());
        let defaults = classes.filter(|class| class.get("globalDefault") == Some(&true.into()));
        let least = defaults
            .map(|class| read(&class))
            .min_by_key(|class| class.value);
        Some(least.unwrap_or(none))
    }
}

fn read(class: &Tree) -> Priority {
    let preemption = class.get("preemptionPolicy").and_then(Value::as_str);
    Priority {
        class: meta::text(class, "name").to_owned(),
        value: class.get("value").and_then(Value::as_i64).unwrap_or(0),
        preemption: preemption.unwrap_or("PreemptLowerPriority").to_owned(),
    }
}
