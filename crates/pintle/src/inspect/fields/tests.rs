use serde_json::json;

use super::*;

fn paths(before: &Value, after: &Value) -> Vec<String> {
    let changed = changed(before, after).into_iter();
    changed.map(|changed| changed.path).collect()
}

#[test]
fn changed_fields_are_named_by_path() {
    let before = json!({
        "metadata": {"resourceVersion": "1", "generation": 1, "labels": {"a.b/c": "1"}},
        "spec": {"replicas": 1, "containers": [{"name": "web", "image": "a"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let after = json!({
        "metadata": {"resourceVersion": "2", "generation": 2, "labels": {"a.b/c": "2"}},
        "spec": {"replicas": 2, "containers": [{"name": "web", "image": "b"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    let mut found = paths(&before, &after);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            r#"metadata.labels["a.b/c"]"#,
            "spec.containers[web].image",
            "spec.replicas",
            "status.conditions[Ready].status",
        ]
    );
}

#[test]
fn items_are_matched_by_name_whatever_their_order() {
    let before = json!({"c": [{"type": "A", "s": 1}, {"type": "B", "s": 1}]});
    let after = json!({"c": [{"type": "B", "s": 2}, {"type": "A", "s": 1}]});
    assert_eq!(paths(&before, &after), ["c[B].s"]);
}

#[test]
fn added_and_removed_fields_count_as_changed() {
    let found = changed(&json!({"a": 1}), &json!({"b": 2}));
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].path.as_str(), &found[0].before),
        ("b", &Value::Null)
    );
    assert_eq!(
        (found[1].path.as_str(), &found[1].after),
        ("a", &Value::Null)
    );
}

#[test]
fn number_of_fields_is_bounded() {
    let wide = |value: u32| -> Value { (0..1000).map(|n| (n.to_string(), json!(value))).collect() };
    assert_eq!(changed(&wide(1), &wide(2)).len(), MAX_FIELDS);
}

#[test]
fn patch_lists_only_what_it_changes() {
    let before = json!({"spec": {"replicas": 1, "paused": false}});
    let patch = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "uid": "1"},
        "spec": {"replicas": 2, "paused": false},
    });
    assert_eq!(written(Some(&before), &patch), ["spec.replicas"]);
    assert_eq!(written(None, &patch), ["spec.paused", "spec.replicas"]);
}
