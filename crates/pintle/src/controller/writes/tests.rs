use serde_json::json;

use super::*;

fn is_terminating(metadata: Value) -> bool {
    let metadata = serde_json::from_value(metadata).expect("metadata");
    DeleteResponse { metadata }.is_terminating()
}

/// Proves controller/read-your-writes.
#[test]
fn delete_response_distinguishes_terminating_from_gone() {
    let at = "2026-01-01T00:00:00Z";
    assert!(!is_terminating(json!({"name": "service"})), "no timestamp");
    let unscheduled = json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 0});
    assert!(
        !is_terminating(unscheduled),
        "a Pod without a node is removed immediately"
    );
    let graceful = json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30});
    assert!(is_terminating(graceful));
    let finalizers = json!(["example.org/bucket"]);
    let held = json!({
        "deletionTimestamp": at, "deletionGracePeriodSeconds": 0, "finalizers": finalizers,
    });
    assert!(is_terminating(held));
    let namespace = json!({"deletionTimestamp": at});
    assert!(is_terminating(namespace), "its finalizers are in its spec");
}
