//! The Node and Lease objects of simulated nodes.

use std::{net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};

use super::{
    behavior::{InvalidNodeBehavior, NodeBehavior},
    template::NodeTemplate,
};
use crate::meta;

/// The namespace of node leases.
pub(crate) const LEASES: &str = "kube-node-lease";
/// The duration of a lease.
const LEASE: Duration = Duration::from_secs(40);
/// The renewal interval.
pub(crate) const RENEW: Duration = Duration::from_secs(10);

/// Returns the address of a node, from 10.0.0.1 upwards.
pub(crate) fn address(index: usize) -> Ipv4Addr {
    let index = u16::try_from(index).unwrap_or(u16::MAX);
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
pub(crate) fn node(template: &NodeTemplate) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(template.name.clone()),
            labels: Some(template.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(template.taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        ..Node::default()
    }
}

/// Returns the status that the kubelet of a node reports, or `None` if the node already has it.
///
/// Changes by other writers are retained, such as a different amount of a resource.
pub(crate) fn report(
    node: &Node,
    template: &NodeTemplate,
    index: usize,
    behavior: &Result<NodeBehavior, InvalidNodeBehavior>,
    now: Timestamp,
) -> Option<NodeStatus> {
    let mut status = if address_of(node).is_some() {
        node.status.clone().unwrap_or_default()
    } else {
        machine(template, index)
    };
    let known = status.conditions.take().unwrap_or_default();
    let own = conditions(behavior);
    let mut changed = address_of(node).is_none();
    let mut conditions = Vec::new();
    for (type_, value, reason, message) in &own {
        let before = known.iter().find(|it| it.type_ == *type_);
        let same = before.filter(|it| (it.status == "True") == *value && it.status != "Unknown");
        changed |= same.is_none_or(|it| it.reason.as_deref() != Some(reason));
        let since = same.and_then(|it| it.last_transition_time.clone());
        conditions.push(NodeCondition {
            type_: (*type_).into(),
            status: if *value { "True" } else { "False" }.into(),
            reason: Some((*reason).into()),
            message: Some(message.clone()),
            last_heartbeat_time: Some(meta::time(now)),
            last_transition_time: Some(since.unwrap_or_else(|| meta::time(now))),
        });
    }
    let others = known.into_iter();
    conditions.extend(others.filter(|it| own.iter().all(|(type_, ..)| it.type_ != *type_)));
    status.conditions = Some(conditions);
    changed.then_some(status)
}

/// A condition: its type, whether it is true, the reason and a message.
type Condition = (&'static str, bool, &'static str, String);

/// Returns the conditions that a kubelet reports, in its order.
fn conditions(behavior: &Result<NodeBehavior, InvalidNodeBehavior>) -> [Condition; 4] {
    let healthy = NodeBehavior::healthy();
    let now = behavior.as_ref().unwrap_or(&healthy);
    let pressure = |type_, value, [bad, good]: [&'static str; 2], what: [&str; 2]| {
        let [bad_text, good_text] = what;
        let (reason, text) = if value {
            (bad, bad_text)
        } else {
            (good, good_text)
        };
        (type_, value, reason, format!("kubelet has {text}"))
    };
    let ready = match behavior {
        Err(error) => ("Ready", false, "InvalidBehavior", error.to_string()),
        Ok(it) if it.not_ready => {
            let why = "the simulated node is not ready".to_owned();
            ("Ready", false, "KubeletNotReady", why)
        }
        Ok(_) => (
            "Ready",
            true,
            "KubeletReady",
            "the simulated node is ready".to_owned(),
        ),
    };
    [
        pressure(
            "MemoryPressure",
            now.memory_pressure,
            ["KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"],
            [
                "insufficient memory available",
                "sufficient memory available",
            ],
        ),
        pressure(
            "DiskPressure",
            now.disk_full,
            ["KubeletHasDiskPressure", "KubeletHasNoDiskPressure"],
            ["disk pressure", "no disk pressure"],
        ),
        pressure(
            "PIDPressure",
            now.pid_pressure,
            ["KubeletHasInsufficientPID", "KubeletHasSufficientPID"],
            ["insufficient PID available", "sufficient PID available"],
        ),
        ready,
    ]
}

/// Returns the part of the status of a node that does not change.
fn machine(template: &NodeTemplate, index: usize) -> NodeStatus {
    let addresses = [
        ("InternalIP", address(index).to_string()),
        ("Hostname", template.name.clone()),
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
        allocatable: Some(template.allocatable.clone()),
        capacity: Some(template.allocatable.clone()),
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
