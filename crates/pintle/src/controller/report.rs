//! Reports the progress of an object as conditions that tools understand.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Writable, Writes};
use crate::{
    cache::Kind,
    conditions::{Readiness, set_readiness},
};

impl<S> Context<S> {
    /// Reports the progress of `object`: sets `Ready`, `Reconciling` and `Stalled` in its
    /// `.status.conditions` and `.status.observedGeneration`, in one write if anything changed.
    /// Returns whether it wrote.
    ///
    /// The conditions always agree with each other, and [kstatus](crate::kstatus) understands them:
    /// `kubectl wait --for=condition=Ready`, Flux, kpt and others need to know nothing else about
    /// the kind. Other conditions and fields of the status are left unchanged. To write them
    /// together, use [`set_readiness`] and [`update_status`](Self::update_status).
    ///
    /// The CRD's schema needs `status.observedGeneration`, an `int64`. Without it the server drops
    /// the field, and tools cannot tell whether the conditions are about the latest spec.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use pintle::controller::{Action, Context, ReconcileError};
    /// # fn problem(_: &Deployment) -> Option<String> { None }
    /// use pintle::conditions::Readiness;
    ///
    /// async fn reconcile(object: Arc<Deployment>, cx: Context) -> Result<Action, ReconcileError> {
    ///     if let Some(problem) = problem(&object) {
    ///         cx.report(&*object, Readiness::stalled("InvalidSpec", problem)).await?;
    ///         return Ok(Action::await_change());
    ///     }
    ///     // …
    ///     cx.report(&*object, Readiness::ready("UpToDate", "")).await?;
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
    pub async fn report<K: Writable>(
        &self,
        object: &K,
        readiness: Readiness,
    ) -> Result<bool, kube::Error> {
        self.writes().report(object, readiness).await
    }
}

impl<K: Kind + Serialize> Writes<'_, K> {
    /// Reports the progress of `object`. See [`Context::report`].
    ///
    /// ```no_run
    /// # use kube::core::{ApiResource, DynamicObject};
    /// # use pintle::conditions::Readiness;
    /// # async fn example(
    /// #     cx: &pintle::controller::Context,
    /// #     widgets: &ApiResource,
    /// #     widget: &DynamicObject,
    /// # ) -> Result<(), kube::Error> {
    /// let ready = Readiness::ready("UpToDate", "");
    /// cx.of::<DynamicObject>(widgets).report(widget, ready).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Context::set_condition`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn report(&self, object: &K, readiness: Readiness) -> Result<bool, kube::Error> {
        let generation = object.meta().generation;
        let before = self.stored_status(object)?;
        // Retain other writers' conditions, with fields that `Condition` does not have.
        let all = before.get("conditions").and_then(Value::as_array);
        let all = all.cloned().unwrap_or_default();
        let (ours, mut conditions): (Vec<_>, Vec<_>) = all.into_iter().partition(is_readiness);
        let ours = serde_json::from_value(Value::Array(ours));
        let mut ours: Vec<Condition> = ours.map_err(kube::Error::SerdeError)?;
        let changed = set_readiness(&mut ours, &readiness, generation, &self.inner.shared.clock);
        // A missing field does not count as a change: if the CRD drops it, every reconcile would
        // write again.
        let observed = before.get("observedGeneration").and_then(Value::as_i64);
        if !changed && (observed.is_none() || observed == generation) {
            return Ok(false);
        }
        let mut after = before.as_object().cloned().unwrap_or_default();
        for condition in ours {
            let condition = serde_json::to_value(condition);
            conditions.push(condition.map_err(kube::Error::SerdeError)?);
        }
        after.insert("conditions".to_owned(), Value::Array(conditions));
        if generation.is_some() {
            after.insert("observedGeneration".to_owned(), json!(generation));
        }
        self.patch_changes(object, &before, &Value::Object(after))
            .await
    }
}

/// Returns whether an encoded condition is one that [`set_readiness`] sets.
fn is_readiness(condition: &Value) -> bool {
    let type_ = condition["type"].as_str();
    type_.is_some_and(|type_| ["Ready", "Reconciling", "Stalled"].contains(&type_))
}
