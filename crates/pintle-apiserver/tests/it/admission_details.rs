//! Admission: what reviews say, how long they may take, and which answers count.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{
    AdmissionResponse, ApiServer, PodDeletion, Webhook, WebhookRegistration, WebhookTarget,
};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, Http, causes, config_map, http, server,
    webhooks::{answer, review},
};

const PODS: &str = "/api/v1/namespaces/default/pods";

type Seen = Arc<Mutex<Vec<Value>>>;

/// Registers a webhook for all operations on some resources, which records its requests.
fn record(
    server: &ApiServer,
    resources: &'static str,
    respond: impl Fn(&Value) -> AdmissionResponse + Send + Sync + 'static,
) -> (Seen, WebhookRegistration) {
    let seen = Seen::default();
    let recorded = Arc::clone(&seen);
    let webhook = Webhook::validating("observer.example.com", move |request| {
        let request = request.as_value().clone();
        let response = respond(&request);
        recorded.lock().unwrap().push(request);
        async { response }
    })
    .rule(["*"], ["*"], ["*"], [resources]);
    (seen, server.register_webhook(&webhook).unwrap())
}

/// Registers a mutating webhook for config maps that always answers with this patch.
fn patching(server: &ApiServer, operations: Value) -> WebhookRegistration {
    let webhook = Webhook::mutating("patching.example.com", move |_| {
        let response = AdmissionResponse::allow().patch(operations.clone());
        async { response }
    })
    .rule(["*"], [""], ["v1"], ["configmaps"]);
    server.register_webhook(&webhook).unwrap()
}

fn taken(seen: &Seen) -> Vec<Value> {
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Sends a request and returns the code and the warnings of the response.
async fn warned(http: &Http, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = http.send(request).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned());
    (response.status().as_u16(), warnings.collect())
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

/// Creates a Pod that is assigned to a node.
async fn running(http: &Http, name: &str) {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "node".into();
    let (code, status) = http.post(PODS, &pod).await;
    assert_eq!(code, 201, "{status}");
}

/// A CRD without conversion whose second version has one field more.
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
    // The default is that of the version that was patched.
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
    // Once, not once per step.
    let created = warned(&http, "POST", CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(created, (201, new));
}

/// Proves admission/request.
#[tokio::test(start_paused = true)]
async fn review_of_a_collection_delete_has_no_name() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let (seen, _webhook) = record(&server, "configmaps", |_| AdmissionResponse::allow());
    assert_eq!(http.delete(CONFIG_MAPS).await.0, 200);
    let seen = taken(&seen);
    let named = seen
        .iter()
        .find(|r| r["oldObject"]["metadata"]["name"] == "a");
    assert_eq!(named.unwrap().get("name"), None);
}

/// Proves admission/request.
#[tokio::test(start_paused = true)]
async fn review_of_a_pod_delete_shows_the_grace_period() {
    let server = ApiServer::builder()
        .pod_deletion(PodDeletion::Leave)
        .build();
    let http = http(&server);
    let (seen, _webhook) = record(&server, "pods", |_| AdmissionResponse::allow());
    let periods = || {
        let seen = taken(&seen);
        let deletes = seen.iter().filter(|r| r["operation"] == "DELETE");
        let periods = deletes.map(|r| {
            let marked = r["oldObject"]["metadata"]["deletionTimestamp"].is_string();
            (r["options"]["gracePeriodSeconds"].as_i64(), marked)
        });
        periods.collect::<Vec<_>>()
    };
    // No kubelet has to stop a Pod without a node. It is marked, then removed.
    http.post(PODS, &pod("new")).await;
    let path = format!("{PODS}/new");
    assert_eq!(http.delete(&format!("{path}?dryRun=All")).await.0, 200);
    assert_eq!(periods(), [(Some(0), false)]);
    assert_eq!(http.delete(&path).await.0, 200);
    assert_eq!(periods(), [(Some(0), false), (Some(0), true)]);
    running(&http, "p").await;
    let path = format!("{PODS}/p");
    assert_eq!(http.delete(&path).await.0, 200);
    assert_eq!(periods(), [(Some(30), false)]);
    // Deleting it again changes nothing, so there is nothing to admit.
    assert_eq!(http.delete(&path).await.0, 200);
    assert_eq!(periods(), []);
    let sooner = format!("{path}?gracePeriodSeconds=5");
    assert_eq!(http.delete(&sooner).await.0, 200);
    assert_eq!(periods(), [(Some(5), true)]);
    let now = format!("{path}?gracePeriodSeconds=0");
    assert_eq!(http.delete(&now).await.0, 200);
    assert_eq!(periods(), [(Some(0), true), (Some(0), true)]);
    assert_eq!(http.get(&path).await.0, 404);
    // With a kubelet that is done at once, the review is that of a cluster.
    let server = ApiServer::builder().build();
    let http = crate::support::http(&server);
    let (seen, _webhook) = record(&server, "pods", |_| AdmissionResponse::allow());
    running(&http, "p").await;
    taken(&seen);
    assert_eq!(http.delete(&path).await.0, 200);
    let seen = taken(&seen);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["options"]["gracePeriodSeconds"], 30);
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn eviction_is_checked_against_its_path() {
    let server = server();
    let http = http(&server);
    http.post(PODS, &pod("p")).await;
    let (seen, _webhook) = record(&server, "pods/eviction", |_| AdmissionResponse::allow());
    let path = format!("{PODS}/p/eviction");
    let (code, status) = http.post(&path, &json!({"metadata": {"name": "q"}})).await;
    assert_eq!(
        (code, &status["message"]),
        (
            400,
            &json!("name in URL does not match name in Eviction object")
        )
    );
    let elsewhere = json!({"metadata": {"name": "p", "namespace": "other"}});
    let why =
        "the namespace of the provided object does not match the namespace sent on the request";
    for sub in ["eviction", "binding"] {
        let (code, status) = http.post(&format!("{PODS}/p/{sub}"), &elsewhere).await;
        assert_eq!((code, &status["message"]), (400, &json!(why)));
    }
    assert!(taken(&seen).is_empty());
    let sent = json!({"metadata": {"name": "p", "uid": "u", "selfLink": "/x",
        "creationTimestamp": "2000-01-01T00:00:00Z"}});
    assert_eq!(http.post(&path, &sent).await.0, 201);
    let metadata = taken(&seen)[0]["object"]["metadata"].clone();
    assert_eq!(metadata["namespace"], "default");
    assert!(metadata["uid"].is_null() && metadata["creationTimestamp"].is_null());
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn write_has_a_deadline_beyond_its_webhooks() {
    let server = server();
    let http = http(&server);
    let hang = |name: &str| {
        let webhook = Webhook::mutating(name, |_| async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            AdmissionResponse::allow()
        })
        .rule(["*"], [""], ["v1"], ["configmaps"])
        .field("failurePolicy", json!("Ignore"))
        .field("timeoutSeconds", json!(30));
        server.register_webhook(&webhook).unwrap()
    };
    let _hanging = [hang("a.example.com"), hang("b.example.com")];
    for (query, expected) in [("", 34), ("?timeout=5s", 5), ("?timeout=10m", 34)] {
        let start = tokio::time::Instant::now();
        let (code, status) = http
            .post(&format!("{CONFIG_MAPS}{query}"), &config_map("a"))
            .await;
        assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
        assert_eq!(
            status["message"],
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        );
        assert_eq!(start.elapsed().as_secs(), expected);
    }
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    let (code, status) = http
        .post(&format!("{CONFIG_MAPS}?timeout=soon"), &config_map("a"))
        .await;
    assert_eq!(
        (code, &status["message"]),
        (
            400,
            &json!(
                "invalid timeout specified in the request URL - time: invalid duration \"soon\""
            )
        )
    );
}

