//! Which webhook responses are valid.

use super::*;

/// Sends a request and returns the code and the warnings of the response.
async fn warned(http: &Http, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = http.send(request).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned());
    (response.status().as_u16(), warnings.collect())
}

/// Returns a CRD without conversion whose second version has an additional field.
fn two_versions() -> Value {
    let version = |name: &str, storage: bool, fields: Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}})
    };
    let number = json!({"type": "integer"});
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [
            version("v1", false, json!({"a": number, "d": {"type": "integer", "default": 7}})),
            version("v2", true, json!({"a": number, "b": number, "d": number}))]}})
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn patch_in_another_version_keeps_fields() {
    let server = server();
    let http = http(&server);
    let (code, status) = http.post(DEFINITIONS, &two_versions()).await;
    assert_eq!(code, 201, "{status}");
    let webhook = Webhook::mutating("label.example.com", |request| async move {
        assert_eq!(request.object()["apiVersion"], "example.com/v1");
        let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            {"op": "add", "path": "/spec/unknown", "value": 1}]);
        AdmissionResponse::allow().patch(label)
    })
    .rule(["*"], ["example.com"], ["v1"], ["things"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let things = "/apis/example.com/v2/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v2", "kind": "Thing",
        "metadata": {"name": "t"}, "spec": {"a": 1, "b": 2}});
    let (code, created) = http.post(things, &thing).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["labels"], json!({"a": "b"}));
    // The default comes from the version that the webhook patched.
    assert_eq!(created["spec"], json!({"a": 1, "b": 2, "d": 7}));
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn conversion_reviews_are_bounded_in_bytes() {
    let server = server();
    let http = http(&server);
    let mut definition = two_versions();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "hook"}}}});
    let text = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] = text.clone();
    }
    let (code, status) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{status}");
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&sizes);
    let _converter = server.register_converter("things.example.com", move |request| {
        let count = request.objects().len();
        let sizes = request.objects().iter().map(|o| o.to_string().len());
        record.lock().unwrap().push((count, sizes.sum::<usize>()));
        let to = request.desired_api_version().to_owned();
        let mut objects = request.into_objects();
        for object in &mut objects {
            object["apiVersion"] = to.clone().into();
        }
        async { Ok(objects) }
    });
    let stored = "/apis/example.com/v2/namespaces/default/things";
    for i in 0..40 {
        let size = if i == 20 { 1_200_000 } else { 100_000 };
        let thing = json!({"apiVersion": "example.com/v2", "kind": "Thing",
            "metadata": {"name": format!("t{i:02}")}, "spec": {"text": "x".repeat(size)}});
        assert_eq!(http.post(stored, &thing).await.0, 201);
    }
    sizes.lock().unwrap().clear();
    let (code, list) = http
        .get("/apis/example.com/v1/namespaces/default/things")
        .await;
    assert_eq!(code, 200);
    assert_eq!(list["items"].as_array().unwrap().len(), 40);
    let sizes = sizes.lock().unwrap();
    assert_eq!(sizes.iter().map(|(count, _)| count).sum::<usize>(), 40);
    for (count, size) in sizes.iter() {
        assert!(*count == 1 || *size < 1_100_000, "{count} in {size} bytes");
    }
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn warnings_of_webhooks_reach_every_response() {
    let server = server();
    let http = http(&server);
    for name in ["a", "b"] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
    }
    for name in ["p", "q"] {
        http.post(PODS, &pod(name)).await;
    }
    let (_seen, _webhook) = record(&server, "*/*", |request| {
        let name = request["oldObject"]["metadata"]["name"].as_str();
        AdmissionResponse::allow().warning(format!("careful {}", name.unwrap_or("new")))
    });
    let one = vec!["299 - \"careful a\"".to_owned()];
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(
        warned(&http, "DELETE", &path, &Value::Null).await,
        (200, one)
    );
    let (code, warnings) = warned(&http, "DELETE", CONFIG_MAPS, &Value::Null).await;
    assert_eq!(code, 200);
    assert!(warnings.contains(&"299 - \"careful b\"".to_owned()));
    let new = vec!["299 - \"careful new\"".to_owned()];
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    let path = format!("{PODS}/p/binding");
    let bound = warned(&http, "POST", &path, &binding).await;
    assert_eq!(bound, (201, new.clone()));
    let path = format!("{PODS}/q/eviction");
    let evicted = warned(&http, "POST", &path, &json!({"metadata": {"name": "q"}})).await;
    assert_eq!(evicted, (201, new.clone()));
    // The warning is sent once, not once per step.
    let created = warned(&http, "POST", CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(created, (201, new));
}

