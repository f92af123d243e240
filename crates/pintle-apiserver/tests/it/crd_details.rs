//! Details of CRDs and their objects that real CRDs depend on.

use crate::support::*;
use serde_json::{Value, json};

fn spec_schema(definition: &mut Value) -> &mut Value {
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    definition.pointer_mut(spec).unwrap()
}

/// Proves crd/validated.
#[tokio::test]
async fn protected_group_shows_its_approval() {
    let server = server();
    let http = http(&server);
    for (plural, annotation, status, reason) in [
        ("as", "https://example.com/1", "True", "ApprovedAnnotation"),
        ("bs", "unapproved, a test", "False", "UnapprovedAnnotation"),
    ] {
        let mut definition = foo_definition();
        let name = format!("{plural}.example.k8s.io");
        definition["metadata"]["name"] = name.as_str().into();
        definition["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": annotation });
        definition["spec"]["group"] = "example.k8s.io".into();
        definition["spec"]["names"] = json!({ "plural": plural, "kind": plural.to_uppercase() });
        assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
        let (_, stored) = http.get(&format!("{DEFINITIONS}/{name}")).await;
        let conditions = stored["status"]["conditions"].as_array().unwrap();
        let kind = "KubernetesAPIApprovalPolicyConformant";
        let found = conditions.iter().find(|it| it["type"] == kind).unwrap();
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!(status), &json!(reason))
        );
    }
}

/// Proves crd/schema.
#[tokio::test]
async fn unknown_formats_cause_warnings_once() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    spec_schema(&mut definition)["properties"]["host"] =
        json!({ "type": "string", "format": "idn-hostname" });
    let request = |method: &str, path: &str, body: &Value| {
        http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes().into())
            .unwrap()
    };
    let created = http.send(request("POST", DEFINITIONS, &definition)).await;
    assert_eq!(created.status(), 201);
    let warning = created.headers()["warning"].to_str().unwrap();
    assert_eq!(warning, r#"299 - "unrecognized format \"idn-hostname\"""#);

    // Later writes do not warn about it again.
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (_, mut stored) = http.get(&path).await;
    stored["spec"]["names"]["shortNames"] = json!(["f"]);
    let updated = http.send(request("PUT", &path, &stored)).await;
    assert_eq!(updated.status(), 200);
    assert!(updated.headers().get("warning").is_none());
}

/// Proves crd/defaulting, crd/rules.
#[tokio::test]
async fn default_that_violates_a_rule_is_rejected() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    spec_schema(&mut definition)["properties"]["size"] = json!({
        "type": "integer", "default": 3,
        "x-kubernetes-validations": [{ "rule": "self < 3", "message": "too large" }],
    });
    let (code, status) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].default: \
             Invalid value: 3: too large"
        ]
    );
    spec_schema(&mut definition)["properties"]["size"]["default"] = 2.into();
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
}

/// Proves crd/validated, crd/rules.
#[tokio::test]
async fn broken_rule_is_reported_with_other_errors() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let properties = &mut spec_schema(&mut definition)["properties"];
    properties["a"] = json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self" }] });
    properties["b"] =
        json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true });
    let (code, status) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 422);
    let found = causes(&status);
    assert!(found[0].contains("uniqueItems"), "{found:?}");
    assert!(found[1].contains("must evaluate to a bool"), "{found:?}");
}

/// Proves crd/schema.
#[tokio::test]
async fn scaled_fields_are_validated() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.availableReplicas",
    });
    spec_schema(&mut definition)["properties"]["replicas"] = json!({ "type": "integer" });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    for (replicas, why) in [
        (
            json!(-1),
            "Invalid value: -1: should be a non-negative integer",
        ),
        (
            json!(3_000_000_000_i64),
            "Invalid value: 3000000000: should be less than or equal to 2147483647",
        ),
    ] {
        let mut object = foo("a");
        object["spec"]["replicas"] = replicas;
        let (code, status) = http.post(FOOS, &object).await;
        assert_eq!(code, 422);
        assert_eq!(causes(&status), [format!(".spec.replicas: {why}")]);
    }
}

