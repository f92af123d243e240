//! Creating, reading, updating and deleting single objects.

use crate::support::*;
use serde_json::json;

/// Proves objects/identity.
#[tokio::test]
async fn server_sets_system_metadata() {
    let server = server();
    let http = http(&server);
    let mut object = config_map("a");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z".into();
    let (code, made) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!(code, 201);
    let metadata = &made["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata["resourceVersion"], server.resource_version());
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await, (200, made));

    object["metadata"]["name"] = "b".into();
    object["metadata"]["resourceVersion"] = "5".into();
    let (code, status) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!((code, status.get("reason")), (500, None));
}

/// Proves objects/identity.
#[tokio::test]
async fn generate_name_becomes_a_name() {
    let server = server();
    let http = http(&server);
    let object = json!({"metadata": {"generateName": "web-"}});
    let (code, made) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!(code, 201);
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let (_, other) = http.post(CONFIG_MAPS, &object).await;
    assert_ne!(other["metadata"]["name"], name);

    // A prefix may end with a dash.
    let object = json!({"metadata": {"generateName": "web--"}});
    assert_eq!(http.post(CONFIG_MAPS, &object).await.0, 201);
    for bad in ["Web-", "-", "web_"] {
        let object = json!({"metadata": {"generateName": bad}});
        let (code, status) = http.post(CONFIG_MAPS, &object).await;
        let causes = status["details"]["causes"].as_array().unwrap();
        let fields: Vec<_> = causes.iter().map(|cause| &cause["field"]).collect();
        assert_eq!(code, 422, "{bad}");
        assert_eq!(fields, ["metadata.generateName", "metadata.name"], "{bad}");
    }
}

/// Proves objects/identity, errors/status-reasons.
#[tokio::test]
async fn path_and_body_must_agree() {
    let server = server();
    let http = http(&server);
    let mut object = config_map("a");
    object["metadata"]["namespace"] = "other".into();
    let (code, status) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let (code, status) = http
        .post("/api/v1/namespaces/default/secrets", &config_map("a"))
        .await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let (code, status) = http
        .put(&format!("{CONFIG_MAPS}/a"), &config_map("b"))
        .await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the name of the object (b) does not match the name on the URL (a)"
    );
}

/// Proves objects/preconditions.
#[tokio::test]
async fn stale_update_is_rejected() {
    let server = server();
    let http = http(&server);
    let (_, first) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let mut changed = first.clone();
    changed["data"] = json!({"k": "w"});
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(http.put(&path, &changed).await.0, 200);
    let (code, status) = http.put(&path, &changed).await;
    assert_eq!(code, 409);
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    assert_eq!(
        status["details"],
        json!({"name": "a", "kind": "configmaps"})
    );
}

/// Proves objects/preconditions.
#[tokio::test]
async fn unconditional_update_depends_on_the_kind() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(
        http.put(&format!("{CONFIG_MAPS}/a"), &config_map("a"))
            .await
            .0,
        200
    );
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let (code, status) = http.put(&format!("{FOOS}/a"), &foo("a")).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "foos.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

/// Proves objects/preconditions.
#[tokio::test]
async fn put_creates_some_kinds() {
    let server = server();
    let http = http(&server);
    assert_eq!(
        http.put(&format!("{CONFIG_MAPS}/a"), &config_map("a"))
            .await
            .0,
        404
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(http.put(path, &lease).await.0, 201);
}

/// Proves objects/preconditions, objects/identity.
#[tokio::test]
async fn identity_cannot_be_changed() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut other = made.clone();
    other["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let (code, status) = http.put(&path, &other).await;
    assert_eq!(code, 409);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("Precondition failed: UID in precondition")
    );
    let mut older = made.clone();
    older["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z".into();
    older["data"] = json!({"k": "w"});
    let (_, stored) = http.put(&path, &older).await;
    assert_eq!(
        stored["metadata"]["creationTimestamp"],
        made["metadata"]["creationTimestamp"]
    );
}

/// Proves objects/generation.
#[tokio::test]
async fn no_op_write_keeps_the_resource_version() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(http.put(&path, &made).await, (200, made.clone()));
    assert_eq!(
        http.merge(&path, &json!({"data": {"k": "v"}})).await,
        (200, made)
    );
}

/// Proves objects/generation, subresources/status.
#[tokio::test]
async fn generation_counts_spec_changes_only() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let mut object = foo("a");
    object["status"] = json!({"availableReplicas": 9});
    let (_, made) = http.post(FOOS, &object).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made.get("status"), None, "a create drops the status");
    let path = format!("{FOOS}/a");
    let (_, after) = http.merge(&path, &json!({"spec": {"replicas": 2}})).await;
    assert_eq!(after["metadata"]["generation"], 2);
    let (_, after) = http
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(after["metadata"]["generation"], 2);
    let both = json!({"status": {"availableReplicas": 2}, "spec": {"replicas": 5}});
    let (_, after) = http.merge(&format!("{path}/status"), &both).await;
    assert_eq!(after["metadata"]["generation"], 2);
    assert_eq!(
        after["spec"]["replicas"], 2,
        "the status path changes only the status"
    );
    assert_eq!(after["status"]["availableReplicas"], 2);
    let (_, after) = http.merge(&path, &both).await;
    assert_eq!(after["metadata"]["generation"], 3);
    let (_, after) = http
        .merge(&path, &json!({"status": {"availableReplicas": 7}}))
        .await;
    assert_eq!(
        after["status"]["availableReplicas"], 2,
        "the main path keeps the status"
    );
}

