//! Releases Pods that no Job will count: their Job is gone or finished, or they never had one.
//!
//! Otherwise their finalizer would keep them forever.

use std::sync::Arc;

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::api::Patch;
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, ControllerError, Predicate, ReconcileError},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    finished_condition, is_foreign,
    template::{self, TRACKING},
};
use crate::{
    api::{self, unless_stale},
    loops::Environment,
    meta,
};

/// Runs until `stop` is cancelled.
pub(super) async fn run(
    environment: &Arc<Environment>,
    stop: &CancellationToken,
) -> Result<(), ControllerError> {
    let pods = environment.informers.informer::<Pod>().lister();
    // Deletions of Jobs are always delivered.
    let is_finished = Predicate::new(|_, job: &Object<Job>| {
        job.get()
            .is_ok_and(|job| finished_condition(&job).is_some())
    });
    let may_be_held = Predicate::new(|_, pod: &Object<Pod>| {
        let owner = pod.controller_owner();
        owner.is_none_or(|owner| owner.kind() == "Job")
    });
    environment
        .controller::<Pod>("job-orphans")
        .filter(may_be_held)
        .watches_if::<Job>(is_finished, move |job, _| {
            api::controlled_keys(&pods, job.uid())
        })
        .run_by_key(reconcile, stop)
        .await?;
    Ok(())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let pod = cached.get()?;
    if !template::is_tracked(&pod) || is_counted(&pod, &cx)? {
        return Ok(Action::await_change());
    }
    let patch = Patch::Merge(json!({ "metadata": {
        "uid": cached.uid(),
        // If the Pod is adopted in the meantime, its new owner counts it.
        "resourceVersion": cached.resource_version(),
        "finalizers": meta::without_finalizer(&pod.metadata, TRACKING),
    }}));
    unless_stale(cx.patch::<Pod, _>(&key, &patch).await)?;
    Ok(Action::await_change())
}

/// Returns whether the Pod belongs to a Job that is not finished, or to another controller.
fn is_counted(pod: &Pod, cx: &Context) -> Result<bool, ReconcileError> {
    let Some(owner) = meta::controller_of(&pod.metadata) else {
        return Ok(false);
    };
    if owner.kind != "Job" || owner.api_version != "batch/v1" {
        return Ok(true);
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let job = cx
        .lister::<Job>()?
        .get(&ObjectKey::namespaced(namespace, &owner.name));
    let Some(job) = job.filter(|job| job.uid() == owner.uid) else {
        return Ok(false);
    };
    let job = job.get()?;
    Ok(is_foreign(&job) || finished_condition(&job).is_none())
}
