use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::write::prepare::tests::prepare;
use crate::patch;
use crate::schema::builtin::kind;
use crate::schema::structural::any_json;
use crate::schema::{defaults, typed};

fn type_of(object: &Value) -> TypeRef {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    kind(group, version, object["kind"].as_str().unwrap()).unwrap()
}

fn finished(mut object: Value, ty: TypeRef, fresh: bool) -> Value {
    typed::canonicalize(&mut object, ty).unwrap();
    defaults::apply(&mut object, ty);
    if fresh {
        prepare(&mut object, ty);
    }
    object
}

/// Formats reason, field and message of each error. Messages that dump internal Go structs are left
/// out.
fn causes(errors: &[FieldError]) -> BTreeSet<String> {
    let own = |message: &str| message.contains("\"Type\":") || message.contains("\":null");
    let each = errors.iter().map(|error| {
        let message = error.body();
        let message = if own(&message) {
            String::new()
        } else {
            message
        };
        format!("{} {} {message}", error.reason.as_str(), error.field)
    });
    each.collect()
}

fn recorded(causes: &Value) -> BTreeSet<String> {
    let each = items(causes).map(|(_, cause)| {
        let message = text(cause, "message")
            .split("\n@@")
            .next()
            .unwrap_or_default();
        let own = message.contains("\"Type\":") || message.contains("\":null");
        let message = if own { "" } else { message };
        format!(
            "{} {} {message}",
            text(cause, "reason"),
            text(cause, "field")
        )
    });
    each.collect()
}

fn recordings() -> Value {
    serde_json::from_str(include_str!("../../../../../tests/fixtures/rules.json")).unwrap()
}

/// Returns true for objects that upstream validates further than this crate does.
fn is_partial(object: &Value) -> bool {
    let text = object.to_string();
    let beyond = [
        "PersistentVolume\"",
        "Nowhere/X",
        ".dockerconfigjson",
        "x y",
    ];
    beyond.iter().any(|word| text.contains(word))
}

/// Proves objects/validation.
#[test]
fn recorded_creates_get_the_same_errors() {
    let all = recordings();
    let mut seen = 0;
    for (_, case) in items(&all["creates"]) {
        let object = &case["object"];
        let ty = type_of(object);
        let errors = create(&finished(object.clone(), ty, true), ty);
        if !is_partial(object) {
            assert_eq!(causes(&errors), recorded(&case["causes"]), "{object}");
            seen += 1;
        }
    }
    assert!(seen > 75, "{seen}");
}

/// Proves objects/validation.
#[test]
fn recorded_updates_get_the_same_errors() {
    let all = recordings();
    for (_, case) in items(&all["updates"]) {
        let old = &case["old"];
        let ty = type_of(old);
        let mut new = old.clone();
        patch::merge(&mut new, case["change"].clone()).unwrap();
        let errors = update(&finished(new, ty, false), old, ty);
        // Upstream prints the template of a Job as an internal Go struct.
        if case["change"]
            .pointer("/spec/template/spec/containers")
            .is_some()
            && old["kind"] == "Job"
        {
            assert_eq!(errors[0].field, "spec.template");
        } else {
            assert_eq!(
                causes(&errors),
                recorded(&case["causes"]),
                "{} {}",
                old["kind"],
                case["change"]
            );
        }
    }
}

/// Proves objects/validation.
#[test]
fn cron_schedules_are_validated() {
    for fine in [
        "* * * * *",
        "*/5 0-6 1,15 * MON-FRI",
        "@hourly",
        "@every 1h",
        "0 0 ? 1 0",
    ] {
        let spec = json!({"schedule": fine, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}});
        let mut errors = Vec::new();
        workloads::cron_job(&spec, &Path::At("spec"), &mut errors);
        assert_eq!(errors, [], "{fine}");
    }
    for bad in [
        "61 * * * *",
        "* * * *",
        "a * * * *",
        "*/0 * * * *",
        "@sometimes",
        "TZ=UTC * * * * *",
    ] {
        let spec = json!({"schedule": bad, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}});
        let mut errors = Vec::new();
        workloads::cron_job(&spec, &Path::At("spec"), &mut errors);
        assert_eq!(errors.len(), 1, "{bad}");
    }
}

