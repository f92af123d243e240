//! Generation counting, and defaulting and validation of patched specs.

use crate::support::*;
use serde_json::json;

/// Proves objects/generation.
#[tokio::test]
async fn generation_counts_spec_changes() {
    let server = server();
    let http = http(&server);
    let (_, created) = http.post(DEPLOYMENTS, &deployment("d")).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{DEPLOYMENTS}/d");
    for (change, generation) in [
        (json!({"spec": {"replicas": 2}}), 2),
        (json!({"spec": {"replicas": 2}}), 2),
        (json!({"metadata": {"labels": {"a": "b"}}}), 2),
        (json!({"spec": {"paused": true}}), 3),
    ] {
        let (_, now) = http.merge(&path, &change).await;
        assert_eq!(now["metadata"]["generation"], generation, "{change}");
    }
    let status = json!({"status": {"replicas": 1}});
    let (_, now) = http.merge(&format!("{path}/status"), &status).await;
    assert_eq!(now["metadata"]["generation"], 3);

    let class = json!({"metadata": {"name": "p"}, "value": 5});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    assert_eq!(
        http.post(classes, &class).await.1["metadata"]["generation"],
        1
    );

    let (_, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(created["metadata"].get("generation"), None);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let (_, created) = http
        .post("/api/v1/namespaces/default/services", &service)
        .await;
    assert_eq!(created["metadata"].get("generation"), None);
}

/// Proves patch/formats.
#[tokio::test]
async fn patched_object_is_defaulted_and_validated() {
    let server = server();
    let http = http(&server);
    let (_, created) = http.post(DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    let gone = json!({"spec": {"replicas": null, "strategy": null, "revisionHistoryLimit": null}});
    let (code, now) = http.merge(&path, &gone).await;
    assert_eq!(
        (code, &now["spec"]),
        (200, &created["spec"]),
        "defaults were not restored"
    );
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": -1}]);
    let body = operations.to_string();
    let kind = "application/json-patch+json";
    let (code, status) = http.raw("PATCH", &path, kind, body).await;
    assert_eq!(code, 422);
    assert_eq!(status["details"]["causes"][0]["field"], "spec.replicas");

    // Applying a new object is a create.
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "e"},
        "spec": {"selector": {"matchLabels": {"app": "e"}}}});
    let new = format!("{DEPLOYMENTS}/e?fieldManager=m");
    let kind = "application/apply-patch+yaml";
    let (code, status) = http.raw("PATCH", &new, kind, config.to_string()).await;
    assert_eq!(code, 422, "{status}");
    let mut config = deployment("d");
    config["metadata"]["name"] = "e".into();
    (config["apiVersion"], config["kind"]) = ("apps/v1".into(), "Deployment".into());
    let (code, now) = http.raw("PATCH", &new, kind, config.to_string()).await;
    assert_eq!((code, &now["spec"]), (201, &created["spec"]));
}
