//! Rolls out Deployments.
//!
//! A Deployment has one `ReplicaSet` per template. A rollout scales up the set of the current
//! template and scales down the others, within the bounds of its strategy. [`plan::plan`] decides
//! what to do; this file gathers its input and applies the result.
//!
//! `kubectl rollout undo` copies the template of an old set into the Deployment. A rollback is
//! therefore an ordinary rollout to a set that already exists, and it gets the next revision.

mod plan;
mod revision;
mod scale;
pub(crate) mod size;
mod status;

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use pintle::{
    cache::{ObjectKey, Selector},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::plan::Write;
use crate::{
    api::{self, is_namespace_terminating, unless_stale},
    loops::{Environment, LoopError},
    meta, pods,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("deployment-controller");
    let deployments = environment.informers.informer::<Deployment>().lister();
    let sets = environment.informers.informer::<ReplicaSet>().lister();
    let shared = environment.clone();
    environment
        .controller::<Deployment>("deployment-controller")
        .owns::<ReplicaSet>()
        .watches::<ReplicaSet>(api::adopters(deployments, selector))
        .watches_if::<Pod>(api::only_deletions(), move |pod, _| {
            let set = pod
                .controller_owner()
                .filter(|owner| owner.kind() == "ReplicaSet");
            let namespace = pod.key().namespace().unwrap_or_default();
            set.and_then(|set| sets.namespace(namespace).get(set.name()))
                .and_then(|set| {
                    let owner = set.controller_owner()?;
                    (owner.kind() == "Deployment")
                        .then(|| ObjectKey::namespaced(namespace, owner.name()))
                })
                .into_iter()
                .collect()
        })
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

fn selector(deployment: &Deployment) -> Selector {
    let spec = deployment.spec.as_ref();
    spec.map_or_else(Selector::nothing, |spec| meta::selector(&spec.selector))
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Deployment>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let deployment = cached.get()?;
    if selects_all(&deployment) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        recorder.event(&*deployment, EventType::Warning, "SelectingAll", message);
        return Ok(Action::await_change());
    }
    let selector = selector(&deployment);
    let claimed = api::claim::<_, ReplicaSet>(&cx, &*deployment, &selector, |_| true).await?;
    if !claimed.adopted.is_empty() {
        // An adopted set may have the current template, so do not create another one. Plan again
        // once the cache shows it with its new resourceVersion.
        return Ok(Action::await_change());
    }
    let sets = claimed.controlled;
    let populated = populated(&deployment, &sets, &cx)?;
    let plan = plan::plan(&deployment, &sets, &populated, environment.clock.now());

    for write in plan.writes {
        // Boxed, because a write holds a whole set and would enlarge the future of every worker.
        let done = Box::pin(apply(&deployment, write, &cx, &environment, &recorder)).await?;
        if !done {
            // The change that made the plan stale enqueues this key again.
            return Ok(Action::await_change());
        }
    }
    if plan.status.is_some() || plan.revision.is_some() {
        write_status(&deployment, plan.status, plan.revision, &cx).await?;
    }
    Ok(match plan.requeue_after {
        Some(wait) => Action::requeue_after(wait),
        None => Action::await_change(),
    })
}

fn selects_all(deployment: &Deployment) -> bool {
    deployment
        .spec
        .as_ref()
        .is_none_or(|spec| spec.selector == LabelSelector::default())
}

/// Returns the UIDs of sets with unfinished Pods. Empty unless the strategy is `Recreate`.
fn populated(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    cx: &Context,
) -> Result<BTreeSet<String>, ReconcileError> {
    let mut populated = BTreeSet::new();
    if !size::is_recreate(deployment) {
        return Ok(populated);
    }
    for set in sets {
        let uid = meta::uid(&set.metadata);
        for pod in api::controlled::<Pod>(cx, uid)? {
            if !pods::state::is_finished(&*pod.get()?) {
                populated.insert(uid.to_owned());
                break;
            }
        }
    }
    Ok(populated)
}

/// Applies one write. Returns false if the plan is stale.
async fn apply(
    deployment: &Deployment,
    write: Write,
    cx: &Context,
    environment: &Environment,
    recorder: &EventRecorder,
) -> Result<bool, ReconcileError> {
    match write {
        Write::Create(set) => create_set(deployment, &set, cx, environment, recorder).await,
        Write::Update { set, from } => {
            let Some(set) = unless_stale(cx.replace(&set).await)? else {
                return Ok(false);
            };
            let to = size::replicas(&set);
            if from != to {
                record_scaling(deployment, &set, from, to, recorder);
            }
            Ok(true)
        }
        Write::Delete(set) => {
            if let Some(object) = cx.lister::<ReplicaSet>()?.get(&ObjectKey::of(&*set)) {
                cx.delete(&object).await?;
            }
            Ok(true)
        }
    }
}

fn record_scaling(
    deployment: &Deployment,
    set: &ReplicaSet,
    from: i32,
    to: i32,
    recorder: &EventRecorder,
) {
    let direction = if from < to { "up" } else { "down" };
    let name = meta::name(&set.metadata);
    let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
    recorder.event(deployment, EventType::Normal, "ScalingReplicaSet", message);
}

async fn create_set(
    deployment: &Deployment,
    set: &ReplicaSet,
    cx: &Context,
    environment: &Environment,
    recorder: &EventRecorder,
) -> Result<bool, ReconcileError> {
    let error = match cx.create(set).await {
        Ok(created) => {
            let size = size::replicas(&created);
            if size > 0 {
                record_scaling(deployment, &created, 0, size, recorder);
            }
            return Ok(true);
        }
        Err(error) => error,
    };
    if is_namespace_terminating(&error) {
        return Ok(false);
    }
    let name = meta::name(&set.metadata);
    if matches!(&error, kube::Error::Api(status) if status.is_already_exists()) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let sets = kube::Api::<ReplicaSet>::namespaced(cx.client().clone(), namespace);
        // If the set is gone again, no event follows, so return the error and retry.
        let existing = sets.get_opt(name).await?.ok_or(error)?;
        if let Some(status) = plan::after_collision(deployment, &existing) {
            write_status(deployment, Some(status), None, cx).await?;
        }
        return Ok(false);
    }
    let now = environment.clock.now();
    let cause = api::message(&error);
    let message = format!("Failed to create new replica set \"{name}\": {cause}");
    recorder.event(
        deployment,
        EventType::Warning,
        "ReplicaSetCreateError",
        message,
    );
    let status = status::after_failed_create(deployment, name, &cause, now);
    if status.is_some() && status != deployment.status {
        write_status(deployment, status, None, cx).await?;
    }
    Err(error.into())
}

/// Writes status and revision in one request: the status subresource of Deployments also accepts
/// annotations.
async fn write_status(
    deployment: &Deployment,
    status: Option<DeploymentStatus>,
    revision: Option<String>,
    cx: &Context,
) -> Result<(), kube::Error> {
    let mut deployment = deployment.clone();
    if let Some(revision) = revision {
        let annotations = deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::REVISION.into(), revision);
    }
    if status.is_some() {
        deployment.status = status;
    }
    api::replace_status(cx, &deployment).await?;
    Ok(())
}
