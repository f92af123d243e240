//! Deletes finished Jobs when their `ttlSecondsAfterFinished` has passed.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{DeleteParams, Preconditions, PropagationPolicy},
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::unless_stale,
    job::finished_condition,
    loops::{Environment, LoopError},
    meta,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let shared = environment.clone();
    environment
        .controller::<Job>("ttl-after-finished-controller")
        .run_by_key(move |key, cx| reconcile(key, cx, shared.clone()), &stop)
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Job>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    match remaining(&*cached.get()?, environment.clock.now()) {
        None => return Ok(Action::await_change()),
        Some(left) if !left.is_zero() => return Ok(Action::requeue_after(left)),
        Some(_) => {}
    }
    let jobs = Api::<Job>::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(Preconditions {
            uid: Some(cached.uid().to_owned()),
            // The TTL may have been changed in the meantime.
            resource_version: Some(cached.resource_version().to_owned()),
        }),
        ..DeleteParams::default()
    };
    unless_stale(jobs.delete(key.name(), &params).await)?;
    Ok(Action::await_change())
}

/// Returns how long to wait before deleting a Job, or `None` if it has no TTL, has not finished, or
/// is already being deleted.
fn remaining(job: &Job, now: Timestamp) -> Option<Duration> {
    if meta::is_being_deleted(&job.metadata) {
        return None;
    }
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
    let Time(finished) = finished_condition(job)?.last_transition_time.as_ref()?;
    let expiry = finished.saturating_add(ttl).ok()?;
    Some(Duration::try_from(expiry.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
