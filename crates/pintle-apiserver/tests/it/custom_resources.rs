//! Custom resources: CRDs from creation to deletion, schemas, versions and defaults.

use crate::support::*;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

/// Proves crd/validated, crd/names, discovery/resources.
#[tokio::test]
async fn crd_is_served_immediately() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get(FOOS).await.0, 404);
    let mut definition = foo_definition();
    definition["spec"]["names"]["categories"] = json!(["all"]);
    let (code, created) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201);
    assert_eq!(created["spec"]["names"]["singular"], "foo");
    assert_eq!(created["spec"]["names"]["listKind"], "FooList");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    let (code, list) = http.get(FOOS).await;
    assert_eq!((code, &list["kind"]), (200, &json!("FooList")));
    let (_, definition) = http.get(&format!("{DEFINITIONS}/foos.example.com")).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    for condition in ["NamesAccepted", "Established"] {
        assert!(
            conditions
                .iter()
                .any(|c| c["type"] == condition && c["status"] == "True")
        );
    }
    let (_, group) = http.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let (_, resources) = http.get("/apis/example.com/v1").await;
    let foos = &resources["resources"][0];
    assert_eq!(foos["shortNames"], json!(["fo"]));
    assert_eq!(foos["singularName"], "foo");
    assert_eq!(foos["categories"], json!(["all"]));
    assert_eq!(resources["resources"][1]["name"], "foos/status");
}

/// Proves crd/validated.
#[tokio::test]
async fn invalid_crds_are_rejected() {
    let server = server();
    let http = http(&server);
    let code = |change: fn(&mut Value)| {
        let mut definition = foo_definition();
        change(&mut definition);
        let http = &http;
        async move { http.post(DEFINITIONS, &definition).await.0 }
    };
    assert_eq!(
        code(|d| d["metadata"]["name"] = "other.example.com".into()).await,
        422
    );
    assert_eq!(
        code(|d| d["spec"]["versions"][0]["storage"] = false.into()).await,
        422
    );
    assert_eq!(code(|d| d["spec"]["scope"] = "Universe".into()).await, 422);
    assert_eq!(
        code(|d| d["spec"]["versions"][0]["schema"] = Value::Null).await,
        422
    );
}

/// Proves crd/names.
#[tokio::test]
async fn name_in_use_is_not_accepted() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let mut other = foo_definition();
    other["metadata"]["name"] = "bars.example.com".into();
    other["spec"]["names"] = json!({"plural": "bars", "singular": "bar", "kind": "Foo"});
    http.post(DEFINITIONS, &other).await;
    let (_, stored) = http.get(&format!("{DEFINITIONS}/bars.example.com")).await;
    assert_eq!(
        stored["status"]["conditions"][0]["reason"],
        "ListKindConflict"
    );
    assert_eq!(http.get("/apis/example.com/v1/bars").await.0, 404);
}

/// Proves crd/deletion.
#[tokio::test]
async fn crd_deletion_waits_for_its_instances() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("plain")).await;
    let mut held = foo("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    http.post(FOOS, &held).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (code, marked) = http.delete(&path).await;
    assert_eq!(code, 200);
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(http.get(&format!("{FOOS}/plain")).await.0, 404);
    let (code, status) = http.post(FOOS, &foo("new")).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    http.merge(
        &format!("{FOOS}/held"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(http.get(&path).await.0, 404);
    assert_eq!(http.get(FOOS).await.0, 404);
    assert_eq!(http.get("/apis/example.com").await.0, 404);
}

/// Proves crd/schema, crd/pruning, objects/field-validation.
#[tokio::test]
async fn custom_resources_are_validated_by_schema() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let mut object = foo("a");
    object["spec"]["replicas"] = 99.into();
    let (code, status) = http.post(FOOS, &object).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Foo.example.com \"a\" is invalid: spec.replicas: Invalid value: 99: spec.replicas in body should be less than or equal to 10"
    );
    let mut object = foo("a");
    object["spec"]["color"] = "red".into();
    let (code, status) = http
        .post(&format!("{FOOS}?fieldValidation=Strict"), &object)
        .await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with("strict decoding error: unknown field \"spec.color\""),
        "{message}"
    );
    let request = Request::post(FOOS)
        .body(Full::new(object.to_string().into()))
        .unwrap();
    let response = http.send(request).await;
    assert_eq!(response.status(), 201);
    assert_eq!(
        response.headers()["warning"],
        "299 - \"unknown field \\\"spec.color\\\"\""
    );
    let (_, stored) = http.get(&format!("{FOOS}/a")).await;
    assert_eq!(stored["spec"], foo("a")["spec"]);
    let (code, _) = http
        .post(&format!("{FOOS}?fieldValidation=Maybe"), &foo("b"))
        .await;
    assert_eq!(code, 422);
}

