//! Admission: webhooks in this process, and which writes they see.

mod cancelled;
mod failures;
mod matching;
mod mutation;
mod paths;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use pintle_apiserver::{
    AdmissionRequest, AdmissionResponse, ApiServer, Webhook, WebhookRegistration, WebhookTarget,
};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, FOOS, Http, PODS, config_map, deployment, foo,
    foo_definition, http, pod, server,
};

type Seen = Arc<Mutex<Vec<AdmissionRequest>>>;

/// Registers a validating webhook that records every request and allows it.
fn observe(server: &ApiServer, resources: &'static str) -> (Seen, WebhookRegistration) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let webhook = Webhook::validating("observer.example.com", move |request| {
        record.lock().unwrap().push(request);
        async { AdmissionResponse::allow() }
    })
    .rule(["*"], ["*"], ["*"], [resources]);
    (seen, server.register_webhook(&webhook).unwrap())
}

/// Returns the requests as `OPERATION resource/subresource Kind name`, and forgets them.
fn lines(seen: &Seen) -> Vec<String> {
    let mut seen = seen.lock().unwrap();
    let lines = seen.iter().map(|request| {
        let sub = request.subresource();
        let slash = if sub.is_empty() { "" } else { "/" };
        let kind = request.as_value()["kind"]["kind"].as_str().unwrap();
        let (operation, resource) = (request.operation(), request.resource());
        format!(
            "{operation} {resource}{slash}{sub} {kind} {}",
            request.name()
        )
    });
    let lines = lines.collect();
    seen.clear();
    lines
}

fn label(value: &str) -> Value {
    json!({"op": "add", "path": "/metadata/labels", "value": {"by": value}})
}

/// Proves admission/request.
#[tokio::test(start_paused = true)]
async fn review_describes_the_write() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let (seen, _webhook) = observe(&server, "configmaps");
    let path = format!("{CONFIG_MAPS}/a?dryRun=All&fieldManager=me");
    http.merge(&path, &json!({"data": {"k": "new"}})).await;
    let request = seen.lock().unwrap().remove(0);
    assert!(request.is_dry_run());
    assert_eq!(request.user(), "kubernetes-admin");
    assert_eq!(request.namespace(), "default");
    assert_eq!(request.object()["data"]["k"], "new");
    assert_eq!(request.old_object()["data"]["k"], "v");
    let value = request.as_value();
    assert_eq!(value["object"]["kind"], "ConfigMap");
    assert_eq!(
        value["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(value["requestResource"]["resource"], "configmaps");
    assert_eq!(
        value["userInfo"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(
        value["options"],
        json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
            "fieldManager": "me"})
    );
    http.delete_with(
        &format!("{CONFIG_MAPS}/a"),
        &json!({"gracePeriodSeconds": 0}),
    )
    .await;
    let request = seen.lock().unwrap().remove(0);
    assert_eq!(request.object(), &Value::Null);
    assert_eq!(request.old_object()["data"]["k"], "v");
    assert_eq!(request.as_value()["options"]["gracePeriodSeconds"], 0);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    assert!(lines(&seen).is_empty(), "the rule names config maps only");
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn denied_write_is_not_stored() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::validating("strict.example.com", |request| async move {
        match request.object()["data"]["k"].as_str() {
            Some("plain") => AdmissionResponse::deny(""),
            Some("coded") => AdmissionResponse::deny("not that")
                .code(422)
                .reason("Invalid"),
            _ => AdmissionResponse::deny("no").warning("careful"),
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let registration = server.register_webhook(&webhook).unwrap();
    let mut map = config_map("a");
    let (code, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!(code, 400, "{status}");
    let denied = "admission webhook \"strict.example.com\" denied the request";
    assert_eq!(status["message"], format!("{denied}: no"));
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    map["data"]["k"] = "plain".into();
    let (_, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!(status["message"], format!("{denied} without explanation"));
    map["data"]["k"] = "coded".into();
    let (code, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(status["message"], format!("{denied}: not that"));
    drop(registration);
    assert_eq!(http.post(CONFIG_MAPS, &map).await.0, 201);
}

/// Proves objects/dry-run.
#[tokio::test(start_paused = true)]
async fn dry_run_calls_webhooks_without_side_effects() {
    let server = server();
    let http = http(&server);
    // A webhook with side effects, which a dry run could not call, cannot be registered.
    let webhook = Webhook::validating("effects.example.com", |_| async {
        AdmissionResponse::allow()
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let refused = server.register_webhook(&webhook.field("sideEffects", json!("Some")));
    let error = refused.unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid webhook: sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
         \"NoneOnDryRun\""
    );
    let (seen, _webhook) = observe(&server, "configmaps");
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    assert_eq!(http.post(&path, &config_map("a")).await.0, 201);
    assert!(seen.lock().unwrap()[0].is_dry_run());
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
}

/// Proves admission/builder.
#[tokio::test(start_paused = true)]
async fn webhook_from_the_builder_is_active_from_the_start() {
    let webhook = Webhook::validating("built.example.com", |_| async {
        AdmissionResponse::deny("built in")
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let server = ApiServer::builder().webhook(&webhook).unwrap().build();
    let (code, status) = http(&server).post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 400, "{status}");
    let short = Webhook::validating("short", |_| async { AdmissionResponse::allow() });
    let error = ApiServer::builder().webhook(&short).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid webhook: name: Invalid value: \"short\": should be a domain with at least three \
         segments separated by dots"
    );
}
