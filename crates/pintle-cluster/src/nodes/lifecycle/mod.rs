//! The lifecycle of nodes, as in kube-controller-manager: a node whose lease expires becomes
//! `Unknown`, and nodes get taints for their conditions, which repel Pods.
//!
//! Differences from kube-controller-manager: only the leases of simulated nodes are monitored, so a
//! Node that a test creates is left alone; it keeps the taint of new nodes until it has a `Ready`
//! condition; and the nodes of a zone are tainted together instead of one every ten seconds.

mod plan;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::plan::{condition, is_repelling};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("node-controller");
    let (shared, others) = (
        environment.clone(),
        environment.informers.informer::<Node>().lister(),
    );
    environment
        .controller::<Node>("node-lifecycle")
        .watches::<Node>(move |_, _| {
            // Whether Pods are evicted from an unready node depends on how many nodes are ready.
            let mut keys: Vec<ObjectKey> = others
                .list()
                .into_iter()
                .filter(|node| node.get().is_ok_and(|node| !is_ready(&node)))
                .map(|node| node.key().clone())
                .collect();
            keys.sort();
            keys
        })
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Returns whether the `Ready` condition of a node is true.
pub(crate) fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let lister = cx.lister::<Node>()?;
    let Some(cached) = lister.get(&key) else {
        return Ok(Action::await_change());
    };
    let (node, now) = (cached.get()?, environment.clock.now());
    let renewed = environment.machines.last_renewal(key.name());
    let expires = renewed.map(|at| at.saturating_add(plan::GRACE).unwrap_or(at));
    let left = expires.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    if left == Some(Duration::ZERO)
        && let Some(status) = plan::unreachable(&node, now)
    {
        let unreachable = Node {
            status: Some(status),
            ..(*node).clone()
        };
        if api::replace_status(&cx, &unreachable).await? && is_ready(&node) {
            let message = format!("Node {} status is now: NodeNotReady", key.name());
            recorder.event(&*node, EventType::Normal, "NodeNotReady", message);
        }
        return Ok(Action::await_change());
    }
    let mut nodes = Vec::new();
    for node in lister.list() {
        nodes.push(node.get()?);
    }
    let evictions = plan::evictions(&node, &nodes);
    if let Some(taints) = plan::taints(&node, evictions, now) {
        let tainted = Node {
            spec: Some(NodeSpec {
                taints: Some(taints),
                ..node.spec.clone().unwrap_or_default()
            }),
            ..(*node).clone()
        };
        unless_stale(cx.replace(&tainted).await)?;
    }
    Ok(match left {
        Some(left) if !left.is_zero() => Action::requeue_after(left),
        _ => Action::await_change(),
    })
}
