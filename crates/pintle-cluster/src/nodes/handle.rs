//! Controls a simulated node from a test.

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use super::{behavior::NodeBehavior, machines::Machines};
use crate::meta;

/// How often a drain retries an eviction that a disruption budget forbids.
const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// How often a drain checks whether evicted Pods are gone.
const POLL: Duration = Duration::from_secs(1);

/// A simulated node; see [`Cluster::node`](crate::Cluster::node).
///
/// A behavior takes effect immediately, lasts as long as the cluster, and takes precedence over the
/// annotation of the Node. Cordoning and draining change the Node and its Pods, as kubectl does.
#[derive(Clone)]
pub struct NodeHandle {
    machines: Machines,
    client: Client,
    name: String,
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeHandle").field(&self.name).finish()
    }
}

/// The cluster did not start with a simulated node that has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no simulated node named {0:?}")]
pub struct UnknownNode(String);

impl NodeHandle {
    pub(crate) fn new(machines: Machines, client: Client, name: String) -> Self {
        Self {
            machines,
            client,
            name,
        }
    }

    fn script(&self, change: impl FnOnce(&mut NodeBehavior)) -> Result<(), UnknownNode> {
        if !self.machines.has(&self.name) {
            return Err(UnknownNode(self.name.clone()));
        }
        self.machines.script(&self.name, change);
        Ok(())
    }

    /// Cuts the node off: it stops renewing its lease, and its Pods neither start nor stop.
    ///
    /// After 50 s the node is `Unknown`, its Pods are not ready, and it gets the `unreachable`
    /// taints. After another five minutes, unless their tolerations set a different time, its Pods
    /// are deleted, but they remain until the node recovers or its Node is deleted. Nothing is
    /// evicted while all nodes are lost.
    ///
    /// # Errors
    ///
    /// Fails if there is no such simulated node.
    pub fn lose(&self) -> Result<(), UnknownNode> {
        self.script(|behavior| behavior.lost = true)
    }

    /// Repairs the node: it becomes healthy and, if its Node was deleted, registers again.
    ///
    /// # Errors
    ///
    /// Fails if there is no such simulated node.
    pub fn recover(&self) -> Result<(), UnknownNode> {
        self.behave(NodeBehavior::healthy())
    }

    /// Fills the disk: the node reports `DiskPressure` and evicts a Pod every ten seconds, the
    /// least important first.
    ///
    /// # Errors
    ///
    /// Fails if there is no such simulated node.
    pub fn fill_disk(&self) -> Result<(), UnknownNode> {
        self.script(|behavior| behavior.disk_full = true)
    }

    /// Replaces the behavior of the node.
    ///
    /// # Errors
    ///
    /// Fails if there is no such simulated node.
    pub fn behave(&self, behavior: NodeBehavior) -> Result<(), UnknownNode> {
        self.script(|current| *current = behavior)
    }

    /// Keeps new Pods away from the node, like `kubectl cordon`.
    ///
    /// # Errors
    ///
    /// Fails if the API server rejects the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the node is cordoned or not.
    pub async fn cordon(&self) -> Result<(), kube::Error> {
        self.set_unschedulable(true).await
    }

    /// Undoes [`cordon`](Self::cordon) and [`drain`](Self::drain), like `kubectl uncordon`.
    ///
    /// # Errors
    ///
    /// Fails if the API server rejects the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the node is cordoned or not.
    pub async fn uncordon(&self) -> Result<(), kube::Error> {
        self.set_unschedulable(false).await
    }

    async fn set_unschedulable(&self, unschedulable: bool) -> Result<(), kube::Error> {
        let patch = json!({ "spec": { "unschedulable": unschedulable } });
        let nodes = Api::<Node>::all(self.client.clone());
        let params = PatchParams::default();
        nodes
            .patch(&self.name, &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Cordons the node, evicts its Pods except those of `DaemonSet`s, and waits until they are
    /// gone, like `kubectl drain --ignore-daemonsets --force --delete-emptydir-data`.
    ///
    /// An eviction that a disruption budget forbids is retried every five seconds, without a limit.
    /// The Pods of a lost node are never removed, so use a timeout where that can happen.
    ///
    /// # Errors
    ///
    /// Fails if any other request fails.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the node stays cordoned, and Pods that were evicted stay evicted.
    pub async fn drain(&self) -> Result<(), kube::Error> {
        self.cordon().await?;
        let pods = Api::<Pod>::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        let leaves = |pod: &Pod| {
            let owner = meta::controller_of(&pod.metadata);
            let is_static = pod
                .annotations()
                .contains_key("kubernetes.io/config.mirror");
            !is_static && owner.is_none_or(|owner| owner.kind != "DaemonSet")
        };
        loop {
            let mut left = pods.list(&here).await?.items;
            left.retain(leaves);
            if left.is_empty() {
                return Ok(());
            }
            let mut wait = POLL;
            for pod in left
                .iter()
                .filter(|pod| !meta::is_being_deleted(&pod.metadata))
            {
                let namespace = pod.namespace().unwrap_or_default();
                let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
                match pods.evict(&pod.name_any(), &EvictParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(kube::Error::Api(status)) if status.code == 429 => wait = EVICTION_RETRY,
                    Err(error) => return Err(error),
                }
            }
            sleep(wait).await;
        }
    }
}
