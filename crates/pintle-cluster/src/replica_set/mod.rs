//! `ReplicaSet`s: as many Pods as wanted. The example of a control loop.
//!
//! What happens when somebody scales a set from one replica to two:
//!
//! 1. The server stores the new size. The **watch** of the process tells its informer, which puts
//!    the new state into the **cache** and then tells its handlers. The controller's handler adds
//!    the set's key, `default/web`, to the **queue**; if it is there already, once is enough.
//! 2. A **worker** takes the key and calls [`reconcile`] with it. No other worker gets this key
//!    meanwhile.
//! 3. [`reconcile`] looks the set up in the cache, not on the server; if it is gone, the work is
//!    done. It also looks up the Pods: those the set controls, and orphans it may adopt.
//! 4. [`plan::plan`] compares: one Pod, two wanted, one to create. It is a function of what was
//!    seen, so that running it again can never do harm; it does not know or care what the change
//!    was.
//! 5. The **Pod is created** from the set's template, with the set as its controlling **owner
//!    reference**, and an **event** for people says so.
//! 6. The **status** is brought in line: two replicas, one of them ready.
//! 7. The watch tells of the new Pod. Its owner reference leads to the key `default/web`, and so
//!    the loop runs again, finds everything as it should be, and writes nothing. The same happens
//!    when the Pod becomes ready, and then the status says two.
//!
//! A step that fails ends the run with an error, and the key is retried with back-off.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use pintle::{
    cache::{ObjectKey, Selector},
    controller::{Action, Context, Controller, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::plan::{Failure, Plan};
use crate::{
    api::{self, is_namespace_terminating},
    manager::{Environment, LoopError},
    meta::{self, Claim},
    pods::state::{is_active, is_terminating},
};

/// Runs the loop until `stop`.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("replicaset-controller");
    let sets = environment.informers.informer::<ReplicaSet>().lister();
    let shared = environment.clone();
    Controller::<ReplicaSet>::new("replicaset-controller", &environment.informers)
        .owns::<Pod>()
        .watches::<Pod>(api::adopters(sets, selector))
        .workers(5)
        .metrics(&environment.metrics)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<ReplicaSet>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let set = cached.get()?;
    let Pods {
        mut active,
        mut terminating,
    } = claim_pods(&set, &cx).await?;

    let mut failure = None;
    if !cached.is_being_deleted() {
        let too_many = active.len() > plan::wanted(&set);
        let related = if too_many {
            related_pods(&set, &cx)?
        } else {
            Vec::new()
        };
        match plan::plan(&set, &active, &related, environment.clock.now()) {
            Plan::Keep => {}
            Plan::Create(count) => {
                failure = create_pods(&set, count, &mut active, &cx, &recorder).await;
            }
            Plan::Delete(pods) => {
                terminating += pods.len();
                failure = delete_pods(&set, &pods, &mut active, &cx, &recorder).await?;
            }
        }
    }

    // The status is about the Pods there are after this run: who reads that the set has observed
    // its present generation knows that the surplus of the one before is on its way out.
    let now = environment.clock.now();
    let status = plan::status(&set, &active, terminating, failure.as_ref(), now);
    if set.status.as_ref() != Some(&status) {
        let mut set = (*set).clone();
        set.status = Some(status);
        api::replace_status(&cx, &set).await?;
    }
    if let Some(Failure { message, .. }) = failure {
        return Err(ReconcileError::retry(message));
    }
    Ok(match plan::next_availability(&set, &active, now) {
        Some(wait) => Action::requeue_after(wait),
        None => Action::await_change(),
    })
}

/// The Pods of one set.
struct Pods {
    active: Vec<Arc<Pod>>,
    terminating: usize,
}

/// Finds the Pods of a set, adopting orphans that match and releasing those that no longer do.
async fn claim_pods(set: &ReplicaSet, cx: &Context) -> Result<Pods, ReconcileError> {
    let mut pods = Pods {
        active: Vec::new(),
        terminating: 0,
    };
    let selector = selector(set);
    let mut checked = false;
    for object in api::controlled_or_orphaned::<Pod>(cx, &set.metadata)? {
        let pod = object.get()?;
        let selected = meta::selects(&selector, &pod.metadata);
        match meta::claim(&set.metadata, &pod.metadata, selected) {
            Claim::Ours if is_active(&pod) => pods.active.push(pod),
            Claim::Ours if is_terminating(&pod) => pods.terminating += 1,
            Claim::Adopt if is_active(&pod) => {
                if !checked {
                    api::ensure_alive(cx, set).await?;
                    checked = true;
                }
                let owners = meta::with_controller(&pod.metadata, set);
                if api::set_owners::<Pod>(cx, &object, owners).await? {
                    pods.active.push(pod);
                }
            }
            Claim::Release if is_active(&pod) => {
                let owners = meta::without_owner(&pod.metadata, meta::uid(&set.metadata));
                api::set_owners::<Pod>(cx, &object, owners).await?;
            }
            _ => {}
        }
    }
    Ok(pods)
}

fn selector(set: &ReplicaSet) -> Selector {
    let spec = set.spec.as_ref();
    spec.map_or_else(Selector::nothing, |spec| meta::selector(&spec.selector))
}

/// All Pods of the sets with the same controller as this one: of the same Deployment.
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

/// Creates Pods in batches of 1, 2, 4 and so on, and stops after the first batch with a failure.
async fn create_pods(
    set: &ReplicaSet,
    count: usize,
    active: &mut Vec<Arc<Pod>>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Option<Failure> {
    let pod = plan::pod_from_template(set);
    for batch in plan::slow_start(count) {
        let created = futures::future::join_all((0..batch).map(|_| cx.create(&pod))).await;
        let mut failure = None;
        for result in created {
            match result {
                Ok(pod) => {
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                    active.push(Arc::new(pod));
                }
                // Nothing can be created there any more, and soon the set is gone too.
                Err(error) if is_namespace_terminating(&error) => return None,
                Err(error) => {
                    let message = format!("Error creating: {}", api::message(&error));
                    recorder.event(set, EventType::Warning, "FailedCreate", message);
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
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    active: &mut Vec<Arc<Pod>>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<Option<Failure>, ReconcileError> {
    let lister = cx.lister::<Pod>()?;
    let going = pods
        .iter()
        .filter_map(|pod| lister.get(&ObjectKey::of(&**pod)))
        .map(|object| async move {
            let deleted = cx.delete(&object).await;
            (object, deleted)
        });
    let mut failure = None;
    for (object, deleted) in futures::future::join_all(going).await {
        match deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {}", object.key().name());
                recorder.event(set, EventType::Normal, "SuccessfulDelete", message);
                active.retain(|other| meta::uid(&other.metadata) != object.uid());
            }
            Err(error) => {
                let message = format!("Error deleting: {}", api::message(&error));
                recorder.event(set, EventType::Warning, "FailedDelete", message);
                failure = Some(Failure {
                    reason: "FailedDelete",
                    message: api::message(&error),
                });
            }
        }
    }
    Ok(failure)
}
