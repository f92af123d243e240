//! Server-side apply and field managers.

use crate::support::*;
use serde_json::{Value, json};

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

/// Proves apply/request.
#[tokio::test]
async fn apply_options_are_validated() {
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

/// Proves apply/merging, apply/ownership, objects/preconditions.
#[tokio::test]
async fn appliers_share_equal_values_or_conflict() {
    let server = server();
    let http = http(&server);
    let path = format!("{CONFIG_MAPS}/a");
    let (code, made) = apply(&http, &path, "fieldManager=me", &colour("a", "red")).await;
    assert_eq!((code, &made["data"]["colour"]), (201, &json!("red")));
    let again = apply(&http, &path, "fieldManager=me", &colour("a", "red")).await;
    assert_eq!(again, (200, made.clone()), "an unchanged apply is a no-op");
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
    assert_eq!(code, 200, "equal values do not conflict");
}

/// Proves apply/managed-fields, apply/updates-take-over.
#[tokio::test]
async fn every_write_records_its_manager() {
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

const AUTOSCALERS: &str = "/apis/autoscaling/V/namespaces/default/horizontalpodautoscalers";

fn autoscaler(version: &str, spec: &Value) -> (String, Value) {
    let path = format!("{}/h", AUTOSCALERS.replace('V', version));
    let config = json!({"apiVersion": format!("autoscaling/{version}"),
        "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec});
    (path, config)
}

fn cpu(wanted: u32) -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": wanted}}}])
}

/// Returns the spec fields of a manager.
fn spec_of(object: &Value, manager: &str) -> Value {
    let mut entries = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter();
    let entry = entries.find(|entry| entry["manager"] == manager);
    entry.map_or(Value::Null, |entry| entry["fieldsV1"]["f:spec"].clone())
}

/// Proves apply/versions.
#[tokio::test]
async fn managers_conflict_across_versions() {
    let server = server();
    let http = http(&server);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let all = json!({"maxReplicas": 3, "scaleTargetRef": target, "metrics": cpu(60)});
    let (newer, config) = autoscaler("v2", &all);
    assert_eq!(
        apply(&http, &newer, "fieldManager=one", &config).await.0,
        201
    );

    let (older, mut config) = autoscaler("v1", &json!({"targetCPUUtilizationPercentage": 70}));
    config["metadata"]["labels"] = json!({"a": "b"});
    let (code, status) = apply(&http, &older, "fieldManager=two", &config).await;
    assert_eq!(code, 409, "{status}");
    assert_eq!(
        status["details"]["causes"][0]["field"], ".spec.metrics",
        "the field is named as in the manager's version"
    );
    let (code, _) = apply(&http, &older, "fieldManager=two&force=true", &config).await;
    assert_eq!(code, 200);
    let (_, now) = http.get(&newer).await;
    assert_eq!(now["spec"]["metrics"], cpu(70));
    assert_eq!(now["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(spec_of(&now, "one").get("f:metrics"), None);

    // The other direction.
    let (_, config) = autoscaler("v2", &all);
    let (code, status) = apply(&http, &newer, "fieldManager=one", &config).await;
    assert_eq!(code, 409, "{status}");
    assert_eq!(
        status["details"]["causes"][0]["field"],
        ".spec.targetCPUUtilizationPercentage"
    );

    // A field applied in one version and omitted in the other is removed.
    let (_, config) = autoscaler("v2", &json!({"minReplicas": 1}));
    assert_eq!(
        apply(&http, &newer, "fieldManager=two", &config).await.0,
        200
    );
    let (_, now) = http.get(&newer).await;
    assert_eq!(now["metadata"].get("labels"), None);
    assert_eq!(now["spec"]["maxReplicas"], 3, "owned by another manager");
}

/// Proves apply/versions.
#[tokio::test]
async fn update_takes_fields_over_across_versions() {
    let server = server();
    let http = http(&server);
    let spec = json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
    let (older, config) = autoscaler("v1", &spec);
    let (code, _) = apply(&http, &older, "fieldManager=one", &config).await;
    assert_eq!(code, 201);
    let (newer, _) = autoscaler("v2", &spec);
    let through = format!("{newer}?fieldManager=two");
    let (code, now) = http
        .merge(&through, &json!({"spec": {"metrics": cpu(60)}}))
        .await;
    assert_eq!(code, 200);
    let left = spec_of(&now, "one");
    assert_eq!(left.get("f:targetCPUUtilizationPercentage"), None, "{left}");
    assert_eq!(left["f:maxReplicas"], json!({}));
    assert_eq!(spec_of(&now, "two"), json!({"f:metrics": {}}));
}

/// Proves apply/versions.
#[tokio::test]
async fn managers_of_unknown_versions_are_dropped() {
    let server = server();
    let http = http(&server);
    let core = "/api/v1/namespaces/default/events/e";
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "message": "m", "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    assert_eq!(apply(&http, core, "fieldManager=one", &event).await.0, 201);
    let other = "/apis/events.k8s.io/v1/namespaces/default/events/e?fieldManager=two";
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(other, &label).await.0, 200);
    let (_, now) = http.get(core).await;
    let managers = now["metadata"]["managedFields"].as_array().unwrap().iter();
    let managers: Vec<&Value> = managers.map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["two"]);
}

/// Returns a CRD whose first version treats a list of ports as atomic and whose second one merges
/// it by key.
fn ports_definition() -> Value {
    let version = |name: &str, ports: &Value| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"size": {"type": "integer"}, "ports": ports}}}}}})
    };
    let item = json!({"type": "object", "required": ["port"],
        "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}});
    let whole = json!({"type": "array", "items": item});
    let apart = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port"]});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hubs.example.com"}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": "hubs", "kind": "Hub"},
            "versions": [version("v1", &whole), version("v2", &apart)]}})
}

