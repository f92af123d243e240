//! Discovery, version and health endpoints.

use crate::support::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// Proves apiserver/paths.
#[tokio::test]
async fn nonresource_paths_are_served_and_unknown_ones_get_404() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get("/version").await.1["minor"], "36");
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping?verbose"] {
        assert_eq!(http.get(path).await, (200, json!("ok")));
    }
    let (code, body) = http.get("/nothing/here").await;
    assert_eq!((code, body), (404, json!("404 page not found\n")));
    assert!(
        http.get("/").await.1["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/apps/v1"))
    );
}

/// Proves discovery/resources.
#[tokio::test]
async fn aggregated_discovery_has_an_etag() {
    let server = server();
    let http = http(&server);
    let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = |tag: &str| {
        Request::get("/apis")
            .header("accept", format!("{kind},application/json"))
            .header("if-none-match", tag)
            .body(Full::new(Bytes::new()))
            .unwrap()
    };
    let response = http.send(request("")).await;
    assert_eq!(response.headers()["content-type"], kind);
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let body: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let apps = body["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "apps")
        .unwrap();
    let deployments = apps["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["resource"] == "deployments")
        .unwrap();
    assert_eq!(deployments["scope"], "Namespaced");
    // An empty group and version mean those of the resource.
    assert_eq!(
        deployments["responseKind"],
        json!({"group": "", "version": "", "kind": "Deployment"})
    );
    let scale = &deployments["subresources"][0];
    assert_eq!(
        (&scale["subresource"], &scale["responseKind"]["group"]),
        (&json!("scale"), &json!("autoscaling"))
    );
    assert_eq!(http.send(request(&tag)).await.status(), 304);
    http.post(DEFINITIONS, &foo_definition()).await;
    assert_eq!(
        http.send(request(&tag)).await.status(),
        200,
        "a new kind changes the document"
    );
}

/// Proves discovery/resources.
#[tokio::test]
async fn unaggregated_discovery_lists_groups_and_resources() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.get("/api").await.1["versions"], json!(["v1"]));
    assert_eq!(http.get("/apis").await.1["kind"], "APIGroupList");
    let (_, core) = http.get("/api/v1").await;
    let has = |name: &str| {
        core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["name"] == name)
    };
    assert!(has("pods") && has("pods/status") && has("namespaces/finalize"));
}

/// Proves discovery/resources.
#[tokio::test]
async fn group_prefers_its_most_mature_version() {
    let server = server();
    let http = http(&server);
    for (plural, kind, version) in [
        ("as", "A", "v1alpha1"),
        ("bs", "B", "v1"),
        ("cs", "C", "v1beta1"),
    ] {
        let mut definition = foo_definition();
        definition["metadata"]["name"] = format!("{plural}.example.com").into();
        definition["spec"]["names"] =
            json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
        definition["spec"]["versions"][0]["name"] = version.into();
        assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    }
    let (_, group) = http.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(versions, ["v1", "v1beta1", "v1alpha1"]);
}
