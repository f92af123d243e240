#![allow(clippy::needless_pass_by_value)] // Lets tests pass `json!` values directly.

mod properties;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::schema::builtin::kind;
use crate::schema::structural::{Structural, any_json};

const NOW: &str = "2026-11-15T21:00:00Z";

fn shape(group: &str, version: &str, name: &str) -> Shape<'static> {
    Shape::Builtin(kind(group, version, name).unwrap())
}

fn map_shape() -> Shape<'static> {
    shape("", "v1", "ConfigMap")
}

fn write<'a>(manager: &'a str, api_version: &'a str, reset: &'a FieldSet) -> Write<'a> {
    Write {
        manager,
        api_version,
        subresource: "",
        now: NOW,
        reset,
        others: &[],
        conversions: None,
    }
}

/// Nothing here needs a conversion, so an update always succeeds.
fn update(live: Option<&Value>, new: &mut Value, shape: Shape<'_>, write: &Write<'_>) {
    super::update(live, new, shape, write).unwrap();
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

fn apply_map(
    live: Option<&Value>,
    data: Value,
    manager: &str,
    force: bool,
) -> Result<Value, ApplyError> {
    apply(
        live,
        &config(data),
        map_shape(),
        &write(manager, "v1", &FieldSet::default()),
        force,
    )
}

fn owned(object: &Value, manager: &str) -> Value {
    let list = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let entry = list.into_iter().find(|entry| entry["manager"] == manager);
    entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn container(image: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}})
}

/// Proves apply/merging, apply/managed-fields.
#[test]
fn first_apply_creates_and_records_fields() {
    let object = apply_map(None, json!({"a": "1"}), "me", false).unwrap();
    assert_eq!(object["data"], json!({"a": "1"}));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": NOW,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}},
        }])
    );
}

/// Proves apply/managed-fields.
#[test]
fn create_owns_its_fields_but_not_identity() {
    let ty = kind("apps", "v1", "Deployment").unwrap();
    let mut object = deployment(json!({"replicas": 2, "template": {"spec": {"containers": [
        {"name": "c", "image": "x", "ports": [{"containerPort": 80}]}]}}}));
    object["metadata"] = json!({"name": "web", "uid": "u", "labels": {"a": "b"}});
    object["status"] = json!({"replicas": 7});
    typed::canonicalize(&mut object, ty).unwrap();
    crate::schema::defaults::apply(&mut object, ty);
    let reset = reset_fields("", true, false);
    update(
        None,
        &mut object,
        Shape::Builtin(ty),
        &write("kubectl-create", "apps/v1", &reset),
    );
    assert_eq!(
        owned(&object, "kubectl-create"),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                "f:template": {"f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {
                        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                            {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                        "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                    }},
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                    "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
                }},
            },
        })
    );
}

/// Proves apply/ownership.
#[test]
fn dropped_field_stays_while_another_manager_owns_it() {
    let first = apply_map(None, json!({"a": "1", "b": "2"}), "me", false).unwrap();
    let shared = apply_map(Some(&first), json!({"b": "2"}), "you", false).unwrap();
    let after = apply_map(Some(&shared), json!({"c": "3"}), "me", false).unwrap();
    assert_eq!(after["data"], json!({"b": "2", "c": "3"}));
    assert_eq!(owned(&after, "me"), json!({"f:data": {"f:c": {}}}));
    assert_eq!(owned(&after, "you"), json!({"f:data": {"f:b": {}}}));
}

/// Proves apply/ownership, objects/preconditions.
#[test]
fn changing_an_owned_field_conflicts_unless_forced() {
    let first = apply_map(None, json!({"a": "1", "b": "2"}), "me", false).unwrap();
    let error = apply_map(Some(&first), json!({"a": "9"}), "you", false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"me\": .data.a"
    );
    let error = apply_map(Some(&first), json!({"a": "9", "b": "8"}), "you", false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.a\n- .data.b"
    );
    let ApplyError::Conflicts(conflicts) = error else {
        panic!()
    };
    assert_eq!(conflicts[0].message(), "conflict with \"me\"");
    assert_eq!(conflicts[0].field, ".data.a");
    let forced = apply_map(Some(&first), json!({"a": "9"}), "you", true).unwrap();
    assert_eq!(forced["data"], json!({"a": "9", "b": "2"}));
    assert_eq!(owned(&forced, "me"), json!({"f:data": {"f:b": {}}}));
}

/// Proves apply/ownership.
#[test]
fn equal_values_share_ownership() {
    let first = apply_map(None, json!({"a": "1"}), "me", false).unwrap();
    let shared = apply_map(Some(&first), json!({"a": "1"}), "you", false).unwrap();
    assert_eq!(owned(&shared, "me"), owned(&shared, "you"));
    let left = apply_map(Some(&shared), json!({}), "me", false).unwrap();
    assert_eq!(left["data"], json!({"a": "1"}));
    assert_eq!(owned(&left, "you"), json!({"f:data": {"f:a": {}}}));
}

