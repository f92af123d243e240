//! Status updates that are written only when something changed.

use std::{collections::BTreeMap, error::Error};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use parking_lot::Mutex;
use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Context, Writable, Writes};
use crate::{
    cache::{Kind, ObjectKey},
    client::describe,
    clock::Clock,
    conditions::{NewCondition, set_condition},
    events::EventType,
    repeats::Repeat,
};

/// The number of objects and conditions for which [`Context::report_error`] remembers what it
/// wrote.
const MAX_REPORTED: usize = 10_000;

impl<S> Context<S> {
    /// Writes `status` as the status of `object` if it differs from the status `object` has.
    /// Returns whether it wrote.
    ///
    /// Sends a merge patch of the fields that changed, for this UID only. A list is replaced as a
    /// whole; so that no entry of another writer is lost, a patch that changes a list also requires
    /// that `object` is still current.
    ///
    /// Call it once per reconcile, with the complete status: a second call with the same `object`
    /// would compare with an outdated status and, if it changes a list, be a conflict. For
    /// conditions within `status`, use [`set_condition`](crate::conditions::set_condition) with
    /// [`clock`](Self::clock).
    ///
    /// # Errors
    ///
    /// Fails with a conflict if `object` was replaced by another of its name or, if the patch
    /// changes a list, has changed since it was read. "Not found" also means that the kind has no
    /// status subresource.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn update_status<K: Writable>(
        &self,
        object: &K,
        status: &impl Serialize,
    ) -> Result<bool, kube::Error> {
        self.writes().update_status(object, status).await
    }

    /// Sets one condition in `.status.conditions` of `object` if that changes anything. Returns
    /// whether it wrote.
    ///
    /// Fills in the observed generation if `condition` has none. Other conditions are retained as
    /// stored, with fields that `K` does not know. To write several, or other fields with them, use
    /// [`update_status`](Self::update_status).
    ///
    /// # Errors
    ///
    /// Same as [`update_status`](Self::update_status). Also fails if `object` has a condition of
    /// this type that cannot be decoded.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn set_condition<K: Writable>(
        &self,
        object: &K,
        condition: NewCondition,
    ) -> Result<bool, kube::Error> {
        self.writes().set_condition(object, condition).await
    }

    /// Reports an error where users look: sets the condition `type_` to `False` with `reason` and
    /// the error as its message, and records one `Warning` event.
    ///
    /// The event is recorded only when the condition changed, so retries of the same failure do not
    /// repeat it. Returns whether the condition changed.
    ///
    /// Every status write enqueues the key immediately, so an error whose message differs each
    /// time, for example because it names a request, would never be retried with back-off. While
    /// generation and `reason` stay the same, a new message is therefore written after 10 seconds
    /// at the earliest, then 20, 40 and so on up to ten minutes.
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
    /// Same as [`set_condition`](Self::set_condition).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn report_error<K: Writable>(
        &self,
        object: &K,
        type_: &str,
        reason: &str,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Result<bool, kube::Error> {
        let writes = self.writes();
        writes.report_error(object, type_, reason, error).await
    }
}

