//! Decides which Pods of a ReplicaSet to create or delete, and computes its status.
//!
//! Pure functions of the observed state and the time.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};

use crate::{
    meta,
    pods::state::{self, available_in, is_active, is_available, is_ready, node_name, phase},
};

/// The maximum number of Pods created or deleted in one reconcile.
const BURST: usize = 500;

/// Pods with a lower cost are deleted first when their set is scaled down.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The step towards the desired number of Pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// Nothing.
    None,
    /// Create this many.
    Create(usize),
    /// Delete these, in this order.
    Delete(Vec<Arc<Pod>>),
}

pub(crate) fn desired(set: &ReplicaSet) -> usize {
    let replicas = set
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}

pub(crate) fn min_ready(set: &ReplicaSet) -> Duration {
    let seconds = set
        .spec
        .as_ref()
        .and_then(|spec| spec.min_ready_seconds)
        .unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Compares the number of active Pods with the desired one.
///
/// `related` are the Pods of all sets with the same owner. Among otherwise equal Pods, the one on
/// the node with more related Pods is deleted first.
pub(crate) fn plan(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    related: &[Arc<Pod>],
    now: Timestamp,
) -> Plan {
    let desired = desired(set);
    match active.len().cmp(&desired) {
        Ordering::Equal => Plan::None,
        Ordering::Less => Plan::Create((desired - active.len()).min(BURST)),
        Ordering::Greater => {
            let mut candidates = active.to_vec();
            let per_node = pods_per_node(related);
            candidates.sort_by(|a, b| deletion_order(a, b, &per_node, now));
            candidates.truncate((active.len() - desired).min(BURST));
            Plan::Delete(candidates)
        }
    }
}

/// Returns the sizes of the batches in which to create `count` Pods: 1, 2, 4 and so on, up to
/// [`BURST`].
///
/// If one creation fails, the others are likely to fail too (quota, webhook). Stopping at the first
/// batch with a failure saves most of those requests.
pub(crate) fn slow_start(count: usize) -> impl Iterator<Item = usize> {
    let mut left = count;
    let mut batch = 1;
    std::iter::from_fn(move || {
        let size = batch.min(left);
        left -= size;
        batch = (batch * 2).min(BURST);
        (size > 0).then_some(size)
    })
}

/// Builds a Pod from the template of the set, with this owner as its controller.
pub(crate) fn pod_from_template(set: &ReplicaSet, owner: Option<OwnerReference>) -> Pod {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    let from = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Counts active Pods per node.
fn pods_per_node(related: &[Arc<Pod>]) -> BTreeMap<&str, usize> {
    let mut per_node = BTreeMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *per_node.entry(node_name(pod)).or_default() += 1;
    }
    per_node
}

/// Orders Pods for deletion, as upstream does; the first is deleted first. The UID breaks remaining
/// ties, so that every reconcile makes the same choice.
fn deletion_order(a: &Pod, b: &Pod, per_node: &BTreeMap<&str, usize>, now: Timestamp) -> Ordering {
    let unbound = |pod: &Pod| node_name(pod).is_empty();
    let neighbors = |pod: &Pod| per_node.get(node_name(pod)).copied().unwrap_or_default();
    unbound(b)
        .cmp(&unbound(a))
        .then_with(|| progress(a).cmp(&progress(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| neighbors(b).cmp(&neighbors(a)))
        .then_with(|| age(state::ready_since(a), now).cmp(&age(state::ready_since(b), now)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| age(created(a), now).cmp(&age(created(b), now)))
        .then_with(|| meta::uid(&a.metadata).cmp(meta::uid(&b.metadata)))
}

fn progress(pod: &Pod) -> u8 {
    match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    meta::annotation(&pod.metadata, DELETION_COST)
        .and_then(|cost| cost.parse().ok())
        .unwrap_or_default()
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|Time(at)| *at)
}

/// Ranks ages on a logarithmic scale: Pods of about the same age are equal, so that a scale-down
/// does not always hit the zone that started last. An unknown age ranks as youngest.
fn age(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let nanoseconds = since.map_or(0, |since| now.duration_since(since).as_nanos());
    u128::try_from(nanoseconds)
        .unwrap_or_default()
        .checked_ilog2()
        .map_or(0, |rank| rank + 1)
}

/// Returns the highest restart count of any container, then of any sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let status = pod.status.as_ref();
    let regular = status
        .into_iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let init = status
        .into_iter()
        .flat_map(|status| status.init_container_statuses.iter().flatten());
    (
        regular
            .map(|container| container.restart_count)
            .max()
            .unwrap_or_default(),
        init.filter(|container| sidecars.contains(&container.name.as_str()))
            .map(|container| container.restart_count)
            .max()
            .unwrap_or_default(),
    )
}

/// Why creating or deleting Pods failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Computes the status.
pub(crate) fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let template_labels = template
        .and_then(|t| t.metadata.as_ref())
        .map(meta::labels)
        .cloned()
        .unwrap_or_default();
    let fully_labeled = |pod: &&Arc<Pod>| {
        let labels = meta::labels(&pod.metadata);
        template_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    };
    let min_ready = min_ready(set);
    ReplicaSetStatus {
        replicas: meta::clamp(active.len()),
        fully_labeled_replicas: meta::count(active.iter().filter(fully_labeled).count()),
        ready_replicas: meta::count(active.iter().filter(|pod| is_ready(pod)).count()),
        available_replicas: meta::count(
            active
                .iter()
                .filter(|pod| is_available(pod, min_ready, now))
                .count(),
        ),
        terminating_replicas: Some(meta::clamp(terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, failure, now),
    }
}

fn conditions(
    set: &ReplicaSet,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let before = set
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut conditions: Vec<_> = before.cloned().collect();
    match failure {
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
        Some(failure) => {
            if !conditions
                .iter()
                .any(|condition| condition.type_ == "ReplicaFailure")
            {
                conditions.push(ReplicaSetCondition {
                    type_: "ReplicaFailure".into(),
                    status: "True".into(),
                    reason: Some(failure.reason.into()),
                    message: Some(failure.message.clone()),
                    last_transition_time: Some(meta::time(now)),
                });
            }
        }
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}

/// Returns the time until the next ready Pod becomes available, if one is waiting for that.
pub(crate) fn next_availability(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<Duration> {
    active
        .iter()
        .filter_map(|pod| available_in(pod, min_ready(set), now))
        .filter(|wait| !wait.is_zero())
        .min()
}

#[cfg(test)]
mod tests;
