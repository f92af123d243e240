use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

use super::*;
use crate::cache::Reader;

/// The time at which the tests compute a status.
fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().expect("a time")
}

/// Returns the status of an object as `Status Reason: message`.
#[track_caller]
fn status(api_version: &str, kind: &str, fields: Value) -> String {
    let mut object = json!({ "apiVersion": api_version, "kind": kind });
    let Value::Object(fields) = fields else {
        panic!("not an object");
    };
    object.as_object_mut().expect("an object").extend(fields);
    let ObjectStatus {
        status,
        reason,
        message,
    } = compute(&object, now());
    let space = if reason.is_empty() { "" } else { " " };
    format!("{status}{space}{reason}: {message}")
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": format!("{type_}!")})
}

/// Proves kstatus/rules.
#[test]
fn deletion_comes_before_everything_else() {
    let deleting = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 2},
        "status": {"observedGeneration": 1, "conditions": [condition("Stalled", "True", "No")]},
    });
    let expected = "Terminating: Resource scheduled for deletion";
    assert_eq!(status("example.com/v1", "Widget", deleting), expected);
}

/// Proves kstatus/rules.
#[test]
fn unobserved_generation_hides_old_conditions() {
    let stale = json!({
        "metadata": {"generation": 3},
        "status": {"observedGeneration": 2, "conditions": [condition("Ready", "True", "Up")]},
    });
    assert_eq!(
        status("example.com/v1", "Widget", stale),
        "InProgress LatestGenerationNotObserved: Widget generation is 3, but latest observed \
         generation is 2"
    );
}

/// Proves kstatus/rules.
#[test]
fn abnormal_conditions_decide_for_every_kind() {
    let with = |conditions: Value| json!({"status": {"conditions": conditions}});
    let widget = |conditions| status("example.com/v1", "Widget", with(conditions));
    assert_eq!(
        widget(json!([
            condition("Ready", "True", "Up"),
            condition("Reconciling", "True", "Busy")
        ])),
        "InProgress Busy: Reconciling!"
    );
    assert_eq!(
        widget(json!([condition("Stalled", "True", "Invalid")])),
        "Failed Invalid: Stalled!"
    );
    let fine = json!([
        condition("Stalled", "False", "Fine"),
        condition("Ready", "True", "Up")
    ]);
    assert_eq!(widget(fine), "Current: Resource is Ready");
    // A built-in kind too.
    let stalled = with(json!([condition("Stalled", "True", "No")]));
    assert_eq!(status("v1", "ConfigMap", stalled), "Failed No: Stalled!");
}

/// Proves kstatus/rules.
#[test]
fn ready_decides_for_other_kinds() {
    let widget = |ready: &str| {
        let conditions = json!([condition("Ready", ready, "Why")]);
        let fields = json!({"status": {"conditions": conditions}});
        status("example.com/v1", "Widget", fields)
    };
    assert_eq!(widget("True"), "Current: Resource is Ready");
    assert_eq!(widget("False"), "InProgress Why: Ready!");
    assert_eq!(widget("Unknown"), "InProgress Why: Ready!");
    assert_eq!(widget("maybe"), "Current: Resource is current");
    let bare = status("example.com/v1", "Widget", json!({}));
    assert_eq!(bare, "Current: Resource is current");
}

/// Proves kstatus/rules.
#[test]
fn malformed_objects_are_unknown() {
    let conditions = json!({"status": {"conditions": "none"}});
    assert!(status("example.com/v1", "Widget", conditions).starts_with("Unknown Malformed: "));
    let phase = json!({"status": {"phase": "Sleeping"}});
    let expected = "Unknown UnknownPhase: unknown phase Sleeping";
    assert_eq!(status("v1", "Pod", phase), expected);
}

