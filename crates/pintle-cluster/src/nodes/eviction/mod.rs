//! Handles the Pods of failed nodes, as kube-controller-manager does: marks them not ready, deletes
//! them when they do not (or no longer) tolerate a `NoExecute` taint, and removes them when their
//! node is gone.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{DeleteParams, Preconditions};
use parking_lot::Mutex;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
    informer::Event,
};
use tokio_util::sync::CancellationToken;

use self::plan::{Deadlines, Verdict};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    pods::{self, state, with_condition},
};

/// The number of Pods reconciled concurrently.
const WORKERS: usize = 4;

/// The reason of events about Pods that do not tolerate a taint.
const EVICTION: &str = "TaintManagerEviction";

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let deadlines = Arc::new(Mutex::new(Deadlines::default()));
    let pods = environment.informers.informer::<Pod>();
    let forget = deadlines.clone();
    let _observing = pods.on_event(move |event| {
        if let Event::Deleted(deleted) = event {
            forget.lock().cancel(deleted.last.uid());
        }
    });
    let recorders = Recorders {
        taints: environment.events.recorder("taint-eviction-controller"),
        nodes: environment.events.recorder("node-controller"),
    };
    let (shared, bound) = (environment.clone(), pods.lister());
    environment
        .controller::<Pod>("pod-evictions")
        .watches::<Node>(move |node, _| pods::on_node(&bound, node.key().name()))
        .workers(WORKERS)
        .run_by_key(
            move |key, cx| {
                let (environment, deadlines) = (shared.clone(), deadlines.clone());
                reconcile(key, cx, environment, deadlines, recorders.clone())
            },
            &stop,
        )
        .await?;
    Ok(())
}

#[derive(Clone)]
struct Recorders {
    taints: EventRecorder,
    nodes: EventRecorder,
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    deadlines: Arc<Mutex<Deadlines>>,
    recorders: Recorders,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let pod = cached.get()?;
    let name = state::node_name(&pod);
    if name.is_empty() {
        return Ok(Action::await_change());
    }
    let node = cx.lister::<Node>()?.get(&ObjectKey::cluster(name));
    let node = node.map(|node| node.get()).transpose()?;
    let now = environment.clock.now();
    let verdict = deadlines.lock().decide(&pod, node.as_deref(), now);
    let mut status = pod.status.clone().unwrap_or_default();
    match verdict {
        Verdict::Wait(left) => return Ok(Action::requeue_after(left)),
        Verdict::Stay => {
            if deadlines.lock().cancel(cached.uid()) && !cached.is_being_deleted() {
                let message = format!("Cancelling deletion of Pod {key}");
                recorders
                    .taints
                    .event(&*pod, EventType::Normal, EVICTION, message);
            }
        }
        Verdict::NotReady => {
            let known = state::condition(&pod, "Ready").cloned();
            let condition = PodCondition {
                status: "False".into(),
                ..known.unwrap_or_default()
            };
            with_condition(&mut status, condition, now);
            if replace_status(&cx, &pod, status).await? {
                let message = "Node is not ready";
                recorders
                    .nodes
                    .event(&*pod, EventType::Warning, "NodeNotReady", message);
            }
        }
        Verdict::Evict => {
            let why = "Taint manager: deleting due to NoExecute taint";
            let target = disruption_target(&pod, "DeletionByTaintManager", why);
            with_condition(&mut status, target, now);
            if pod.status.as_ref() != Some(&status) && !replace_status(&cx, &pod, status).await? {
                return Ok(Action::await_change());
            }
            let message = format!("Marking for deletion Pod {key}");
            recorders
                .taints
                .event(&*pod, EventType::Normal, EVICTION, message);
            delete(&cx, &key, cached.uid(), None).await?;
        }
        Verdict::Collect { gone } => {
            if !state::is_finished(&pod) {
                status.phase = Some("Failed".into());
                if gone {
                    let why = "PodGC: node no longer exists";
                    let target = disruption_target(&pod, "DeletionByPodGC", why);
                    with_condition(&mut status, target, now);
                }
                if !replace_status(&cx, &pod, status).await? {
                    return Ok(Action::await_change());
                }
            }
            delete(&cx, &key, cached.uid(), Some(0)).await?;
        }
    }
    Ok(Action::await_change())
}

fn disruption_target(pod: &Pod, reason: &str, message: &str) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// Replaces the status of a Pod. Returns false if the Pod has changed or is gone; the change
/// triggers another reconcile.
async fn replace_status(
    cx: &Context,
    pod: &Pod,
    status: k8s_openapi::api::core::v1::PodStatus,
) -> Result<bool, kube::Error> {
    let changed = Pod {
        status: Some(status),
        ..pod.clone()
    };
    api::replace_status(cx, &changed).await
}

/// Deletes the Pod with this UID. `grace` overrides its own grace period.
async fn delete(
    cx: &Context,
    key: &ObjectKey,
    uid: &str,
    grace: Option<u32>,
) -> Result<(), kube::Error> {
    let namespace = key.namespace().unwrap_or_default();
    let pods = kube::Api::<Pod>::namespaced(cx.client().clone(), namespace);
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    unless_stale(pods.delete(key.name(), &params).await)?;
    Ok(())
}