/// Proves crd/ratcheting.
#[tokio::test]
async fn cel_rules_see_old_and_new_object() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {"rule": "self.replicas != 7", "message": "not seven"},
        {"rule": "self.deploymentName == oldSelf.deploymentName", "message": "name is immutable"}]);
    let (code, created) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{created}");
    let mut object = foo("a");
    object["spec"]["replicas"] = 7.into();
    let (code, status) = http.post(FOOS, &object).await;
    assert_eq!(code, 422);
    assert!(
        status["message"].as_str().unwrap().contains("not seven"),
        "{status}"
    );
    assert_eq!(http.post(FOOS, &foo("a")).await.0, 201);
    let renamed = json!({"spec": {"deploymentName": "b"}});
    let (code, status) = http.merge(&format!("{FOOS}/a"), &renamed).await;
    assert_eq!(code, 422);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("name is immutable"),
        "{status}"
    );
}

/// Proves crd/ratcheting.
#[tokio::test]
async fn tolerated_violations_of_rules_cause_warnings() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.post(DEFINITIONS, &foo_definition()).await.0, 201);
    let mut object = foo("a");
    object["spec"]["replicas"] = 7.into();
    assert_eq!(http.post(FOOS, &object).await.0, 201);

    let (_, mut definition) = http.get(&format!("{DEFINITIONS}/foos.example.com")).await;
    let replicas = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    definition.pointer_mut(replicas).unwrap()["x-kubernetes-validations"] =
        json!([{ "rule": "self != 7", "message": "not seven" }]);
    let path = format!("{DEFINITIONS}/foos.example.com");
    assert_eq!(http.put(&path, &definition).await.0, 200);

    let patch = |spec: Value| {
        Request::builder()
            .method("PATCH")
            .uri(format!("{FOOS}/a"))
            .header("content-type", "application/merge-patch+json")
            .body(Full::from(json!({ "spec": spec }).to_string()))
            .unwrap()
    };
    let response = http.send(patch(json!({ "deploymentName": "b" }))).await;
    assert_eq!(response.status(), 200);
    let warning = r#"299 - "spec.replicas: Invalid value: 7: not seven""#;
    assert_eq!(response.headers()["warning"], warning);
    // A changed value must satisfy the rule, and then there is no warning.
    assert_eq!(
        http.send(patch(json!({ "replicas": 8 }))).await.status(),
        200
    );
    let response = http.send(patch(json!({ "replicas": 7 }))).await;
    assert_eq!(response.status(), 422);
    assert!(response.headers().get("warning").is_none());
}

/// Proves crd/deletion.
#[tokio::test]
async fn crd_that_serves_nothing_keeps_its_objects() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    let serve = |served: bool| {
        let mut versions = foo_definition()["spec"]["versions"].clone();
        versions[0]["served"] = served.into();
        let (http, path) = (&http, &path);
        async move {
            http.merge(path, &json!({"spec": {"versions": versions}}))
                .await
        }
    };
    assert_eq!(serve(false).await.0, 200);
    assert_eq!(http.get(&format!("{FOOS}/a")).await.0, 404);
    assert_eq!(serve(true).await.0, 200);
    assert_eq!(http.get(&format!("{FOOS}/a")).await.0, 200);
    serve(false).await;
    http.delete(&path).await;
    assert_eq!(
        http.get(&path).await.0,
        404,
        "its objects are deleted with it"
    );
    http.post(DEFINITIONS, &foo_definition()).await;
    assert_eq!(http.get(FOOS).await.1["items"], json!([]));
}

/// Returns the Foo CRD with `v1`, the storage version, and an identical `v2`.
fn two_versions() -> Value {
    let mut definition = foo_definition();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(second);
    definition
}

