//! Which parts of a custom object are stored (metadata, nulls, defaults), and which violations are
//! tolerated after its schema became stricter.

use crate::support::*;
use serde_json::{Value, json};

const OBJECT: &str = "/apis/example.com/v1/namespaces/default/foos/a";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// Returns a CRD whose objects have these fields.
fn definition(properties: &Value) -> Value {
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
        properties.clone();
    definition["spec"]["versions"][0]
        .as_object_mut()
        .unwrap()
        .remove("subresources");
    definition
}

/// Returns an object with these fields.
fn object(fields: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": "example.com/v1", "kind": "Foo", "metadata": { "name": "a" } });
    let fields = fields.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

/// Replaces the properties of the only version of the CRD.
async fn redefine(http: &Http, properties: &Value) {
    let (_, mut stored) = http.get(DEFINITION).await;
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = properties.clone();
    let (code, answer) = http.put(DEFINITION, &stored).await;
    assert_eq!(code, 200, "{answer}");
}

async fn apply(http: &Http, object: &Value) -> (u16, String) {
    let path = format!("{OBJECT}?fieldManager=test");
    let kind = "application/apply-patch+yaml";
    let (code, answer) = http.raw("PATCH", &path, kind, object.to_string()).await;
    let message = answer["message"].as_str().unwrap_or_default().to_owned();
    (code, message)
}

/// Proves crd/pruning.
#[tokio::test]
async fn unknown_metadata_is_pruned() {
    let server = server();
    let http = http(&server);
    created(&http, DEFINITIONS, &foo_definition()).await;
    let mut sent = foo("a");
    sent["metadata"]["unknown"] = 42.into();
    let strict = format!("{FOOS}?fieldValidation=Strict");
    let (code, status) = http.post(&strict, &sent).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with(r#"unknown field "metadata.unknown""#),
        "{message}"
    );

    let stored = created(&http, FOOS, &sent).await;
    assert_eq!(stored["metadata"]["unknown"], Value::Null);
    let patch = json!({ "metadata": { "unknown": 42, "labels": { "a": "b" } } });
    let (code, patched) = http.merge(OBJECT, &patch).await;
    assert_eq!(code, 200);
    assert_eq!(patched["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(patched["metadata"]["unknown"], Value::Null);
}

/// Proves crd/defaulting.
#[tokio::test]
async fn status_write_adds_no_defaults_to_the_spec() {
    let server = server();
    let http = http(&server);
    // v1, which is not stored, has a default that v2 does not have.
    let text = json!({ "type": "string" });
    let schema = |value: &Value| {
        let part = json!({ "type": "object", "properties": { "c": value } });
        json!({ "type": "object", "properties": { "spec": part, "status": part } })
    };
    let mut definition = foo_definition();
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = "v2".into();
    newer["schema"]["openAPIV3Schema"] = schema(&text);
    let older = &mut definition["spec"]["versions"][0];
    older["storage"] = false.into();
    older["schema"]["openAPIV3Schema"] = schema(&json!({ "type": "string", "default": "C" }));
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(newer);
    created(&http, DEFINITIONS, &definition).await;
    let mut sent = object(&json!({ "spec": {} }));
    sent["apiVersion"] = "example.com/v2".into();
    created(&http, &FOOS.replace("/v1/", "/v2/"), &sent).await;

    let (_, mut current) = http.get(OBJECT).await;
    assert_eq!(current["spec"], json!({}));
    current["status"] = json!({});
    let (code, updated) = http.put(&format!("{OBJECT}/status"), &current).await;
    assert_eq!(code, 200, "{updated}");
    assert_eq!(updated["spec"], json!({}));
    assert_eq!(updated["status"], json!({ "c": "C" }));
}

/// Proves crd/defaulting.
#[tokio::test]
async fn status_of_a_new_object_has_its_defaults() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties";
    definition.pointer_mut(properties).unwrap()["status"] = json!({ "type": "object",
        "default": { "phase": "Pending" }, "properties": { "phase": { "type": "string" } } });
    created(&http, DEFINITIONS, &definition).await;
    let mut sent = foo("a");
    sent["status"] = json!({ "phase": "Done" });
    let stored = created(&http, FOOS, &sent).await;
    assert_eq!(stored["status"], json!({ "phase": "Pending" }));
    let (_, read) = http.get(OBJECT).await;
    assert_eq!(read["status"], json!({ "phase": "Pending" }));
}

/// Proves crd/pruning.
#[tokio::test]
async fn apply_rejects_nulls_that_other_writes_drop() {
    let server = server();
    let http = http(&server);
    let inner = |nullable: bool| {
        json!({ "type": "object", "nullable": nullable,
            "properties": { "a": { "type": "string" } } })
    };
    let fields = json!({ "yes": inner(true), "no": inner(false) });
    created(&http, DEFINITIONS, &definition(&fields)).await;
    let full = json!({ "a": "1" });
    let (code, _) = apply(&http, &object(&json!({ "yes": full, "no": full }))).await;
    assert_eq!(code, 201);
    let (code, message) = apply(&http, &object(&json!({ "yes": null, "no": null }))).await;
    assert_eq!(code, 422);
    let wanted = r#"Foo.example.com "a" is invalid: no: Invalid value: "null": no in body must be of type object: "null""#;
    assert_eq!(message, wanted);
    let (code, _) = apply(&http, &object(&json!({ "yes": null, "no": full }))).await;
    assert_eq!(code, 200);

    let (_, mut current) = http.get(OBJECT).await;
    assert_eq!(current["yes"], Value::Null);
    current["no"] = Value::Null;
    let (code, updated) = http.put(OBJECT, &current).await;
    assert_eq!(code, 200);
    assert!(updated.get("no").is_none(), "{updated}");
}

/// Proves crd/ratcheting.
#[tokio::test]
async fn reordered_list_map_is_unchanged() {
    let server = server();
    let http = http(&server);
    let list = |most: Option<u64>, rules: &Value| {
        let item = json!({ "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string" } } });
        let mut list = json!({ "type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"], "x-kubernetes-validations": rules });
        if let Some(most) = most {
            list["maxItems"] = most.into();
        }
        json!({ "list": list, "other": { "type": "string" } })
    };
    let items = |names: &[&str]| {
        let items = names.iter().map(|name| json!({ "name": name }));
        object(&json!({ "list": items.collect::<Vec<_>>() }))
    };
    created(&http, DEFINITIONS, &definition(&list(None, &json!([])))).await;
    assert_eq!(apply(&http, &items(&["a", "b", "c"])).await.0, 201);
    let rules = json!([{ "rule": "self.size() < 3", "message": "too long" }]);
    redefine(&http, &list(Some(2), &rules)).await;
    let (code, message) = apply(&http, &items(&["c", "a", "b"])).await;
    assert_eq!(code, 200, "{message}");
    let (code, message) = apply(&http, &items(&["c", "a", "b", "d"])).await;
    assert_eq!(code, 422);
    assert!(
        message.contains("list: Too many: 4: must have at most 2 items"),
        "{message}"
    );
    redefine(&http, &list(None, &rules)).await;
    let (code, message) = apply(&http, &items(&["b", "c", "a"])).await;
    assert_eq!(code, 200, "{message}");
    let (code, message) = apply(&http, &items(&["a", "b", "d"])).await;
    assert_eq!(code, 422);
    assert!(
        message.ends_with("list: Invalid value: too long"),
        "{message}"
    );
}