/// Proves crd/versions.
#[tokio::test]
async fn storage_version_decides_which_fields_are_stored() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = "v2".into();
    newer["storage"] = false.into();
    let extra = "/schema/openAPIV3Schema/properties/spec/properties";
    newer.pointer_mut(extra).unwrap()["extra"] = json!({ "type": "number" });
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(newer);
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let mut object = foo("a");
    object["apiVersion"] = "example.com/v2".into();
    object["spec"]["extra"] = json!(1.0);
    let (code, created) = http.post(&FOOS.replace("/v1/", "/v2/"), &object).await;
    assert_eq!(code, 201);
    assert_eq!(created["spec"]["extra"], Value::Null);
}

/// Proves crd/schema.
#[tokio::test]
async fn whole_numbers_are_stored_without_a_fraction() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    spec_schema(&mut definition)["properties"]["ratio"] = json!({ "type": "number" });
    spec_schema(&mut definition)["properties"]["count"] =
        json!({ "type": "integer", "maximum": 4_294_967_295_i64 });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let mut object = foo("a");
    object["spec"]["ratio"] = json!(2.0);
    let (_, created) = http.post(FOOS, &object).await;
    assert_eq!(created["spec"]["ratio"].to_string(), "2");

    let mut object = foo("b");
    object["spec"]["count"] = json!(1e19);
    let (code, status) = http.post(FOOS, &object).await;
    assert_eq!(code, 422);
    let found = causes(&status);
    for part in [
        "Checked value must be of type integer (default format) in spec.count",
        "Invalid value: 1e+19: spec.count in body should be less than or equal to 4.294967295e+09",
    ] {
        assert!(found.iter().any(|it| it.contains(part)), "{found:?}");
    }
}

/// Proves apply/managed-fields.
#[tokio::test]
async fn invalid_status_leaves_no_managers() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties";
    definition.pointer_mut(root).unwrap()["status"] =
        json!({ "type": "object", "properties": { "ready": { "type": "integer" } } });
    definition["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let mut object = foo("a");
    object["status"] = json!({ "ready": "text" });
    let (code, created) = http.post(FOOS, &object).await;
    assert_eq!(code, 201);
    assert_eq!(created["metadata"]["managedFields"], Value::Null);
    object["metadata"]["name"] = "b".into();
    object["status"] = json!({ "ready": 1 });
    let (_, created) = http.post(FOOS, &object).await;
    assert!(created["metadata"]["managedFields"].is_array());
}

/// Field management accepts any scalar for a string with a format other than `byte`, as in
/// kube-apiserver.
///
/// Proves apply/managed-fields.
#[tokio::test]
async fn formatted_status_of_a_wrong_type_leaves_managers() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties";
    definition.pointer_mut(root).unwrap()["status"] = json!({ "type": "object", "properties": {
        "since": { "type": "string", "format": "date-time" },
        "key": { "type": "string", "format": "byte" },
        "port": { "x-kubernetes-int-or-string": true } } });
    definition["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    for (status, managed) in [
        (json!({ "since": 1 }), true),
        (json!({ "since": true }), true),
        (json!({ "since": {} }), false),
        (json!({ "since": [] }), false),
        (json!({ "key": 1 }), false),
        (json!({ "port": true }), true),
        (json!({ "port": {} }), false),
    ] {
        let mut object = foo("a");
        object["status"] = status.clone();
        let (code, created) = http.post(&format!("{FOOS}?dryRun=All"), &object).await;
        assert_eq!(code, 201, "{status}");
        let managers = &created["metadata"]["managedFields"];
        assert_eq!(managers.is_array(), managed, "{status}");
        if managed {
            let fields = &managers[0]["fieldsV1"];
            assert_eq!(fields["f:spec"]["f:replicas"], json!({}), "{fields}");
            assert_eq!(fields["f:status"], Value::Null, "{fields}");
        }
    }
}

