//! The Node and Lease objects of simulated nodes.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
    },
};

use crate::meta;

/// The namespace of node leases.
pub(crate) const LEASES: &str = "kube-node-lease";
/// The duration of a lease.
const LEASE: Duration = Duration::from_secs(40);
/// The renewal interval.
pub(crate) const RENEW: Duration = Duration::from_secs(10);

pub(crate) fn name(index: u16) -> String {
    format!("node-{index}")
}

/// Returns the address of a node, from 10.0.0.1 upwards.
pub(crate) fn address(index: u16) -> Ipv4Addr {
    let [high, low] = index.saturating_add(1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

/// Returns the internal IP in the status of a node.
pub(crate) fn address_of(node: &Node) -> Option<Ipv4Addr> {
    node.status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .find(|address| address.type_ == "InternalIP")
        .and_then(|address| address.address.parse().ok())
}

/// Builds the Node to register.
pub(crate) fn node(index: u16) -> Node {
    let name = name(index);
    let labels = [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ];
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// Returns whether the node is ready and has an address.
pub(crate) fn is_healthy(node: &Node) -> bool {
    let mut conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && address_of(node).is_some()
}

/// Returns a ready node without the taint that keeps Pods away from new nodes, or `None` if the node
/// is not ready or not tainted.
pub(crate) fn without_not_ready_taint(node: &Node) -> Option<Node> {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    if !is_healthy(node) {
        return None;
    }
    let mut untainted = node.clone();
    let taints = untainted.spec.as_mut()?.taints.as_mut()?;
    let before = taints.len();
    taints.retain(|taint| taint.key != NOT_READY);
    (taints.len() < before).then_some(untainted)
}

/// Returns the status of a healthy node.
pub(crate) fn status(index: u16, now: Timestamp) -> NodeStatus {
    let resources: BTreeMap<String, Quantity> =
        [("cpu", "64"), ("memory", "256Gi"), ("pods", "500")]
            .map(|(name, amount)| (name.into(), Quantity(amount.into())))
            .into();
    let conditions = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "True",
            "KubeletReady",
            "the simulated node is ready",
        ),
    ];
    let conditions = conditions.map(|(type_, status, reason, message)| NodeCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(meta::time(now)),
        last_transition_time: Some(meta::time(now)),
    });
    let addresses = [
        ("InternalIP", address(index).to_string()),
        ("Hostname", name(index)),
    ];
    NodeStatus {
        addresses: Some(
            addresses
                .map(|(type_, address)| NodeAddress {
                    type_: type_.into(),
                    address,
                })
                .into(),
        ),
        allocatable: Some(resources.clone()),
        capacity: Some(resources),
        conditions: Some(conditions.into()),
        node_info: Some(NodeSystemInfo {
            architecture: "amd64".into(),
            operating_system: "linux".into(),
            os_image: "simulated".into(),
            kernel_version: "none".into(),
            container_runtime_version: "simulated://0".into(),
            kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-pintle").into(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Returns a new or renewed lease.
pub(crate) fn lease(node: &Node, before: Option<&Lease>, now: Timestamp) -> Lease {
    let name = meta::name(&node.metadata).to_owned();
    let mut lease = before.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASES.into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.clone(),
                uid: meta::uid(&node.metadata).into(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(name);
    spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
    spec.renew_time = Some(MicroTime(now));
    lease
}

#[cfg(test)]
mod tests;
