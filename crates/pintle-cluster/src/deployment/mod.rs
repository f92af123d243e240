//! Deployments: one template after the other, without an interruption.
//!
//! A Deployment has one `ReplicaSet` per template it has had. A rollout grows the set of the present
//! template and shrinks the others, within the limits of its strategy. What to do is decided by
//! [`plan::plan`]; this file looks up what it needs and carries out what it says.
//!
//! `kubectl rollout undo` copies an old set's template into the Deployment. So a rollback is a
//! rollout like any other, to a set that happens to exist; it gets the next revision.

mod plan;
mod revision;
mod size;
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
    controller::{Action, Context, Controller, Predicate, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::plan::Write;
use crate::{
    api::{self, is_namespace_terminating, unless_stale},
    manager::{Environment, LoopError},
    meta::{self, Claim},
    pods,
};

/// Runs the loop until `stop`.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("deployment-controller");
    let deployments = environment.informers.informer::<Deployment>().lister();
    let sets = environment.informers.informer::<ReplicaSet>().lister();
    let shared = environment.clone();
    Controller::<Deployment>::new("deployment-controller", &environment.informers)
        .owns::<ReplicaSet>()
        .watches::<ReplicaSet>(api::adopters(deployments, selector))
        .watches_if::<Pod>(only_deletions(), move |pod, _| {
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
        .metrics(&environment.metrics)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// A strategy that recreates waits for the last old Pod to go. How the others fare is in the status
/// of their sets.
fn only_deletions() -> Predicate<Pod> {
    // No predicate holds a deletion back.
    Predicate::new(|_, _| false)
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
    let sets = claim_sets(&deployment, &cx).await?;
    let populated = populated(&deployment, &sets, &cx)?;
    let plan = plan::plan(&deployment, &sets, &populated, environment.clock.now());

    for write in plan.writes {
        // Boxed: a write holds a whole set, and every worker would carry the room for it.
        let done = Box::pin(carry_out(&deployment, write, &cx, &environment, &recorder)).await?;
        if !done {
            // Something moved under the plan: it wakes this key, and the next plan knows it.
            return Ok(Action::await_change());
        }
    }
    if plan.status.is_some() || plan.revision.is_some() {
        write_status(&deployment, plan.status, plan.revision, &cx).await?;
    }
    Ok(match plan.again_in {
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

/// Finds the sets of a Deployment, adopting orphans that match and releasing those that no longer
/// do.
async fn claim_sets(
    deployment: &Deployment,
    cx: &Context,
) -> Result<Vec<Arc<ReplicaSet>>, ReconcileError> {
    let selector = selector(deployment);
    let mut sets = Vec::new();
    let mut checked = false;
    for object in api::controlled_or_orphaned::<ReplicaSet>(cx, &deployment.metadata)? {
        let set = object.get()?;
        let selected = meta::selects(&selector, &set.metadata);
        match meta::claim(&deployment.metadata, &set.metadata, selected) {
            Claim::Ours => sets.push(set),
            Claim::Adopt => {
                if !checked {
                    api::ensure_alive(cx, deployment).await?;
                    checked = true;
                }
                let owners = meta::with_controller(&set.metadata, deployment);
                api::set_owners::<ReplicaSet>(cx, &object, owners).await?;
                // It counts once the cache shows it as ours, with the version to write it under.
            }
            Claim::Release => {
                let owners = meta::without_owner(&set.metadata, meta::uid(&deployment.metadata));
                api::set_owners::<ReplicaSet>(cx, &object, owners).await?;
            }
            Claim::Ignore => {}
        }
    }
    Ok(sets)
}

/// The sets that have Pods which have not finished. Only a strategy that recreates asks.
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

/// Carries out one write. False if what was planned on is no longer so.
async fn carry_out(
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
            let to = size::wanted(&set);
            if from != to {
                tell_scaled(deployment, &set, from, to, recorder);
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

fn tell_scaled(
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
            let size = size::wanted(&created);
            if size > 0 {
                tell_scaled(deployment, &created, 0, size, recorder);
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
        // Gone again since: nothing would tell, so the error is retried.
        let existing = sets.get_opt(name).await?.ok_or(error)?;
        if let Some(status) = plan::after_collision(deployment, &existing) {
            write_status(deployment, Some(status), None, cx).await?;
        }
        return Ok(false);
    }
    let now = environment.clock.now();
    let said = api::message(&error);
    let message = format!("Failed to create new replica set \"{name}\": {said}");
    recorder.event(
        deployment,
        EventType::Warning,
        "ReplicaSetCreateError",
        message,
    );
    let status = status::after_failed_create(deployment, name, &said, now);
    if status.is_some() && status != deployment.status {
        write_status(deployment, status, None, cx).await?;
    }
    Err(error.into())
}

/// Writes the status, and with it the revision: the status of a Deployment takes annotations along.
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