/// Proves crd/schema.
#[tokio::test]
async fn scale_error_names_the_scalar_on_its_path() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties";
    definition.pointer_mut(schema).unwrap()["spec"] = json!({ "type": "object",
        "properties": { "workers": { "type": "object",
            "properties": { "replicas": { "type": "integer" } } } } });
    definition["spec"]["versions"][0]["subresources"] = json!({ "scale": {
        "specReplicasPath": ".spec.workers.replicas", "statusReplicasPath": ".status.replicas" } });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    for (spec, place) in [
        (json!("text"), ".spec.workers"),
        (json!({ "workers": "text" }), ".spec.workers.replicas"),
    ] {
        let mut object = foo("a");
        object["spec"] = spec;
        let (code, status) = http.post(FOOS, &object).await;
        assert_eq!(code, 422);
        let expected = format!(
            ".spec.workers.replicas: Invalid value: 0: {place} accessor error: text is of the type \
             string, expected map[string]interface{{}}"
        );
        assert!(causes(&status).contains(&expected), "{:?}", causes(&status));
    }
}

/// Proves errors/depth.
#[tokio::test]
async fn hostile_crds_are_rejected_within_limits() {
    let server = server();
    let http = http(&server);
    let with = |property: Value| {
        let mut definition = foo_definition();
        spec_schema(&mut definition)["properties"]["a"] = property;
        definition
    };
    let mut deep = json!({ "type": "string" });
    for _ in 0..200 {
        deep = json!({ "type": "object", "properties": { "a": deep } });
    }
    let rule =
        |rule: String| json!({ "type": "string", "x-kubernetes-validations": [{ "rule": rule }] });
    for (case, property, part) in [
        ("deep", deep, "at most 127 levels"),
        ("long", rule("a".repeat(120_000)), "size exceeds limit"),
    ] {
        let (code, status) = http.post(DEFINITIONS, &with(property)).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(matches!(code, 400 | 422), "{case}: {code} {message}");
        assert!(
            message.contains(part),
            "{case}: {}",
            &message[message.len().saturating_sub(300)..]
        );
    }
}

/// Proves crd/schema.
#[tokio::test]
async fn plain_finalizers_of_custom_objects_cause_warnings() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.post(DEFINITIONS, &foo_definition()).await.0, 201);
    let mut object = foo("a");
    object["metadata"]["finalizers"] = json!(["foo.example.com", "example.com/foo"]);
    let request = http::Request::builder()
        .method("POST")
        .uri(FOOS)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes().into())
        .unwrap();
    let created = http.send(request).await;
    assert_eq!(created.status(), 201);
    let warnings: Vec<_> = created.headers().get_all("warning").iter().collect();
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        warnings[0],
        "299 - \"metadata.finalizers: \\\"foo.example.com\\\": prefer a domain-qualified finalizer \
         name including a path (/) to avoid accidental conflicts with other finalizer writers\""
    );
}

/// Proves crd/pruning.
#[tokio::test]
async fn metadata_of_embedded_resources_is_decoded() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    spec_schema(&mut definition)["properties"]["template"] = json!({
        "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let mut object = foo("a");
    object["spec"]["template"] = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b", "x": 1 },
    });
    let (code, created) = http.post(FOOS, &object).await;
    assert_eq!(code, 201);
    assert_eq!(
        created["spec"]["template"]["metadata"],
        json!({ "name": "b" })
    );

    object["spec"]["template"]["kind"] = 3.into();
    let (code, status) = http.post(FOOS, &object).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Foo in version \"v1\" cannot be handled as a Foo: spec.template.kind: Invalid value: 3: \
         must be a string"
    );
}

/// Proves crd/schema.
#[tokio::test]
async fn type_and_metadata_of_embedded_resources_are_validated() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    spec_schema(&mut definition)["properties"]["templates"] = json!({
        "type": "array", "items": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let mut object = foo("a");
    object["spec"]["templates"] = json!([
        { "apiVersion": "a/b/c", "kind": "Config.Map" },
        { "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "a/b", "namespace": "A", "labels": { "a": "x y" },
        } },
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "labels": { "a": "b" } } },
    ]);
    let (code, status) = http.post(FOOS, &object).await;
    assert_eq!(code, 422);
    let fields: Vec<_> = causes(&status)
        .into_iter()
        .map(|cause| cause.split(':').next().unwrap_or_default().to_owned())
        .collect();
    let metadata = "spec.templates[1].metadata";
    assert_eq!(
        fields,
        [
            "spec.templates[0].apiVersion".to_owned(),
            "spec.templates[0].kind".to_owned(),
            format!("{metadata}.name"),
            format!("{metadata}.namespace"),
            format!("{metadata}.labels"),
        ]
    );
}

