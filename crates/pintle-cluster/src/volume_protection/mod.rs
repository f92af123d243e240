//! Claims and volumes that are deleted while in use stay until they are not.
//!
//! The API server gives each of them a finalizer on creation. This loop takes it away from a deleted
//! claim that no scheduled Pod uses and from a deleted volume that is bound to no claim.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{ListParams, Patch},
};
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, Controller, ReconcileError, Writable},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{CLAIM_FINALIZER, Need, VOLUME_FINALIZER};
use crate::{
    api::unless_stale,
    manager::{Environment, LoopError},
};

/// Runs the loop until `stop`.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let claims = Controller::<PersistentVolumeClaim>::new("pvc-protection", &environment.informers)
        .watches::<Pod>(|pod, _| {
            let namespace = pod.key().namespace().unwrap_or_default();
            let claims = pod.get().map(|pod| plan::claims(&pod)).unwrap_or_default();
            let keys = claims
                .iter()
                .map(|claim| ObjectKey::namespaced(namespace, claim));
            keys.collect()
        })
        .metrics(&environment.metrics)
        .run_by_key(reconcile_claim, &stop);
    let volumes = Controller::<PersistentVolume>::new("pv-protection", &environment.informers)
        .metrics(&environment.metrics)
        .run_by_key(reconcile_volume, &stop);
    futures::try_join!(claims, volumes)?;
    Ok(())
}

async fn reconcile_claim(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolumeClaim>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let claim = cached.get()?;
    match plan::need(&claim.metadata, CLAIM_FINALIZER) {
        Need::Nothing => {}
        Need::Finalizer => {
            let finalizers = plan::with(&claim.metadata, CLAIM_FINALIZER);
            set_finalizers(&cx, &cached, finalizers).await?;
        }
        Need::Release => {
            if !is_used(&cx, &claim, key.namespace().unwrap_or_default()).await? {
                let finalizers = plan::without(&claim.metadata, CLAIM_FINALIZER);
                set_finalizers(&cx, &cached, finalizers).await?;
            }
        }
    }
    Ok(Action::await_change())
}

/// Whether a Pod uses the claim. The cache may lag behind, and a claim taken from under a Pod does
/// not come back, so a "no" of the cache is confirmed by the server.
async fn is_used(
    cx: &Context,
    claim: &PersistentVolumeClaim,
    namespace: &str,
) -> Result<bool, ReconcileError> {
    for pod in cx.lister::<Pod>()?.namespace(namespace).list() {
        if plan::uses(&*pod.get()?, claim) {
            return Ok(true);
        }
    }
    let pods = Api::<Pod>::namespaced(cx.client().clone(), namespace);
    let pods = pods.list(&ListParams::default()).await?;
    Ok(pods.items.iter().any(|pod| plan::uses(pod, claim)))
}

async fn reconcile_volume(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolume>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let volume = cached.get()?;
    let finalizers = match plan::need(&volume.metadata, VOLUME_FINALIZER) {
        Need::Finalizer => plan::with(&volume.metadata, VOLUME_FINALIZER),
        Need::Release if !plan::is_bound(&volume) => {
            plan::without(&volume.metadata, VOLUME_FINALIZER)
        }
        Need::Nothing | Need::Release => return Ok(Action::await_change()),
    };
    set_finalizers(&cx, &cached, finalizers).await?;
    Ok(Action::await_change())
}

/// Writes an object's finalizers, if the object is still as it was seen.
async fn set_finalizers<K: Writable>(
    cx: &Context,
    object: &Object<K>,
    finalizers: Vec<String>,
) -> Result<(), kube::Error> {
    let patch = json!({ "metadata": {
        "uid": object.uid(),
        "resourceVersion": object.resource_version(),
        "finalizers": finalizers,
    }});
    unless_stale(cx.patch::<K, _>(object.key(), &Patch::Merge(patch)).await)?;
    Ok(())
}
