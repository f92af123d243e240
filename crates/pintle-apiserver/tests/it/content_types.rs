//! Request and response formats: tables, metadata only, YAML, OpenAPI, and events in both groups.

use crate::support::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

async fn accept(http: &Http, path: &str, accept: &str) -> (u16, String) {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = http.send(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

async fn accept_json(http: &Http, path: &str, form: &str) -> Value {
    serde_json::from_str(&accept(http, path, form).await.1).unwrap()
}

/// Proves wire/tables.
#[tokio::test]
async fn built_in_kinds_are_shown_as_tables() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let table = accept_json(&http, CONFIG_MAPS, TABLE).await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "0s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let bare = accept_json(&http, &format!("{CONFIG_MAPS}/a?includeObject=None"), TABLE).await;
    assert_eq!(bare["rows"][0].get("object"), Some(&Value::Null));
}

/// Proves wire/tables.
#[tokio::test]
async fn custom_resources_are_shown_as_tables() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    http.post(DEFINITIONS, &definition).await;
    http.post(FOOS, &foo("a")).await;
    let table = accept_json(&http, FOOS, TABLE).await;
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "0s"]));
}

/// Proves wire/tables, watch/requests.
#[tokio::test(start_paused = true)]
async fn table_watch_sends_its_columns_once() {
    let server = server();
    let http = http(&server);
    for name in ["a", "b"] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
    }
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    let (_, body) = accept(&http, &path, TABLE).await;
    let events: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
}

/// Proves wire/tables.
#[tokio::test]
async fn list_can_be_limited_to_metadata() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let form = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = accept_json(&http, CONFIG_MAPS, form).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(list["items"][0].get("data"), None);
}

/// Proves wire/formats, wire/tables.
#[tokio::test]
async fn unsupported_accept_gets_406() {
    let server = server();
    let http = http(&server);
    let (code, body) = accept(&http, CONFIG_MAPS, "image/png").await;
    assert!(
        code == 406 && body.contains("NotAcceptable"),
        "{code} {body}"
    );
    let (code, body) = accept(&http, "/api/v1/namespaces/default", "application/yaml").await;
    assert!(code == 200 && body.contains("phase: Active"), "{body}");
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("accept", TABLE)
        .body(Full::new(Bytes::from("{}")))
        .unwrap();
    assert_eq!(http.send(request).await.status(), 406);
}

/// Proves wire/formats.
#[tokio::test]
async fn discovery_and_errors_can_be_yaml() {
    let server = server();
    let http = http(&server);
    let yaml = "application/yaml";
    let (code, body) = accept(&http, "/api/v1", yaml).await;
    assert!(
        code == 200 && body.contains("kind: APIResourceList"),
        "{body}"
    );
    let (code, body) = accept(&http, &format!("{CONFIG_MAPS}/missing"), yaml).await;
    assert!(code == 404 && body.contains("reason: NotFound"), "{body}");
}

/// Proves objects/events-both-groups.
#[tokio::test]
async fn both_event_groups_show_the_same_events() {
    let server = server();
    let http = http(&server);
    let core = "/api/v1/namespaces/default/events";
    let other = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Started", "message": "it runs", "type": "Normal"});
    http.post(core, &event).await;
    let (_, seen) = http.get(&format!("{other}/e")).await;
    assert_eq!(
        (&seen["apiVersion"], &seen["note"]),
        (&json!("events.k8s.io/v1"), &json!("it runs"))
    );
    assert_eq!(seen["regarding"]["name"], "p");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
    let (code, _) = http.merge(&format!("{other}/e"), &series).await;
    assert_eq!(code, 200);
    let (_, repeated) = http.get(&format!("{core}/e")).await;
    assert_eq!(repeated["series"]["count"], 2);
    let (code, _) = http
        .merge(&format!("{core}/e"), &json!({"message": "it still runs"}))
        .await;
    assert_eq!(code, 200);
    for path in [
        format!("{core}?fieldSelector=involvedObject.name%3Dp"),
        format!("{other}?fieldSelector=regarding.name%3Dp"),
    ] {
        assert_eq!(
            http.get(&path).await.1["items"].as_array().unwrap().len(),
            1
        );
    }
    let mut watch = http.watch(&format!("{other}?watch=true")).await;
    assert_eq!(
        watch.next().await.unwrap()["object"]["note"],
        "it still runs"
    );
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v3_describes_kinds_patches_and_schemas() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let (_, index) = http.get("/openapi/v3").await;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let (code, document) = http.get(url).await;
    assert_eq!(code, 200);
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert!(
        patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|p| p["name"] == "fieldValidation")
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0]["kind"],
        "Deployment"
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(http.get("/openapi/v3/apis/apps/v1?hash=other").await.0, 301);
    let request = Request::get(url).body(Full::new(Bytes::new()));
    let response = http.send(request.unwrap()).await;
    assert_eq!(
        response.headers()["expires"],
        "Fri, 01 Jan 2027 00:00:00 UTC",
        "a URL with a hash never changes"
    );

    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let (_, document) = http.get(url).await;
    let foo = &document["components"]["schemas"]["com.example.v1.Foo"];
    assert_eq!(
        foo["properties"]["spec"]["properties"]["replicas"]["type"],
        "integer"
    );
    let patch =
        &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]["patch"];
    assert_eq!(
        patch["requestBody"]["content"].get("application/strategic-merge-patch+json"),
        None
    );
}

/// Proves discovery/resources.
#[tokio::test]
async fn older_aggregated_discovery_gets_the_plain_form() {
    let server = server();
    let http = http(&server);
    let older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    for (path, kind) in [("/api", "APIVersions"), ("/apis", "APIGroupList")] {
        let (code, body) = accept(&http, path, &format!("{older},application/json")).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((code, &body["kind"]), (200, &json!(kind)));
    }
}

/// Proves wire/watches.
#[tokio::test]
async fn watch_sends_each_event_as_one_line() {
    let server = server();
    let http = http(&server);
    let watch = Request::get(format!("{CONFIG_MAPS}?watch=true"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = http.send(watch).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let mut body = response.into_body();
    for name in ["a", "b"] {
        // A line break in the data must be escaped in the event.
        let mut object = config_map(name);
        object["data"]["k"] = "1\n2".into();
        http.post(CONFIG_MAPS, &object).await;
        let frame = body.frame().await.unwrap().unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.contains('\n'), "{line}");
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
}

/// Proves wire/size-limits, wire/formats.
#[tokio::test]
async fn bodies_are_limited_in_size_and_type() {
    let server = server();
    let http = http(&server);
    let big = vec![b' '; 3 * 1024 * 1024 + 1];
    let (code, status) = http.raw("POST", CONFIG_MAPS, "application/json", big).await;
    assert_eq!(
        (code, &status["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
    let (code, status) = http.raw("POST", CONFIG_MAPS, "text/csv", "a,b").await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
    let yaml = "metadata:\n  name: a\ndata:\n  k: v\n";
    assert_eq!(
        http.raw("POST", CONFIG_MAPS, "application/yaml", yaml)
            .await
            .0,
        201
    );
    assert_eq!(
        http.raw("POST", CONFIG_MAPS, "application/json", "{")
            .await
            .0,
        400
    );
    let many: Vec<Value> = (0..10_001)
        .map(|_| json!({"op": "remove", "path": "/x"}))
        .collect();
    let path = format!("{CONFIG_MAPS}/a");
    let body = Value::from(many).to_string();
    assert_eq!(
        http.raw("PATCH", &path, "application/json-patch+json", body)
            .await
            .0,
        413
    );
}