/// Proves apply/updates-take-over.
#[test]
fn update_takes_ownership_of_changed_fields() {
    let reset = FieldSet::default();
    let live = apply_map(None, json!({"a": "1", "b": "2", "c": "3"}), "me", false).unwrap();
    let mut new = live.clone();
    new["data"] = json!({"a": "9", "b": "2"});
    update(
        Some(&live),
        &mut new,
        map_shape(),
        &write("you", "v1", &reset),
    );
    assert_eq!(owned(&new, "me"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(owned(&new, "you"), json!({"f:data": {"f:a": {}}}));
}

/// Proves apply/updates-take-over.
#[test]
fn oldest_updaters_merge_into_one_entry() {
    let reset = FieldSet::default();
    let mut live = config(json!({}));
    update(
        None,
        &mut live,
        map_shape(),
        &write("creator", "v1", &reset),
    );
    for i in 0..20 {
        let mut new = live.clone();
        new["data"][format!("k{i}")] = "v".into();
        let manager = format!("m{i:02}");
        let now = format!("2026-11-15T21:00:{i:02}Z");
        update(
            Some(&live),
            &mut new,
            map_shape(),
            &Write {
                now: &now,
                ..write(&manager, "v1", &reset)
            },
        );
        live = new;
    }
    let managers: Vec<_> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(managers.len(), 10);
    assert_eq!(managers[0], "ancient-changes");
    assert!(
        owned(&live, "ancient-changes")["f:data"]
            .get("f:k0")
            .is_some()
    );
}

/// Proves apply/updates-take-over.
#[test]
fn fields_from_before_the_first_apply_have_an_owner() {
    let mut live = config(json!({"a": "1", "b": "2"}));
    live["metadata"]["uid"] = "u".into();
    let error = apply_map(Some(&live), json!({"a": "9"}), "me", false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let same = apply_map(Some(&live), json!({"a": "1"}), "me", false).unwrap();
    assert_eq!(
        owned(&same, "before-first-apply"),
        json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}})
    );
    assert_eq!(owned(&same, "me"), json!({"f:data": {"f:a": {}}}));
}

/// Proves apply/updates-take-over.
#[test]
fn kubectl_takes_over_client_side_applied_fields() {
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let mut live = config(json!({"a": "1", "b": "2"}));
    live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
    let reset = FieldSet::default();
    update(
        None,
        &mut live,
        map_shape(),
        &write("kubectl-client-side-apply", "v1", &reset),
    );
    let after = apply_map(Some(&live), json!({"a": "9"}), "kubectl", false).unwrap();
    assert_eq!(after["data"], json!({"a": "9", "b": "2"}));
    let annotation = after["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .unwrap();
    assert!(annotation.contains("\"a\":\"9\""), "{annotation}");
    assert!(apply_map(Some(&live), json!({"b": "9"}), "kubectl", false).is_err());
    assert!(apply_map(Some(&live), json!({"a": "9"}), "other", false).is_err());
}

/// Proves apply/managed-fields.
#[test]
fn empty_managed_fields_reset_but_absent_ones_do_not() {
    let reset = FieldSet::default();
    let mut live = apply_map(None, json!({"a": "1"}), "me", false).unwrap();
    live["metadata"]["uid"] = "u".into();
    for list in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = list;
        update(
            Some(&live),
            &mut new,
            map_shape(),
            &write("you", "v1", &reset),
        );
        assert!(new["metadata"].get("managedFields").is_none());
    }
    let mut new = live.clone();
    new["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    update(
        Some(&live),
        &mut new,
        map_shape(),
        &write("you", "v1", &reset),
    );
    assert_eq!(new, live);
}

/// Proves apply/request.
#[test]
fn invalid_configurations_get_upstream_messages() {
    let reset = FieldSet::default();
    let deploy = shape("apps", "v1", "Deployment");
    let try_apply = |config: Value| {
        apply(
            None,
            &config,
            deploy,
            &write("me", "apps/v1", &reset),
            false,
        )
        .unwrap_err()
        .to_string()
    };
    let at = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): ";
    assert_eq!(
        try_apply(deployment(
            json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}})
        )),
        format!("{at}.spec.template.spec.containers: duplicate entries for key [name=\"a\"]")
    );
    assert_eq!(
        try_apply(deployment(json!({"replicas": "x"}))),
        format!("{at}.spec.replicas: expected numeric (int or float), got string")
    );
    assert_eq!(
        try_apply(deployment(json!({"dat": 1}))),
        format!("{at}.spec.dat: field not declared in schema")
    );
    assert_eq!(
        try_apply(json!({"apiVersion": "apps/v2", "kind": "Deployment"})),
        "invalid object type: apps/v2, Kind=Deployment"
    );
    assert_eq!(
        try_apply(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}})
        ),
        "metadata.managedFields must be nil"
    );
}

