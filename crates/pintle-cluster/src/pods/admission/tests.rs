use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": "web" },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "main" }] },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": "node-0", "labels": { "disk": "ssd" } },
        "status": { "allocatable": { "cpu": "2", "memory": "1Gi", "pods": "2" } },
    }))
    .unwrap()
}

fn reason(pod: &Pod, others: &[&Pod]) -> Option<String> {
    let rejection = rejection(pod, &node(), others.iter().copied());
    rejection.map(|it| format!("{}: {}", it.reason, it.message))
}

/// Proves pods/admission.
#[test]
fn kubelet_rejects_what_does_not_fit() {
    let asks = |resource: &str, amount: &str| {
        let resources = json!({ "requests": { resource: amount } });
        pod(&json!({ "containers": [{ "name": "main", "resources": resources }] }))
    };
    let small = asks("cpu", "1500m");
    assert_eq!(reason(&small, &[]), None);
    let why = "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1500, \
               capacity: 2000";
    assert_eq!(reason(&small, &[&small]).as_deref(), Some(why));
    assert_eq!(reason(&asks("example.com/gpu", "1"), &[]), None);
    let plain = pod(&json!({}));
    assert!(
        reason(&plain, &[&plain, &plain])
            .unwrap()
            .starts_with("OutOfpods: ")
    );

    let elsewhere = pod(&json!({ "nodeSelector": { "disk": "hdd" } }));
    let why = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
               affinity/selector";
    assert_eq!(reason(&elsewhere, &[]).as_deref(), Some(why));
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let listener = pod(&json!({ "containers": [{ "name": "main", "ports": ports }] }));
    assert_eq!(reason(&listener, &[&plain]), None);
    assert!(
        reason(&listener, &[&listener])
            .unwrap()
            .starts_with("NodePorts: ")
    );
}

/// Proves pods/admission.
#[test]
fn scheduled_pods_are_not_checked_again() {
    let mut pod = pod(&json!({}));
    assert!(is_unchecked(&pod));
    let scheduled = json!({ "conditions": [{ "type": "PodScheduled", "status": "True" }] });
    pod.status = serde_json::from_value(scheduled).unwrap();
    assert!(!is_unchecked(&pod));
    let started = json!({ "startTime": "2026-01-01T00:00:00Z" });
    pod.status = serde_json::from_value(started).unwrap();
    assert!(!is_unchecked(&pod));
}
