//! Reporting in the status: written only when it says something new.

use std::error::Error;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Context, Writable};
use crate::{
    cache::ObjectKey,
    client::describe,
    conditions::{NewCondition, set_condition},
    events::EventType,
};

impl<S> Context<S> {
    /// Writes `status` as the status of `object` if it differs from the status `object` has.
    /// Returns whether it wrote.
    ///
    /// Sends a merge patch of the fields that changed, for this UID only. A list is replaced as a
    /// whole; so that no entry of another writer is lost, a patch that changes a list also requires
    /// that `object` is still current.
    ///
    /// Call it once per reconcile, with everything there is to say: a second call with the same
    /// `object` would be a conflict. For conditions within `status`, use
    /// [`set_condition`](crate::conditions::set_condition) with [`clock`](Self::clock).
    ///
    /// # Errors
    ///
    /// A conflict if `object` was replaced by another of its name, or has changed in the case
    /// above. "Not found" also means that the kind has no status subresource.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn update_status<K: Writable>(
        &self,
        object: &K,
        status: &impl Serialize,
    ) -> Result<bool, kube::Error> {
        let before = status_of(object)?;
        let after = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
        self.patch_changes(object, &before, &after).await
    }

    /// Sets one condition in `.status.conditions` of `object` if that changes anything. Returns
    /// whether it wrote.
    ///
    /// Fills in the observed generation if `condition` has none. Other conditions stay. To write
    /// several, or other fields with them, use [`update_status`](Self::update_status).
    ///
    /// # Errors
    ///
    /// As [`update_status`](Self::update_status); and if the conditions `object` has cannot be
    /// decoded.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn set_condition<K: Writable>(
        &self,
        object: &K,
        condition: NewCondition,
    ) -> Result<bool, kube::Error> {
        let before = status_of(object)?;
        let conditions = before.get("conditions").cloned();
        let mut conditions: Vec<Condition> = conditions
            .map(serde_json::from_value)
            .transpose()
            .map_err(kube::Error::SerdeError)?
            .unwrap_or_default();
        let condition = condition.or_observed_generation(object.meta().generation);
        if !set_condition(&mut conditions, condition, self.clock()) {
            return Ok(false);
        }
        let mut after = before.as_object().cloned().unwrap_or_default();
        let conditions = serde_json::to_value(conditions).map_err(kube::Error::SerdeError)?;
        after.insert("conditions".to_owned(), conditions);
        self.patch_changes(object, &before, &Value::Object(after))
            .await
    }

    /// Reports an error where users look: sets the condition `type_` to `False` with `reason` and
    /// the error as its message, and records one `Warning` event.
    ///
    /// The event is recorded only when the condition changed, so retries of the same failure do not
    /// repeat it. Returns whether it did.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use pintle::controller::{Action, Context, ReconcileError};
    /// # async fn sync(_: &Deployment, _: &Context) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn reconcile(object: Arc<Deployment>, cx: Context) -> Result<Action, ReconcileError> {
    ///     if let Err(error) = sync(&object, &cx).await {
    ///         cx.report_error(&*object, "Ready", "SyncFailed", &error).await?;
    ///         return Err(error.into());
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_condition`](Self::set_condition).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn report_error<K: Writable>(
        &self,
        object: &K,
        type_: &str,
        reason: &str,
        error: &(impl Error + 'static),
    ) -> Result<bool, kube::Error> {
        let message = describe(error);
        let condition = NewCondition::new(type_, false, reason, &message);
        let changed = self.set_condition(object, condition).await?;
        if changed {
            self.event(EventType::Warning, reason, message);
        }
        Ok(changed)
    }

    async fn patch_changes<K: Writable>(
        &self,
        object: &K,
        before: &Value,
        after: &Value,
    ) -> Result<bool, kube::Error> {
        let Some(changes) = changes(before, after) else {
            return Ok(false);
        };
        let meta = object.meta();
        let mut metadata = json!({ "uid": meta.uid });
        if contains_list(&changes) {
            metadata["resourceVersion"] = json!(meta.resource_version);
        }
        let patch = Patch::Merge(json!({ "metadata": metadata, "status": changes }));
        self.patch_status::<K, _>(&ObjectKey::of(object), &patch)
            .await?;
        Ok(true)
    }
}

fn status_of(object: &impl Serialize) -> Result<Value, kube::Error> {
    let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    Ok(object
        .get_mut("status")
        .map(Value::take)
        .unwrap_or_default())
}

/// Returns the merge patch that turns `before` into `after`; none if they are equal. `null` counts
/// as absent.
fn changes(before: &Value, after: &Value) -> Option<Value> {
    let nothing = Map::new();
    let (old, new) = match (before, after) {
        (Value::Object(old), Value::Object(new)) => (old, new),
        (Value::Null, Value::Object(new)) => (&nothing, new),
        _ => return (before != after).then(|| after.clone()),
    };
    let mut patch = Map::new();
    for (name, value) in new {
        let known = old.get(name).unwrap_or(&Value::Null);
        if let Some(change) = changes(known, value) {
            patch.insert(name.clone(), change);
        }
    }
    let removed = old
        .iter()
        .filter(|(name, value)| !value.is_null() && !new.contains_key(*name));
    patch.extend(removed.map(|(name, _)| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn contains_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(contains_list),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves controller/status-if-changed.
    #[test]
    fn changes_hold_only_what_differs() {
        let before = json!({"a": 1, "b": {"c": 2, "d": [1]}, "gone": "x", "null": null});
        assert_eq!(changes(&before, &before), None);
        let same = json!({"a": 1, "b": {"c": 2, "d": [1], "new": null}, "gone": "x"});
        assert_eq!(changes(&before, &same), None, "null counts as absent");
        let after = json!({"a": 1, "b": {"c": 3, "d": [1, 2]}});
        let patch = json!({"b": {"c": 3, "d": [1, 2]}, "gone": null});
        assert_eq!(changes(&before, &after), Some(patch.clone()));
        assert!(contains_list(&patch));
        assert!(!contains_list(&json!({"b": {"c": 3}})));
        let first = json!({"a": 1});
        assert_eq!(changes(&Value::Null, &first), Some(first));
        assert_eq!(changes(&Value::Null, &json!({"a": null})), None);
    }
}
