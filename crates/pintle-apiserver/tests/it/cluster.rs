//! Namespaces, definitions and discovery.

use crate::support::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// Proves namespaces/bootstrap, errors/status-reasons.
#[tokio::test]
async fn namespaces_at_the_start() {
    let server = server();
    let http = http(&server);
    let (code, namespace) = http.get("/api/v1/namespaces/default").await;
    assert_eq!(code, 200);
    assert_eq!(
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "default"
    );
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"]["phase"], "Active");
    for name in ["default", "kube-system", "kube-public"] {
        let (code, status) = http.delete(&format!("/api/v1/namespaces/{name}")).await;
        assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    }
}

/// Proves namespaces/missing-or-terminating, apiserver/paths, subresources/finalize-and-token.
#[tokio::test]
async fn a_namespace_that_goes_takes_nothing_new() {
    let server = server();
    let http = http(&server);
    let (code, status) = http
        .post("/api/v1/namespaces/n/configmaps", &config_map("a"))
        .await;
    assert_eq!(code, 404);
    assert_eq!(status["message"], "namespaces \"n\" not found");
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    let (code, mut marked) = http.delete("/api/v1/namespaces/n").await;
    assert_eq!(
        (code, &marked["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    let (code, status) = http
        .post("/api/v1/namespaces/n/configmaps", &config_map("a"))
        .await;
    assert_eq!(code, 403);
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    marked["spec"]["finalizers"] = json!([]);
    assert_eq!(
        http.put("/api/v1/namespaces/n/finalize", &marked).await.0,
        200
    );
    assert_eq!(http.get("/api/v1/namespaces/n").await.0, 404);
}

/// Proves namespaces/emptied.
#[tokio::test]
async fn second_deletion_of_a_namespace_keeps_its_conditions() {
    let server = server();
    let http = http(&server);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    http.delete("/api/v1/namespaces/n").await;
    let condition = json!({"type": "NamespaceContentRemaining", "status": "True",
        "reason": "SomeResourcesRemain", "message": "pods. has 1 resource instances",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"status": {"conditions": [condition]}});
    let (code, reported) = http.merge("/api/v1/namespaces/n/status", &patch).await;
    assert_eq!(code, 200);
    let (code, again) = http.delete("/api/v1/namespaces/n").await;
    assert_eq!((code, &again), (200, &reported));
    assert_eq!(again["status"]["conditions"], json!([condition]));
    assert_eq!(again["status"]["phase"], "Terminating");
}

/// Proves crd/validated, crd/names, discovery/crd-lifecycle, discovery/resources.
#[tokio::test]
async fn a_definition_is_served_at_once() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get(FOOS).await.0, 404);
    let mut definition = foo_definition();
    definition["spec"]["names"]["categories"] = json!(["all"]);
    let (code, made) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201);
    assert_eq!(made["spec"]["names"]["singular"], "foo");
    assert_eq!(made["spec"]["names"]["listKind"], "FooList");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
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
async fn a_definition_that_makes_no_sense_is_refused() {
    let server = server();
    let http = http(&server);
    let refused = |change: fn(&mut Value)| {
        let mut definition = foo_definition();
        change(&mut definition);
        let http = &http;
        async move { http.post(DEFINITIONS, &definition).await.0 }
    };
    assert_eq!(
        refused(|d| d["metadata"]["name"] = "other.example.com".into()).await,
        422
    );
    assert_eq!(
        refused(|d| d["spec"]["versions"][0]["storage"] = false.into()).await,
        422
    );
    assert_eq!(
        refused(|d| d["spec"]["scope"] = "Universe".into()).await,
        422
    );
    assert_eq!(
        refused(|d| d["spec"]["versions"][0]["schema"] = Value::Null).await,
        422
    );
}

/// Proves crd/names.
#[tokio::test]
async fn a_taken_name_is_not_accepted() {
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
async fn a_definition_waits_for_its_instances() {
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

/// Proves apiserver/version, apiserver/health, apiserver/unknown-path.
#[tokio::test]
async fn version_health_and_nothing() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get("/version").await.1["minor"], "36");
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping?verbose"] {
        assert_eq!(http.get(path).await, (200, json!("ok")));
    }
    let (code, body) = http.get("/nothing/here").await;
    assert_eq!((code, body), (404, json!("404 page not found\n")));
    assert!(
        http.get("/").await.1["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/apps/v1"))
    );
}

