use serde_json::json;

use super::*;

/// Proves endpoints/slices.
#[test]
fn only_some_changes_of_a_pod_matter() {
    let pod = json!({
        "metadata": { "name": "web", "labels": { "app": "web" } },
        "status": {
            "phase": "Running", "podIPs": [{ "ip": "10.244.0.2" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let changed = |path: &str, value: serde_json::Value| {
        let mut new = pod.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[field] = value;
        let decoded = |pod| serde_json::from_value::<Pod>(pod).unwrap();
        has_changed(&decoded(pod.clone()), &decoded(new))
    };
    assert!(changed("/metadata/labels/app", json!("other")));
    assert!(changed(
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z")
    ));
    assert!(changed("/status/podIPs", json!([{ "ip": "10.244.0.3" }])));
    assert!(changed("/status/phase", json!("Failed")));
    assert!(changed("/status/conditions", json!([])));
    assert!(!changed("/metadata/annotations", json!({ "a": "b" })));
    assert!(!changed("/status/message", json!("text")));
}