/// Proves admission/failure-policy.
#[tokio::test(start_paused = true)]
async fn response_of_the_wrong_type_is_a_failure() {
    let into = |what: &str, field: &str, ty: &str| {
        format!(
            "failed calling webhook \"w.example.com\": failed to call webhook: json: cannot \
             unmarshal {what} into Go struct field AdmissionResponse.response.{field} of type {ty}"
        )
    };
    let lies = [
        (
            json!({"allowed": "true"}),
            into("string", "allowed", "bool"),
        ),
        (
            json!({"allowed": true, "patch": [{"op": "remove", "path": "/data"}]}),
            into("object", "patch", "uint8"),
        ),
        (
            json!({"allowed": true, "patch": {}}),
            into("object", "patch", "[]uint8"),
        ),
        (
            json!({"allowed": true, "warnings": "x"}),
            into("string", "warnings", "[]string"),
        ),
        (
            json!({"allowed": true, "warnings": [1]}),
            into("number", "warnings", "string"),
        ),
        (
            json!({"allowed": true, "auditAnnotations": {"a": true}}),
            into("bool", "auditAnnotations", "string"),
        ),
        (
            json!({"allowed": false, "status": "no"}),
            into("string", "status", "v1.Status"),
        ),
        (
            json!({"allowed": true, "patchType": 1}),
            into("number", "patchType", "v1.PatchType"),
        ),
    ];
    for (response, why) in lies {
        for policy in ["Fail", "Ignore"] {
            let server = server();
            let http = http(&server);
            let response = response.clone();
            let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
                let response = response.clone();
                async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let asked: Value = serde_json::from_slice(&body).unwrap();
                    let response = answer(&review(&asked, response));
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            server.route_webhooks("n", "hook", WebhookTarget::service(service));
            let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
            let configuration = json!({"metadata": {"name": "w"}, "webhooks": [{
                "name": "w.example.com", "sideEffects": "None", "failurePolicy": policy,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "n", "name": "hook"}},
                "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["configmaps"]}]}]});
            let (code, status) = http.post(path, &configuration).await;
            assert_eq!(code, 201, "{status}");
            let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
            if policy == "Ignore" {
                assert_eq!(code, 201, "{status}");
            } else {
                let message = status["message"].as_str().unwrap();
                assert_eq!(
                    (code, message),
                    (500, &*format!("Internal error occurred: {why}"))
                );
            }
        }
    }
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn webhook_cannot_change_the_identity_of_an_object() {
    let server = server();
    let http = http(&server);
    let (_, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for field in ["uid", "name"] {
        let change = json!([{"op": "replace", "path": format!("/metadata/{field}"), "value": "x"}]);
        let _webhook = patching(&server, change);
        let (code, status) = http.merge(&path, &json!({"data": {"k": "2"}})).await;
        assert_eq!(code, 422, "{status}");
        let why = format!("metadata.{field}: Invalid value: \"x\": field is immutable");
        assert_eq!(causes(&status), [why.clone(), why]);
    }
    // The server restores the creation time and the UID.
    let _webhook = patching(
        &server,
        json!([{"op": "replace", "path": "/metadata/creationTimestamp",
            "value": "2000-01-01T00:00:00Z"}, {"op": "remove", "path": "/metadata/uid"}]),
    );
    let (code, changed) = http.merge(&path, &json!({"data": {"k": "2"}})).await;
    assert_eq!(code, 200);
    for field in ["creationTimestamp", "uid"] {
        assert_eq!(changed["metadata"][field], created["metadata"][field]);
    }
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn webhook_cannot_move_an_object_or_corrupt_its_metadata() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (_, before) = http.get(&path).await;
    for (field, value, expected) in [
        ("namespace", json!("kube-system"), 400),
        ("labels", json!({"a": 1}), 500),
        ("labels", json!([]), 500),
        ("annotations", json!({"a": {}}), 500),
        ("finalizers", json!("x"), 500),
        ("ownerReferences", json!({}), 500),
    ] {
        let change = json!([{"op": "add", "path": format!("/metadata/{field}"), "value": value}]);
        let _webhook = patching(&server, change);
        let (code, status) = http.post(CONFIG_MAPS, &config_map("b")).await;
        assert_eq!(code, expected, "{field} {value}: {status}");
        let (code, status) = http.merge(&path, &json!({"data": {"k": "2"}})).await;
        assert_eq!(code, expected, "{field} {value}: {status}");
    }
    assert_eq!(http.get(&path).await.1, before);
    let (_, all) = http.get("/api/v1/configmaps").await;
    let names = all["items"].as_array().unwrap().iter();
    let mut names = names.map(|map| &map["metadata"]["name"]);
    assert!(names.all(|name| name != "b"), "{all}");
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn invalid_managed_fields_of_a_webhook_are_reported() {
    let server = server();
    let http = http(&server);
    let entry = json!([{"manager": "m", "operation": "Other", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    let _webhook = patching(
        &server,
        json!([{"op": "replace", "path": "/metadata/managedFields", "value": entry}]),
    );
    let created = warned(&http, "POST", CONFIG_MAPS, &config_map("a")).await;
    let why = "299 - \".metadata.managedFields was in an invalid state after admission; this could \
               be caused by an outdated mutating admission controller; please fix your requests: \
               operation must be `Apply` or `Update`\"";
    assert_eq!(created, (201, vec![why.to_owned()]));
}

/// Proves objects/validation, admission/mutation.
#[tokio::test(start_paused = true)]
async fn repeated_owners_are_dropped_before_and_after_admission() {
    let server = server();
    let http = http(&server);
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let warning = |when: &str, uids: &str| {
        format!(
            "299 - \".metadata.ownerReferences contains duplicate entries{when}; API server dedups \
             owner references in 1.20+, and may reject such requests as early as 1.24; please fix \
             your requests; duplicate UID(s) observed: {uids}\""
        )
    };
    let after = " after mutating admission happens";
    let path = format!("{CONFIG_MAPS}/a");
    let owners = async || http.get(&path).await.1["metadata"]["ownerReferences"].clone();

    let mut map = config_map("a");
    let different = owner("b", "1");
    map["metadata"]["ownerReferences"] =
        json!([owner("a", "1"), owner("a", "1"), different, owner("a", "1")]);
    let created = warned(&http, "POST", CONFIG_MAPS, &map).await;
    assert_eq!(created, (201, vec![warning("", "1, 1")]));
    assert_eq!(owners().await, json!([owner("a", "1"), different]));
    assert_eq!(
        warned(&http, "PUT", &path, &map).await,
        (200, vec![warning("", "1, 1")])
    );
    let patched = warned(&http, "PATCH", &path, &map).await;
    assert_eq!(patched, (200, vec![warning(after, "1, 1")]));

    let again = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": different}]);
    let _webhook = patching(&server, again);
    let updated = warned(&http, "PUT", &path, &map).await;
    assert_eq!(
        updated,
        (200, vec![warning("", "1, 1"), warning(after, "1")])
    );
    assert_eq!(owners().await, json!([owner("a", "1"), different]));
    map["metadata"]["name"] = "b".into();
    let created = warned(&http, "POST", CONFIG_MAPS, &map).await;
    assert_eq!(
        created,
        (201, vec![warning("", "1, 1"), warning(after, "1")])
    );
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn rerouted_converter_converts_again() {
    let server = server();
    let http = http(&server);
    let mut definition = two_versions();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "hook"}}}});
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let route = |number: i64| {
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let mut objects = asked["request"]["objects"].clone();
            for object in objects.as_array_mut().unwrap() {
                object["apiVersion"] = asked["request"]["desiredAPIVersion"].clone();
                object["spec"]["a"] = number.into();
            }
            let result = json!({"convertedObjects": objects, "result": {"status": "Success"}});
            Ok::<_, std::convert::Infallible>(answer(&review(&asked, result)))
        });
        server.route_webhooks("n", "hook", WebhookTarget::service(service));
    };
    route(1);
    let thing = json!({"apiVersion": "example.com/v2", "kind": "Thing",
        "metadata": {"name": "t"}, "spec": {"a": 0}});
    let things = "/apis/example.com/v2/namespaces/default/things";
    assert_eq!(http.post(things, &thing).await.0, 201);
    let path = "/apis/example.com/v1/namespaces/default/things/t";
    assert_eq!(http.get(path).await.1["spec"]["a"], 1);
    route(2);
    assert_eq!(http.get(path).await.1["spec"]["a"], 2);
}
