//! Registers simulated nodes and renews their leases.

pub(crate) mod plan;

use std::sync::Arc;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
};

/// The name of the loop.
pub(crate) const LOOP: &str = "nodes";

/// Registers the nodes and renews their leases until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let mut next = Instant::now();
    loop {
        for index in 0..environment.nodes {
            let node = register(&environment, index).await?;
            renew(&environment, &node).await?;
        }
        next += plan::RENEW;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep_until(next) => {}
        }
    }
}

/// Returns a node, after creating it, reporting it healthy and removing its not-ready taint where
/// necessary.
async fn register(environment: &Environment, index: u16) -> Result<Node, kube::Error> {
    let nodes = Api::<Node>::all(environment.client.clone());
    let name = plan::name(index);
    let cached = environment.informers.informer::<Node>().lister();
    let cached = cached.get(&pintle::cache::ObjectKey::cluster(&name));
    let node = match cached.and_then(|node| node.get().ok()) {
        Some(node) => (*node).clone(),
        None => match nodes.get_opt(&name).await? {
            Some(node) => node,
            None => {
                nodes
                    .create(&PostParams::default(), &plan::node(index))
                    .await?
            }
        },
    };
    let node = if plan::is_healthy(&node) {
        node
    } else {
        let status = plan::status(index, environment.clock.now());
        let reported = Node {
            status: Some(status),
            ..node.clone()
        };
        let params = PostParams::default();
        let written = nodes.replace_status(&name, &params, &reported).await;
        unless_stale(written)?.unwrap_or(node)
    };
    let Some(admitted) = plan::without_not_ready_taint(&node) else {
        return Ok(node);
    };
    let written = nodes
        .replace(&name, &PostParams::default(), &admitted)
        .await;
    Ok(unless_stale(written)?.unwrap_or(node))
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
    unless_stale(written)?;
    Ok(())
}
