//! Server-side apply of a scale, and which manager owns the replica count afterwards.

use crate::support::*;
use serde_json::{Value, json};

fn web() -> Value {
    let mut web = deployment("web");
    web["spec"]["replicas"] = 2.into();
    web
}

fn scale(replicas: impl Into<Value>) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas.into()}})
}

async fn apply(http: &Http, path: &str, manager: &str, config: &Value) -> (u16, Value) {
    let path = format!("{path}/scale?fieldManager={manager}");
    let media = "application/apply-patch+yaml";
    http.raw("PATCH", &path, media, config.to_string()).await
}

/// Returns the managers of the field at `pointer`, as `manager operation apiVersion subresource`.
fn owners(object: &Value, pointer: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let having = entries
        .iter()
        .filter(|entry| entry["fieldsV1"].pointer(pointer).is_some());
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("-").to_owned();
    having
        .map(|entry| {
            ["manager", "operation", "apiVersion", "subresource"]
                .map(|field| text(entry, field))
                .join(" ")
        })
        .collect()
}

/// Proves patch/scale.
#[tokio::test]
async fn applied_scale_owns_the_replicas_of_its_object() {
    let server = server();
    let http = http(&server);
    let path = format!("{DEPLOYMENTS}/web");
    http.post(&format!("{DEPLOYMENTS}?fieldManager=maker"), &web())
        .await;
    let replicas = "/f:spec/f:replicas";
    let object = async || http.get(&path).await.1;

    // The same value is shared without a conflict.
    let (code, same) = apply(&http, &path, "me", &scale(2)).await;
    assert_eq!(code, 200, "{same}");
    assert_eq!(same["kind"], "Scale");
    assert_eq!(same["metadata"].get("managedFields"), None);
    assert_eq!(
        owners(&object().await, replicas),
        ["me Apply apps/v1 scale", "maker Update apps/v1 -"]
    );
    // Another value is a conflict unless forced.
    let (code, status) = apply(&http, &path, "me", &scale(3)).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Apply failed with 1 conflict: conflict with \"maker\" using autoscaling/v1: .spec.replicas"
    );
    let (code, taken) = apply(&http, &path, "me&force=true", &scale(3)).await;
    assert_eq!((code, &taken["spec"]["replicas"]), (200, &json!(3)));
    let scaled = object().await;
    assert_eq!(owners(&scaled, replicas), ["me Apply apps/v1 scale"]);
    assert_eq!(
        owners(&scaled, "/f:spec/f:template"),
        ["maker Update apps/v1 -"]
    );
    assert_eq!(scaled["metadata"]["generation"], 2);
    // Applying the same value again changes nothing.
    apply(&http, &path, "me", &scale(3)).await;
    assert_eq!(object().await, scaled);
    let (code, status) = apply(&http, &path, "you", &scale(4)).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "conflict with \"me\" with subresource \"scale\""
    );
    // An apply of the object conflicts with the manager of the scale.
    let mut config = web();
    config["apiVersion"] = "apps/v1".into();
    config["kind"] = "Deployment".into();
    let media = "application/apply-patch+yaml";
    let (code, status) = http
        .raw(
            "PATCH",
            &format!("{path}?fieldManager=other"),
            media,
            config.to_string(),
        )
        .await;
    assert_eq!(code, 409, "{status}");
}

/// Proves patch/scale.
#[tokio::test]
async fn applied_scale_is_validated() {
    let server = server();
    let http = http(&server);
    let path = format!("{DEPLOYMENTS}/web");
    http.post(DEPLOYMENTS, &web()).await;
    let (code, status) = apply(&http, &path, "me&force=true", &scale(-1)).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    let (code, _) = apply(&http, &path, "", &scale(2)).await;
    assert_eq!(code, 422, "a manager is required");
    let mut other = scale(2);
    other["apiVersion"] = "apps/v1".into();
    let (code, status) = apply(&http, &path, "me", &other).await;
    assert_eq!(code, 400, "{status}");
    let mut unknown = scale(2);
    unknown["spec"]["x"] = 1.into();
    let (code, status) = apply(&http, &path, "me", &unknown).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "failed to create typed patch object (default/web; autoscaling/v1, Kind=Scale): .spec.x: field not declared in schema"
    );
    let (code, _) = apply(&http, &format!("{DEPLOYMENTS}/none"), "me", &scale(2)).await;
    assert_eq!(code, 404);
    // The name is optional.
    let nameless =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 5}});
    let (code, scaled) = apply(&http, &path, "me&force=true", &nameless).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)));
}

/// Proves patch/scale.
#[tokio::test]
async fn applied_scale_of_a_custom_resource_owns_its_path() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.availableReplicas"});
    http.post(DEFINITIONS, &definition).await;
    http.post(&format!("{FOOS}?fieldManager=maker"), &foo("web"))
        .await;
    let path = format!("{FOOS}/web");
    let (code, scaled) = apply(&http, &path, "me&force=true", &scale(3)).await;
    assert_eq!(code, 200, "{scaled}");
    let (_, foo) = http.get(&path).await;
    assert_eq!(foo["spec"]["replicas"], 3);
    assert_eq!(
        owners(&foo, "/f:spec/f:replicas"),
        ["me Apply example.com/v1 scale"]
    );
    let (code, status) = apply(&http, &path, "me&force=true", &scale(11)).await;
    assert_eq!(code, 422, "the schema allows at most ten: {status}");
}
