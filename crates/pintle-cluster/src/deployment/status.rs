//! Computes the status of a Deployment: replica counts and conditions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::size;
use crate::meta;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const COMPLETE: &str = "NewReplicaSetAvailable";
const PAUSED: &str = "DeploymentPaused";

/// Returns how long a rollout may make no progress before it is reported as failed, if limited.
pub(super) fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
}

fn reason<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a str> {
    condition(status, type_)?.reason.as_deref()
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
    status.conditions = status
        .conditions
        .take()
        .filter(|conditions| !conditions.is_empty());
}

/// Sets a condition. A condition with the same status and reason is left unchanged, including its
/// times and message, as upstream does.
fn set(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(old) = condition(status, &new.type_)
        && old.status == new.status
    {
        if old.reason == new.reason {
            return;
        }
        new.last_transition_time
            .clone_from(&old.last_transition_time);
    }
    remove(status, &new.type_);
    status.conditions.get_or_insert_default().push(new);
}

fn new_condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(meta::time(now)),
        last_transition_time: Some(meta::time(now)),
    }
}

/// Records the beginning or end of a pause, which does not count towards the deadline.
pub(super) fn record_pause(deployment: &Deployment, status: &mut DeploymentStatus, now: Timestamp) {
    if deadline(deployment).is_none() || reason(status, PROGRESSING) == Some(TIMED_OUT) {
        return;
    }
    let was_paused = reason(status, PROGRESSING) == Some(PAUSED);
    let (reason, message) = match (size::is_paused(deployment), was_paused) {
        (true, false) => (PAUSED, "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    set(
        status,
        new_condition(PROGRESSING, "Unknown", reason, message.into(), now),
    );
}

/// Records that the set of the current template was created or found.
pub(super) fn record_new_set(
    deployment: &Deployment,
    status: &mut DeploymentStatus,
    set_name: &str,
    created: bool,
    now: Timestamp,
) {
    if deadline(deployment).is_none() {
        return;
    }
    let (reason, message) = if created {
        (
            "NewReplicaSetCreated",
            format!("Created new replica set \"{set_name}\""),
        )
    } else if condition(status, PROGRESSING).is_none() {
        (
            "FoundNewReplicaSet",
            format!("Found new replica set \"{set_name}\""),
        )
    } else {
        return;
    };
    set(
        status,
        new_condition(PROGRESSING, "True", reason, message, now),
    );
}

/// Returns the status after creating the new set failed.
pub(crate) fn after_failed_create(
    deployment: &Deployment,
    set_name: &str,
    error: &str,
    now: Timestamp,
) -> Option<DeploymentStatus> {
    deadline(deployment)?;
    let mut status = deployment.status.clone().unwrap_or_default();
    let message = format!("Failed to create new replica set \"{set_name}\": {error}");
    set(
        &mut status,
        new_condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now),
    );
    Some(status)
}

/// Computes replica counts and `Available` from all sets; `new` is one of them.
pub(super) fn from_sets<'a>(
    deployment: &Deployment,
    before: &DeploymentStatus,
    new: Option<&ReplicaSet>,
    all: &(impl Iterator<Item = &'a ReplicaSet> + Clone),
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |count: fn(&ReplicaSet) -> i32| all.clone().map(count).sum::<i32>();
    let available = sum(size::available);
    let unavailable = (sum(size::replicas) - available).max(0);
    let some = |count: i32| Some(count).filter(|count| *count != 0);

    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(size::actual)),
        updated_replicas: some(new.map_or(0, size::actual)),
        ready_replicas: some(sum(size::ready)),
        available_replicas: some(available),
        unavailable_replicas: some(unavailable),
        terminating_replicas: terminating(all.clone()),
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
    };
    let enough = available >= size::desired(deployment) - size::limits(deployment).unavailable;
    let (value, reason, message) = if enough {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set(
        &mut status,
        new_condition(AVAILABLE, value, reason, message.into(), now),
    );
    status
}

