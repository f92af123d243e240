//! Creating, reading, updating and deleting single objects.

use crate::support::*;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

/// Proves objects/server-fields.
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

/// Proves objects/generate-name.
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

/// Proves objects/body-matches-path, errors/status-reasons.
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

/// Proves objects/optimistic-locking.
#[tokio::test]
async fn stale_update_is_refused() {
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

/// Proves objects/unconditional-update.
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

/// Proves objects/create-on-update.
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

/// Proves objects/optimistic-locking, objects/server-fields.
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

/// Proves objects/no-op-write.
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
        "the status path takes only the status"
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

/// Proves objects/optimistic-locking.
#[tokio::test]
async fn patch_checks_a_version_it_names() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let old = made["metadata"]["resourceVersion"].clone();
    assert_eq!(http.merge(&path, &json!({"data": {"x": "1"}})).await.0, 200);
    let stale = json!({"metadata": {"resourceVersion": old}, "data": {"x": "2"}});
    assert_eq!(http.merge(&path, &stale).await.0, 409);
}

/// Proves patch/json, patch/merge.
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

/// Proves delete/answer, errors/status-reasons.
#[tokio::test]
async fn deleted_object_is_gone() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, status) = http.delete(&path).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(
        status["details"],
        json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]})
    );
    let (code, status) = http.delete(&path).await;
    assert_eq!(code, 404);
    assert_eq!(status["message"], "configmaps \"a\" not found");
    assert_eq!(status["reason"], "NotFound");
}

/// Proves delete/finalizers.
#[tokio::test]
async fn finalizers_hold_an_object() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let mut object = foo("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    http.post(FOOS, &object).await;
    let path = format!("{FOOS}/a");
    let (code, marked) = http.delete(&path).await;
    assert_eq!(code, 200);
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(
        http.delete(&path).await,
        (200, marked),
        "a second deletion changes nothing"
    );
    // Another deletion timestamp is ignored, another grace period is refused.
    let time =
        json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z", "labels": {"a": "b"}}});
    let (code, kept) = http.merge(&path, &time).await;
    assert_eq!((code, &kept["metadata"]["labels"]["a"]), (200, &json!("b")));
    assert_eq!(
        kept["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    let mut replaced = kept.clone();
    replaced["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
    replaced["metadata"]["deletionGracePeriodSeconds"] = json!(null);
    let (code, replaced) = http.put(&path, &replaced).await;
    assert_eq!(code, 200);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        assert_eq!(replaced["metadata"][field], kept["metadata"][field]);
    }
    let grace = json!({"metadata": {"deletionGracePeriodSeconds": 5}});
    let (code, status) = http.merge(&path, &grace).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("metadata.deletionGracePeriodSeconds"))
    );
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let (code, status) = http.merge(&path, &more).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (422, &json!("FieldValueForbidden"))
    );
    let (code, last) = http
        .merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!((code, &last["metadata"]["name"]), (200, &json!("a")));
    assert_eq!(http.get(&path).await.0, 404);
}

/// Proves delete/finalizers.
#[tokio::test]
async fn writes_cannot_set_the_deletion_timestamp() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let time = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}});
    let (code, status) = http.merge(&format!("{CONFIG_MAPS}/a"), &time).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("metadata.deletionTimestamp"))
    );
}

/// Proves delete/preconditions, delete/propagation.
#[tokio::test]
async fn deletions_have_preconditions_and_policies() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for wrong in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let (code, status) = http
            .delete_with(&path, &json!({"preconditions": wrong}))
            .await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    }
    for wrong in [
        json!({"propagationPolicy": "Sideways"}),
        json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
    ] {
        assert_eq!(http.delete_with(&path, &wrong).await.0, 422);
    }
    let options = json!({"propagationPolicy": "Foreground",
        "preconditions": {"uid": made["metadata"]["uid"]}});
    let (code, marked) = http.delete_with(&path, &options).await;
    assert_eq!(
        (code, &marked["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
    let (_, marked) = http
        .delete_with(&path, &json!({"propagationPolicy": "Orphan"}))
        .await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    let (_, gone) = http
        .delete_with(&path, &json!({"propagationPolicy": "Background"}))
        .await;
    assert_eq!(gone["status"], "Success");
}

/// Proves delete/propagation.
#[tokio::test]
async fn deleting_a_job_orphans_its_pods_by_default() {
    let server = server();
    let http = http(&server);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(http.post(jobs, &job).await.0, 201);
    let (_, marked) = http.delete(&format!("{jobs}/j")).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
}

/// Proves errors/status-reasons, errors/invalid, objects/names-and-labels.
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

/// Proves objects/owner-references.
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

/// Proves wire/protobuf.
#[tokio::test]
async fn protobuf_bodies_are_decoded() {
    let server = server();
    let http = http(&server);
    // ConfigMap "a" with one entry, and DeleteOptions with another UID.
    let body: &[u8] = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
    let (code, made) = http
        .raw(
            "POST",
            CONFIG_MAPS,
            "application/vnd.kubernetes.protobuf",
            body,
        )
        .await;
    assert_eq!((code, &made["data"]), (201, &json!({"k": "v"})), "{made}");
    let (code, _) = http
        .raw(
            "POST",
            CONFIG_MAPS,
            "application/vnd.kubernetes.protobuf",
            "k8s\0nonsense",
        )
        .await;
    assert_eq!(code, 400);
}

/// Proves objects/field-validation, objects/types, wire/timestamps.
#[tokio::test]
async fn unknown_fields_of_built_in_kinds_are_reported() {
    let server = server();
    let http = http(&server);
    let mut object = config_map("a");
    object["data"]["n"] = 1.into();
    let (code, status) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let mut object = config_map("a");
    object["colour"] = "red".into();
    object["metadata"]["creationTimestamp"] = serde_json::Value::Null;
    assert_eq!(
        http.post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &object)
            .await
            .0,
        400
    );
    let (code, made) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!((code, made.get("colour")), (201, None));
}

/// Proves patch/content-type, patch/strategic.
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

/// Proves objects/unconditional-update, objects/create-on-update.
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

/// Proves wire/protobuf, wire/accept.
#[tokio::test]
async fn custom_resources_reject_protobuf() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let kind = "application/vnd.kubernetes.protobuf";
    let body = &b"k8s\0\x0a\x15\x0a\x0eexample.com/v1\x12\x03Foo\x12\x05\x0a\x03\x0a\x01a"[..];
    let (code, status) = http.raw("POST", FOOS, kind, body).await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
}

