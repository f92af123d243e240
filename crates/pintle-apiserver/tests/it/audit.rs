//! Audit events: what an observer sees of each request.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pintle_apiserver::{AdmissionResponse, ApiServer, AuditEvent, Builder, Webhook};
use serde_json::{Value, json};

use crate::support::{config_map, http, http_as};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Events = Arc<Mutex<Vec<AuditEvent>>>;

fn observed() -> (Events, Builder) {
    let events = Events::default();
    let seen = Arc::clone(&events);
    let builder = ApiServer::builder()
        .seed(1)
        .audit(move |event| seen.lock().unwrap().push(event));
    (events, builder)
}

fn taken(events: &Events) -> Vec<AuditEvent> {
    std::mem::take(&mut *events.lock().unwrap())
}

/// Proves audit/events.
#[tokio::test(start_paused = true)]
async fn observer_sees_every_request_with_its_outcome() {
    let (events, builder) = observed();
    let server = builder.build();
    let admin = http(&server);
    admin.post(CONFIG_MAPS, &config_map("m")).await;
    admin.post(CONFIG_MAPS, &config_map("m")).await;
    admin.get("/healthz").await;
    http_as(&server, "jane")
        .get("/api/v1/namespaces/default/pods/p/log?follow=true")
        .await;
    let shown: Vec<String> = taken(&events)
        .into_iter()
        .map(|event| {
            let object = event.object.map_or_else(String::new, |of| {
                format!(
                    "{}/{}/{}/{}",
                    of.namespace, of.resource, of.name, of.subresource
                )
            });
            format!("{} {} {} {}", event.user, event.verb, object, event.code)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "kubernetes-admin create default/configmaps/m/ 201",
            "kubernetes-admin create default/configmaps/m/ 409",
            "kubernetes-admin get  200",
            "jane get default/pods/p/log 403",
        ]
    );
}

/// Proves audit/annotations.
#[tokio::test(start_paused = true)]
async fn webhook_annotations_reach_the_observer() {
    let operations = json!([{"op": "add", "path": "/data", "value": {"k": "changed"}}]);
    let patch = operations.clone();
    let mutating = Webhook::mutating("a.example.com", move |_| {
        let patch = patch.clone();
        async move { AdmissionResponse::allow().patch(patch) }
    });
    let validating = Webhook::validating("v.example.com", |_| async {
        AdmissionResponse::deny("never")
            .audit_annotation("seen", "yes")
            .audit_annotation("no/prefix", "dropped")
    });
    let failing = Webhook::mutating("b.example.com", |_| async { panic!("oops") });
    let rule = |webhook: Webhook| webhook.rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let (events, builder) = observed();
    let builder = builder.webhook(&rule(mutating)).unwrap();
    let builder = builder.webhook(&rule(failing).ignore_failures()).unwrap();
    let server = builder.webhook(&rule(validating)).unwrap().build();
    let (code, _) = http(&server).post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 400);
    let event = taken(&events).pop().unwrap();
    let annotations = json!(event.annotations);
    let decoded = |key: &str| -> Value {
        let text = annotations[key].as_str().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{key}: {annotations}"))
    };
    assert_eq!(annotations["v.example.com/seen"], "yes");
    assert_eq!(
        annotations["failed-open.mutation.webhook.admission.k8s.io/round_0_index_1"],
        "b.example.com"
    );
    assert_eq!(
        decoded("mutation.webhook.admission.k8s.io/round_0_index_0"),
        json!({"configuration": "a.example.com", "webhook": "a.example.com", "mutated": true})
    );
    assert_eq!(
        decoded("mutation.webhook.admission.k8s.io/round_0_index_1")["mutated"],
        false
    );
    assert_eq!(
        decoded("patch.webhook.admission.k8s.io/round_0_index_0")["patch"],
        operations
    );
    assert_eq!(event.annotations.len(), 5, "{annotations}");
}

/// Proves audit/events.
#[tokio::test(start_paused = true)]
async fn observer_sees_requests_whose_client_disconnects() {
    let noting = Webhook::mutating("a.example.com", |_| async {
        AdmissionResponse::allow().audit_annotation("seen", "yes")
    });
    let slow = Webhook::validating("v.example.com", |_| std::future::pending());
    let rule = |webhook: Webhook| webhook.rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let (events, builder) = observed();
    let builder = builder.webhook(&rule(noting)).unwrap();
    let server = builder.webhook(&rule(slow)).unwrap().build();
    let http = http(&server);
    let object = config_map("a");
    let write = http.post(CONFIG_MAPS, &object);
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, write).await.is_err());
    let [event] = &taken(&events)[..] else {
        panic!("no event, or several");
    };
    assert_eq!((&*event.verb, event.code), ("create", 0));
    assert_eq!(event.annotations["a.example.com/seen"], "yes");
}

/// Proves audit/events.
#[tokio::test(start_paused = true)]
async fn panicking_observer_fails_no_request() {
    let server = ApiServer::builder().audit(|_| panic!("oops")).build();
    assert_eq!(http(&server).get(CONFIG_MAPS).await.0, 200);
}
