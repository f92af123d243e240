//! Namespaces: those that exist from the start, and termination.

use crate::support::*;
use serde_json::json;

/// Proves namespaces/bootstrap, errors/status-reasons.
#[tokio::test]
async fn system_namespaces_exist_and_cannot_be_deleted() {
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
async fn terminating_namespace_rejects_new_objects() {
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
