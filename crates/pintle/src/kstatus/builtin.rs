//! kstatus' rules for built-in kinds.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    ObjectStatus, Status,
    fields::{Condition, Fields},
};

/// How long a Pod may be unschedulable before it counts as failed.
const SCHEDULE_WINDOW: SignedDuration = SignedDuration::from_secs(15);

/// Returns the status of an object of a built-in kind, or `None` for any other kind.
pub(super) fn status(
    group: &str,
    kind: &str,
    object: Fields<'_>,
    conditions: &[Condition],
    now: Timestamp,
) -> Option<ObjectStatus> {
    Some(match (group, kind) {
        ("apps" | "extensions", "Deployment") => deployment(object, conditions),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object, conditions),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("batch", "Job") => job(object, conditions),
        ("", "Pod") => pod(object, conditions, now),
        ("", "PersistentVolumeClaim") => volume_claim(object),
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(conditions),
        ("policy", "PodDisruptionBudget") => {
            ObjectStatus::current("AllowedDisruptions has been computed.")
        }
        ("", "ConfigMap" | "Secret") | ("batch", "CronJob") => {
            ObjectStatus::current("Resource is always ready")
        }
        _ => return None,
    })
}

/// Reports a count below its target: `Ready: 1/3`.
fn fewer(reason: &str, what: &str, have: i64, want: i64) -> Option<ObjectStatus> {
    (have < want).then(|| ObjectStatus::in_progress(reason, format!("{what}: {have}/{want}")))
}

/// Reports Pods in excess of the target.
fn extra(have: i64, want: i64) -> Option<ObjectStatus> {
    (have > want).then(|| {
        let message = format!("Pending termination: {}", have - want);
        ObjectStatus::in_progress("ExtraPods", message)
    })
}

fn deployment(object: Fields<'_>, conditions: &[Condition]) -> ObjectStatus {
    // Without a deadline the Deployment controller does not report progress.
    let deadline = object.integer("/spec/progressDeadlineSeconds");
    let mut progressing = deadline.is_none_or(|deadline| deadline == i64::from(i32::MAX));
    let mut available = false;
    for condition in conditions {
        let holds = condition.status == "True";
        match (condition.type_.as_str(), condition.reason.as_str()) {
            ("Progressing", "ProgressDeadlineExceeded") => {
                let message = "Progress deadline exceeded";
                return ObjectStatus::failed(&condition.reason, message);
            }
            ("Progressing", "NewReplicaSetAvailable") => progressing |= holds,
            ("Available", _) => available |= holds,
            _ => {}
        }
    }
    let want = object.integer("/spec/replicas").unwrap_or(1);
    let (replicas, updated) = (object.count("replicas"), object.count("updatedReplicas"));
    let missing = |holds: bool, reason: &str, message: &str| {
        (!holds).then(|| ObjectStatus::in_progress(reason, message))
    };
    fewer("LessReplicas", "Replicas", replicas, want)
        .or_else(|| fewer("LessUpdated", "Updated", updated, want))
        .or_else(|| extra(replicas, want))
        .or_else(|| {
            let available = object.count("availableReplicas");
            fewer("LessAvailable", "Available", available, updated)
        })
        .or_else(|| fewer("LessReady", "Ready", object.count("readyReplicas"), want))
        .or_else(|| {
            let message = "ReplicaSet not Available";
            missing(progressing, "ReplicaSetNotAvailable", message)
        })
        .or_else(|| {
            let message = "Deployment not Available";
            missing(available, "DeploymentNotAvailable", message)
        })
        .unwrap_or_else(|| {
            ObjectStatus::current(format!("Deployment is available. Replicas: {replicas}"))
        })
}