fn autoscaler(spec: &Value) -> Vec<String> {
    let ty = kind("autoscaling", "v2", "HorizontalPodAutoscaler").unwrap();
    let mut object = json!({"spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    patch::merge(&mut object, json!({ "spec": spec })).unwrap();
    let errors = create(&finished(object, ty, true), ty);
    errors.iter().map(ToString::to_string).collect()
}

/// Proves objects/validation.
#[test]
fn hpa_behavior_is_validated() {
    let policy = |kind: &str, value: i32, period: i32| json!({"type": kind, "value": value, "periodSeconds": period});
    let down = |rules: Value| autoscaler(&json!({"behavior": {"scaleDown": rules}}));
    for fine in [
        json!({}),
        json!({"policies": null}),
        json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled", "tolerance": "0"}),
        json!({"stabilizationWindowSeconds": 3600, "policies": [policy("Pods", 1, 1800)]}),
        json!({"selectPolicy": "Min", "policies": [policy("Percent", 100, 1)]}),
    ] {
        assert_eq!(down(fine.clone()), [""; 0], "{fine}");
    }
    for (bad, place, why) in [
        (
            json!({"stabilizationWindowSeconds": 3601}),
            "stabilizationWindowSeconds",
            "Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            json!({"stabilizationWindowSeconds": -1}),
            "stabilizationWindowSeconds",
            "Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            json!({"selectPolicy": ""}),
            "selectPolicy",
            "Unsupported value: \"\": supported values: \"Disabled\", \"Max\", \"Min\"",
        ),
        (
            json!({"policies": []}),
            "policies",
            "Required value: must specify at least one Policy",
        ),
        (
            json!({"policies": [policy("Nodes", 1, 1)]}),
            "policies[0].type",
            "Unsupported value: \"Nodes\": supported values: \"Percent\", \"Pods\"",
        ),
        (
            json!({"policies": [policy("Pods", 1, 1), policy("Pods", 0, 1)]}),
            "policies[1].value",
            "Invalid value: 0: must be greater than zero",
        ),
        (
            json!({"policies": [policy("Pods", 1, 1801)]}),
            "policies[0].periodSeconds",
            "Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            json!({"tolerance": "-0.1"}),
            "tolerance",
            "Invalid value: \"-100m\": must be greater than or equal to 0",
        ),
    ] {
        let expected = [format!("spec.behavior.scaleDown.{place}: {why}")];
        assert_eq!(down(bad.clone()), expected, "{bad}");
    }
}

/// Proves objects/validation.
#[test]
fn hpa_metrics_are_validated() {
    let validate = |metric: Value| autoscaler(&json!({ "metrics": [metric] }));
    let fine = json!({"type": "Pods", "pods": {"metric": {"name": "m"},
        "target": {"type": "AverageValue", "averageValue": 1}}});
    assert_eq!(validate(fine), [""; 0]);
    let two = json!({"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}},
        "pods": {"metric": {"name": ""}, "target": {"type": "AverageValue"}}});
    assert_eq!(
        validate(two),
        [
            "spec.metrics[0].pods.metric.name: Required value: must specify a metric name",
            "spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
            "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
        ]
    );
    let both = json!({"type": "External", "external": {"metric": {"name": "e"},
        "target": {"type": "Value", "value": 0, "averageValue": 1}}});
    assert_eq!(
        validate(both),
        [
            "spec.metrics[0].external.target.value: Invalid value: \"0\": must be positive",
            "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
        ]
    );
}

proptest! {
    // Proves objects/validation.
    #[test]
    fn arbitrary_objects_never_panic(spec in any_json(), old in any_json()) {
        for (group, name) in [("", "Pod"), ("apps", "Deployment"), ("", "Service"), ("batch", "CronJob"),
            ("", "Secret"), ("rbac.authorization.k8s.io", "RoleBinding"), ("apps", "StatefulSet"),
            ("autoscaling", "HorizontalPodAutoscaler")] {
            let ty = kind(group, "v1", name).unwrap();
            let object = json!({"spec": spec, "data": spec, "subjects": spec, "roleRef": old});
            create(&object, ty);
            update(&object, &json!({"spec": old, "data": old}), ty);
        }
    }

    // Proves objects/validation.
    #[test]
    fn unchanged_object_is_valid(image in "[a-z]{1,5}", replicas in 0..5) {
        let ty = kind("apps", "v1", "Deployment").unwrap();
        let object = finished(json!({"spec": {"replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}}), ty, true);
        prop_assert_eq!(update(&object, &object, ty), []);
        prop_assert_eq!(create(&object, ty), []);
    }
}