/// Proves discovery/aggregated, discovery/resources.
#[tokio::test]
async fn aggregated_discovery_is_cached_by_its_tag() {
    let server = server();
    let http = http(&server);
    let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let ask = |tag: &str| {
        Request::get("/apis")
            .header("accept", format!("{kind},application/json"))
            .header("if-none-match", tag)
            .body(Full::new(Bytes::new()))
            .unwrap()
    };
    let response = http.send(ask("")).await;
    assert_eq!(response.headers()["content-type"], kind);
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let body: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let apps = body["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "apps")
        .unwrap();
    let deployments = apps["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["resource"] == "deployments")
        .unwrap();
    assert_eq!(deployments["scope"], "Namespaced");
    // The group and version are those of the resource.
    assert_eq!(
        deployments["responseKind"],
        json!({"group": "", "version": "", "kind": "Deployment"})
    );
    let scale = &deployments["subresources"][0];
    assert_eq!(
        (&scale["subresource"], &scale["responseKind"]["group"]),
        (&json!("scale"), &json!("autoscaling"))
    );
    assert_eq!(http.send(ask(&tag)).await.status(), 304);
    http.post(DEFINITIONS, &foo_definition()).await;
    assert_eq!(
        http.send(ask(&tag)).await.status(),
        200,
        "a new kind is a new document"
    );
}

/// Proves discovery/aggregated.
#[tokio::test]
async fn plain_discovery() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get("/api").await.1["versions"], json!(["v1"]));
    assert_eq!(http.get("/apis").await.1["kind"], "APIGroupList");
    let (_, core) = http.get("/api/v1").await;
    let has = |name: &str| {
        core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["name"] == name)
    };
    assert!(has("pods") && has("pods/status") && has("namespaces/finalize"));
}

/// Proves wire/size-limits, wire/protobuf, wire/accept.
#[tokio::test]
async fn bodies_have_a_limit_and_a_known_type() {
    let server = server();
    let http = http(&server);
    let big = vec![b' '; 3 * 1024 * 1024 + 1];
    let (code, status) = http.raw("POST", CONFIG_MAPS, "application/json", big).await;
    assert_eq!(
        (code, &status["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
    let (code, status) = http.raw("POST", CONFIG_MAPS, "text/csv", "a,b").await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
    let yaml = "metadata:\n  name: a\ndata:\n  k: v\n";
    assert_eq!(
        http.raw("POST", CONFIG_MAPS, "application/yaml", yaml)
            .await
            .0,
        201
    );
    assert_eq!(
        http.raw("POST", CONFIG_MAPS, "application/json", "{")
            .await
            .0,
        400
    );
    let many: Vec<Value> = (0..10_001)
        .map(|_| json!({"op": "remove", "path": "/x"}))
        .collect();
    let path = format!("{CONFIG_MAPS}/a");
    let body = Value::from(many).to_string();
    assert_eq!(
        http.raw("PATCH", &path, "application/json-patch+json", body)
            .await
            .0,
        413
    );
}

/// Proves crd/schema, crd/pruning, objects/field-validation.
#[tokio::test]
async fn custom_resources_obey_their_schema() {
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
async fn rules_in_cel_are_asked_before_and_after() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {"rule": "self.replicas != 7", "message": "not seven"},
        {"rule": "self.deploymentName == oldSelf.deploymentName", "message": "a name stays"}]);
    let (code, made) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{made}");
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
        status["message"].as_str().unwrap().contains("a name stays"),
        "{status}"
    );
}

/// Proves crd/objects-outlive-versions, crd/deletion.
#[tokio::test]
async fn a_definition_that_serves_nothing_keeps_its_objects() {
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
    assert_eq!(http.get(&path).await.0, 404, "its objects go with it");
    http.post(DEFINITIONS, &foo_definition()).await;
    assert_eq!(http.get(FOOS).await.1["items"], json!([]));
}

/// Proves discovery/crd-lifecycle.
#[tokio::test]
async fn a_group_prefers_its_most_mature_version() {
    let server = server();
    let http = http(&server);
    for (plural, kind, version) in [
        ("as", "A", "v1alpha1"),
        ("bs", "B", "v1"),
        ("cs", "C", "v1beta1"),
    ] {
        let mut definition = foo_definition();
        definition["metadata"]["name"] = format!("{plural}.example.com").into();
        definition["spec"]["names"] =
            json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
        definition["spec"]["versions"][0]["name"] = version.into();
        assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    }
    let (_, group) = http.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(versions, ["v1", "v1beta1", "v1alpha1"]);
}

/// Foos in `v1`, in which they are stored, and in `v2`, which is no different.
fn two_versions() -> Value {
    let mut definition = foo_definition();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(second);
    definition
}

