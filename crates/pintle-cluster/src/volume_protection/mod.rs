//! Protects persistent volumes and claims from deletion while they are in use.
//!
//! The API server adds a finalizer to each of them on creation. This loop removes it from a deleted
//! claim that no scheduled Pod uses, and from a deleted volume that is not bound to a claim.

pub(crate) mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{ListParams, Patch},
};
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, ReconcileError, Writable},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{CLAIM_FINALIZER, Need, VOLUME_FINALIZER};
use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
    meta,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let claims = environment
        .controller::<PersistentVolumeClaim>("pvc-protection")
        .watches::<Pod>(|pod, _| {
            let namespace = pod.key().namespace().unwrap_or_default();
            let claims = pod.get().map(|pod| plan::claims(&pod)).unwrap_or_default();
            let keys = claims
                .iter()
                .map(|claim| ObjectKey::namespaced(namespace, claim));
            keys.collect()
        })
        .run_by_key(reconcile_claim, &stop);
    let volumes = environment
        .controller::<PersistentVolume>("pv-protection")
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
        Need::None => {}
        Need::Finalizer => {
            let finalizers = meta::with_finalizer(&claim.metadata, CLAIM_FINALIZER);
            set_finalizers(&cx, &cached, finalizers).await?;
        }
        Need::Release => {
            if !is_used(&cx, &claim, key.namespace().unwrap_or_default()).await? {
                let finalizers = meta::without_finalizer(&claim.metadata, CLAIM_FINALIZER);
                set_finalizers(&cx, &cached, finalizers).await?;
            }
        }
    }
    Ok(Action::await_change())
}

/// Returns whether a Pod uses the claim. Removing a claim in use cannot be undone and the cache may
/// be stale, so a negative result is confirmed by the server.
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
        Need::Finalizer => meta::with_finalizer(&volume.metadata, VOLUME_FINALIZER),
        Need::Release if !plan::is_bound(&volume) => {
            meta::without_finalizer(&volume.metadata, VOLUME_FINALIZER)
        }
        Need::None | Need::Release => return Ok(Action::await_change()),
    };
    set_finalizers(&cx, &cached, finalizers).await?;
    Ok(Action::await_change())
}

/// Replaces the finalizers of an object unless it has changed since it was read.
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
