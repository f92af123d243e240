//! Deletes: finalizers, preconditions, propagation.

use crate::support::*;
use serde_json::json;

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
async fn finalizers_delay_the_removal_of_an_object() {
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
        "a second delete is a no-op"
    );
    // A different deletion timestamp is ignored; a different grace period is rejected.
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

/// Proves objects/preconditions, delete/propagation.
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
