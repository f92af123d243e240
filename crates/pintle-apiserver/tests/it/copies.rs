//! Copies of a prepared server.

use crate::support::*;
use pintle_apiserver::{ApiServer, Webhook};
use serde_json::json;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Proves apiserver/copy.
#[tokio::test(start_paused = true)]
async fn copy_starts_with_the_same_objects() {
    let prepared = server();
    let original = http(&prepared);
    created(&original, DEFINITIONS, &foo_definition()).await;
    let before = created(&original, FOOS, &foo("a")).await;
    let copied = ApiServer::builder().seed(2).copy_of(&prepared).build();
    let copy = http(&copied);
    assert_eq!(copy.get(&format!("{FOOS}/a")).await, (200, before));
    assert_eq!(copied.resource_version(), prepared.resource_version());

    // Later changes of one are not seen by the other.
    let version = copied.resource_version();
    let path = format!("{FOOS}?watch=true&resourceVersion={version}");
    let (mut theirs, mut ours) = (original.watch(&path).await, copy.watch(&path).await);
    created(&original, FOOS, &foo("b")).await;
    created(&copy, FOOS, &foo("c")).await;
    assert_eq!(theirs.take(1).await, ["ADDED b"]);
    assert_eq!(ours.take(1).await, ["ADDED c"]);
    assert_eq!(copy.get(&format!("{FOOS}/b")).await.0, 404);
}

/// Proves apiserver/copy.
#[tokio::test(start_paused = true)]
async fn copied_definition_changes_on_its_own() {
    let prepared = server();
    let original = http(&prepared);
    created(&original, DEFINITIONS, &foo_definition()).await;
    let copied = ApiServer::builder().seed(2).copy_of(&prepared).build();
    let copy = http(&copied);
    let version = prepared.resource_version();
    let mut watch = original
        .watch(&format!("{FOOS}?watch=true&resourceVersion={version}"))
        .await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    assert_eq!(copy.delete(&path).await.0, 200);
    assert_eq!(copy.get(FOOS).await.0, 404);
    // The original still serves the kind, and its watch continues.
    created(&original, FOOS, &foo("a")).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
}

/// Proves apiserver/copy.
#[tokio::test(start_paused = true)]
async fn copy_enforces_stored_policies() {
    let prepared = server();
    let original = http(&prepared);
    // No webhook answers, so every write that it applies to fails.
    let webhooks = json!({"metadata": {"name": "closed"}, "webhooks": [{
        "name": "closed.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "none", "namespace": "default"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    created(&original, path, &webhooks).await;
    // In-process webhooks belong to their server.
    let local = Webhook::validating("local.example.com", |_| async {
        pintle_apiserver::AdmissionResponse::deny("closed")
    });
    let _registration = prepared
        .register_webhook(&local.rule(["CREATE"], [""], ["v1"], ["secrets"]))
        .unwrap();
    let copied = ApiServer::builder().seed(2).copy_of(&prepared).build();
    let copy = http(&copied);
    assert_eq!(copy.post(MAPS, &config_map("a")).await.0, 500);
    let secret = json!({"metadata": {"name": "a"}});
    created(&copy, "/api/v1/namespaces/default/secrets", &secret).await;
}
