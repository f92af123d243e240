//! Computes the status of a `PodDisruptionBudget`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use pintle::cache::Selector;

use crate::{meta, pods::state::is_ready};

/// How long an evicted Pod may take to be marked for deletion before the eviction counts as failed.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);
const CONDITION: &str = "DisruptionAllowed";

/// The desired number of Pods of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// The UID of the scaled object: for a Pod of a Deployment, the Deployment.
    pub(super) uid: String,
    pub(super) replicas: i32,
}

/// Scales by the UID in the owner reference of the Pod.
pub(super) type Scales = BTreeMap<String, Scale>;

/// Why a status cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NotAPercentage,
    #[error("{0}")]
    Scale(String),
}

/// The result for one budget.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The new status, if it differs.
    pub(super) status: Option<PodDisruptionBudgetStatus>,
    /// When to reconcile again without an event.
    pub(super) requeue_after: Option<Duration>,
    /// Pods that were evicted but not deleted in time.
    pub(super) not_deleted: Vec<String>,
}

/// Returns the selector of a budget. Unlike a workload's selector, an empty one selects all Pods.
pub(super) fn selector(budget: &PodDisruptionBudget) -> Selector {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector
        .and_then(|selector| Selector::try_from(selector).ok())
        .unwrap_or_else(Selector::nothing)
}

/// Returns whether the status depends on the scale of the controllers.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    budget.spec.as_ref().is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}

/// Returns the names of the Pods without a controller.
pub(super) fn unmanaged(pods: &[Arc<Pod>]) -> Vec<String> {
    let unmanaged = pods
        .iter()
        .filter(|pod| meta::controller_of(&pod.metadata).is_none());
    unmanaged
        .map(|pod| meta::name(&pod.metadata).to_owned())
        .collect()
}

/// Computes the status of a budget from its Pods.
pub(super) fn plan(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scales: &Scales,
    now: Timestamp,
) -> Result<Plan, Failure> {
    let (expected, desired) = expected(budget, pods, scales)?;
    let (disrupted, requeue_after, not_deleted) = disrupted(budget, pods, now);
    let healthy = pods
        .iter()
        .filter(|pod| {
            !meta::is_being_deleted(&pod.metadata)
                && !disrupted.contains_key(meta::name(&pod.metadata))
                && is_ready(pod)
        })
        .count();
    let healthy = meta::clamp(healthy);
    // A budget without Pods allows no disruption, so that the first Pods are protected immediately.
    let allowed = if expected > 0 {
        healthy.saturating_sub(desired).max(0)
    } else {
        0
    };
    let generation = budget.metadata.generation;
    let old = budget.status.as_ref();
    let (value, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let condition = (value, reason, "");
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions(old, condition, generation, now)),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: generation,
    };
    Ok(Plan {
        status: Some(status).filter(|status| old != Some(status)),
        requeue_after,
        not_deleted,
    })
}

/// Returns a status that allows no disruptions, with the reason it could not be computed, or `None`
/// if it is current.
pub(super) fn failed(
    budget: &PodDisruptionBudget,
    failure: &Failure,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    let condition = ("False", "SyncFailed", &*failure.to_string());
    let conditions = conditions(Some(&old), condition, old.observed_generation, now);
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        disruptions_allowed: Some(0),
        ..old
    };
    Some(status).filter(|status| budget.status.as_ref() != Some(status))
}

fn conditions(
    old: Option<&PodDisruptionBudgetStatus>,
    (status, reason, message): (&str, &str, &str),
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old
        .and_then(|old| old.conditions.clone())
        .unwrap_or_default();
    let known = conditions.iter_mut().find(|it| it.type_ == CONDITION);
    let last_transition_time = match &known {
        Some(known) if known.status == status => known.last_transition_time.clone(),
        _ => meta::time(now),
    };
    let condition = Condition {
        last_transition_time,
        message: message.to_owned(),
        observed_generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: CONDITION.to_owned(),
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    conditions
}

/// Returns the expected number of Pods and the desired number of healthy Pods.
fn expected(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scales: &Scales,
) -> Result<(i32, i32), Failure> {
    let Some(spec) = &budget.spec else {
        return Ok((0, 0));
    };
    if let Some(max_unavailable) = &spec.max_unavailable {
        let expected = expected_scale(pods, scales)?;
        let unavailable = resolve(max_unavailable, expected)?;
        return Ok((expected, expected.saturating_sub(unavailable).max(0)));
    }
    match &spec.min_available {
        None => Ok((0, 0)),
        Some(IntOrString::Int(count)) => Ok((meta::clamp(pods.len()), *count)),
        Some(percentage) => {
            let expected = expected_scale(pods, scales)?;
            Ok((expected, resolve(percentage, expected)?))
        }
    }
}

/// Returns the sum of the scales of all controllers.
fn expected_scale(pods: &[Arc<Pod>], scales: &Scales) -> Result<i32, Failure> {
    let mut found = BTreeMap::new();
    for pod in pods {
        let Some(controller) = meta::controller_of(&pod.metadata) else {
            continue;
        };
        let scale = scales
            .get(&controller.uid)
            .ok_or_else(|| Failure::NoController(meta::name(&pod.metadata).to_owned()))?;
        found.insert(&scale.uid, scale.replicas);
    }
    Ok(found.values().fold(0, |sum, n| sum.saturating_add(*n)))
}

/// Resolves a count or a percentage of `total`, rounded up.
fn resolve(value: &IntOrString, total: i32) -> Result<i32, Failure> {
    let text = match value {
        IntOrString::Int(count) => return Ok(*count),
        IntOrString::String(text) => text,
    };
    let percent = text
        .strip_suffix('%')
        .and_then(|text| text.parse::<i32>().ok());
    let percent = i64::from(percent.ok_or(Failure::NotAPercentage)?);
    let count = (percent * i64::from(total) + 99).div_euclid(100);
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

type Disrupted = BTreeMap<String, Time>;

/// Returns the evictions not yet followed by a deletion, the time until the first of them counts as
/// failed, and the Pods whose eviction has failed.
fn disrupted(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (Disrupted, Option<Duration>, Vec<String>) {
    let (mut pending, mut requeue_after, mut not_deleted) = (Disrupted::new(), None, Vec::new());
    let evicted = budget
        .status
        .as_ref()
        .and_then(|status| status.disrupted_pods.as_ref());
    let Some(evicted) = evicted else {
        return (pending, requeue_after, not_deleted);
    };
    for pod in pods {
        let name = meta::name(&pod.metadata);
        let Some(time) = evicted.get(name) else {
            continue;
        };
        if meta::is_being_deleted(&pod.metadata) {
            continue;
        }
        let age = Duration::try_from(now.duration_since(time.0)).unwrap_or_default();
        match DELETION_TIMEOUT.checked_sub(age) {
            Some(wait) if !wait.is_zero() => {
                pending.insert(name.to_owned(), time.clone());
                requeue_after = Some(requeue_after.map_or(wait, |other: Duration| other.min(wait)));
            }
            _ => not_deleted.push(name.to_owned()),
        }
    }
    (pending, requeue_after, not_deleted)
}

#[cfg(test)]
mod tests;
