//! Runs one Pod of a `DaemonSet` on every node that its template allows.
//!
//! A reconcile first finds the `ControllerRevision` of the set's template and creates it if it is
//! new. Then [`plan::plan`] decides which Pods to create and delete, and the history is truncated.
//! A new Pod names its node in a node affinity, and the scheduler binds it there.

mod backoff;
mod place;
mod plan;

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Node, Pod},
};
use parking_lot::Mutex;
use pintle::{
    cache::{ObjectKey, Selector},
    controller::{Action, Context, Predicate, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::{
    backoff::Backoff,
    plan::{Finished, Observed, Plan},
};
use crate::{
    api::{self, is_namespace_terminating},
    loops::{Environment, LoopError},
    meta,
    replica_set::slow_start,
    revisions,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("daemonset-controller");
    let backoff = Arc::new(Mutex::new(Backoff::default()));
    let sets = environment.informers.informer::<DaemonSet>().lister();
    let everywhere = sets.clone();
    let shared = environment.clone();
    environment
        .controller::<DaemonSet>("daemonset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(api::adopters(sets.clone(), selector))
        .watches::<ControllerRevision>(api::adopters(sets, selector))
        .watches_if::<Node>(placement_changed(), move |_, _| {
            let sets = everywhere.list();
            let mut keys: Vec<_> = sets.iter().map(|set| set.key().clone()).collect();
            keys.sort();
            keys
        })
        .workers(2)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), backoff.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Admits changes to a node's labels or taints, which decide where sets run Pods.
fn placement_changed() -> Predicate<Node> {
    let taints = Predicate::new(|old, new: &pintle::cache::Object<Node>| {
        let taints = |node: &pintle::cache::Object<Node>| {
            let node = node.get().ok()?;
            node.spec.as_ref()?.taints.clone()
        };
        old.is_none_or(|old| taints(old) != taints(new))
    });
    Predicate::labels_changed().or(taints)
}

fn selector(set: &DaemonSet) -> Selector {
    let spec = set.spec.as_ref();
    spec.map_or_else(Selector::nothing, |spec| meta::selector(&spec.selector))
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    backoff: Arc<Mutex<Backoff>>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<DaemonSet>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    if cached.is_being_deleted() {
        // The garbage collector may have deleted its revisions already.
        return Ok(Action::await_change());
    }
    let mut set = (*cached.get()?).clone();
    let selector = selector(&set);
    let claimed = api::claim::<_, Pod>(&cx, &set, &selector, |_| true).await?;
    let mut pods = claimed.controlled;
    pods.extend(claimed.adopted);

    // Revisions that the set controls are never released: the selector must match the template, so
    // it also matches them.
    let is_orphan = |it: &ControllerRevision| meta::controller_of(&it.metadata).is_none();
    let claimed = api::claim::<_, ControllerRevision>(&cx, &set, &selector, is_orphan).await?;
    let mut history = claimed.controlled;
    history.extend(claimed.adopted);
    revisions::sort(&mut history);

    let current = match current_revision(&mut set, &history, &cx).await {
        Ok(Some(current)) => current,
        Ok(None) => return Ok(Action::await_change()),
        Err(error) if is_namespace_terminating(&error) => return Ok(Action::await_change()),
        Err(error) => return Err(error.into()),
    };
    let mut nodes = Vec::new();
    for node in cx.lister::<Node>()?.list() {
        nodes.push(node.get()?);
    }
    let planned = {
        let mut backoff = backoff.lock();
        let now = environment.clock.now();
        let planned = plan::plan(&Observed {
            set: &set,
            nodes: &nodes,
            pods: &pods,
            hash: plan::hash(&current),
            backoff: &backoff,
            now,
        });
        for key in planned.finished.iter().filter_map(|it| it.backoff.as_ref()) {
            backoff.record(key.clone(), now);
        }
        planned
    };

    let failure = apply(&set, &planned, plan::hash(&current), &cx, &recorder).await;
    if cached.get()?.status.as_ref() != Some(&planned.status) {
        let mut set = set.clone();
        set.status = Some(planned.status);
        api::replace_status(&cx, &set).await?;
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    let lister = cx.lister::<ControllerRevision>()?;
    for surplus in plan::surplus(&set, &history, &pods, plan::hash(&current)) {
        if let Some(object) = lister.get(&ObjectKey::of(&*surplus)) {
            cx.delete(&object).await?;
        }
    }
    Ok(planned
        .requeue_after
        .map_or_else(Action::await_change, Action::requeue_after))
}

/// Returns the revision of the set's template, creating or renumbering it if necessary, and records
/// collisions of its name in the status of `set`. Returns `None` if the cache is stale.
async fn current_revision(
    set: &mut DaemonSet,
    history: &[Arc<ControllerRevision>],
    cx: &Context,
) -> Result<Option<Arc<ControllerRevision>>, kube::Error> {
    let owner = revisions::Owner {
        metadata: &set.metadata,
        reference: meta::controller_reference(&*set),
        label: revisions::HASH,
    };
    let spec = set.spec.as_ref();
    let template = spec.map(|spec| spec.template.clone()).unwrap_or_default();
    let before = set.status.as_ref().and_then(|it| it.collision_count);
    let mut collisions = before.unwrap_or_default();
    let obtained = revisions::obtain(cx, &owner, &template, history, &mut collisions).await?;
    if collisions != before.unwrap_or_default() {
        set.status.get_or_insert_default().collision_count = Some(collisions);
    }
    Ok(obtained)
}

/// Creates Pods in growing batches until one fails, then deletes Pods. Returns the first error.
async fn apply(
    set: &DaemonSet,
    plan: &Plan,
    hash: &str,
    cx: &Context,
    recorder: &EventRecorder,
) -> Option<kube::Error> {
    for finished in &plan.finished {
        report(set, finished, recorder);
    }
    let mut failure = None;
    let mut nodes = plan.create.iter();
    for batch in slow_start(plan.create.len()) {
        let pods: Vec<_> = nodes
            .by_ref()
            .take(batch)
            .map(|node| place::pod(set, node, hash))
            .collect();
        for created in futures::future::join_all(pods.iter().map(|pod| cx.create(pod))).await {
            match created {
                Ok(pod) => {
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                }
                // No Pod can be created in a terminating namespace, and the set itself is deleted
                // soon.
                Err(error) if is_namespace_terminating(&error) => {}
                Err(error) => {
                    let message = format!("Error creating: {}", api::message(&error));
                    recorder.event(set, EventType::Warning, "FailedCreate", message);
                    failure.get_or_insert(error);
                }
            }
        }
        if failure.is_some() {
            break;
        }
    }
    let Ok(lister) = cx.lister::<Pod>() else {
        return failure;
    };
    let objects = plan.delete.iter();
    let objects = objects.filter_map(|pod| lister.get(&ObjectKey::of(&**pod)));
    let deletions = objects.map(|object| async move {
        let deleted = cx.delete(&object).await;
        (object, deleted)
    });
    for (object, deleted) in futures::future::join_all(deletions).await {
        match deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {}", object.key().name());
                recorder.event(set, EventType::Normal, "SuccessfulDelete", message);
            }
            Err(error) => {
                let message = format!("Error deleting: {}", api::message(&error));
                recorder.event(set, EventType::Warning, "FailedDelete", message);
                failure.get_or_insert(error);
            }
        }
    }
    failure
}

/// Emits the event of a Pod that should run, but has failed or succeeded.
fn report(set: &DaemonSet, finished: &Finished, recorder: &EventRecorder) {
    let Finished { pod, node, backoff } = finished;
    let pod = ObjectKey::of(&**pod);
    if backoff.is_some() {
        let message = format!("Found failed daemon pod {pod} on node {node}, will try to kill it");
        recorder.event(set, EventType::Warning, "FailedDaemonPod", message);
    } else {
        let message =
            format!("Found succeeded daemon pod {pod} on node {node}, will try to delete it");
        recorder.event(set, EventType::Normal, "SucceededDaemonPod", message);
    }
}
