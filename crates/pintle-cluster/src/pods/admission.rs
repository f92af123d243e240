//! Decides whether a simulated kubelet accepts a Pod that was bound without the scheduler.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use pintle_apiserver::quota::{pod_requests, resource_amount};

use super::{fit, plan::remaining, state};
use crate::{meta, scheduler::ports::host_ports};

/// How long a kubelet takes to see a new Pod. Without this, a controller that replaces rejected
/// Pods would loop forever at one instant of virtual time.
const SEEN_AFTER: Duration = Duration::from_secs(1);

/// Returns the time until the kubelet sees a Pod.
pub(super) fn seen_in(pod: &Pod, now: Timestamp) -> Duration {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.map_or(Duration::ZERO, |Time(at)| remaining(*at, SEEN_AFTER, now))
}

/// Why the kubelet rejects a Pod, in its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

/// Returns whether the kubelet must still check that a Pod fits: it was bound without the scheduler
/// and has not started.
pub(super) fn is_unchecked(pod: &Pod) -> bool {
    let started = pod.status.as_ref().and_then(|it| it.start_time.as_ref());
    started.is_none() && state::is_active(pod) && state::condition(pod, "PodScheduled").is_none()
}

/// Returns why a node cannot run a Pod in addition to `others`, which have started there.
pub(super) fn rejection<'a>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'a Pod> + Clone,
) -> Option<Rejection> {
    if let Some(rejection) = shortage(pod, node, others.clone()) {
        return Some(rejection);
    }
    let spec = pod.spec.as_ref()?;
    let failed = |predicate: &str, why: &str| {
        Some(Rejection {
            reason: predicate.to_owned(),
            message: format!("Predicate {predicate} failed: {why}"),
        })
    };
    if !fit::selects(spec, node) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return failed("NodeAffinity", why);
    }
    let ports = host_ports(pod);
    let taken = |other: &Pod| {
        let taken = host_ports(other);
        ports.iter().any(|port| port.conflicts(&taken))
    };
    let mut others = others;
    if !ports.is_empty() && others.any(taken) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return failed("NodePorts", why);
    }
    None
}

/// Returns the first resource that a node lacks. Resources that the node does not list are not
/// checked.
fn shortage<'a>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'a Pod>,
) -> Option<Rejection> {
    let mut used: BTreeMap<String, i64> = BTreeMap::new();
    for other in others {
        for (resource, amount) in requests(other) {
            let sum = used.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
    for (resource, requested) in requests(pod) {
        let capacity = allocatable.and_then(|it| it.get(&resource));
        let capacity = capacity.and_then(|amount| resource_amount(&resource, &amount.0));
        let used = used.get(&resource).copied().unwrap_or_default();
        if let Some(capacity) = capacity
            && requested > 0
            && used.saturating_add(requested) > capacity
        {
            return Some(Rejection {
                reason: format!("OutOf{resource}"),
                message: format!(
                    "Node didn't have enough resource: {resource}, requested: {requested}, \
                     used: {used}, capacity: {capacity}"
                ),
            });
        }
    }
    None
}

/// Returns the resource requests of a Pod, including one unit of the resource `pods`.
fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let mut requests =
        serde_json::to_value(pod).map_or_else(|_| BTreeMap::new(), |pod| pod_requests(&pod));
    requests.insert("pods".to_owned(), 1);
    requests
}

/// Returns the status of a rejected Pod.
pub(super) fn rejected(pod: &Pod, rejection: &Rejection, now: Timestamp) -> PodStatus {
    PodStatus {
        phase: Some("Failed".into()),
        reason: Some(rejection.reason.clone()),
        message: Some(format!("Pod was rejected: {}", rejection.message)),
        start_time: Some(meta::time(now)),
        observed_generation: pod.metadata.generation,
        ..pod.status.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
