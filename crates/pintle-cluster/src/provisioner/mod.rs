//! A simulated provisioner: creates volumes for claims of any class, and deletes released ones.
//!
//! It stands in for the storage drivers of a real cluster, whatever provisioner a class names. When
//! it starts, it creates the class `standard` unless there is one, as kind and minikube do.

mod plan;

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, api::PostParams};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::plan::Step;
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    meta,
    rules::changes,
    volumes::{behavior::Hold, claim_key, matching::claim_class, unbound},
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let classes = Api::<StorageClass>::all(environment.client.clone());
    if classes.get_opt(plan::STANDARD).await?.is_none() {
        let created = classes
            .create(&PostParams::default(), &plan::standard())
            .await;
        match created {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let recorder = environment.events.recorder("pintle-provisioner");
    let pending = environment
        .informers
        .informer::<PersistentVolumeClaim>()
        .lister();
    let rescripted = changes(environment.claims.subscribe());
    let shared = environment.clone();
    let claims = environment
        .controller::<PersistentVolumeClaim>("provisioner")
        .wakes(rescripted.flat_map(move |()| stream::iter(unbound(&pending))))
        .watches::<PersistentVolume>(|volume, _| {
            let claim = volume.get().ok().and_then(|volume| claim_key(&volume));
            claim.into_iter().collect()
        })
        .watches::<StorageClass>(|_, _| Vec::new())
        .run_by_key(
            move |key, cx| reconcile_claim(key, cx, shared.clone(), recorder.clone()),
            &stop,
        );
    let volumes = environment
        .controller::<PersistentVolume>("volume-deleter")
        .run_by_key(reconcile_volume, &stop);
    futures::try_join!(claims, volumes)?;
    Ok(())
}

async fn reconcile_claim(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolumeClaim>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let claim = cached.get()?;
    let held = environment.claims.hold(&claim, environment.clock.now());
    let volume_name = claim.spec.as_ref().and_then(|it| it.volume_name.as_ref());
    match held {
        Ok(Hold::Free) => {}
        _ if volume_name.is_some() => {}
        Ok(Hold::For(left)) => return Ok(Action::requeue_after(left)),
        Ok(Hold::Forever) | Err(_) => return Ok(Action::await_change()),
    }
    let class = claim_class(&claim).map(ObjectKey::cluster);
    let class = class.and_then(|key| cx.lister::<StorageClass>().ok()?.get(&key));
    let class = class.map(|class| class.get()).transpose()?;
    let volume = cx
        .lister::<PersistentVolume>()?
        .get(&plan::volume_key(&claim));
    let volume = volume.map(|volume| volume.get()).transpose()?;
    match plan::plan(&claim, class.as_deref(), volume.as_deref()) {
        Step::None => {}
        Step::Create(volume) => match cx.create(&*volume).await {
            Ok(_) => {
                let name = meta::name(&volume.metadata);
                let message = format!("Successfully provisioned volume {name}");
                recorder.event(&*claim, EventType::Normal, "ProvisioningSucceeded", message);
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                let message = format!(
                    "failed to provision volume with StorageClass {:?}: {}",
                    claim_class(&claim).unwrap_or_default(),
                    api::message(&error)
                );
                recorder.event(&*claim, EventType::Warning, "ProvisioningFailed", message);
                return Err(error.into());
            }
        },
        Step::Expand(volume) => {
            unless_stale(cx.replace(&*volume).await)?;
        }
        Step::Expanded(claim) => {
            if api::replace_status(&cx, &*claim).await? {
                let message = "Volume resized, no additional filesystem resize needed";
                recorder.event(
                    &*claim,
                    EventType::Normal,
                    "VolumeResizeSuccessful",
                    message,
                );
            }
        }
    }
    Ok(Action::await_change())
}

async fn reconcile_volume(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolume>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    if plan::is_deletable(&*cached.get()?) {
        unless_stale(cx.delete(&cached).await)?;
    }
    Ok(Action::await_change())
}
