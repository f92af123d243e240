use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn budget(spec: &Value, status: &Value) -> PodDisruptionBudget {
    let mut spec = spec.clone();
    spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    serde_json::from_value(json!({
        "metadata": { "name": "web", "generation": 3 }, "spec": spec, "status": status,
    }))
    .unwrap()
}

/// Returns `ready` ready Pods and one that is not, all controlled by the ReplicaSet with UID `set`.
fn pods(ready: usize, set: &str) -> Vec<Arc<Pod>> {
    let pod = |number: usize| {
        let status = if number < ready { "True" } else { "False" };
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set,
            "controller": true,
        });
        let pod = json!({
            "metadata": { "name": format!("{set}-{number}"), "ownerReferences": [owner] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    (0..=ready).map(pod).collect()
}

fn scales(replicas: i32) -> Scales {
    let uid = "deployment".to_owned();
    Scales::from([("set".to_owned(), Scale { uid, replicas })])
}

/// Returns (allowed, healthy, desired, expected).
fn numbers(spec: &Value, ready: usize, replicas: i32) -> (i32, i32, i32, i32) {
    let plan = plan(
        &budget(spec, &json!({})),
        &pods(ready, "set"),
        &scales(replicas),
        now(),
    );
    let status = plan.unwrap().status.unwrap();
    (
        status.disruptions_allowed.unwrap(),
        status.current_healthy.unwrap(),
        status.desired_healthy.unwrap(),
        status.expected_pods.unwrap(),
    )
}

/// Proves disruption/status.
#[test]
fn counts_and_percentages_follow_kube_controller_manager() {
    assert_eq!(numbers(&json!({ "minAvailable": 2 }), 3, 9), (1, 3, 2, 4));
    assert_eq!(numbers(&json!({ "minAvailable": 5 }), 3, 9), (0, 3, 5, 4));
    // Percentages refer to the scale of the controllers and round up.
    assert_eq!(
        numbers(&json!({ "minAvailable": "50%" }), 3, 5),
        (0, 3, 3, 5)
    );
    assert_eq!(
        numbers(&json!({ "minAvailable": "0%" }), 3, 5),
        (3, 3, 0, 5)
    );
    assert_eq!(
        numbers(&json!({ "maxUnavailable": "30%" }), 4, 5),
        (1, 4, 3, 5)
    );
    assert_eq!(numbers(&json!({ "maxUnavailable": 1 }), 5, 5), (1, 5, 4, 5));
    assert_eq!(numbers(&json!({ "maxUnavailable": 9 }), 2, 3), (2, 2, 0, 3));
    assert_eq!(numbers(&json!({ "maxUnavailable": 0 }), 5, 5), (0, 5, 5, 5));
}

/// Proves disruption/status.
#[test]
fn budget_without_pods_allows_nothing() {
    let budget = budget(&json!({ "maxUnavailable": "100%" }), &json!({}));
    let status = plan(&budget, &[], &Scales::new(), now())
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (status.disruptions_allowed, status.expected_pods),
        (Some(0), Some(0))
    );
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(condition.reason, "InsufficientPods");
    assert_eq!(
        (condition.observed_generation, status.observed_generation),
        (Some(3), Some(3))
    );
}

/// Proves disruption/status.
#[test]
fn unchanged_status_is_not_written() {
    let spec = json!({ "minAvailable": 1 });
    let first = plan(
        &budget(&spec, &json!({})),
        &pods(3, "set"),
        &Scales::new(),
        now(),
    );
    let status = first.unwrap().status.unwrap();
    assert_eq!(
        status.conditions.as_ref().unwrap()[0].reason,
        "SufficientPods"
    );
    let mut budget = budget(&spec, &json!({}));
    budget.status = Some(status);
    let later = now() + Duration::from_secs(60);
    let second = plan(&budget, &pods(3, "set"), &Scales::new(), later).unwrap();
    assert_eq!(second.status, None);
}

/// Proves disruption/status.
#[test]
fn evicted_pod_counts_as_gone_for_two_minutes() {
    let spec = json!({ "minAvailable": 1 });
    let evicted = |at: &str| {
        let status = json!({ "disruptedPods": { "set-0": at, "gone": at } });
        plan(
            &budget(&spec, &status),
            &pods(3, "set"),
            &Scales::new(),
            now(),
        )
        .unwrap()
    };
    let recent = evicted("2026-01-01T00:09:00Z");
    let status = recent.status.unwrap();
    assert_eq!(status.current_healthy, Some(2));
    let names: Vec<String> = status.disrupted_pods.unwrap().into_keys().collect();
    assert_eq!(names, ["set-0"], "a deleted Pod needs no entry");
    assert_eq!(recent.requeue_after, Some(Duration::from_secs(60)));
    assert!(recent.not_deleted.is_empty());

    let old = evicted("2026-01-01T00:08:00Z");
    let status = old.status.unwrap();
    assert_eq!(
        (status.current_healthy, status.disrupted_pods),
        (Some(3), None)
    );
    assert_eq!(
        (old.requeue_after, old.not_deleted),
        (None, vec!["set-0".to_owned()])
    );
}

/// Proves disruption/status.
#[test]
fn budget_without_a_controller_allows_nothing() {
    let status = json!({ "disruptionsAllowed": 2, "currentHealthy": 3, "observedGeneration": 2 });
    let budget = budget(&json!({ "maxUnavailable": 1 }), &status);
    assert!(needs_scale(&budget));
    let failure = plan(&budget, &pods(1, "other"), &scales(3), now()).unwrap_err();
    assert_eq!(failure, Failure::NoController("other-0".into()));
    let status = failed(&budget, &failure, now()).unwrap();
    assert_eq!(
        (status.disruptions_allowed, status.current_healthy),
        (Some(0), Some(3))
    );
    let condition = &status.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("SyncFailed", "found no controllers for pod \"other-0\"")
    );
    let again = PodDisruptionBudget {
        status: Some(status),
        ..budget
    };
    assert_eq!(failed(&again, &failure, now()), None);
}

#[test]
fn empty_selector_selects_all_and_a_missing_one_nothing() {
    let selector_of = |labels: Value| {
        let budget = json!({ "spec": { "selector": labels } });
        selector(&serde_json::from_value(budget).unwrap())
    };
    assert!(selector_of(json!({})).is_everything());
    assert!(selector_of(Value::Null).is_nothing());
    assert!(!selector(&budget(&json!({}), &json!({}))).is_everything());
}
