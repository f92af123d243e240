use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::builtin::kind;
use crate::schema::structural::any_json;

fn decode(group: &str, version: &str, name: &str, mut object: Value) -> (Value, Vec<String>) {
    let unknown = canonicalize(&mut object, kind(group, version, name).unwrap()).unwrap();
    (object, unknown)
}

fn decode_error(group: &str, version: &str, name: &str, mut object: Value) -> String {
    canonicalize(&mut object, kind(group, version, name).unwrap())
        .unwrap_err()
        .to_string()
}

/// Proves objects/field-validation.
#[test]
fn unknown_fields_are_dropped_and_reported() {
    let (object, unknown) = decode(
        "apps",
        "v1",
        "Deployment",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "nick": "x"},
            "spec": {"template": {"spec": {"containers": [{"name": "a", "imagee": "b"}]}}},
            "more": {"a": 1},
        }),
    );
    assert_eq!(
        unknown,
        [
            "metadata.nick",
            "more",
            "spec.template.spec.containers[0].imagee",
        ]
    );
    assert!(object.get("more").is_none());
    assert!(
        object["spec"]["template"]["spec"]["containers"][0]
            .get("imagee")
            .is_none()
    );
}

/// Proves wire/json, objects/types.
#[test]
fn empty_values_are_omitted_as_in_go() {
    let (object, _) = decode(
        "apps",
        "v1",
        "Deployment",
        json!({
            "metadata": {"name": "d", "creationTimestamp": null, "labels": {}, "finalizers": []},
            "spec": {"replicas": 0, "minReadySeconds": 0, "paused": false, "selector": null,
                "template": {"spec": {"containers": [{"name": "a", "args": [], "ports": null}]}}},
        }),
    );
    assert_eq!(
        object,
        json!({
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 0, "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {}}]}},
            },
            "status": {},
        })
    );
}

/// Proves objects/types.
#[test]
fn wrong_type_is_rejected_with_its_path() {
    assert_eq!(
        decode_error(
            "apps",
            "v1",
            "Deployment",
            json!({"spec": {"replicas": "three"}})
        ),
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    assert_eq!(
        decode_error(
            "",
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": 1}]}})
        ),
        "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
    );
    assert_eq!(
        decode_error("", "v1", "Pod", json!({"spec": {"containers": {}}})),
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
    );
    assert!(
        decode_error("", "v1", "Secret", json!({"data": {"a": "*"}})).contains("illegal base64")
    );
    assert!(
        decode_error(
            "",
            "v1",
            "Pod",
            json!({"metadata": {"creationTimestamp": "noon"}})
        )
        .starts_with("parsing time \"noon\"")
    );
    assert!(decode_error("", "v1", "Pod", json!([])).contains("of type v1.Pod"));
}

/// Proves wire/json.
#[test]
fn timestamps_and_quantities_become_canonical() {
    let (lease, _) = decode(
        "coordination.k8s.io",
        "v1",
        "Lease",
        json!({
            "metadata": {"creationTimestamp": "2026-11-15T23:00:00.5+02:00"},
            "spec": {"renewTime": "2026-11-15T22:00:00.000000+01:00"},
        }),
    );
    assert_eq!(
        lease["metadata"]["creationTimestamp"],
        "2026-11-15T21:00:00Z"
    );
    assert_eq!(lease["spec"]["renewTime"], "2026-11-15T21:00:00.000000Z");
    let (pod, _) = decode(
        "",
        "v1",
        "Pod",
        json!({"spec": {"containers": [{"name": "a",
        "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}),
    );
    let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "500m", "memory": "1Gi"}));
}

#[test]
fn schemas_in_crds_keep_their_alternatives() {
    let (crd, unknown) = decode(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        json!({
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {
                    "a": {"additionalProperties": true},
                    "b": {"items": {"type": "string", "wat": 1}},
                    "c": {"default": {"any": ["thing"]}, "enum": [1, "x", null]},
                }}}}]},
        }),
    );
    let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(properties["a"]["additionalProperties"], true);
    assert_eq!(properties["b"]["items"], json!({"type": "string"}));
    assert_eq!(properties["c"]["default"], json!({"any": ["thing"]}));
    assert_eq!(unknown, Vec::<String>::new());
}

proptest! {
    // Proves objects/types.
    #[test]
    fn decoding_is_idempotent_and_never_panics(spec in any_json(), meta in any_json()) {
        for (group, name) in [("", "Pod"), ("apps", "Deployment"), ("", "Secret")] {
            let mut object = json!({"metadata": meta, "spec": spec, "data": spec});
            let ty = kind(group, "v1", name).unwrap();
            if canonicalize(&mut object, ty).is_ok() {
                let once = object.clone();
                let unknown = canonicalize(&mut object, ty).unwrap();
                prop_assert_eq!(unknown, Vec::<String>::new());
                prop_assert_eq!(once, object);
            }
        }
    }
}