/// Proves kstatus/rules.
#[test]
fn deployment_follows_its_rollout() {
    let deployment = |counts: [i64; 4], conditions: Value| {
        let [replicas, updated, available, ready] = counts;
        let fields = json!({
            "metadata": {"generation": 1},
            "spec": {"replicas": 2, "progressDeadlineSeconds": 600},
            "status": {
                "observedGeneration": 1, "replicas": replicas, "updatedReplicas": updated,
                "availableReplicas": available, "readyReplicas": ready, "conditions": conditions,
            },
        });
        status("apps/v1", "Deployment", fields)
    };
    let progressing = condition("Progressing", "True", "NewReplicaSetAvailable");
    let available = condition("Available", "True", "MinimumReplicasAvailable");
    let done = json!([progressing, available]);
    for (counts, expected) in [
        ([1, 1, 1, 1], "InProgress LessReplicas: Replicas: 1/2"),
        ([2, 1, 1, 1], "InProgress LessUpdated: Updated: 1/2"),
        ([3, 2, 2, 2], "InProgress ExtraPods: Pending termination: 1"),
        ([2, 2, 1, 2], "InProgress LessAvailable: Available: 1/2"),
        ([2, 2, 2, 1], "InProgress LessReady: Ready: 1/2"),
        (
            [2, 2, 2, 2],
            "Current: Deployment is available. Replicas: 2",
        ),
    ] {
        assert_eq!(deployment(counts, done.clone()), expected);
    }
    let all = [2; 4];
    assert_eq!(
        deployment(all, json!([available])),
        "InProgress ReplicaSetNotAvailable: ReplicaSet not Available"
    );
    assert_eq!(
        deployment(all, json!([progressing])),
        "InProgress DeploymentNotAvailable: Deployment not Available"
    );
    let exceeded = json!([condition(
        "Progressing",
        "False",
        "ProgressDeadlineExceeded"
    )]);
    assert_eq!(
        deployment([1, 1, 0, 0], exceeded),
        "Failed ProgressDeadlineExceeded: Progress deadline exceeded"
    );
}

/// Proves kstatus/rules.
#[test]
fn deployment_without_deadline_needs_no_progress() {
    let fields = json!({
        "spec": {},
        "status": {
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
            "conditions": [condition("Available", "True", "Up")],
        },
    });
    let expected = "Current: Deployment is available. Replicas: 1";
    assert_eq!(status("apps/v1", "Deployment", fields), expected);
}

/// Proves kstatus/rules.
#[test]
fn replica_set_counts_its_pods() {
    let replica_set = |counts: [i64; 4], conditions: Value| {
        let [labelled, available, ready, replicas] = counts;
        let fields = json!({"spec": {"replicas": 2}, "status": {
            "fullyLabeledReplicas": labelled, "availableReplicas": available,
            "readyReplicas": ready, "replicas": replicas, "conditions": conditions,
        }});
        status("apps/v1", "ReplicaSet", fields)
    };
    for (counts, expected) in [
        ([1, 2, 2, 2], "InProgress LessLabelled: Labelled: 1/2"),
        ([2, 1, 2, 2], "InProgress LessAvailable: Available: 1/2"),
        ([2, 2, 1, 2], "InProgress LessReady: Ready: 1/2"),
        ([2, 2, 2, 3], "InProgress ExtraPods: Pending termination: 1"),
        (
            [2, 2, 2, 2],
            "Current: ReplicaSet is available. Replicas: 2",
        ),
    ] {
        assert_eq!(replica_set(counts, json!([])), expected);
    }
    assert_eq!(
        replica_set(
            [2; 4],
            json!([condition("ReplicaFailure", "True", "Quota")])
        ),
        "InProgress ReplicaFailure: Replica Failure condition. Check Pods"
    );
}

