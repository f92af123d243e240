//! One example per module.

use serde_json::json;

#[test]
fn protobuf_body_decodes_to_an_object() {
    use crate::codec::protobuf;

    // ConfigMap "a" as a client encodes it.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
    let object = protobuf::decode(body, None).unwrap();
    assert_eq!(object["kind"], "ConfigMap");
    assert_eq!(object["metadata"]["name"], "a");
}

#[test]
fn structural_schema_prunes_defaults_and_validates() {
    use crate::schema::structural::Structural;

    let schema = Structural::check(
        &json!({
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": { "size": { "type": "integer", "default": 1, "maximum": 5 } },
                },
            },
        }),
        "spec.versions[0].schema.openAPIV3Schema",
        true,
    )
    .unwrap();

    let mut object = json!({ "spec": { "colour": "red" } });
    assert_eq!(schema.prune(&mut object), ["spec.colour"]);
    schema.default(&mut object);
    assert_eq!(object, json!({ "spec": { "size": 1 } }));

    let errors = schema.validate(&json!({ "spec": { "size": 9 } }), None);
    assert_eq!(
        errors[0].to_string(),
        "spec.size: Invalid value: 9: spec.size in body should be less than or equal to 5",
    );
}

#[test]
fn quantities_become_canonical() {
    use crate::schema::typed::quantity::canonical;

    assert_eq!(canonical("0.5").unwrap(), "500m");
    assert_eq!(canonical("1024Mi").unwrap(), "1Gi");
    assert!(canonical("lots").is_err());
}

#[test]
fn built_in_object_is_decoded_as_its_type() {
    use crate::schema::{builtin, typed};

    let service = builtin::kind("", "v1", "Service").unwrap();
    let mut object = json!({ "spec": { "typo": 1, "type": "", "ports": [{ "port": 80 }] } });
    let unknown = typed::canonicalize(&mut object, service).unwrap();
    assert_eq!(unknown, ["spec.typo"]);
    assert_eq!(
        object["spec"],
        json!({ "ports": [{ "port": 80, "targetPort": 0 }] })
    );
    assert_eq!(object["status"], json!({ "loadBalancer": {} }));

    let mut wrong = json!({ "spec": { "clusterIP": 1 } });
    assert!(typed::canonicalize(&mut wrong, service).is_err());
}

#[test]
fn new_pod_is_pending() {
    use crate::schema::{builtin, prepare};

    let mut pod = json!({ "spec": { "containers": [] }, "status": { "phase": "Running" } });
    let ty = builtin::kind("", "v1", "Pod").unwrap();
    prepare::create(&mut pod, ty, "2026-11-15T21:00:00Z");
    assert_eq!(
        pod["status"],
        json!({ "phase": "Pending", "qosClass": "BestEffort" })
    );
}

#[test]
fn field_error_names_its_field() {
    use crate::schema::field::FieldError;

    let error = FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0");
    assert_eq!(
        error.to_string(),
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    );
}

#[test]
fn tables_contain_kinds_and_resources() {
    use crate::schema::builtin;

    let deployment = builtin::kind("apps", "v1", "Deployment").unwrap();
    let spec = deployment.field("spec").unwrap().ty.named().unwrap();
    assert!(spec.field("replicas").unwrap().pointer);

    let pods = builtin::resource("", "v1", "pods").unwrap();
    assert_eq!(pods.kind, "Pod");
    assert!(pods.namespaced && pods.subresource("status").is_some());
}

#[test]
fn container_needs_an_image() {
    use crate::schema::{builtin, rules};

    let pod = json!({ "spec": { "containers": [{ "name": "c" }] } });
    let errors = rules::create(&pod, builtin::kind("", "v1", "Pod").unwrap());
    assert_eq!(
        errors[0].to_string(),
        "spec.containers[0].image: Required value"
    );
}

#[test]
fn deployment_gets_its_defaults() {
    use crate::schema::{builtin, defaults, typed};

    let ty = builtin::kind("apps", "v1", "Deployment").unwrap();
    let mut object = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "web", "image": "nginx" } ] } } } });
    typed::canonicalize(&mut object, ty).unwrap();
    defaults::apply(&mut object, ty);
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(
        object["spec"]["template"]["spec"]["restartPolicy"],
        "Always"
    );
}

#[test]
fn field_set_is_built_from_paths() {
    use crate::patch::apply::FieldSet;

    let set = FieldSet::of(&[&["status"], &["metadata", "labels"]]);
    assert_eq!(set.paths(), [".status", ".metadata.labels"]);
}

#[test]
fn apply_conflict_names_the_owner() {
    use crate::patch::apply::{self, FieldSet, Shape, Write};
    use crate::schema::builtin;

    let shape = Shape::Builtin(builtin::kind("", "v1", "ConfigMap").unwrap());
    let reset = FieldSet::default();
    let write = |manager| Write {
        manager,
        api_version: "v1",
        subresource: "",
        now: "2026-11-15T21:00:00Z",
        reset: &reset,
        others: &[],
    };
    let config = |value| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a" }, "data": { "colour": value } })
    };
    let red = apply::apply(None, &config("red"), shape, &write("me"), false).unwrap();
    let conflict = apply::apply(Some(&red), &config("blue"), shape, &write("you"), false);
    assert_eq!(
        conflict.unwrap_err().to_string(),
        "Apply failed with 1 conflict: conflict with \"me\": .data.colour",
    );
}

#[test]
fn merge_patch_replaces_lists() {
    use crate::patch::merge;

    let mut object = json!({ "spec": { "a": 1, "b": 2, "list": [1, 2] } });
    merge::apply(&mut object, json!({ "spec": { "a": null, "list": [3] } })).unwrap();
    assert_eq!(object, json!({ "spec": { "b": 2, "list": [3] } }));
}

#[test]
fn strategic_patch_merges_lists_by_key() {
    use crate::patch::strategic;
    use crate::schema::builtin;

    let mut pod = json!({ "spec": { "containers": [
        { "name": "a", "image": "a:1" }, { "name": "b", "image": "b:1" } ] } });
    let patch = json!({ "spec": { "containers": [{ "name": "b", "image": "b:2" }] } });
    strategic::apply(&mut pod, patch, builtin::kind("", "v1", "Pod").unwrap()).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "a:1");
    assert_eq!(pod["spec"]["containers"][1]["image"], "b:2");
}

#[test]
fn json_patch_applies_operations() {
    use crate::patch::json;

    let mut object = json!({ "spec": { "replicas": 1 } });
    let patch = json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }]);
    json::apply(&mut object, &patch).unwrap();
    assert_eq!(object["spec"]["replicas"], 3);
}
