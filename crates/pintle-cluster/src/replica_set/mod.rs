//! Creates and deletes Pods to match the size of a `ReplicaSet`. A good first loop to read.
//!
//! When a set is scaled from one replica to two:
//!
//! 1. The API server stores the new size. The **watch** delivers it to the informer, which updates
//!    the **cache** and then notifies its handlers. The handler of the controller adds the key of
//!    the set, `default/web`, to the **queue**. A key that is already queued is not added again.
//! 2. A **worker** takes the key and calls [`reconcile`]. No other worker processes the same key
//!    concurrently.
//! 3. [`reconcile`] reads the set from the cache, not from the server; if it is gone, there is
//!    nothing to do. It also reads the Pods that the set controls and the orphans it may adopt.
//! 4. [`plan::plan`] compares: one Pod exists, two are desired, one must be created. It is a pure
//!    function of the observed state and does not know what changed, so running it again is safe.
//! 5. The **Pod is created** from the template of the set, with the set as controller in its
//!    **owner references**, and an **event** is recorded.
//! 6. The **status** is updated: two replicas, one of them ready.
//! 7. The watch delivers the new Pod. Its owner reference maps it to the key `default/web`, so the
//!    loop runs again, finds nothing to do, and writes nothing. When the Pod becomes ready, the
//!    same happens and the status changes to two ready replicas.
//!
//! An error in any step ends the reconcile, and the key is retried with back-off.
//!
//! The same loop serves `ReplicationController`s, their predecessors: see [`Replicator`].

mod plan;
mod replicator;

pub(crate) use self::plan::slow_start;

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Pod, ReplicationController},
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::{
    plan::{Failure, Plan},
    replicator::Replicator,
};
use crate::{
    api::{self, is_namespace_terminating},
    loops::{Environment, LoopError},
    meta,
    pods::state::{is_active, is_terminating},
};

/// Runs the loop for `ReplicaSet`s until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    run_for::<ReplicaSet>(environment, stop, "replicaset-controller").await
}

/// Runs the loop for `ReplicationController`s until `stop` is cancelled.
pub(crate) async fn run_controllers(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    run_for::<ReplicationController>(environment, stop, "replication-controller").await
}

async fn run_for<K: Replicator>(
    environment: Arc<Environment>,
    stop: CancellationToken,
    name: &'static str,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder(name);
    let owners = environment.informers.informer::<K>().lister();
    let shared = environment.clone();
    environment
        .controller::<K>(name)
        .owns::<Pod>()
        .watches::<Pod>(api::adopters(owners, K::selector))
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile::<K>(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile<K: Replicator>(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<K>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let owner = cached.get()?;
    let claimed = api::claim::<_, Pod>(&cx, &*owner, &owner.selector(), is_active).await?;
    let mut terminating = claimed
        .controlled
        .iter()
        .filter(|pod| is_terminating(pod))
        .count();
    let mut active = claimed.controlled;
    active.retain(|pod| is_active(pod));
    active.extend(claimed.adopted);

    let set = owner.as_set();
    let mut failure = None;
    if !cached.is_being_deleted() {
        let too_many = active.len() > plan::desired(&set);
        let related = if too_many {
            related_pods(&set, &cx)?
        } else {
            Vec::new()
        };
        match plan::plan(&set, &active, &related, environment.clock.now()) {
            Plan::None => {}
            Plan::Create(count) => {
                let pod = plan::pod_from_template(&set, meta::controller_reference(&*owner));
                failure = create_pods(&*owner, &pod, count, &mut active, &cx, &recorder).await;
            }
            Plan::Delete(pods) => {
                terminating += pods.len();
                failure = delete_pods(&*owner, &pods, &mut active, &cx, &recorder).await?;
            }
        }
    }

    // The status counts the Pods that remain after this reconcile. A status with the current
    // `observedGeneration` therefore implies that surplus Pods are already being deleted.
    let now = environment.clock.now();
    let status = plan::status(&set, &active, terminating, failure.as_ref(), now);
    if let Some(owner) = owner.with_status(status) {
        api::replace_status(&cx, &owner).await?;
    }
    if let Some(Failure { message, .. }) = failure {
        return Err(ReconcileError::retry(message));
    }
    Ok(match plan::next_availability(&set, &active, now) {
        Some(wait) => Action::requeue_after(wait),
        None => Action::await_change(),
    })
}

/// Returns the Pods of all sets that have the same controller, that is, of the same Deployment.
fn related_pods(set: &ReplicaSet, cx: &Context) -> Result<Vec<Arc<Pod>>, ReconcileError> {
    let uids = match meta::controller_of(&set.metadata) {
        None => vec![meta::uid(&set.metadata).to_owned()],
        Some(owner) => api::controlled::<ReplicaSet>(cx, &owner.uid)?
            .iter()
            .map(|set| set.uid().to_owned())
            .collect(),
    };
    let mut related = Vec::new();
    for uid in uids {
        for pod in api::controlled::<Pod>(cx, &uid)? {
            related.push(pod.get()?);
        }
    }
    Ok(related)
}

/// Creates Pods in batches of 1, 2, 4 and so on, up to the first batch with a failure.
async fn create_pods(
    owner: &impl Replicator,
    pod: &Pod,
    count: usize,
    active: &mut Vec<Arc<Pod>>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Option<Failure> {
    for batch in slow_start(count) {
        let created = futures::future::join_all((0..batch).map(|_| cx.create(pod))).await;
        let mut failure = None;
        for result in created {
            match result {
                Ok(pod) => {
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    recorder.event(owner, EventType::Normal, "SuccessfulCreate", message);
                    active.push(Arc::new(pod));
                }
                // Nothing can be created in a terminating namespace, and the set is deleted soon.
                Err(error) if is_namespace_terminating(&error) => return None,
                Err(error) => {
                    let message = format!("Error creating: {}", api::message(&error));
                    recorder.event(owner, EventType::Warning, "FailedCreate", message);
                    failure = Some(Failure {
                        reason: "FailedCreate",
                        message: api::message(&error),
                    });
                }
            }
        }
        if failure.is_some() {
            return failure;
        }
    }
    None
}

async fn delete_pods(
    owner: &impl Replicator,
    pods: &[Arc<Pod>],
    active: &mut Vec<Arc<Pod>>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<Option<Failure>, ReconcileError> {
    let lister = cx.lister::<Pod>()?;
    let deletions = pods
        .iter()
        .filter_map(|pod| lister.get(&ObjectKey::of(&**pod)))
        .map(|object| async move {
            let deleted = cx.delete(&object).await;
            (object, deleted)
        });
    let mut failure = None;
    for (object, deleted) in futures::future::join_all(deletions).await {
        match deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {}", object.key().name());
                recorder.event(owner, EventType::Normal, "SuccessfulDelete", message);
                active.retain(|other| meta::uid(&other.metadata) != object.uid());
            }
            Err(error) => {
                let message = format!("Error deleting: {}", api::message(&error));
                recorder.event(owner, EventType::Warning, "FailedDelete", message);
                failure = Some(Failure {
                    reason: "FailedDelete",
                    message: api::message(&error),
                });
            }
        }
    }
    Ok(failure)
}
