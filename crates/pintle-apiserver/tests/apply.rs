//! Server-side apply, and who manages which field, over the API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod support;

use serde_json::{Value, json};
use support::*;

async fn apply(http: &Http, path: &str, query: &str, config: &Value) -> (u16, Value) {
    let kind = "application/apply-patch+yaml";
    http.raw(
        "PATCH",
        &format!("{path}?{query}"),
        kind,
        config.to_string(),
    )
    .await
}

fn colour(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"colour": value}})
}

/// Proves W59, W60.
#[tokio::test]
async fn an_apply_says_who_applies_and_nothing_it_may_not() {
    let server = server();
    let http = http(&server);
    let path = format!("{CONFIG_MAPS}/a");
    let (code, status) = apply(&http, &path, "", &colour("a", "red")).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let mut managed = colour("a", "red");
    managed["metadata"]["managedFields"] = json!([{}]);
    let (code, status) = apply(&http, &path, "fieldManager=me", &managed).await;
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("metadata.managedFields must be nil"))
    );
    assert_eq!(
        apply(&http, &path, "fieldManager=me", &json!({"metadata": "x"}))
            .await
            .0,
        400
    );
    http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(
        http.merge(&format!("{path}?force=true"), &json!({}))
            .await
            .0,
        422
    );
}

/// Proves W61, W65, W66, W72, W135.
#[tokio::test]
async fn two_appliers_agree_or_conflict() {
    let server = server();
    let http = http(&server);
    let path = format!("{CONFIG_MAPS}/a");
    let (code, made) = apply(&http, &path, "fieldManager=me", &colour("a", "red")).await;
    assert_eq!((code, &made["data"]["colour"]), (201, &json!("red")));
    let again = apply(&http, &path, "fieldManager=me", &colour("a", "red")).await;
    assert_eq!(
        again,
        (200, made.clone()),
        "nothing changed, nothing is new"
    );
    let (code, status) = apply(&http, &path, "fieldManager=you", &colour("a", "blue")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".data.colour"}])
    );
    let (code, forced) = apply(
        &http,
        &path,
        "fieldManager=you&force=true",
        &colour("a", "blue"),
    )
    .await;
    assert_eq!((code, &forced["data"]["colour"]), (200, &json!("blue")));
    let (code, _) = apply(&http, &path, "fieldManager=me", &colour("a", "blue")).await;
    assert_eq!(code, 200, "the same value is no conflict");
}

/// Proves W62, W67.
#[tokio::test]
async fn every_write_leaves_its_mark() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let (_, made) = http
        .post(&format!("{FOOS}?fieldManager=maker"), &foo("a"))
        .await;
    let managers = |object: &Value| -> Vec<String> {
        let list = object["metadata"]["managedFields"].as_array().unwrap();
        list.iter()
            .map(|e| format!("{} {} {}", e["manager"], e["operation"], e["subresource"]))
            .collect()
    };
    assert_eq!(managers(&made), ["\"maker\" \"Update\" null"]);
    let status = json!({"status": {"availableReplicas": 1}});
    let (_, after) = http
        .merge(&format!("{FOOS}/a/status?fieldManager=worker"), &status)
        .await;
    assert_eq!(
        managers(&after),
        [
            "\"maker\" \"Update\" null",
            "\"worker\" \"Update\" \"status\""
        ]
    );
    let entry = &after["metadata"]["managedFields"][1];
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {".": {}, "f:availableReplicas": {}}})
    );
}
