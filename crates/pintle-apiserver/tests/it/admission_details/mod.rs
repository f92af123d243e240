//! Admission: the contents and deadlines of reviews, and which responses are valid.

mod answers;

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
    CONFIG_MAPS, DEFINITIONS, Http, PODS, causes, config_map, http, pod, server,
    webhooks::{answer, review},
};

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

/// Registers a mutating webhook for config maps that always returns this patch.
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

/// Creates a Pod that is assigned to a node.
async fn running(http: &Http, name: &str) {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "node".into();
    let (code, status) = http.post(PODS, &pod).await;
    assert_eq!(code, 201, "{status}");
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
    // If the server removes Pods immediately, the review still shows their grace period.
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
        let within = if expected == 34 {
            "requested timeout - context deadline exceeded"
        } else {
            "the allotted timeout"
        };
        let why = format!("Timeout: request did not complete within {within}");
        assert_eq!(status["message"], why);
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

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn mutation_precedes_the_resource_version_check() {
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
