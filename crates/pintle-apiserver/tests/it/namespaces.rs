//! Namespaces: those that exist from the start, and termination.

use crate::support::*;
use serde_json::json;

/// Proves bootstrap/objects, errors/status-reasons.
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

/// Proves namespaces/missing-or-terminating, apiserver/paths, reviews/answered.
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

/// Proves namespaces/missing-or-terminating.
#[tokio::test]
async fn terminating_namespace_rejects_creating_subresources() {
    let server = server();
    let http = http(&server);
    let namespace = "/api/v1/namespaces/n";
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    let account = json!({"metadata": {"name": "s"}});
    http.post(&format!("{namespace}/serviceaccounts"), &account)
        .await;
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let (code, made) = http.post(&format!("{namespace}/pods"), &pod).await;
    assert_eq!(code, 201, "{made}");
    http.delete(namespace).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    let named = json!({"metadata": {"name": "p"}});
    let asked = json!({"spec": {"resourceAttributes": {"namespace": "n"}, "user": "u"}});
    for (path, resource, body) in [
        (
            "serviceaccounts/s/token",
            "serviceaccounts \"s\"",
            &json!({}),
        ),
        ("pods/p/binding", "pods \"p\"", &binding),
        ("pods/p/eviction", "pods \"p\"", &named),
        ("bindings", "bindings \"p\"", &binding),
    ] {
        let (code, status) = http.post(&format!("{namespace}/{path}"), body).await;
        assert_eq!(code, 403, "{path}: {status}");
        let message = format!(
            "{resource} is forbidden: unable to create new content in namespace n because it is being terminated"
        );
        assert_eq!(status["message"], message, "{path}");
        let cause = &status["details"]["causes"][0]["reason"];
        assert_eq!(cause, "NamespaceTerminating", "{path}");
        let missing = format!("/api/v1/namespaces/nope/{path}");
        let (code, status) = http.post(&missing, body).await;
        assert_eq!(
            (code, &status["message"]),
            (404, &json!("namespaces \"nope\" not found"))
        );
    }
    assert_eq!(http.get(&format!("{namespace}/pods/p")).await.0, 200);
    // Access reviews are allowed in a terminating namespace.
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews";
    let (code, status) = http.post(reviews, &asked).await;
    assert_eq!(code, 201, "{status}");
}

/// Proves namespaces/missing-or-terminating.
#[tokio::test]
async fn rejections_name_objects_without_a_name() {
    let server = server();
    let http = http(&server);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    http.delete("/api/v1/namespaces/n").await;
    let why =
        "is forbidden: unable to create new content in namespace n because it is being terminated";
    for (metadata, name) in [
        (json!({"generateName": "web-"}), "web-"),
        (json!({}), "Unknown"),
    ] {
        let object = json!({"metadata": metadata});
        let (code, status) = http.post("/api/v1/namespaces/n/configmaps", &object).await;
        assert_eq!(code, 403);
        assert_eq!(status["message"], format!("configmaps {name:?} {why}"));
        assert_eq!(status["details"]["name"], name);
    }
}