fn replica_set(object: Fields<'_>, conditions: &[Condition]) -> ObjectStatus {
    if has(conditions, "ReplicaFailure", "True") {
        let message = "Replica Failure condition. Check Pods";
        return ObjectStatus::in_progress("ReplicaFailure", message);
    }
    let want = object.integer("/spec/replicas").unwrap_or(1);
    let replicas = object.count("replicas");
    let labelled = object.count("fullyLabeledReplicas");
    let available = object.count("availableReplicas");
    fewer("LessLabelled", "Labelled", labelled, want)
        .or_else(|| fewer("LessAvailable", "Available", available, want))
        .or_else(|| fewer("LessReady", "Ready", object.count("readyReplicas"), want))
        .or_else(|| extra(replicas, want))
        .unwrap_or_else(|| {
            ObjectStatus::current(format!("ReplicaSet is available. Replicas: {replicas}"))
        })
}

fn stateful_set(object: Fields<'_>) -> ObjectStatus {
    if object.text("/spec/updateStrategy/type") == Some("OnDelete") {
        return ObjectStatus::current("StatefulSet is using the ondelete update strategy");
    }
    let want = object.integer("/spec/replicas").unwrap_or(1);
    let replicas = object.count("replicas");
    let scaling = fewer("LessReplicas", "Replicas", replicas, want)
        .or_else(|| fewer("LessReady", "Ready", object.count("readyReplicas"), want))
        .or_else(|| extra(replicas, want));
    if let Some(scaling) = scaling {
        return scaling;
    }
    let updated = object.count("updatedReplicas");
    if let Some(partition) = object.integer("/spec/updateStrategy/rollingUpdate/partition") {
        let rollout = fewer("PartitionRollout", "updated", updated, want - partition);
        return rollout.unwrap_or_else(|| {
            ObjectStatus::current(format!("Partition rollout complete. updated: {updated}"))
        });
    }
    let current = object.count("currentReplicas");
    fewer("LessCurrent", "current", current, want)
        .or_else(|| {
            let revisions = ["/status/currentRevision", "/status/updateRevision"];
            let [current, update] = revisions.map(|pointer| object.text(pointer));
            (current != update).then(|| {
                let message = "Waiting for updated revision to match current";
                ObjectStatus::in_progress("RevisionMismatch", message)
            })
        })
        .unwrap_or_else(|| scheduled(replicas))
}

fn daemon_set(object: Fields<'_>) -> ObjectStatus {
    // Once its controller has acted on a DaemonSet, it has both.
    for (pointer, reason, field) in [
        (
            "/metadata/generation",
            "NoGeneration",
            "metadata.generation",
        ),
        (
            "/status/observedGeneration",
            "NoObservedGeneration",
            "status.observedGeneration",
        ),
    ] {
        if object.integer(pointer).is_none() {
            return ObjectStatus::in_progress(reason, format!("DaemonSet {field} not found"));
        }
    }
    let Some(want) = object.integer("/status/desiredNumberScheduled") else {
        let message = "Missing .status.desiredNumberScheduled";
        return ObjectStatus::in_progress("NoDesiredNumber", message);
    };
    let counts = [
        ("LessCurrent", "Current", "currentNumberScheduled"),
        ("LessUpdated", "Updated", "updatedNumberScheduled"),
        ("LessAvailable", "Available", "numberAvailable"),
        ("LessReady", "Ready", "numberReady"),
    ];
    counts
        .into_iter()
        .find_map(|(reason, what, name)| fewer(reason, what, object.count(name), want))
        .unwrap_or_else(|| scheduled(want))
}

fn scheduled(replicas: i64) -> ObjectStatus {
    let message = format!("All replicas scheduled as expected. Replicas: {replicas}");
    ObjectStatus::current(message)
}

/// A running Job is current: it is doing what its spec asks for.
fn job(object: Fields<'_>, conditions: &[Condition]) -> ObjectStatus {
    let parallelism = object.integer("/spec/parallelism").unwrap_or(1);
    let completions = object.integer("/spec/completions").unwrap_or(parallelism);
    let [succeeded, active, failed] =
        ["succeeded", "active", "failed"].map(|name| object.count(name));
    let suspended = object.flag("/spec/suspend");
    let holds = |condition: &&Condition| condition.status == "True";
    for condition in conditions.iter().filter(holds) {
        match condition.type_.as_str() {
            "Complete" => {
                let message = format!("Job Completed. succeeded: {succeeded}/{completions}");
                return ObjectStatus::current(message);
            }
            "Failed" => {
                let message = format!("Job Failed. failed: {failed}/{completions}");
                return ObjectStatus::failed("JobFailed", message);
            }
            "Suspended" if suspended => return ObjectStatus::current("Job is suspended"),
            _ => {}
        }
    }
    if object.text("/status/startTime").is_none() {
        return ObjectStatus::in_progress("JobNotStarted", "Job not started");
    }
    ObjectStatus::current(format!(
        "Job in progress. success:{succeeded}, active: {active}, failed: {failed}"
    ))
}

