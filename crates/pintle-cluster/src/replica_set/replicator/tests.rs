use serde_json::json;

use super::*;

/// Proves replicaset/scale.
#[test]
fn replication_controller_converts_to_a_replica_set() {
    let controller: ReplicationController = serde_json::from_value(json!({
        "metadata": { "name": "web", "generation": 3 },
        "spec": {
            "replicas": 2, "selector": { "app": "web" },
            "template": { "metadata": { "labels": { "app": "web" } } },
        },
        "status": {
            "replicas": 1,
            "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "Quota" }],
        },
    }))
    .unwrap();
    let set = controller.as_set();
    assert_eq!(set.spec.as_ref().unwrap().replicas, Some(2));
    assert_eq!(controller.selector().to_string(), "app=web");
    let status = ReplicaSetStatus {
        replicas: 2,
        terminating_replicas: Some(1),
        conditions: set
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone()),
        ..ReplicaSetStatus::default()
    };
    let written = controller.with_status(status.clone()).unwrap();
    assert_eq!(
        json!(written.status),
        json!({
            "replicas": 2,
            "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "Quota" }],
        })
    );
    assert_eq!(written.with_status(status), None);
    // An empty selector selects nothing.
    assert!(ReplicationController::default().selector().is_nothing());
}
