use serde_json::{Value, json};

use super::*;

fn claim(metadata: &Value) -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn pod(node: &str, volume: &Value, metadata: &Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": "web", "uid": "web-uid" },
        "spec": { "nodeName": node, "containers": [], "volumes": [{ "name": "data" }] },
    });
    for (target, more) in [("metadata", metadata), ("volume", volume)] {
        for (key, value) in more.as_object().unwrap() {
            if target == "metadata" {
                pod["metadata"][key] = value.clone();
            } else {
                pod["spec"]["volumes"][0][key] = value.clone();
            }
        }
    }
    serde_json::from_value(pod).unwrap()
}

/// Proves volumes/protection.
#[test]
fn only_scheduled_pods_protect_a_claim() {
    let claim = claim(&json!({ "name": "data" }));
    let volume = json!({ "persistentVolumeClaim": { "claimName": "data" } });
    assert!(uses(&pod("node-0", &volume, &json!({})), &claim));
    assert!(!uses(&pod("", &volume, &json!({})), &claim));
    let other = json!({ "persistentVolumeClaim": { "claimName": "other" } });
    assert!(!uses(&pod("node-0", &other, &json!({})), &claim));
    assert_eq!(claims(&pod("", &other, &json!({}))), ["other"]);
}

/// Proves volumes/protection.
#[test]
fn ephemeral_claim_is_protected_by_its_own_pod() {
    let volume = json!({ "ephemeral": {} });
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid", "controller": true,
    }]);
    let own = claim(&json!({ "name": "web-data", "ownerReferences": owner }));
    let foreign = claim(&json!({ "name": "web-data" }));
    let running = pod("node-0", &volume, &json!({}));
    assert!(uses(&running, &own));
    assert!(!uses(&running, &foreign), "the name alone does not suffice");
    let done = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
    });
    assert!(!uses(&pod("node-0", &volume, &done), &own));
    assert_eq!(claims(&running), ["web-data"]);
}

#[test]
fn foreign_finalizers_are_retained() {
    let metadata = claim(&json!({ "name": "data", "finalizers": ["a", CLAIM_FINALIZER, "b"] }));
    let metadata = metadata.metadata;
    assert_eq!(need(&metadata, CLAIM_FINALIZER), Need::None);
    assert_eq!(need(&metadata, VOLUME_FINALIZER), Need::Finalizer);
    assert_eq!(
        meta::without_finalizer(&metadata, CLAIM_FINALIZER),
        ["a", "b"]
    );
    assert_eq!(
        meta::with_finalizer(&metadata, VOLUME_FINALIZER),
        ["a", CLAIM_FINALIZER, "b", VOLUME_FINALIZER]
    );
}
