//! Simulated nodes: their kubelets, the lifecycle of nodes that fail, and the Pods on them.
//!
//! [`run`] does what kubelets do for their nodes: it registers them, reports their conditions and
//! renews their leases, unless a node is lost. [`lifecycle`] notices missing leases and taints
//! nodes by their conditions. [`eviction`] deletes the Pods that do not tolerate a taint, or whose
//! node is gone.

mod behavior;
pub(crate) mod eviction;
mod handle;
pub(crate) mod lifecycle;
pub(crate) mod machines;
pub(crate) mod plan;
mod template;

pub use self::{
    behavior::{InvalidNodeBehavior, NodeBehavior},
    handle::{NodeHandle, UnknownNode},
    template::{NodeTemplate, TaintEffect},
};

use std::sync::Arc;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, api::PostParams};
use pintle::cache::{Lister, ObjectKey};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::machines::Machines;
use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
};

/// The name of the kubelets' loop.
pub(crate) const LOOP: &str = "nodes";

/// Waits until Pods can be scheduled to every node that is not scripted to fail.
pub(crate) async fn started(nodes: &Lister<Node>, machines: &Machines) {
    let has_started = |template: &NodeTemplate| {
        let node = nodes.get(&ObjectKey::cluster(template.name()));
        node.and_then(|node| node.get().ok()).is_some_and(|node| {
            let fails = machines
                .behavior(&node)
                .map_or(true, |it| it.lost || it.not_ready);
            fails || lifecycle::is_ready(&node) && !lifecycle::is_repelling(&node)
        })
    };
    loop {
        let changed = nodes.changed();
        if machines.templates().iter().all(has_started) {
            return;
        }
        changed.await;
    }
}

/// Registers the nodes, reports their conditions and renews their leases until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let mut scripts = environment.machines.subscribe();
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    let nodes = environment.informers.informer::<Node>();
    let _observing = nodes.on_event(move |_| notify.notify_one());
    let mut next = Instant::now();
    loop {
        let renews = next <= Instant::now();
        for (index, template) in environment.machines.templates().iter().enumerate() {
            let node = register(&environment, template, index).await?;
            if let Some(node) = node.filter(|_| renews) {
                renew(&environment, &node).await?;
            }
        }
        if renews {
            next += plan::RENEW;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep_until(next) => {}
            // The environment holds the sender, so the channel stays open.
            Ok(()) = scripts.changed() => {}
            () = changed.notified() => {}
        }
    }
}

/// Returns the node of a machine, after creating it and reporting its conditions where necessary.
/// `None` if the machine is lost, or if its node was deleted.
async fn register(
    environment: &Environment,
    template: &NodeTemplate,
    index: usize,
) -> Result<Option<Node>, kube::Error> {
    let (nodes, machines) = (
        Api::<Node>::all(environment.client.clone()),
        &environment.machines,
    );
    let name = template.name();
    let scripted = machines.scripted(name);
    if scripted.is_some_and(|script| script.lost) && machines.is_registered(name) {
        return Ok(None);
    }
    let cached = environment.informers.informer::<Node>().lister();
    let cached = cached.get(&ObjectKey::cluster(name));
    let node = match cached.and_then(|node| node.get().ok()) {
        Some(node) => (*node).clone(),
        None if machines.is_registered(name) => return Ok(None),
        None => {
            if let Some(node) = nodes.get_opt(name).await? {
                node
            } else {
                let node = plan::node(template);
                nodes.create(&PostParams::default(), &node).await?
            }
        }
    };
    machines.set_registered(name);
    if machines.is_lost(&node) {
        return Ok(None);
    }
    let behavior = machines.behavior(&node);
    let now = environment.clock.now();
    let Some(status) = plan::report(&node, template, index, &behavior, now) else {
        return Ok(Some(node));
    };
    let reported = Node {
        status: Some(status),
        ..node.clone()
    };
    // A report counts as a renewal: a recovered node reports before it renews its lease.
    machines.renewed(name, now);
    let params = PostParams::default();
    let written = nodes.replace_status(name, &params, &reported).await;
    Ok(Some(unless_stale(written)?.unwrap_or(node)))
}

/// Renews the lease of a node.
async fn renew(environment: &Environment, node: &Node) -> Result<(), kube::Error> {
    let leases = Api::<Lease>::namespaced(environment.client.clone(), plan::LEASES);
    let name = crate::meta::name(&node.metadata);
    let now = environment.clock.now();
    let before = leases.get_opt(name).await?;
    let lease = plan::lease(node, before.as_ref(), now);
    let params = PostParams::default();
    let written = match before {
        Some(_) => leases.replace(name, &params, &lease).await,
        None => leases.create(&params, &lease).await,
    };
    if unless_stale(written)?.is_some() {
        environment.machines.renewed(name, now);
    }
    Ok(())
}