/// Proves admission/request.
#[tokio::test(start_paused = true)]
async fn new_object_has_no_identity_in_its_review() {
    let server = server();
    let http = http(&server);
    let seen = Seen::default();
    let recorded = Arc::clone(&seen);
    let webhook = Webhook::mutating("observer.example.com", move |request| {
        recorded.lock().unwrap().push(request.object().clone());
        async { AdmissionResponse::allow() }
    })
    .rule(["*"], [""], ["v1"], ["configmaps"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let sent = json!({"metadata": {"name": "a", "uid": "mine", "selfLink": "/x",
        "creationTimestamp": "2000-01-01T00:00:00Z"}});
    let (code, created) = http.post(CONFIG_MAPS, &sent).await;
    assert_eq!(code, 201);
    assert_ne!(created["metadata"]["uid"], "mine");
    let metadata = taken(&seen)[0]["metadata"].clone();
    assert!(metadata["uid"].is_null(), "{metadata}");
    assert!(metadata["creationTimestamp"].is_null(), "{metadata}");
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

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn object_selector_never_selects_connect_options() {
    let server = server();
    let http = http(&server);
    http.post(PODS, &pod("p")).await;
    let webhook = Webhook::validating("exec.example.com", |_| async {
        AdmissionResponse::deny("no")
    })
    .rule(["CONNECT"], [""], ["v1"], ["pods/exec"])
    .field(
        "objectSelector",
        json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}),
    );
    let _webhook = server.register_webhook(&webhook).unwrap();
    let exec = format!("{PODS}/p/exec?command=ls");
    assert_eq!(http.post(&exec, &json!({})).await.0, 501);
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
    // The creation time is the server's.
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

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn mutation_comes_before_the_check_of_the_version() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let webhook = Webhook::mutating("no.example.com", |_| async {
        AdmissionResponse::deny("not now").code(403)
    })
    .rule(["UPDATE"], [""], ["v1"], ["configmaps"]);
    let webhook = server.register_webhook(&webhook).unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let mut stale = config_map("a");
    stale["metadata"]["resourceVersion"] = "1".into();
    assert_eq!(http.put(&path, &stale).await.0, 403);
    drop(webhook);
    assert_eq!(http.put(&path, &stale).await.0, 409);
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn connect_is_admitted_before_the_object_is_read() {
    let server = server();
    let http = http(&server);
    let (seen, webhook) = record(&server, "pods/exec", |_| AdmissionResponse::deny("no exec"));
    let path = format!("{PODS}/none/exec?command=ls");
    assert_eq!(http.post(&path, &json!({})).await.0, 400);
    assert_eq!(taken(&seen).len(), 1);
    let (code, status) = http.post(&format!("{path}&dryRun=All"), &json!({})).await;
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("dryRun is not supported"))
    );
    assert!(taken(&seen).is_empty());
    drop(webhook);
    assert_eq!(http.post(&path, &json!({})).await.0, 404);
}

/// Proves delete/answer.
#[tokio::test(start_paused = true)]
async fn body_of_a_delete_replaces_its_query() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let dry = format!("{path}?dryRun=All");
    assert_eq!(http.delete(&dry).await.0, 200);
    assert_eq!(http.get(&path).await.0, 200);
    assert_eq!(http.delete_with(&dry, &json!({})).await.0, 200);
    assert_eq!(http.get(&path).await.0, 404);
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