/// Proves kstatus/rules.
#[test]
fn stateful_set_follows_its_rollout() {
    let stateful_set = |spec: Value, counts: [i64; 4], revision: &str| {
        let [replicas, ready, current, updated] = counts;
        let fields = json!({"spec": spec, "status": {
            "replicas": replicas, "readyReplicas": ready, "currentReplicas": current,
            "updatedReplicas": updated, "currentRevision": "a", "updateRevision": revision,
        }});
        status("apps/v1", "StatefulSet", fields)
    };
    let two = || json!({"replicas": 2});
    for (counts, expected) in [
        ([1, 1, 1, 0], "InProgress LessReplicas: Replicas: 1/2"),
        ([2, 1, 2, 0], "InProgress LessReady: Ready: 1/2"),
        ([3, 3, 3, 0], "InProgress ExtraPods: Pending termination: 1"),
        ([2, 2, 1, 1], "InProgress LessCurrent: current: 1/2"),
        (
            [2, 2, 2, 0],
            "Current: All replicas scheduled as expected. Replicas: 2",
        ),
    ] {
        assert_eq!(stateful_set(two(), counts, "a"), expected);
    }
    assert_eq!(
        stateful_set(two(), [2, 2, 2, 0], "b"),
        "InProgress RevisionMismatch: Waiting for updated revision to match current"
    );
    let partition = json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
    assert_eq!(
        stateful_set(partition.clone(), [2, 2, 2, 0], "b"),
        "InProgress PartitionRollout: updated: 0/1"
    );
    assert_eq!(
        stateful_set(partition, [2, 2, 1, 1], "b"),
        "Current: Partition rollout complete. updated: 1"
    );
    assert_eq!(
        stateful_set(json!({"updateStrategy": {"type": "OnDelete"}}), [0; 4], "b"),
        "Current: StatefulSet is using the ondelete update strategy"
    );
}

/// Proves kstatus/rules.
#[test]
fn daemon_set_needs_an_observed_generation() {
    let daemon_set = |counts: [i64; 4]| {
        let [current, updated, available, ready] = counts;
        let fields = json!({"metadata": {"generation": 1}, "status": {
            "observedGeneration": 1, "desiredNumberScheduled": 2,
            "currentNumberScheduled": current, "updatedNumberScheduled": updated,
            "numberAvailable": available, "numberReady": ready,
        }});
        status("apps/v1", "DaemonSet", fields)
    };
    for (counts, expected) in [
        ([1, 2, 2, 2], "InProgress LessCurrent: Current: 1/2"),
        ([2, 1, 2, 2], "InProgress LessUpdated: Updated: 1/2"),
        ([2, 2, 1, 2], "InProgress LessAvailable: Available: 1/2"),
        ([2, 2, 2, 1], "InProgress LessReady: Ready: 1/2"),
        (
            [2; 4],
            "Current: All replicas scheduled as expected. Replicas: 2",
        ),
    ] {
        assert_eq!(daemon_set(counts), expected);
    }
    for (fields, expected) in [
        (
            json!({}),
            "InProgress NoGeneration: DaemonSet metadata.generation not found",
        ),
        (
            json!({"metadata": {"generation": 1}}),
            "InProgress NoObservedGeneration: DaemonSet status.observedGeneration not found",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
            "InProgress NoDesiredNumber: Missing .status.desiredNumberScheduled",
        ),
    ] {
        assert_eq!(status("apps/v1", "DaemonSet", fields), expected);
    }
}

/// Proves kstatus/rules.
#[test]
fn job_is_current_while_it_runs() {
    let job = |suspend: bool, fields: Value| {
        let spec = json!({"completions": 3, "suspend": suspend});
        status("batch/v1", "Job", json!({"spec": spec, "status": fields}))
    };
    let with = |type_: &str| json!({"succeeded": 3, "failed": 1, "conditions": [condition(type_, "True", "")]});
    assert_eq!(
        job(false, json!({})),
        "InProgress JobNotStarted: Job not started"
    );
    assert_eq!(
        job(
            false,
            json!({"startTime": "2026-01-01T00:00:00Z", "active": 2})
        ),
        "Current: Job in progress. success:0, active: 2, failed: 0"
    );
    assert_eq!(
        job(false, with("Complete")),
        "Current: Job Completed. succeeded: 3/3"
    );
    assert_eq!(
        job(false, with("Failed")),
        "Failed JobFailed: Job Failed. failed: 1/3"
    );
    assert_eq!(job(true, with("Suspended")), "Current: Job is suspended");
    let resumed = job(false, with("Suspended"));
    assert_eq!(resumed, "InProgress JobNotStarted: Job not started");
}

