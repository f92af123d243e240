use serde_json::json;

use super::*;

#[test]
fn merge_preserves_fields_of_others() {
    let live = json!({
        "metadata": {"name": "a", "finalizers": ["x"], "labels": {"mine": "1", "theirs": "2"}},
        "spec": {"replicas": 1, "extra": true}, "status": {"ready": 1},
    });
    let before = json!({"metadata": {"labels": {"mine": "1"}}, "spec": {}});
    let desired = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
    assert_eq!(
        merged(&live, Some(&before), &desired),
        json!({
            "metadata": {"name": "a", "finalizers": ["x"], "labels": {"theirs": "2"}},
            "spec": {"replicas": 2}, "status": {"ready": 1},
        })
    );
}
