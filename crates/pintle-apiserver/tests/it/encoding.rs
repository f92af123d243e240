//! The text of responses: field order and indentation.

use crate::support::*;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

async fn text(http: &Http, path: &str, headers: &[(header::HeaderName, &str)]) -> String {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let body = http.send(request).await.into_body();
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn define(http: &Http, group: &str, plural: &str, version: &str) {
    let mut definition = foo_definition();
    definition["metadata"]["name"] = format!("{plural}.{group}").into();
    definition["spec"]["group"] = group.into();
    definition["spec"]["names"] = json!({"plural": plural, "kind": plural.to_uppercase()});
    definition["spec"]["versions"][0]["name"] = version.into();
    let (code, created) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{created}");
}

/// kubectl resolves a short name to the first group that has it.
///
/// Proves discovery/resources.
#[tokio::test]
async fn groups_of_equal_priority_are_sorted_by_name() {
    let server = server();
    let http = http(&server);
    // Sorting by the names of the CRDs would give a different order.
    define(&http, "z.example.com", "apples", "v1").await;
    define(&http, "a.example.com", "pears", "v1beta1").await;
    define(&http, "m.example.com", "nuts", "v1").await;
    let last = |list: &Value, pointer: &str, name: &str| {
        let items = list[pointer].as_array().unwrap();
        let names = items
            .iter()
            .map(|item| item.pointer(name).unwrap().as_str().unwrap());
        let names: Vec<String> = names.map(str::to_owned).collect();
        names[names.len() - 3..].to_vec()
    };
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = text(&http, "/apis", &[(header::ACCEPT, accept)]).await;
    let aggregated: Value = serde_json::from_str(&aggregated).unwrap();
    assert_eq!(
        last(&aggregated, "items", "/metadata/name"),
        ["a.example.com", "m.example.com", "z.example.com"]
    );
    // The unaggregated list is sorted by the names of the APIServices.
    let (_, groups) = http.get("/apis").await;
    assert_eq!(
        last(&groups, "groups", "/name"),
        ["m.example.com", "z.example.com", "a.example.com"]
    );
}

/// Some clients compare text.
///
/// Proves wire/json.
#[tokio::test]
async fn documents_start_with_their_kind() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let map = format!("{CONFIG_MAPS}/a");
    for (path, accept, start) in [
        (
            "/api",
            "",
            "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],",
        ),
        (
            "/apis",
            "",
            "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[{\"name\":\"",
        ),
        (
            "/apis/apps",
            "",
            "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"apps\",\"versions\":[{\"groupVersion\":\"apps/v1\",\"version\":\"v1\"}],\"preferredVersion\":",
        ),
        (
            "/apis/apps/v1",
            "",
            "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"apps/v1\",\"resources\":[{\"name\":\"controllerrevisions\",\"singularName\":\"controllerrevision\",\"namespaced\":true,\"kind\":\"ControllerRevision\",\"verbs\":[",
        ),
        (
            "/apis",
            aggregated,
            "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2\",\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"",
        ),
        (
            &map,
            "",
            "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{",
        ),
        (
            &map,
            table,
            "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",",
        ),
        (
            &map,
            metadata,
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{",
        ),
        (
            "/api/v1/namespaces/none",
            "",
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",",
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            "",
            "{\"kind\":\"EventList\",\"apiVersion\":\"events.k8s.io/v1\",",
        ),
    ] {
        let got = text(&http, path, &[(header::ACCEPT, accept)]).await;
        assert!(got.starts_with(start), "{path} {accept}: {got:.300}");
    }
    // Custom resources have sorted fields.
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("f")).await;
    let got = text(&http, &format!("{FOOS}/f"), &[]).await;
    let start = "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Foo\",\"metadata\":{";
    assert!(got.starts_with(start), "{got}");
}