/// Upstream compares only what the schema specifies, so values with other fields never count as
/// unchanged.
///
/// Proves crd/ratcheting.
#[tokio::test]
async fn unspecified_fields_are_never_unchanged() {
    let server = server();
    let http = http(&server);
    let schema = |most: u64| {
        json!({
            "open": { "type": "object", "maxProperties": most,
                "x-kubernetes-preserve-unknown-fields": true },
            "n": { "type": "integer" },
        })
    };
    created(&http, DEFINITIONS, &definition(&schema(2))).await;
    created(&http, FOOS, &object(&json!({ "open": { "a": 1, "b": 2 } }))).await;
    redefine(&http, &schema(1)).await;
    let (code, status) = http.merge(OBJECT, &json!({ "n": 1 })).await;
    assert_eq!(code, 422);
    assert_eq!(causes(&status).len(), 1, "{status}");
}

/// Proves crd/ratcheting.
#[tokio::test]
async fn type_of_an_object_is_always_validated() {
    let server = server();
    let http = http(&server);
    let mut both = definition(&json!({ "n": { "type": "integer" } }));
    let mut newer = both["spec"]["versions"][0].clone();
    newer["name"] = "v2".into();
    newer["storage"] = false.into();
    both["spec"]["versions"].as_array_mut().unwrap().push(newer);
    created(&http, DEFINITIONS, &both).await;
    created(&http, FOOS, &object(&json!({}))).await;
    let (_, mut stored) = http.get(DEFINITION).await;
    for i in 0..2 {
        stored["spec"]["versions"][i]["schema"]["openAPIV3Schema"]["properties"] = json!({
            "apiVersion": { "type": "string", "pattern": "/v2$" }, "n": { "type": "integer" } });
    }
    assert_eq!(http.put(DEFINITION, &stored).await.0, 200);
    let newer = OBJECT.replace("/v1/", "/v2/");
    let (code, status) = http.merge(&newer, &json!({ "n": 1 })).await;
    assert_eq!(code, 200, "{status}");
    let (code, status) = http.merge(OBJECT, &json!({ "n": 2 })).await;
    assert_eq!(code, 422);
    let wanted =
        r#"apiVersion: Invalid value: "example.com/v1": apiVersion in body should match '/v2$'"#;
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with(wanted), "{message}");
}

