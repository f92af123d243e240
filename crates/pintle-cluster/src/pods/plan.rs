//! Decides where a Pod runs and what its simulated kubelet reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus,
        HostIP, Node, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::state;
use crate::meta;

/// How fast simulated nodes start and stop Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time from binding until Running and Ready.
    pub(crate) ready_after: Duration,
    /// The time from deletion until stopped, limited by the grace period.
    pub(crate) stop_after: Duration,
}

/// The next action of the kubelet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing until the Pod changes.
    None,
    /// Nothing yet; reconcile again after this time.
    Wait(Duration),
    /// Write this status.
    Report {
        status: Box<PodStatus>,
        requeue_after: Option<Duration>,
    },
    /// Delete the stopped Pod without a grace period.
    Remove,
}

/// A node that might run the Pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a Node,
    /// The number of Pods assigned to it.
    pub(crate) pods: usize,
    /// Whether the host ports of the Pod are free.
    pub(crate) ports_free: bool,
}

/// A host port of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Returns whether any of `others` is the same port on an overlapping address.
    pub(crate) fn conflicts(&self, others: &[Self]) -> bool {
        let anywhere = |port: &Self| port.address == ANY_ADDRESS;
        others.iter().any(|other| {
            other.port == self.port
                && other.protocol == self.protocol
                && (other.address == self.address || anywhere(other) || anywhere(self))
        })
    }
}

const ANY_ADDRESS: &str = "0.0.0.0";

/// Returns the host ports of containers and sidecars.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod.spec.iter().flat_map(|spec| {
        let all = spec.init_containers.iter().flatten();
        all.filter(|container| container.restart_policy.as_deref() == Some("Always"))
    });
    let ports = containers(pod)
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    ports
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|port| *port > 0)?,
                protocol: some(&port.protocol).unwrap_or_else(|| "TCP".into()),
                address: some(&port.host_ip).unwrap_or_else(|| ANY_ADDRESS.into()),
            })
        })
        .collect()
}

/// Returns the fitting node with the fewest Pods, the first by name among equals.
pub(crate) fn choose_node<'a>(pod: &Pod, candidates: &[Candidate<'a>]) -> Option<&'a Node> {
    candidates
        .iter()
        .filter(|candidate| fits(pod, candidate))
        .min_by_key(|candidate| (candidate.pods, meta::name(&candidate.node.metadata)))
        .map(|candidate| candidate.node)
}

fn fits(pod: &Pod, candidate: &Candidate<'_>) -> bool {
    let node = candidate.node;
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default();
    let selector = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_selector.as_ref());
    let labels = meta::labels(&node.metadata);
    let selected = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    !cordoned
        && !meta::is_being_deleted(&node.metadata)
        && is_node_ready(node)
        && selected
        && tolerates(pod, node)
        && candidate.pods < capacity(node)
        && candidate.ports_free
}

fn is_node_ready(node: &Node) -> bool {
    let mut conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn capacity(node: &Node) -> usize {
    node.status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref())
        .and_then(|allocatable| allocatable.get("pods"))
        .and_then(|pods| pods.0.parse().ok())
        .unwrap_or(110)
}

fn tolerates(pod: &Pod, node: &Node) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let tolerations: Vec<_> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.tolerations.iter().flatten())
        .collect();
    taints
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| {
            tolerations.iter().any(|toleration| {
                let any_value = toleration.operator.as_deref() == Some("Exists");
                toleration.key.as_ref().is_none_or(|key| *key == taint.key)
                    && toleration
                        .effect
                        .as_ref()
                        .is_none_or(|effect| *effect == taint.effect)
                    && (any_value
                        || toleration.key.is_some()
                            && toleration.value.as_deref().unwrap_or_default()
                                == taint.value.as_deref().unwrap_or_default())
            })
        })
}

/// Returns the status of a Pod that fits no node, or `None` if it already has that status.
pub(crate) fn unschedulable(pod: &Pod, nodes: usize, now: Timestamp) -> Option<PodStatus> {
    let message = format!("0/{nodes} nodes are available.");
    let is_current = state::condition(pod, "PodScheduled").is_some_and(|it| {
        it.reason.as_deref() == Some("Unschedulable") && it.message.as_ref() == Some(&message)
    });
    if is_current {
        return None;
    }
    let mut status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "PodScheduled");
    conditions.push(PodCondition {
        reason: Some("Unschedulable".into()),
        message: Some(message),
        ..condition("PodScheduled", false, now)
    });
    Some(status)
}

/// Returns the next action for a bound Pod.
///
/// `address` allocates the address of the Pod when it starts.
pub(crate) fn step(
    pod: &Pod,
    host: Ipv4Addr,
    address: impl FnOnce() -> Ipv4Addr,
    pace: Pace,
    now: Timestamp,
) -> Step {
    if let Some(Time(deadline)) = &pod.metadata.deletion_timestamp {
        return stop(pod, *deadline, pace, now);
    }
    if state::is_finished(pod) || state::phase(pod) == "Running" && state::is_ready(pod) {
        return Step::None;
    }
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.clone());
    let start = started.as_ref().map_or(now, |Time(start)| *start);
    let wait = remaining(start, pace.ready_after, now);
    if wait.is_zero() {
        let status = Box::new(running(pod, host, address(), start, now));
        return Step::Report {
            status,
            requeue_after: None,
        };
    }
    if started.is_some() {
        return Step::Wait(wait);
    }
    Step::Report {
        status: Box::new(starting(pod, host, now)),
        requeue_after: Some(wait),
    }
}