/// Proves kstatus/rules.
#[test]
fn pod_is_judged_by_phase_and_containers() {
    let pod = |created: &str, fields: Value| {
        let metadata = json!({ "creationTimestamp": created });
        status("v1", "Pod", json!({"metadata": metadata, "status": fields}))
    };
    let old = "2026-01-01T00:00:00Z";
    let crashing = json!({"phase": "Running", "containerStatuses": [
        {"name": "fine", "state": {"running": {}}},
        {"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]});
    let unschedulable = json!({
        "phase": "Pending",
        "conditions": [condition("PodScheduled", "False", "Unschedulable")],
    });
    let ready = json!({"phase": "Running", "conditions": [condition("Ready", "True", "")]});
    for (fields, expected) in [
        (
            json!({}),
            "InProgress PodNotObserved: Pod phase not available",
        ),
        (
            json!({"phase": "Pending"}),
            "InProgress PodPending: Pod is in the Pending phase",
        ),
        (
            json!({"phase": "Running"}),
            "InProgress PodRunningNotReady: Pod is running but is not Ready",
        ),
        (
            crashing,
            "Failed ContainerCrashLooping: Containers in CrashLoop state: web",
        ),
        (ready, "Current: Pod is Ready"),
        (
            json!({"phase": "Succeeded"}),
            "Current: Pod has completed successfully",
        ),
        (
            json!({"phase": "Failed"}),
            "Current: Pod has completed, but not successfully",
        ),
        (
            unschedulable.clone(),
            "Failed PodUnschedulable: Pod could not be scheduled",
        ),
    ] {
        assert_eq!(pod(old, fields), expected);
    }
    assert_eq!(
        pod("2026-01-01T00:00:50Z", unschedulable),
        "InProgress PodNotScheduled: Pod has not been scheduled",
        "within the first 15 seconds"
    );
}

/// Proves kstatus/rules.
#[test]
fn other_built_in_kinds_have_their_rules() {
    let crd = |conditions: Value| {
        let fields = json!({"status": {"conditions": conditions}});
        status(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            fields,
        )
    };
    let claim = |phase: &str| {
        let fields = json!({"status": {"phase": phase}});
        status("v1", "PersistentVolumeClaim", fields)
    };
    let service = |spec: Value| status("v1", "Service", json!({ "spec": spec }));
    for (found, expected) in [
        (crd(json!([])), "InProgress Installing: Install in progress"),
        (
            crd(json!([condition("NamesAccepted", "False", "Taken")])),
            "Failed Taken: NamesAccepted!",
        ),
        (
            crd(json!([condition("Established", "False", "Installing")])),
            "InProgress Installing: Install in progress",
        ),
        (
            crd(json!([condition("Established", "False", "NotAccepted")])),
            "Failed NotAccepted: Established!",
        ),
        (
            crd(json!([condition(
                "Established",
                "True",
                "InitialNamesAccepted"
            )])),
            "Current: CRD is established",
        ),
        (claim("Bound"), "Current: PVC is Bound"),
        (
            claim("Pending"),
            "InProgress NotBound: PVC is not Bound. phase: Pending",
        ),
        (
            service(json!({"type": "LoadBalancer"})),
            "InProgress NoIPAssigned: ClusterIP not set. Service type: LoadBalancer",
        ),
        (
            service(json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"})),
            "Current: Service is ready",
        ),
        (service(json!({})), "Current: Service is ready"),
        (
            status("policy/v1", "PodDisruptionBudget", json!({})),
            "Current: AllowedDisruptions has been computed.",
        ),
        (
            status("batch/v1", "CronJob", json!({})),
            "Current: Resource is always ready",
        ),
        (
            status("example.com/v1", "Pod", json!({})),
            "Current: Resource is current",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

/// Proves kstatus/rules.
#[test]
fn cached_object_needs_no_kind_in_its_bytes() {
    let json = br#"{"metadata":{"name":"a","namespace":"b"},"status":{"phase":"Pending"}}"#;
    let cached = Reader::<Pod>::new().read(json).expect("a Pod");
    let found = of_cached(Some(&cached), now());
    assert_eq!(found.to_string(), "InProgress: Pod is in the Pending phase");
    assert_eq!(of_cached::<Pod>(None, now()).status, Status::NotFound);
    assert!(of(&ConfigMap::default(), now()).is_current());
}