/// Proves apply/merging.
#[test]
fn reapplying_the_same_configuration_changes_nothing() {
    let first = apply_map(None, json!({"a": "1"}), "me", false).unwrap();
    let reset = FieldSet::default();
    let later = Write {
        now: "2026-11-15T22:00:00Z",
        ..write("me", "v1", &reset)
    };
    let again = apply(
        Some(&first),
        &config(json!({"a": "1"})),
        map_shape(),
        &later,
        false,
    )
    .unwrap();
    assert_eq!(first, again);
}

/// Proves apply/merging.
#[test]
fn write_that_only_changes_timestamps_is_a_no_op() {
    let live = apply_map(None, json!({"a": "1"}), "me", false).unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z".into();
    keep_unchanged_times(&live, &mut new);
    assert_eq!(live, new);
    new["data"]["a"] = "2".into();
    new["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z".into();
    keep_unchanged_times(&live, &mut new);
    assert_eq!(
        new["metadata"]["managedFields"][0]["time"],
        "2027-01-01T00:00:00Z"
    );
}

/// Proves apply/merging.
#[test]
fn items_merge_by_key_including_default_keys() {
    let reset = FieldSet::default();
    let service = shape("", "v1", "Service");
    let config = |ports: Value| {
        json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s"}, "spec": {"ports": ports}})
    };
    let live = apply(
        None,
        &config(json!([{"port": 80, "protocol": "TCP", "name": "a"}])),
        service,
        &write("me", "v1", &reset),
        false,
    )
    .unwrap();
    let after = apply(
        Some(&live),
        &config(json!([{"port": 80, "targetPort": 8080}])),
        service,
        &write("you", "v1", &reset),
        false,
    )
    .unwrap();
    assert_eq!(
        after["spec"]["ports"],
        json!([{"port": 80, "protocol": "TCP", "name": "a", "targetPort": 8080}])
    );
}

/// Proves apply/merging.
#[test]
fn configured_items_follow_the_configured_order() {
    let reset = FieldSet::default();
    let deploy = shape("apps", "v1", "Deployment");
    let of = |names: &[&str]| {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        deployment(json!({"template": {"spec": {"containers": containers}}}))
    };
    let go = |live: Option<&Value>, names: &[&str], manager: &str| {
        apply(
            live,
            &of(names),
            deploy,
            &write(manager, "apps/v1", &reset),
            false,
        )
        .unwrap()
    };
    let names = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap();
        list.iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let live = go(None, &["a", "b", "c"], "me");
    let after = go(Some(&live), &["c", "x", "a"], "you");
    assert_eq!(names(&after), ["b", "c", "x", "a"]);
    let gone = go(Some(&after), &["b"], "me");
    assert_eq!(
        names(&gone),
        ["b", "c", "x", "a"],
        "others still have a and c"
    );
    let alone = go(Some(&live), &["b"], "me");
    assert_eq!(names(&alone), ["b"]);
}

/// Proves apply/merging.
#[test]
fn custom_resources_merge_by_their_schema() {
    let schema = Structural::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
    }}}})).unwrap();
    let config = json!({"apiVersion": "example.com/v1", "kind": "Bar", "metadata": {"name": "b"},
        "spec": {"size": 1, "list": ["a"], "open": {"x": {"y": [1]}}, "whole": {"a": "b"},
            "items": [{"k": "1", "v": 2}]}});
    let reset = FieldSet::default();
    let object = apply(
        None,
        &config,
        Shape::Custom(&schema),
        &write("me", "example.com/v1", &reset),
        false,
    )
    .unwrap();
    assert_eq!(
        owned(&object, "me"),
        json!({"f:spec": {
        "f:items": {"k:{\"k\":\"1\"}": {".": {}, "f:k": {}, "f:v": {}}},
        "f:list": {}, "f:open": {"f:x": {".": {}, "f:y": {}}}, "f:size": {}, "f:whole": {}}})
    );
    let mut posted = json!({"apiVersion": "example.com/v1", "kind": "Bar",
        "metadata": {"generateName": "x", "labels": {"a": "b"}}, "spec": {"size": 1}});
    update(
        None,
        &mut posted,
        Shape::Custom(&schema),
        &write("p", "example.com/v1", &reset),
    );
    assert_eq!(
        owned(&posted, "p"),
        json!({
        "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:size": {}}})
    );
}

/// Proves apply/managed-fields.
#[test]
fn status_write_owns_only_status() {
    let reset = reset_fields("status", true, false);
    let deploy = shape("apps", "v1", "Deployment");
    let mut live = deployment(container("x"));
    update(
        None,
        &mut live,
        deploy,
        &write("me", "apps/v1", &FieldSet::default()),
    );
    let mut new = live.clone();
    new["spec"]["replicas"] = 5.into();
    new["status"] = json!({"replicas": 1});
    let through = Write {
        subresource: "status",
        ..write("ctrl", "apps/v1", &reset)
    };
    update(Some(&live), &mut new, deploy, &through);
    let entry = new["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "ctrl")
        .unwrap();
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {".": {}, "f:replicas": {}}})
    );
}