/// Proves objects/dry-run, delete/finalizers.
#[tokio::test]
async fn dry_run_delete_shows_the_marked_object() {
    let server = server();
    let http = http(&server);
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    http.post(CONFIG_MAPS, &held).await;
    let path = format!("{CONFIG_MAPS}/a");
    let before = http.get(&path).await.1;
    let (code, shown) = http.delete(&format!("{path}?dryRun=All")).await;
    assert_eq!(code, 200);
    assert_eq!(
        shown["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(http.get(&path).await.1, before);
}

/// Proves objects/field-validation, wire/warnings.
#[tokio::test]
async fn patch_reports_duplicate_keys() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '1'\n  k: '2'\n";
    for (kind, body, expected, strict) in [
        (
            "merge-patch+json",
            r#"{"data":{"k":"1","k":"2"}}"#,
            r#"duplicate field \"data.k\""#,
            422,
        ),
        (
            "strategic-merge-patch+json",
            r#"{"data":{"k":"1","k":"2"}}"#,
            r#"duplicate field \"data.k\""#,
            422,
        ),
        (
            "json-patch+json",
            r#"[{"op":"add","op":"add","path":"/data/k","value":"2"}]"#,
            r#"json patch duplicate field \"[0].op\""#,
            422,
        ),
        (
            "apply-patch+yaml",
            yaml,
            r#"line 6: key \"k\" already set in map"#,
            400,
        ),
    ] {
        let ask = |validation: &str| {
            let manager = "fieldManager=m&dryRun=All&force=true";
            let manager = if kind.starts_with("apply") {
                manager
            } else {
                "dryRun=All"
            };
            http::Request::patch(format!(
                "{CONFIG_MAPS}/a?{manager}&fieldValidation={validation}"
            ))
            .header("content-type", format!("application/{kind}"))
            .body(Full::new(Bytes::from(body)))
            .unwrap()
        };
        let response = http.send(ask("Warn")).await;
        assert_eq!(response.status(), 200, "{kind}");
        let warning = response.headers()["warning"].to_str().unwrap();
        assert_eq!(warning, format!("299 - \"{expected}\""));
        assert_eq!(http.send(ask("Strict")).await.status(), strict, "{kind}");
        let response = http.send(ask("Ignore")).await;
        assert!(!response.headers().contains_key("warning"), "{kind}");
    }
}

/// Proves wire/warnings.
#[tokio::test]
async fn warnings_about_unknown_fields_are_bounded() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object",
        "properties": {"spec": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}}}}});
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);

    let fields: Vec<String> = (0..100_000).map(|i| format!("\"u{i}\":0")).collect();
    let (many, twice) = (fields.join(","), vec!["\"a\":0"; 1000].join(","));
    let long = "p".repeat(1 << 20);
    let of_map = |fields: &str| format!("{{\"metadata\":{{\"name\":\"a\"}},{fields}}}");
    let of_foo = |fields: &str| {
        let start = r#""apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"}"#;
        format!("{{{start},\"spec\":{{\"{long}\":{{{fields}}}}}}}")
    };
    let below = format!("{{\"metadata\":{{\"name\":\"a\",{many}}}}}");
    let cases = [
        ("many", CONFIG_MAPS, of_map(&many)),
        ("many below", CONFIG_MAPS, below),
        (
            "many, twice",
            CONFIG_MAPS,
            of_map(&format!("{many},{many}")),
        ),
        ("a long one", CONFIG_MAPS, of_map(&format!("\"{long}\":0"))),
        ("many in a long one", FOOS, of_foo(&many)),
        ("one in a long one, often", FOOS, of_foo(&twice)),
    ];
    for (case, path, body) in cases {
        let ask = |validation: &str| {
            http::Request::post(format!("{path}?dryRun=All&fieldValidation={validation}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.clone())))
                .unwrap()
        };
        let response = http.send(ask("Warn")).await;
        assert_eq!(response.status(), 201, "{case}");
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert!(
            (1..=80).contains(&warnings.len()),
            "{case}: {}",
            warnings.len()
        );
        let bytes: usize = warnings.iter().map(|warning| warning.len()).sum();
        // Each text and the rest of its header.
        assert!(bytes < 4096 + 256 + 80 * 16, "{case}: {bytes}");

        let response = http.send(ask("Strict")).await;
        assert_eq!(response.status(), 400, "{case}");
        let refusal = response.into_body().collect().await.unwrap().to_bytes();
        let refusal: serde_json::Value = serde_json::from_slice(&refusal).unwrap();
        let message = refusal["message"].as_str().unwrap();
        let fields = message.matches(" field \"").count();
        assert!((1..=100).contains(&fields), "{case}: {fields}");
        assert!(message.len() < 100 * 4200, "{case}: {}", message.len());
    }
}