/// Proves crd/defaulting.
#[tokio::test]
async fn defaults_must_result_in_valid_metadata() {
    let server = server();
    let http = http(&server);
    let refusals = async |template: Value| {
        let mut definition = foo_definition();
        spec_schema(&mut definition)["properties"]["template"] = template;
        let (code, status) = http.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 422, "{status}");
        causes(&status)
    };
    let at = "spec.validation.openAPIV3Schema.properties[spec].properties[template]";
    let embedded = |properties: Value, default: Value| {
        let mut schema = json!({
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true, "properties": properties,
        });
        if !default.is_null() {
            schema["default"] = default;
        }
        schema
    };
    // A default of the whole resource.
    let found = refusals(embedded(json!({}), json!({ "kind": "Pod" }))).await;
    assert_eq!(
        found,
        [format!("{at}.default.apiVersion: Required value")],
        "{found:?}"
    );
    // Defaults inside its type and metadata are checked as part of a resource.
    let metadata = json!({ "type": "object", "properties": {
        "labels": { "type": "object", "additionalProperties": { "type": "string" },
            "default": { "a": "x y" } },
    } });
    let found = refusals(embedded(json!({ "metadata": metadata }), Value::Null)).await;
    let start = format!(
        "{at}.properties[metadata].properties[labels].default: Invalid value: {{\"a\":\"x y\"}}: must \
         result in valid metadata: metadata.labels: Invalid value: \"x y\": a valid label must be"
    );
    assert!(
        found.len() == 1 && found[0].starts_with(&start),
        "{found:?}"
    );
    let kind = json!({ "kind": { "type": "string", "default": "%" } });
    let found = refusals(embedded(kind, Value::Null)).await;
    let start = format!(
        "{at}.properties[kind].default: Invalid value: \"%\": must result in valid metadata: kind: \
         Invalid value: \"%\": may have mixed case"
    );
    assert!(
        found.len() == 1 && found[0].starts_with(&start),
        "{found:?}"
    );
    // Metadata of the wrong type cannot be decoded.
    let name = json!({ "metadata": { "type": "object", "properties": {
        "name": { "type": "string", "default": "a" },
        "annotations": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "default": { "a": 1 } },
    } } });
    let found = refusals(embedded(name, Value::Null)).await;
    assert!(
        found.len() == 1
            && found[0].contains("must result in valid metadata: metadata: Invalid value: "),
        "{found:?}"
    );
}

/// Proves openapi/documents.
#[tokio::test]
async fn hash_of_a_document_changes_with_names_and_scope() {
    let server = server();
    let http = http(&server);
    let definition = foo_definition();
    let mut renamed = definition.clone();
    renamed["spec"]["names"]["kind"] = "Food".into();
    let mut relisted = definition.clone();
    relisted["spec"]["names"]["listKind"] = "Foos".into();
    let mut global = definition.clone();
    global["spec"]["scope"] = "Cluster".into();
    let mut seen = Vec::new();
    for definition in [definition, renamed, relisted, global] {
        // The names and the scope of a definition change if it is created again.
        assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
        let (_, index) = http.get("/openapi/v3").await;
        let url = &index["paths"]["apis/example.com/v1"]["serverRelativeURL"];
        let url = url.as_str().unwrap().to_owned();
        let request = http::Request::get("/openapi/v2").body(Vec::new().into());
        let response = http.send(request.unwrap()).await;
        let tag = response.headers()["etag"].clone();
        let (_, document) = http.get("/openapi/v2").await;
        for (before_url, before_tag, before) in &seen {
            assert_ne!(&document, before);
            assert_ne!(&url, before_url, "{definition}");
            assert_ne!(&tag, before_tag, "{definition}");
        }
        seen.push((url, tag, document));
        let path = format!("{DEFINITIONS}/foos.example.com");
        assert_eq!(http.delete(&path).await.0, 200);
    }
}