/// Stops a deleted Pod after the configured delay or at the end of its grace period.
fn stop(pod: &Pod, deadline: Timestamp, pace: Pace, now: Timestamp) -> Step {
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .unwrap_or_default();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let deleted_at = deadline.saturating_sub(grace).unwrap_or(deadline);
    let wait = remaining(deleted_at, pace.stop_after.min(grace), now);
    if wait.is_zero() {
        Step::Remove
    } else {
        Step::Wait(wait)
    }
}

fn remaining(since: Timestamp, duration: Duration, now: Timestamp) -> Duration {
    let end = since.saturating_add(duration).unwrap_or(now);
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}

fn condition(type_: &str, value: bool, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: type_.into(),
        status: if value { "True" } else { "False" }.into(),
        last_transition_time: Some(meta::time(now)),
        ..PodCondition::default()
    }
}

/// Returns the conditions in the order of the kubelet. Transition times change only with the status.
fn conditions(pod: &Pod, ready: bool, now: Timestamp) -> Vec<PodCondition> {
    let names: Vec<&str> = containers(pod)
        .map(|container| container.name.as_str())
        .collect();
    let not_ready = |condition: PodCondition| PodCondition {
        reason: Some("ContainersNotReady".into()),
        message: Some(format!(
            "containers with unready status: [{}]",
            names.join(" ")
        )),
        ..condition
    };
    let conditions = [
        ("PodReadyToStartContainers", ready),
        ("Initialized", true),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodScheduled", true),
    ];
    conditions
        .map(|(type_, value)| {
            let new = condition(type_, value, now);
            let new = if type_.ends_with("Ready") && !value {
                not_ready(new)
            } else {
                new
            };
            match state::condition(pod, type_) {
                Some(old) if old.status == new.status => PodCondition {
                    last_transition_time: old.last_transition_time.clone(),
                    ..new
                },
                _ => new,
            }
        })
        .into()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

fn starting(pod: &Pod, host: Ipv4Addr, now: Timestamp) -> PodStatus {
    let waiting = |container: &Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: Some(ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some("ContainerCreating".into()),
                message: None,
            }),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    };
    PodStatus {
        phase: Some("Pending".into()),
        conditions: Some(conditions(pod, false, now)),
        container_statuses: Some(containers(pod).map(waiting).collect()),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP {
            ip: host.to_string(),
        }]),
        start_time: Some(meta::time(now)),
        ..pod.status.clone().unwrap_or_default()
    }
}

fn running(
    pod: &Pod,
    host: Ipv4Addr,
    address: Ipv4Addr,
    start: Timestamp,
    now: Timestamp,
) -> PodStatus {
    let uid = meta::uid(&pod.metadata);
    let running = |container: &Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: format!(
            "simulated://{}",
            container.image.as_deref().unwrap_or_default()
        ),
        container_id: Some(format!("simulated://{uid}/{}", container.name)),
        ready: true,
        started: Some(true),
        state: Some(ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(meta::time(now)),
            }),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    };
    PodStatus {
        phase: Some("Running".into()),
        conditions: Some(conditions(pod, true, now)),
        container_statuses: Some(containers(pod).map(running).collect()),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP {
            ip: host.to_string(),
        }]),
        pod_ip: Some(address.to_string()),
        pod_ips: Some(vec![PodIP {
            ip: address.to_string(),
        }]),
        start_time: Some(meta::time(start)),
        ..pod.status.clone().unwrap_or_default()
    }
}

/// Allocates the addresses of simulated Pods from 10.244.0.0/16.
///
/// Allocation is round-robin, so that a freed address is not reused immediately.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    last: u16,
    by_uid: BTreeMap<String, u16>,
    used: BTreeSet<u16>,
}

impl Addresses {
    /// Returns the address of a Pod, allocating one if necessary. If all are in use, addresses are
    /// shared.
    pub(crate) fn get_or_allocate(&mut self, uid: &str) -> Ipv4Addr {
        if let Some(host) = self.by_uid.get(uid) {
            return Self::address(*host);
        }
        let next = |after: u16| if after >= u16::MAX - 1 { 1 } else { after + 1 };
        let mut candidate = next(self.last);
        while candidate != self.last && self.used.contains(&candidate) {
            candidate = next(candidate);
        }
        self.last = candidate;
        self.set(uid, candidate);
        Self::address(candidate)
    }

    /// Records an address from the status of a Pod.
    pub(crate) fn insert(&mut self, uid: &str, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>()
            && let [10, 244, high, low] = address.octets()
        {
            self.set(uid, u16::from_be_bytes([high, low]));
        }
    }

    /// Releases the address of a Pod.
    pub(crate) fn free(&mut self, uid: &str) {
        if let Some(host) = self.by_uid.remove(uid) {
            self.used.remove(&host);
        }
    }

    fn set(&mut self, uid: &str, host: u16) {
        self.free(uid);
        self.by_uid.insert(uid.into(), host);
        self.used.insert(host);
    }

    fn address(host: u16) -> Ipv4Addr {
        let [high, low] = host.to_be_bytes();
        Ipv4Addr::new(10, 244, high, low)
    }
}

#[cfg(test)]
mod tests;
