use super::*;

fn object(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        other => panic!("not an object: {other}"),
    }
}

fn newer() -> Tree {
    let target = |by: &str, field: &str, value: Value| json!({"type": by, field: value});
    let metric =
        |name: &str| json!({"name": name, "selector": {"matchLabels": {"name": "x", "a": "b"}}});
    canonical(
        object(json!({
            "metadata": {"name": "h", "annotations": {"own": "value"}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "minReplicas": 1, "maxReplicas": 3,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": metric("p"),
                        "target": target("AverageValue", "averageValue", "10".into())}},
                    {"type": "Object", "object": {"metric": {"name": "o"},
                        "describedObject": {"kind": "Service", "name": "s"},
                        "target": target("Value", "value", "1k".into())}},
                    {"type": "External", "external": {"metric": metric("e"),
                        "target": target("AverageValue", "averageValue", "5".into())}},
                    {"type": "ContainerResource", "containerResource": {"name": "memory",
                        "container": "c", "target": target("Utilization", "averageUtilization", 50.into())}},
                    {"type": "Resource", "resource": {"name": "cpu",
                        "target": target("Utilization", "averageUtilization", 60.into())}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10, "selectPolicy": "Min",
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}},
            },
            "status": {"desiredReplicas": 2, "currentReplicas": 1,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageUtilization": 40, "averageValue": "100m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True", "message": "a < b",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })),
        "v2",
    )
}

#[test]
fn autoscaler_conversion_round_trips() {
    let old = to_v1(newer());
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 40);
    let annotations = &old["metadata"]["annotations"];
    assert_eq!(annotations["own"], "value");
    assert_eq!(
        annotations[BEHAVIOR],
        "{\"ScaleUp\":null,\"ScaleDown\":{\"StabilizationWindowSeconds\":10,\
         \"SelectPolicy\":\"Min\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":1,\
         \"PeriodSeconds\":15}],\"Tolerance\":null}}"
    );
    assert!(
        annotations[CONDITIONS]
            .as_str()
            .unwrap()
            .contains("a \\u003c b")
    );
    assert_eq!(to_v2(old), newer());
}

#[test]
fn labels_named_like_fields_stay_sorted() {
    let old = to_v1(newer());
    let metrics = old["metadata"]["annotations"][METRICS].as_str().unwrap();
    let labels = "\"selector\":{\"matchLabels\":{\"a\":\"b\",\"name\":\"x\"}}";
    assert!(metrics.contains(labels), "{metrics}");
}

#[test]
fn unreadable_annotations_are_dropped() {
    for text in [
        "",
        "{",
        "1",
        "[1]",
        "[{\"type\":\"Pods\",\"pods\":{\"metricName\":1}}]",
    ] {
        let old = object(
            json!({"metadata": {"name": "h", "annotations": {METRICS: text,
            CONDITIONS: text, CURRENT_METRICS: text, BEHAVIOR: text}},
            "spec": {"maxReplicas": 3}}),
        );
        let new = to_v2(old);
        assert_eq!(new["metadata"].get("annotations"), None);
        let metrics = items(&new["spec"]["metrics"]).cloned();
        let metrics: Vec<Value> = metrics.collect();
        assert_eq!(metrics, [cpu_use(80)], "{text}");
        assert_eq!(new["spec"].get("behavior"), None, "{text}");
    }
}

#[test]
fn zero_target_value_with_an_average_is_dropped() {
    for (value, expected) in [
        ("5", json!("5")),
        ("\"5\"", json!("5")),
        ("1500", json!("1500")),
        ("0", Value::Null),
        ("\"0\"", Value::Null),
        ("\"0.0\"", Value::Null),
    ] {
        let metrics = format!(
            "[{{\"type\":\"Object\",\"object\":{{\"metricName\":\"o\",\"averageValue\":2,\
             \"target\":{{\"kind\":\"Service\",\"name\":\"s\"}},\"targetValue\":{value}}}}}]"
        );
        let old = object(
            json!({"metadata": {"name": "h", "annotations": {METRICS: metrics}},
            "spec": {"maxReplicas": 3}}),
        );
        let new = to_v2(old);
        let target = &new["spec"]["metrics"][0]["object"]["target"];
        assert_eq!(target["value"], expected, "{value}");
        assert_eq!(target["averageValue"], "2");
    }
}
