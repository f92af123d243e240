//! What a ReplicaSet needs: which Pods to create, which to delete, and what its status is.
//!
//! Functions of what was observed and the time, nothing else.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use crate::{
    meta,
    pods::state::{self, available_in, is_active, is_available, is_ready, node_name, phase},
};

/// At most this many Pods are created or deleted before looking again.
const BURST: usize = 500;

/// A Pod's wish to be deleted early (low) or late (high) when its set shrinks.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The way from the Pods there are to the Pods there should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// As many as wanted.
    Keep,
    /// This many are missing.
    Create(usize),
    /// These are too many, the most expendable first.
    Delete(Vec<Arc<Pod>>),
}

pub(crate) fn wanted(set: &ReplicaSet) -> usize {
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

/// Compares the set's active Pods with what it wants.
///
/// `related` are all Pods of the sets with the same owner (of one Deployment): of two Pods that are
/// otherwise alike, the one on the more crowded node goes first.
pub(crate) fn plan(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    related: &[Arc<Pod>],
    now: Timestamp,
) -> Plan {
    let wanted = wanted(set);
    match active.len().cmp(&wanted) {
        Ordering::Equal => Plan::Keep,
        Ordering::Less => Plan::Create((wanted - active.len()).min(BURST)),
        Ordering::Greater => {
            let mut expendable = active.to_vec();
            let crowd = crowd(related);
            expendable.sort_by(|a, b| expendability(a, b, &crowd, now));
            expendable.truncate((active.len() - wanted).min(BURST));
            Plan::Delete(expendable)
        }
    }
}

/// The sizes of the batches in which `count` Pods are created: 1, 2, 4, and so on.
///
/// If one create fails the rest likely would too (a quota, a webhook), so a caller stops at the
/// first batch with a failure and has then sent few requests in vain.
pub(crate) fn slow_start(count: usize) -> impl Iterator<Item = usize> {
    let mut left = count;
    let mut batch = 1;
    std::iter::from_fn(move || {
        let size = batch.min(left);
        left -= size;
        batch *= 2;
        (size > 0).then_some(size)
    })
}

/// The Pod that the set's template describes, with the set as its controller.
pub(crate) fn pod_from_template(set: &ReplicaSet) -> Pod {
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
            owner_references: meta::controller_reference(set).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Counts active Pods per node.
fn crowd(related: &[Arc<Pod>]) -> BTreeMap<&str, usize> {
    let mut crowd = BTreeMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *crowd.entry(node_name(pod)).or_default() += 1;
    }
    crowd
}

/// `Less` if `a` should go before `b`: whoever is missed least. Each line decides only if all
/// lines before it left a tie; the UID at the end makes the choice the same on every look.
fn expendability(a: &Pod, b: &Pod, crowd: &BTreeMap<&str, usize>, now: Timestamp) -> Ordering {
    let unbound = |pod: &Pod| node_name(pod).is_empty();
    let neighbours = |pod: &Pod| crowd.get(node_name(pod)).copied().unwrap_or_default();
    unbound(b)
        .cmp(&unbound(a))
        .then_with(|| progress(a).cmp(&progress(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| neighbours(b).cmp(&neighbours(a)))
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

/// Ages on a logarithmic scale: Pods of about the same age are equally expendable, so that a
/// rollout and a scale-down do not always take the same zone's Pods. Unknown is youngest.
fn age(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let nanoseconds = since.map_or(0, |since| now.duration_since(since).as_nanos());
    u128::try_from(nanoseconds)
        .unwrap_or_default()
        .checked_ilog2()
        .map_or(0, |rank| rank + 1)
}

/// The most restarts of any container; of any sidecar, if that is a tie.
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

/// Why the last attempt to reach the wanted number of Pods failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The status that says what was observed.
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

/// When the next ready Pod becomes available, if one is still waiting for that.
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
