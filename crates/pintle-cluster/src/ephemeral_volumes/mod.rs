//! Creates the claims of the generic ephemeral volumes of Pods. A claim is owned by its Pod, so the
//! garbage collector deletes it with the Pod.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, Predicate, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{self, is_namespace_terminating},
    loops::{Environment, LoopError},
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let has_claims = Predicate::new(|_, pod: &Object<Pod>| {
        pod.get().is_ok_and(|pod| !plan::claims(&pod).is_empty())
    });
    let recorder = environment.events.recorder("ephemeral_volume");
    environment
        .controller::<Pod>("ephemeral-volumes")
        .filter(has_claims)
        // A claim that is deleted is created again.
        .watches_if::<PersistentVolumeClaim>(api::only_deletions(), |claim, _| {
            let owner = claim.controller_owner();
            let owner = owner.filter(|owner| owner.kind() == "Pod");
            let namespace = claim.key().namespace().unwrap_or_default();
            let key = owner.map(|owner| ObjectKey::namespaced(namespace, owner.name()));
            key.into_iter().collect()
        })
        .run_by_key(move |key, cx| reconcile(key, cx, recorder.clone()), &stop)
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    if cached.is_being_deleted() {
        return Ok(Action::await_change());
    }
    let pod = cached.get()?;
    for claim in plan::claims(&pod) {
        let existing = cx
            .lister::<PersistentVolumeClaim>()?
            .get(&ObjectKey::of(&claim));
        if existing.is_some() {
            // The scheduler rejects a Pod whose claim has another owner.
            continue;
        }
        match cx.create(&claim).await {
            Ok(_) => {}
            Err(error) if is_namespace_terminating(&error) => break,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                let message = format!(
                    "ephemeral volume controller failed to create claim: {}",
                    api::message(&error)
                );
                recorder.event(&*pod, EventType::Warning, "FailedBinding", message);
                return Err(error.into());
            }
        }
    }
    Ok(Action::await_change())
}
