use serde_json::json;

use super::*;

#[test]
fn status_apply_sends_only_the_status() {
    let mut config = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {}, "status": {"phase": "Running"},
        "metadata": {"name": "a", "namespace": "b", "labels": {}},
    });
    only(&mut config, "status");
    let left = json!({
        "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
        "metadata": {"name": "a", "namespace": "b"},
    });
    assert_eq!(config, left);
}