/// Proves objects/preconditions.
#[tokio::test]
async fn patch_checks_its_resource_version() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let old = made["metadata"]["resourceVersion"].clone();
    assert_eq!(http.merge(&path, &json!({"data": {"x": "1"}})).await.0, 200);
    let stale = json!({"metadata": {"resourceVersion": old}, "data": {"x": "2"}});
    assert_eq!(http.merge(&path, &stale).await.0, 409);
}

/// Proves patch/formats.
#[tokio::test]
async fn json_patch_and_merge_patch_work() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let json_patch = |body: serde_json::Value| {
        http.raw(
            "PATCH",
            &path,
            "application/json-patch+json",
            body.to_string(),
        )
    };
    let (code, got) = json_patch(json!([{"op": "add", "path": "/data/x", "value": "1"}])).await;
    assert_eq!((code, &got["data"]), (200, &json!({"k": "v", "x": "1"})));
    assert_eq!(
        json_patch(json!([{"op": "remove", "path": "/data/none"}]))
            .await
            .0,
        422
    );
    assert_eq!(
        json_patch(json!([{"op": "test", "path": "/data/x", "value": "2"}]))
            .await
            .0,
        422
    );
    assert_eq!(json_patch(json!({"op": "nonsense"})).await.0, 400);
    let (code, got) = http.merge(&path, &json!({"data": {"k": null}})).await;
    assert_eq!((code, &got["data"]), (200, &json!({"x": "1"})));
}

/// Proves errors/status-reasons, objects/validation.
#[tokio::test]
async fn names_are_unique_and_validated() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(status["message"], "configmaps \"a\" already exists");
    let (code, status) = http.post(CONFIG_MAPS, &config_map("Not_legal")).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(status["details"]["kind"], "ConfigMap");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    let (code, _) = http.post(CONFIG_MAPS, &labelled("b", "a b", "c")).await;
    assert_eq!(code, 422);
}

/// Proves objects/dry-run.
#[tokio::test]
async fn dry_run_stores_nothing() {
    let server = server();
    let http = http(&server);
    let before = server.resource_version();
    let (code, made) = http
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a"))
        .await;
    assert_eq!(code, 201);
    assert_eq!(made["metadata"].get("resourceVersion"), None);
    assert_eq!(server.resource_version(), before);
    assert_eq!(
        http.post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("a"))
            .await
            .0,
        422
    );
}

/// Proves objects/validation.
#[tokio::test]
async fn object_has_at_most_one_controller() {
    let server = server();
    let http = http(&server);
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = json!([owner("x"), owner("y")]);
    assert_eq!(http.post(CONFIG_MAPS, &object).await.0, 422);
    object["metadata"]["ownerReferences"] = json!([owner("x"), owner("x")]);
    let (code, made) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!(
        (
            code,
            made["metadata"]["ownerReferences"]
                .as_array()
                .unwrap()
                .len()
        ),
        (201, 1)
    );
}

/// Proves patch/formats.
#[tokio::test]
async fn strategic_patches_need_a_built_in_kind() {
    let server = server();
    let http = http(&server);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}});
    http.post(pods, &pod).await;
    let patch = json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}}).to_string();
    let kind = "application/strategic-merge-patch+json";
    let (code, after) = http
        .raw("PATCH", &format!("{pods}/p"), kind, patch.clone())
        .await;
    assert_eq!(code, 200, "{after}");
    let images: Vec<&str> = after["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| container["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, ["a:1", "b:2"]);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    assert_eq!(
        http.raw("PATCH", &format!("{FOOS}/a"), kind, patch).await.0,
        415
    );
}

/// Proves objects/preconditions.
#[tokio::test]
async fn version_zero_counts_as_unset() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let mut object = foo("a");
    object["metadata"]["resourceVersion"] = "0".into();
    let (code, status) = http.put(&format!("{FOOS}/a"), &object).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let zero = json!({"metadata": {"resourceVersion": "0"}});
    assert_eq!(http.merge(&format!("{FOOS}/a"), &zero).await.0, 422);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l", "resourceVersion": "0"}});
    let (code, made) = http.put(&format!("{leases}/l"), &lease).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(http.put(&format!("{leases}/l"), &lease).await.0, 422);
    http.post(CONFIG_MAPS, &config_map("c")).await;
    let mut free = config_map("c");
    free["metadata"]["resourceVersion"] = "0".into();
    assert_eq!(http.put(&format!("{CONFIG_MAPS}/c"), &free).await.0, 200);
}

/// Proves objects/validation.
#[tokio::test]
async fn workload_selector_matches_and_is_immutable() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let server = server();
    let http = http(&server);
    let mut object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    });
    let (code, status) = http.post(DEPLOYMENTS, &object).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.template.metadata.labels");

    object["spec"]["template"]["metadata"]["labels"]["app"] = "web".into();
    let (code, mut made) = http.post(DEPLOYMENTS, &object).await;
    assert_eq!(code, 201);
    for part in [
        "/spec/selector/matchLabels",
        "/spec/template/metadata/labels",
    ] {
        made.pointer_mut(part).unwrap()["tier"] = "front".into();
    }
    let (code, status) = http.put(&format!("{DEPLOYMENTS}/web"), &made).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.selector");
}