/// Sums up the terminating Pods of all observed sets; `None` if one of them does not report any
/// number.
fn terminating<'a>(all: impl Iterator<Item = &'a ReplicaSet>) -> Option<i32> {
    all.filter_map(|set| set.status.as_ref())
        .filter(|status| status.observed_generation.is_some())
        .map(|status| status.terminating_replicas)
        .sum()
}

/// Updates the conditions `Progressing` and `ReplicaFailure` of a status with current counts.
pub(super) fn update_progress<'a>(
    deployment: &Deployment,
    before: &DeploymentStatus,
    status: &mut DeploymentStatus,
    new: Option<&ReplicaSet>,
    mut all: impl Iterator<Item = &'a ReplicaSet>,
    now: Timestamp,
) {
    if deadline(deployment).is_none() {
        remove(status, PROGRESSING);
    } else if !(status.replicas == status.updated_replicas
        && reason(before, PROGRESSING) == Some(COMPLETE))
    {
        let subject = new.map_or_else(
            || format!("Deployment \"{}\"", meta::name(&deployment.metadata)),
            |set| format!("ReplicaSet \"{}\"", meta::name(&set.metadata)),
        );
        if is_complete(deployment, status) {
            let message = format!("{subject} has successfully progressed.");
            set(
                status,
                new_condition(PROGRESSING, "True", COMPLETE, message, now),
            );
        } else if has_progressed(before, status) {
            let message = format!("{subject} is progressing.");
            let mut progress =
                new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            // The deadline counts from the update time, which changes even if status and reason
            // stay the same.
            if let Some(old) = condition(before, PROGRESSING).filter(|old| old.status == "True") {
                progress
                    .last_transition_time
                    .clone_from(&old.last_transition_time);
            }
            remove(status, PROGRESSING);
            set(status, progress);
        } else if has_timed_out(deployment, status, now) {
            let message = format!("{subject} has timed out progressing.");
            set(
                status,
                new_condition(PROGRESSING, "False", TIMED_OUT, message, now),
            );
        }
    }

    let failures = |set: &ReplicaSet| {
        let conditions = set
            .status
            .clone()
            .unwrap_or_default()
            .conditions
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == REPLICA_FAILURE)
    };
    match new.and_then(failures).or_else(|| all.find_map(failures)) {
        None => remove(status, REPLICA_FAILURE),
        Some(failure) => set(
            status,
            DeploymentCondition {
                type_: failure.type_,
                status: failure.status,
                reason: failure.reason,
                message: failure.message,
                last_update_time: failure.last_transition_time.clone(),
                last_transition_time: failure.last_transition_time,
            },
        ),
    }
}

/// Returns whether all Pods run the current template and are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = size::desired(deployment);
    status.updated_replicas.unwrap_or_default() == desired
        && status.replicas.unwrap_or_default() == desired
        && status.available_replicas.unwrap_or_default() == desired
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let updated = |status: &DeploymentStatus| status.updated_replicas.unwrap_or_default();
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or_default() - updated(status);
    updated(now) > updated(before)
        || old(now) < old(before)
        || now.ready_replicas.unwrap_or_default() > before.ready_replicas.unwrap_or_default()
        || now.available_replicas.unwrap_or_default()
            > before.available_replicas.unwrap_or_default()
}

/// Returns when the rollout exceeds its deadline unless it progresses.
fn times_out_at(deployment: &Deployment, status: &DeploymentStatus) -> Option<Timestamp> {
    let Time(since) = condition(status, PROGRESSING)?.last_update_time.as_ref()?;
    since.saturating_add(deadline(deployment)?).ok()
}

fn has_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    match reason(status, PROGRESSING) {
        None | Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        Some(_) => times_out_at(deployment, status).is_some_and(|at| at < now),
    }
}

/// Returns when to reconcile again without an event: just after the deadline of an unfinished
/// rollout.
pub(super) fn requeue_after(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    if is_complete(deployment, status)
        || matches!(
            reason(status, PROGRESSING),
            Some(TIMED_OUT | COMPLETE | PAUSED)
        )
    {
        return None;
    }
    let left = times_out_at(deployment, status)?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}