/// Proves wire/json.
#[tokio::test]
async fn browsers_and_curl_get_indented_json() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let agent = |agent: &'static str| vec![(header::USER_AGENT, agent)];
    let plain = text(&http, &path, &[]).await;
    let start = "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n";
    for (query, headers, pretty) in [
        ("", vec![], false),
        ("?pretty=true", vec![], true),
        ("?pretty=1", vec![], true),
        ("?pretty=false", agent("curl/8.0"), false),
        ("?pretty=0", agent("curl/8.0"), false),
        ("?pretty=", agent("curl/8.0"), true),
        ("", agent("curl/8.0"), true),
        ("", agent("Wget/1.21"), true),
        ("", agent("Mozilla/5.0 (X11; Linux)"), true),
        ("", agent("kubectl/v1.36.4"), false),
        (
            "",
            vec![(header::ACCEPT, "application/json;pretty=1")],
            true,
        ),
    ] {
        let got = text(&http, &format!("{path}{query}"), &headers).await;
        assert_eq!(got.starts_with(start), pretty, "{query} {headers:?}: {got}");
        let (a, b): (Value, Value) = (
            serde_json::from_str(&got).unwrap(),
            serde_json::from_str(&plain).unwrap(),
        );
        assert_eq!(a, b);
    }
    for path in ["/apis", "/api/v1/nodes/none", CONFIG_MAPS, "/version"] {
        let got = text(&http, path, &agent("curl/8.0")).await;
        assert!(got.starts_with("{\n  \""), "{path}: {got}");
    }
    // A watch has one event per line, even for browsers.
    let mut watch = http
        .watch(&format!("{CONFIG_MAPS}?watch=true&pretty=true"))
        .await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
}

/// Proves wire/json.
#[tokio::test]
async fn status_has_the_field_order_of_go() {
    let server = server();
    let http = http(&server);
    let missing = text(&http, &format!("{CONFIG_MAPS}/none"), &[]).await;
    assert_eq!(
        missing,
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
         \"message\":\"configmaps \\\"none\\\" not found\",\"reason\":\"NotFound\",\
         \"details\":{\"name\":\"none\",\"kind\":\"configmaps\"},\"code\":404}"
    );
    let send = async |method: &str, path: &str, body: &Value| {
        let request = Request::builder().method(method).uri(path);
        let body = Full::new(Bytes::from(body.to_string()));
        let body = http.send(request.body(body).unwrap()).await.into_body();
        let bytes = body.collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let invalid = send("POST", CONFIG_MAPS, &config_map("Not A Name")).await;
    let causes = "\"details\":{\"name\":\"Not A Name\",\"kind\":\"ConfigMap\",\
                  \"causes\":[{\"reason\":\"FieldValueInvalid\",\"message\":\"";
    assert!(invalid.contains(causes), "{invalid}");
    let end = "\"field\":\"metadata.name\"}]},\"code\":422}";
    assert!(invalid.ends_with(end), "{invalid}");
    let (_, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let deleted = send("DELETE", &format!("{CONFIG_MAPS}/a"), &json!({})).await;
    assert_eq!(
        deleted,
        format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Success\",\
             \"details\":{{\"name\":\"a\",\"kind\":\"configmaps\",\"uid\":\"{uid}\"}}}}"
        )
    );
    // The error event of a watch has the same field order.
    server.compact();
    let event = text(
        &http,
        &format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"),
        &[],
    )
    .await;
    let start = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":";
    assert!(event.starts_with(start), "{event}");
}

/// Proves wire/json.
#[tokio::test]
async fn rejected_identity_is_indented_for_curl() {
    let server = server();
    let http = http(&server);
    for (path, agent) in [
        ("/api/v1/pods?pretty=true", "x"),
        ("/api/v1/pods", "curl/8.0"),
    ] {
        let headers = [
            (header::USER_AGENT, agent),
            // Groups without a user are an error before any route is looked up.
            (header::HeaderName::from_static("impersonate-group"), "g"),
        ];
        let got = text(&http, path, &headers).await;
        assert!(
            got.starts_with("{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n"),
            "{got}"
        );
    }
}