/// Proves crd/defaulting, crd/versions.
#[tokio::test]
async fn stored_object_gets_new_defaults_on_read() {
    let server = server();
    let http = http(&server);
    let definition = two_versions();
    http.post(DEFINITIONS, &definition).await;
    let before = server.resource_version();
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "a"}, "spec": {"deploymentName": "d"}});
    let (_, created) = http.post(FOOS, &object).await;
    assert_eq!(created["spec"], json!({"deploymentName": "d"}));

    let mut versions = definition["spec"]["versions"].clone();
    let replicas = "/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    versions.pointer_mut(replicas).unwrap()["default"] = 3.into();
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.replicas"}]);
    let changed = json!({"spec": {"versions": versions}});
    let path = format!("{DEFINITIONS}/foos.example.com");
    assert_eq!(http.merge(&path, &changed).await.0, 200);

    // Defaults come from the storage version, whichever version is read.
    let whole = json!({"deploymentName": "d", "replicas": 3});
    let v2 = FOOS.replace("/v1/", "/v2/");
    for (foos, version) in [(FOOS, "example.com/v1"), (&v2, "example.com/v2")] {
        let (_, read) = http.get(&format!("{foos}/a")).await;
        assert_eq!(
            (&read["spec"], &read["apiVersion"]),
            (&whole, &json!(version))
        );
        assert_eq!(
            read["metadata"]["resourceVersion"],
            created["metadata"]["resourceVersion"]
        );
        let (_, list) = http.get(foos).await;
        assert_eq!(list["items"], json!([read]));
        let path = format!("{foos}?watch=true&resourceVersion={before}");
        let event = http.watch(&path).await.next().await.unwrap();
        assert_eq!(event, json!({"type": "ADDED", "object": read}));
    }
    let selected = format!("{FOOS}?fieldSelector=spec.replicas%3D3");
    let (_, list) = http.get(&selected).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    // Only the label changes.
    let label = json!({"metadata": {"labels": {"l": "m"}}});
    let (_, labelled) = http.merge(&format!("{FOOS}/a"), &label).await;
    assert_eq!(labelled["spec"], whole);
    assert_eq!(labelled["metadata"]["generation"], 1);

    let other = json!({"apiVersion": "example.com/v2", "kind": "Foo",
        "metadata": {"name": "b"}, "spec": {"deploymentName": "d"}});
    let (code, created) = http.post(&v2, &other).await;
    assert_eq!((code, &created["spec"]), (201, &whole));
}

/// Proves crd/versions, crd/defaulting.
#[tokio::test]
async fn version_shows_only_the_fields_it_knows() {
    let server = server();
    let http = http(&server);
    let mut definition = two_versions();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(spec).unwrap()["mode"] =
        json!({"type": "string", "default": "Standard"});
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let before = server.resource_version();
    let v2 = FOOS.replace("/v1/", "/v2/");
    let (_, first) = http.post(FOOS, &foo("a")).await;
    assert_eq!(first["spec"]["mode"], "Standard");
    let mut object = foo("b");
    object["apiVersion"] = "example.com/v2".into();
    for query in ["?dryRun=All", ""] {
        let (code, created) = http.post(&format!("{v2}{query}"), &object).await;
        assert_eq!((code, &created["spec"]["mode"]), (201, &Value::Null));
    }

    let (_, list) = http.get(&v2).await;
    let mut watch = http
        .watch(&format!("{v2}?watch=true&resourceVersion={before}"))
        .await;
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        let (_, read) = http.get(&format!("{v2}/{name}")).await;
        assert_eq!(read["spec"], foo(name)["spec"]);
        assert_eq!(list["items"][index], read);
        assert_eq!(watch.next().await.unwrap()["object"], read);
        let (_, read) = http.get(&format!("{FOOS}/{name}")).await;
        assert_eq!(read["spec"]["mode"], "Standard", "{name}");
    }

    // As upstream, an update in another version loses fields that only the storage version has.
    let strict = json!({"spec": {"mode": "Strict"}});
    let (_, changed) = http.merge(&format!("{FOOS}/a"), &strict).await;
    assert_eq!(changed["spec"]["mode"], "Strict");
    let label = json!({"metadata": {"labels": {"l": "m"}}});
    assert_eq!(http.merge(&format!("{v2}/a"), &label).await.0, 200);
    let (_, read) = http.get(&format!("{FOOS}/a")).await;
    assert_eq!(read["spec"]["mode"], "Standard");
}

/// Proves crd/pruning.
#[tokio::test]
async fn field_without_schema_is_hidden_until_it_is_back() {
    let server = server();
    let http = http(&server);
    let definition = foo_definition();
    http.post(DEFINITIONS, &definition).await;
    let (_, created) = http.post(FOOS, &foo("a")).await;
    assert!(created["spec"]["replicas"].is_number());

    let versions = definition["spec"]["versions"].clone();
    let mut smaller = versions.clone();
    let spec = "/0/schema/openAPIV3Schema/properties/spec/properties";
    let properties = smaller.pointer_mut(spec).unwrap().as_object_mut().unwrap();
    assert!(properties.remove("replicas").is_some());
    let path = format!("{DEFINITIONS}/foos.example.com");
    for (versions, replicas) in [
        (smaller, &Value::Null),
        (versions, &created["spec"]["replicas"]),
    ] {
        let change = json!({"spec": {"versions": versions}});
        assert_eq!(http.merge(&path, &change).await.0, 200);
        let (_, read) = http.get(&format!("{FOOS}/a")).await;
        assert_eq!(&read["spec"]["replicas"], replicas);
        let (_, list) = http.get(FOOS).await;
        assert_eq!(list["items"][0], read);
    }
}