/// Proves apply/versions.
#[tokio::test]
async fn custom_resource_managers_keep_their_version() {
    let server = server();
    let http = http(&server);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(http.post(definitions, &ports_definition()).await.0, 201);
    let path = |version: &str| format!("/apis/example.com/{version}/namespaces/default/hubs/h");
    let hub = |version: &str, spec: Value| {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Hub",
            "metadata": {"name": "h"}, "spec": spec})
    };
    let ports = |second: &str| json!([{"port": 1, "name": "a"}, {"port": 2, "name": second}]);

    let config = hub("v2", json!({"size": 1, "ports": ports("b")}));
    let (code, _) = apply(&http, &path("v2"), "fieldManager=newer", &config).await;
    assert_eq!(code, 201);
    let config = hub("v1", json!({"ports": ports("c")}));
    let (code, status) = apply(&http, &path("v1"), "fieldManager=older", &config).await;
    assert_eq!(code, 409, "{status}");
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "field": ".spec.ports[port=2].name",
            "message": "conflict with \"newer\""}]),
        "the field is named as in the manager's version"
    );
    let force = "fieldManager=older&force=true";
    let (_, now) = apply(&http, &path("v1"), force, &config).await;
    let newer = spec_of(&now, "newer");
    let of = |port: u32| &newer["f:ports"][format!("k:{{\"port\":{port}}}")];
    assert_eq!(of(1)["f:name"], json!({}), "{newer}");
    assert_eq!(of(2).get("f:name"), None, "{newer}");
    assert_eq!(spec_of(&now, "older"), json!({"f:ports": {}}));

    // A field stays while another manager applies it, in any version.
    let config = hub("v2", json!({"size": 1}));
    let (code, now) = apply(&http, &path("v2"), "fieldManager=newer", &config).await;
    assert_eq!((code, &now["spec"]["ports"]), (200, &ports("c")));

    // An update in v2 takes the field over from the manager in v1.
    let through = format!("{}?fieldManager=third", path("v2"));
    let change = json!({"spec": {"ports": ports("d")}});
    let (code, now) = http.merge(&through, &change).await;
    assert_eq!((code, spec_of(&now, "older")), (200, Value::Null), "{now}");
    let third = json!({"f:ports": {"k:{\"port\":2}": {"f:name": {}}}});
    assert_eq!(spec_of(&now, "third"), third);
}
