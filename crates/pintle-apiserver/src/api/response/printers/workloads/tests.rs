use serde_json::json;

use super::*;

fn shown(cells: fn(&Fields<'_>) -> Vec<Value>, object: &Value, at: usize) -> Value {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    cells(&Fields { object, now })[at].clone()
}

#[test]
fn cron_job_row_prints_suspended_as_a_word() {
    for (spec, word) in [
        (json!({ "suspend": true }), "True"),
        (json!({ "suspend": false }), "False"),
        (json!({}), "<unset>"),
    ] {
        assert_eq!(shown(cron_job, &json!({ "spec": spec }), 3), word);
    }
}

#[test]
fn job_row_shows_state_and_duration() {
    let times = json!({"startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:03:20Z", "succeeded": 2,
            "conditions": [{"type": "Complete", "status": "True"}]});
    let done = json!({"spec": {"completions": 3}, "status": times});
    assert_eq!(shown(job, &done, 1), "Complete");
    assert_eq!(shown(job, &done, 2), "2/3");
    assert_eq!(shown(job, &done, 3), "3m20s");
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"parallelism": 2}});
    assert_eq!(shown(job, &leaving, 1), "Terminating");
    assert_eq!(shown(job, &leaving, 2), "0/1 of 2");
}

#[test]
fn autoscaler_row_shows_current_and_target() {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
    let queue = json!({"type": "External", "external": {"metric": {"name": "q"},
            "target": {"type": "AverageValue", "averageValue": "30"}}});
    let rate = json!({"type": "Pods", "pods": {"metric": {"name": "r"},
            "target": {"type": "AverageValue", "averageValue": "1k"}}});
    let current = json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": 40, "averageValue": "200m"}}}]);
    let status = json!({ "currentMetrics": current });
    let object = |metrics: Value| json!({"spec": {"metrics": metrics}, "status": status});
    for (metrics, text) in [
        (json!([]), "<none>"),
        (json!([cpu]), "cpu: 40%/80%"),
        (json!([cpu, queue]), "cpu: 40%/80%, <unknown>/30 (avg)"),
        (
            json!([cpu, queue, rate]),
            "cpu: 40%/80%, <unknown>/30 (avg) + 1 more...",
        ),
        (json!([rate]), "<unknown>/1k"),
    ] {
        assert_eq!(shown(autoscaler, &object(metrics), 2), text);
    }
}

#[test]
fn revision_row_shows_its_controller() {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db",
            "uid": "u", "controller": true});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let now = Timestamp::UNIX_EPOCH;
    let of = |object: &Value| controller(&Fields { object, now });
    assert_eq!(of(&owned), "statefulset.apps/db");
    assert_eq!(of(&json!({})), "<none>");
}
