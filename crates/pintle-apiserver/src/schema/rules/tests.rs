use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::patch::merge;
use crate::schema::builtin::kind;
use crate::schema::structural::any_json;
use crate::schema::{defaults, prepare, typed};

fn type_of(object: &Value) -> TypeRef {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    kind(group, version, object["kind"].as_str().unwrap()).unwrap()
}

fn finished(mut object: Value, ty: TypeRef, fresh: bool) -> Value {
    typed::canonicalize(&mut object, ty).unwrap();
    defaults::apply(&mut object, ty);
    if fresh {
        prepare::create(&mut object, ty, "2026-11-15T21:00:00Z");
    }
    object
}

/// Reason and field of each fault, and the message where it is not a dump of the server's own
/// structures.
fn causes(faults: &[FieldError]) -> BTreeSet<String> {
    let own = |message: &str| message.contains("\"Type\":") || message.contains("\":null");
    let each = faults.iter().map(|fault| {
        let message = fault.body();
        let message = if own(&message) {
            String::new()
        } else {
            message
        };
        format!("{} {} {message}", fault.reason.as_str(), fault.field)
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
    serde_json::from_str(include_str!("../../../tests/fixtures/rules.json")).unwrap()
}

/// Kinds whose rules go further upstream than ours.
fn partly(object: &Value) -> bool {
    let text = object.to_string();
    let beyond = [
        "PersistentVolume\"",
        "Nowhere/X",
        ".dockerconfigjson",
        "x y",
    ];
    beyond.iter().any(|word| text.contains(word))
}

/// Proves PW-22.
#[test]
fn new_objects_are_refused_as_the_pinned_server_refused_them() {
    let all = recordings();
    let mut seen = 0;
    for (_, case) in items(&all["creates"]) {
        let object = &case["object"];
        let ty = type_of(object);
        let faults = create(&finished(object.clone(), ty, true), ty);
        if !partly(object) {
            assert_eq!(causes(&faults), recorded(&case["causes"]), "{object}");
            seen += 1;
        }
    }
    assert!(seen > 75, "{seen}");
}

/// Proves PW-22.
#[test]
fn changes_are_refused_as_the_pinned_server_refused_them() {
    let all = recordings();
    for (_, case) in items(&all["updates"]) {
        let old = &case["old"];
        let ty = type_of(old);
        let mut new = old.clone();
        merge::apply(&mut new, case["change"].clone()).unwrap();
        let faults = update(&finished(new, ty, false), old, ty);
        // The template of a Job is told as the server's own structure.
        if case["change"]
            .pointer("/spec/template/spec/containers")
            .is_some()
            && old["kind"] == "Job"
        {
            assert_eq!(faults[0].field, "spec.template");
        } else {
            assert_eq!(
                causes(&faults),
                recorded(&case["causes"]),
                "{} {}",
                old["kind"],
                case["change"]
            );
        }
    }
}

/// Proves PW-22.
#[test]
fn schedules_are_read() {
    for fine in [
        "* * * * *",
        "*/5 0-6 1,15 * MON-FRI",
        "@hourly",
        "@every 1h",
        "0 0 ? 1 0",
    ] {
        let spec = json!({"schedule": fine, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}});
        let mut faults = Vec::new();
        workloads::cron_job(&spec, &Path::At("spec"), &mut faults);
        assert_eq!(faults, [], "{fine}");
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
        let mut faults = Vec::new();
        workloads::cron_job(&spec, &Path::At("spec"), &mut faults);
        assert_eq!(faults.len(), 1, "{bad}");
    }
}

proptest! {
    // Proves PW-22.
    #[test]
    fn any_object_is_checked(spec in any_json(), old in any_json()) {
        for (group, name) in [("", "Pod"), ("apps", "Deployment"), ("", "Service"), ("batch", "CronJob"),
            ("", "Secret"), ("rbac.authorization.k8s.io", "RoleBinding"), ("apps", "StatefulSet")] {
            let ty = kind(group, "v1", name).unwrap();
            let object = json!({"spec": spec, "data": spec, "subjects": spec, "roleRef": old});
            create(&object, ty);
            update(&object, &json!({"spec": old, "data": old}), ty);
        }
    }

    // Proves PW-22.
    #[test]
    fn what_does_not_change_may_stay(image in "[a-z]{1,5}", replicas in 0..5) {
        let ty = kind("apps", "v1", "Deployment").unwrap();
        let object = finished(json!({"spec": {"replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}}), ty, true);
        prop_assert_eq!(update(&object, &object, ty), []);
        prop_assert_eq!(create(&object, ty), []);
    }
}