fn pod(object: Fields<'_>, conditions: &[Condition], now: Timestamp) -> ObjectStatus {
    match object.text("/status/phase") {
        Some("Succeeded") => ObjectStatus::current("Pod has completed successfully"),
        Some("Failed") => ObjectStatus::current("Pod has completed, but not successfully"),
        Some("Running") => running_pod(object, conditions),
        Some("Pending") => pending_pod(object, conditions, now),
        None => ObjectStatus::in_progress("PodNotObserved", "Pod phase not available"),
        Some(phase) => {
            let message = format!("unknown phase {phase}");
            ObjectStatus::new(Status::Unknown, "UnknownPhase", message)
        }
    }
}

fn running_pod(object: Fields<'_>, conditions: &[Condition]) -> ObjectStatus {
    if has(conditions, "Ready", "True") {
        return ObjectStatus::current("Pod is Ready");
    }
    let containers = object.list("/status/containerStatuses").iter();
    let crashing: Vec<&str> = containers
        .filter(|container| {
            let reason = container.pointer("/state/waiting/reason");
            reason.and_then(Value::as_str) == Some("CrashLoopBackOff")
        })
        .filter_map(|container| container.get("name").and_then(Value::as_str))
        .collect();
    if crashing.is_empty() {
        let message = "Pod is running but is not Ready";
        return ObjectStatus::in_progress("PodRunningNotReady", message);
    }
    let message = format!("Containers in CrashLoop state: {}", crashing.join(","));
    ObjectStatus::failed("ContainerCrashLooping", message)
}

fn pending_pod(object: Fields<'_>, conditions: &[Condition], now: Timestamp) -> ObjectStatus {
    let unschedulable = conditions.iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason == "Unschedulable"
    });
    if !unschedulable {
        return ObjectStatus::in_progress("PodPending", "Pod is in the Pending phase");
    }
    let created = object.text("/metadata/creationTimestamp");
    let created = created.and_then(|created| created.parse::<Timestamp>().ok());
    if created.is_some_and(|created| now.duration_since(created) < SCHEDULE_WINDOW) {
        return ObjectStatus::in_progress("PodNotScheduled", "Pod has not been scheduled");
    }
    ObjectStatus::failed("PodUnschedulable", "Pod could not be scheduled")
}

fn volume_claim(object: Fields<'_>) -> ObjectStatus {
    match object.text("/status/phase").unwrap_or("unknown") {
        "Bound" => ObjectStatus::current("PVC is Bound"),
        phase => {
            let message = format!("PVC is not Bound. phase: {phase}");
            ObjectStatus::in_progress("NotBound", message)
        }
    }
}

fn service(object: Fields<'_>) -> ObjectStatus {
    let balanced = object.text("/spec/type") == Some("LoadBalancer");
    if balanced && object.text("/spec/clusterIP").is_none() {
        let message = "ClusterIP not set. Service type: LoadBalancer";
        return ObjectStatus::in_progress("NoIPAssigned", message);
    }
    ObjectStatus::current("Service is ready")
}

fn definition(conditions: &[Condition]) -> ObjectStatus {
    for condition in conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("NamesAccepted", "False") => return condition.failed(),
            ("Established", "False") if condition.reason != "Installing" => {
                return condition.failed();
            }
            ("Established", "True") => return ObjectStatus::current("CRD is established"),
            _ => {}
        }
    }
    ObjectStatus::in_progress("Installing", "Install in progress")
}

fn has(conditions: &[Condition], type_: &str, status: &str) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|condition| condition.type_ == type_ && condition.status == status)
}
