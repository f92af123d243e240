//! Simulated nodes: they register themselves and show a sign of life.

pub(crate) mod plan;

use std::sync::Arc;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    api::unless_stale,
    manager::{Environment, LoopError},
};

/// Registers the nodes, then renews their leases until `stop`.
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
            biased; // Who is told to stop does not renew.
            () = stop.cancelled() => return Ok(()),
            () = sleep_until(next) => {}
        }
    }
}

/// The node as the server has it, created if it is not there and reported healthy if it is not.
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
    if plan::is_healthy(&node) {
        return Ok(node);
    }
    let status = plan::status(index, environment.clock.now());
    let reported = Node {
        status: Some(status),
        ..node.clone()
    };
    let written = nodes
        .replace_status(&name, &PostParams::default(), &reported)
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