/// kube-apiserver does not serve namespaced custom resources at the cluster's path, except to list
/// and watch them.
///
/// Proves apiserver/paths.
#[tokio::test]
async fn namespaced_kinds_have_no_cluster_path() {
    let server = server();
    let http = http(&server);
    created(&http, DEFINITIONS, &foo_definition()).await;
    let everywhere = FOOS.replace("/namespaces/default", "");
    assert_eq!(http.get(&everywhere).await.0, 200);
    assert_eq!(http.post(&everywhere, &foo("a")).await.0, 404);
    assert_eq!(http.delete(&everywhere).await.0, 404);
    // For built-in kinds the method is not allowed.
    assert_eq!(http.delete("/api/v1/configmaps").await.0, 405);
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_has_selectable_fields_and_embedded_resources() {
    let server = server();
    let http = http(&server);
    let mut definition = definition(&json!({
        "spec": { "type": "object", "properties": { "colour": { "type": "string" } } },
        "template": { "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true },
    }));
    definition["spec"]["versions"][0]["selectableFields"] = json!([{ "jsonPath": ".spec.colour" }]);
    created(&http, DEFINITIONS, &definition).await;
    let selectable = json!([{ "fieldPath": "spec.colour" }]);
    let (_, v3) = http.get("/openapi/v3/apis/example.com/v1").await;
    let schema = &v3["components"]["schemas"]["com.example.v1.Foo"];
    assert_eq!(schema["x-kubernetes-selectable-fields"], selectable);
    let template = &schema["properties"]["template"];
    assert_eq!(template["required"], json!(["kind", "apiVersion"]));
    for name in ["apiVersion", "kind", "metadata"] {
        assert!(
            schema["properties"][name]["description"].is_string(),
            "{name}"
        );
        assert_eq!(template["properties"][name], schema["properties"][name]);
    }
    let (_, v2) = http.get("/openapi/v2").await;
    let schema = &v2["definitions"]["com.example.v1.Foo"];
    assert_eq!(schema["x-kubernetes-selectable-fields"], selectable);
}

/// Proves crd/validated.
#[tokio::test]
async fn accepted_names_are_validated() {
    let server = server();
    let http = http(&server);
    created(&http, DEFINITIONS, &foo_definition()).await;
    let patch = json!({ "status": { "acceptedNames": { "plural": "NO" } } });
    let (code, status) = http.merge(&format!("{DEFINITION}/status"), &patch).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap();
    let start = r#"status.acceptedNames.plural: Invalid value: "NO": a DNS-1035 label"#;
    assert!(message.contains(start), "{message}");
    let (_, stored) = http.get(DEFINITION).await;
    assert_eq!(stored["status"]["acceptedNames"]["plural"], "foos");
}

/// The server's own finalizer has no slash, which only core kinds require.
///
/// Proves crd/deletion.
#[tokio::test]
async fn definition_that_is_being_deleted_can_be_changed() {
    let server = server();
    let http = http(&server);
    created(&http, DEFINITIONS, &foo_definition()).await;
    let mut held = foo("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    created(&http, FOOS, &held).await;
    assert_eq!(http.delete(DEFINITION).await.0, 200);
    let (_, mut terminating) = http.get(DEFINITION).await;
    terminating["spec"]["names"]["shortNames"] = json!(["f"]);
    let (code, changed) = http.put(DEFINITION, &terminating).await;
    assert_eq!(code, 200, "{changed}");
    assert!(changed["metadata"]["deletionTimestamp"].is_string());
}