/// Proves crd/versions.
#[tokio::test]
async fn what_only_a_webhook_could_convert_is_refused() {
    let server = server();
    let http = http(&server);
    let mut definition = two_versions();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com/convert"}}});
    let (code, made) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{made}");
    let object = json!({"kind": "Foo", "metadata": {"name": "a"}, "spec": {"deploymentName": "d"}});
    let with = |version: &str| {
        let mut object = object.clone();
        object["apiVersion"] = version.into();
        object
    };
    let (code, _) = http.post(FOOS, &with("example.com/v1")).await;
    assert_eq!(code, 201, "kept as it is written");
    let seconds = FOOS.replace("/v1/", "/v2/");
    let one = format!("{seconds}/a");
    let (code, refusal) = http.get(&one).await;
    assert_eq!(code, 501, "{refusal}");
    let why = "this server does not implement webhooks, and foos.example.com converts by one";
    assert_eq!(refusal["message"], why);
    let codes = [
        http.get(&seconds).await.0,
        http.get(&format!("{seconds}?watch=true")).await.0,
        http.post(&seconds, &with("example.com/v2")).await.0,
        http.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .0,
        http.get(&format!("{one}/status")).await.0,
        http.delete(&one).await.0,
    ];
    assert_eq!(codes, [501; 6]);
    let first = format!("{FOOS}/a");
    assert_eq!(http.get(&first).await.0, 200);
    let (_, list) = http.get("/apis/example.com/v2").await;
    assert_eq!(list["resources"][0]["verbs"], json!([]));

    // What was kept in one version is not what another one is stored in.
    let mut versions = definition["spec"]["versions"].clone();
    (versions[0]["storage"], versions[1]["storage"]) = (false.into(), true.into());
    let path = format!("{DEFINITIONS}/foos.example.com");
    let moved = json!({"spec": {"versions": versions}});
    let (code, moved) = http.merge(&path, &moved).await;
    assert_eq!(code, 200, "{moved}");
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(http.get(&one).await.0, 501);
    let migrated = json!({"status": {"storedVersions": ["v2"]}});
    assert_eq!(
        http.merge(&format!("{path}/status"), &migrated).await.0,
        200
    );
    assert_eq!(
        (http.get(&one).await.0, http.get(&first).await.0),
        (200, 501)
    );
}

/// Proves crd/defaulting, crd/versions.
#[tokio::test]
async fn an_object_shows_defaults_it_was_stored_without() {
    let server = server();
    let http = http(&server);
    let definition = two_versions();
    http.post(DEFINITIONS, &definition).await;
    let before = server.resource_version();
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "a"}, "spec": {"deploymentName": "d"}});
    let (_, made) = http.post(FOOS, &object).await;
    assert_eq!(made["spec"], json!({"deploymentName": "d"}));

    let mut versions = definition["spec"]["versions"].clone();
    let replicas = "/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    versions.pointer_mut(replicas).unwrap()["default"] = 3.into();
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.replicas"}]);
    let changed = json!({"spec": {"versions": versions}});
    let path = format!("{DEFINITIONS}/foos.example.com");
    assert_eq!(http.merge(&path, &changed).await.0, 200);

    // In whichever version it is read: the one it is kept in has the default.
    let whole = json!({"deploymentName": "d", "replicas": 3});
    let seconds = FOOS.replace("/v1/", "/v2/");
    for (foos, version) in [(FOOS, "example.com/v1"), (&seconds, "example.com/v2")] {
        let (_, seen) = http.get(&format!("{foos}/a")).await;
        assert_eq!(
            (&seen["spec"], &seen["apiVersion"]),
            (&whole, &json!(version))
        );
        assert_eq!(
            seen["metadata"]["resourceVersion"],
            made["metadata"]["resourceVersion"]
        );
        let (_, list) = http.get(foos).await;
        assert_eq!(list["items"], json!([seen]));
        let path = format!("{foos}?watch=true&resourceVersion={before}");
        let event = http.watch(&path).await.next().await.unwrap();
        assert_eq!(event, json!({"type": "ADDED", "object": seen}));
    }
    let selected = format!("{FOOS}?fieldSelector=spec.replicas%3D3");
    let (_, list) = http.get(&selected).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    // Nothing but the label changes.
    let label = json!({"metadata": {"labels": {"l": "m"}}});
    let (_, labelled) = http.merge(&format!("{FOOS}/a"), &label).await;
    assert_eq!(labelled["spec"], whole);
    assert_eq!(labelled["metadata"]["generation"], 1);

    let other = json!({"apiVersion": "example.com/v2", "kind": "Foo",
        "metadata": {"name": "b"}, "spec": {"deploymentName": "d"}});
    let (code, made) = http.post(&seconds, &other).await;
    assert_eq!((code, &made["spec"]), (201, &whole));
}
