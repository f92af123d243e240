//! Decides the conditions and taints of nodes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Taint};

use crate::{meta, pods::fit};

/// The time since the last renewal of its lease after which a node counts as unreachable.
pub(super) const GRACE: Duration = Duration::from_secs(50);

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taints by condition: its type, its status, and the key of the taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
    ),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

pub(crate) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let status = node.status.iter();
    let mut all = status.flat_map(|status| status.conditions.iter().flatten());
    all.find(|condition| condition.type_ == type_)
}

/// Returns the status of a node that has not reported for too long, or `None` if it already has it.
pub(super) fn unreachable(node: &Node, now: Timestamp) -> Option<NodeStatus> {
    let mut status = node.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    let mut changed = false;
    for type_ in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let unknown = |reason: &str, message: &str, heartbeat| NodeCondition {
            type_: type_.into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: heartbeat,
            last_transition_time: Some(meta::time(now)),
        };
        match conditions.iter_mut().find(|it| it.type_ == type_) {
            Some(known) if known.status == "Unknown" => continue,
            Some(known) => {
                let heartbeat = known.last_heartbeat_time.take();
                let message = "Kubelet stopped posting node status.";
                *known = unknown("NodeStatusUnknown", message, heartbeat);
            }
            None => {
                let created = node.metadata.creation_timestamp.clone();
                let message = "Kubelet never posted node status.";
                conditions.push(unknown("NodeStatusNeverUpdated", message, created));
            }
        }
        changed = true;
    }
    changed.then_some(status)
}

/// How the Pods of nodes that are not ready are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evictions {
    /// Pods are evicted.
    Normal,
    /// No further Pods are evicted: most nodes of the zone are not ready, so the cause is probably
    /// elsewhere.
    Paused,
    /// No Pods are evicted, because no node of the cluster is ready.
    Off,
}

/// Decides how the Pods of an unready node are evicted, given how many nodes are ready. Nodes that
/// never reported do not count.
pub(super) fn evictions(node: &Node, nodes: &[Arc<Node>]) -> Evictions {
    let zone = |node: &Node| {
        let label = |key: &str| meta::labels(&node.metadata).get(key).cloned();
        (
            label("topology.kubernetes.io/region"),
            label("topology.kubernetes.io/zone"),
        )
    };
    let mut zones: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for node in nodes {
        if let Some(ready) = condition(node, "Ready") {
            let (ready_nodes, others) = zones.entry(zone(node)).or_default();
            *(if ready.status == "True" {
                ready_nodes
            } else {
                others
            }) += 1;
        }
    }
    if zones.values().all(|(ready, _)| *ready == 0) {
        return Evictions::Off;
    }
    let (ready, others) = zones.get(&zone(node)).copied().unwrap_or_default();
    // At least 55 % of a zone, and more than two nodes. Upstream, larger clusters only slow down.
    let is_partial = ready > 0 && others > 2 && 100 * others >= 55 * (ready + others);
    if is_partial && nodes.len() <= 50 {
        Evictions::Paused
    } else {
        Evictions::Normal
    }
}

/// Returns the taints for a node's conditions, or `None` if it already has them.
pub(super) fn taints(node: &Node, evictions: Evictions, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.clone().unwrap_or_default();
    let before = spec.taints.unwrap_or_default();
    let conditions = BY_CONDITION.iter();
    let mut wanted: Vec<&str> = conditions
        .filter(|(type_, status, _)| {
            condition(node, type_).is_some_and(|condition| condition.status == *status)
        })
        .map(|(.., key)| *key)
        .collect();
    if spec.unschedulable == Some(true) {
        wanted.push(fit::UNSCHEDULABLE);
    }
    // A new node is tainted until its kubelet reports for the first time.
    if condition(node, "Ready").is_none() && has(&before, NOT_READY, "NoSchedule") {
        wanted.push(NOT_READY);
    }
    let evicting = [NOT_READY, UNREACHABLE]
        .into_iter()
        .find(|key| wanted.contains(key));
    let evicting = evicting.filter(|_| condition(node, "Ready").is_some());
    let stays = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => {
            let is_ours = taint.key == fit::UNSCHEDULABLE
                || BY_CONDITION.iter().any(|(.., key)| *key == taint.key);
            !is_ours || wanted.contains(&taint.key.as_str())
        }
        "NoExecute" if [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()) => {
            evictions != Evictions::Off && evicting == Some(taint.key.as_str())
        }
        _ => true,
    };
    // A node that already repels its Pods for the other reason is tainted even if evictions are
    // paused.
    let swaps = before
        .iter()
        .any(|taint| taint.effect == "NoExecute" && !stays(taint));
    let mut after: Vec<Taint> = before
        .iter()
        .filter(|taint| stays(taint))
        .cloned()
        .collect();
    let taint = |key: &str, effect: &str| Taint {
        key: key.into(),
        effect: effect.into(),
        time_added: Some(meta::time(now)),
        ..Taint::default()
    };
    for key in &wanted {
        if !has(&after, key, "NoSchedule") {
            after.push(taint(key, "NoSchedule"));
        }
    }
    if let Some(key) = evicting
        && !has(&after, key, "NoExecute")
        && (evictions == Evictions::Normal || evictions == Evictions::Paused && swaps)
    {
        after.push(taint(key, "NoExecute"));
    }
    (after != before).then_some(after)
}

/// Returns whether the taint of new nodes keeps Pods away from a node.
pub(crate) fn is_repelling(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    has(taints.unwrap_or_default(), NOT_READY, "NoSchedule")
}

fn has(taints: &[Taint], key: &str, effect: &str) -> bool {
    let mut taints = taints.iter();
    taints.any(|taint| taint.key == key && taint.effect == effect)
}

#[cfg(test)]
mod tests;