impl<K: Kind + Serialize> Writes<'_, K> {
    /// Writes `status` as the status of `object` if it differs from the status `object` has. See
    /// [`Context::update_status`].
    ///
    /// ```no_run
    /// # use kube::core::{ApiResource, DynamicObject};
    /// # use serde_json::json;
    /// # async fn example(
    /// #     cx: &pintle::controller::Context,
    /// #     widgets: &ApiResource,
    /// #     widget: &DynamicObject,
    /// # ) -> Result<(), kube::Error> {
    /// let writes = cx.of::<DynamicObject>(widgets);
    /// writes.update_status(widget, &json!({"phase": "Running"})).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Context::update_status`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn update_status(
        &self,
        object: &K,
        status: &impl Serialize,
    ) -> Result<bool, kube::Error> {
        let before = status_of(object)?;
        let after = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
        self.patch_changes(object, &before, &after).await
    }

    /// Sets one condition in `.status.conditions` of `object` if that changes anything. See
    /// [`Context::set_condition`].
    ///
    /// # Errors
    ///
    /// Same as [`Context::set_condition`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn set_condition(
        &self,
        object: &K,
        condition: NewCondition,
    ) -> Result<bool, kube::Error> {
        let before = self.stored_status(object)?;
        let condition = condition.or_observed_generation(object.meta().generation);
        let conditions = before.get("conditions").and_then(Value::as_array);
        let mut conditions = conditions.cloned().unwrap_or_default();
        let clock = &self.inner.shared.clock;
        let changed = set_raw_condition(&mut conditions, condition, clock);
        if !changed.map_err(kube::Error::SerdeError)? {
            return Ok(false);
        }
        let mut after = before.as_object().cloned().unwrap_or_default();
        after.insert("conditions".to_owned(), conditions.into());
        self.patch_changes(object, &before, &Value::Object(after))
            .await
    }

    /// Reports an error as a condition and a `Warning` event. See [`Context::report_error`].
    ///
    /// # Errors
    ///
    /// Same as [`Context::set_condition`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn report_error(
        &self,
        object: &K,
        type_: &str,
        reason: &str,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Result<bool, kube::Error> {
        let message = describe(error);
        let reported = &self.inner.shared.events.reported;
        let cause = format!("{:?} {reason}", object.meta().generation);
        let admitted = reported.admit(&ObjectKey::of(object), type_, &cause);
        if !admitted && is_reported(&status_of(object)?, type_, reason, object.meta().generation) {
            return Ok(false);
        }
        let condition = NewCondition::new(type_, false, reason, &message);
        let changed = self.set_condition(object, condition).await?;
        if changed {
            self.inner.event(EventType::Warning, reason, message);
        }
        Ok(changed)
    }

    pub(super) async fn patch_changes(
        &self,
        object: &K,
        before: &Value,
        after: &Value,
    ) -> Result<bool, kube::Error> {
        if K::metadata_api() {
            // The metadata does not include the status, so the patch would replace every list.
            return Err(invalid(
                "cannot write the status: only the metadata of the object is cached",
            ));
        }
        let Some(changes) = changes(before, after) else {
            return Ok(false);
        };
        let meta = object.meta();
        let mut metadata = json!({ "uid": meta.uid });
        if touches_list(before, &changes) {
            let Some(version) = &meta.resource_version else {
                // Null would be a write without a precondition.
                let why = "changing a list in the status needs the object's resourceVersion";
                return Err(invalid(why));
            };
            metadata["resourceVersion"] = json!(version);
        }
        let patch = Patch::Merge(json!({ "metadata": metadata, "status": changes }));
        self.patch_status(&ObjectKey::of(object), &patch).await?;
        Ok(true)
    }

    /// Returns the stored status of `object`: from the cache if it has this version, or else from
    /// the object itself, which lacks the fields that `K` does not know.
    pub(super) fn stored_status(&self, object: &K) -> Result<Value, kube::Error> {
        match self.cached_status(object) {
            Some(status) => Ok(status),
            None => status_of(object),
        }
    }

    fn cached_status(&self, object: &K) -> Option<Value> {
        let lister = self.inner.shared.listers.of::<K>(self.kind()).ok()?;
        let cached = lister.get(&ObjectKey::of(object))?;
        let version = object.meta().resource_version.as_deref();
        if version != Some(cached.resource_version()) {
            return None;
        }
        let mut stored: Value = serde_json::from_slice(cached.bytes()).ok()?;
        Some(stored.get_mut("status")?.take())
    }
}

fn invalid(why: &str) -> kube::Error {
    kube::Error::BuildRequest(kube::core::request::Error::Validation(why.to_owned()))
}

/// How many times each object's and condition's errors were reported.
#[derive(Default)]
pub(super) struct Reported(Mutex<BTreeMap<(ObjectKey, String), Repeat>>);

impl Reported {
    /// Returns whether an error may be reported although the same cause was reported before.
    fn admit(&self, key: &ObjectKey, type_: &str, cause: &str) -> bool {
        let mut reported = self.0.lock();
        let entry = (key.clone(), type_.to_owned());
        if reported.len() >= MAX_REPORTED && !reported.contains_key(&entry) {
            // Forgetting only means that a few messages are written earlier than necessary.
            reported.clear();
        }
        let repeat = reported.entry(entry).or_default();
        repeat.admit(cause, Instant::now()).is_some()
    }
}

/// Returns whether a status reports an error with this reason.
fn is_reported(status: &Value, type_: &str, reason: &str, generation: Option<i64>) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|known| {
        known["type"] == type_
            && known["status"] == "False"
            && known["reason"] == reason
            && known["observedGeneration"].as_i64() == generation
    })
}

/// Sets a condition in a list of encoded conditions. Returns whether that changed anything. Other
/// conditions, and fields of this one that [`Condition`] does not have, are retained.
fn set_raw_condition(
    conditions: &mut Vec<Value>,
    new: NewCondition,
    clock: &Clock,
) -> Result<bool, serde_json::Error> {
    let known = conditions
        .iter_mut()
        .find(|known| known["type"] == new.type_());
    let mut one: Vec<Condition> = match &known {
        Some(known) => vec![Condition::deserialize(&**known)?],
        None => Vec::new(),
    };
    if !set_condition(&mut one, new, clock) {
        return Ok(false);
    }
    let Some(new) = one.pop() else {
        return Ok(false);
    };
    match (known, serde_json::to_value(new)?) {
        (Some(Value::Object(known)), Value::Object(new)) => {
            known.remove("observedGeneration");
            known.extend(new);
        }
        (_, new) => conditions.push(new),
    }
    Ok(true)
}

pub(super) fn status_of(object: &impl Serialize) -> Result<Value, kube::Error> {
    let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    Ok(object
        .get_mut("status")
        .map(Value::take)
        .unwrap_or_default())
}

/// Returns the merge patch that turns `before` into `after`, or `None` if they are equal. `null`
/// counts as absent.
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

/// Returns whether a merge patch of `before` replaces or removes a list.
fn touches_list(before: &Value, change: &Value) -> bool {
    match (before, change) {
        (Value::Array(_), _) | (_, Value::Array(_)) => true,
        (_, Value::Object(fields)) => fields
            .iter()
            .any(|(name, change)| touches_list(before.get(name).unwrap_or(&Value::Null), change)),
        (Value::Object(fields), _) => fields.values().any(|old| touches_list(old, change)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
