//! Tables of built-in kinds, as `kubectl get` prints them.

use crate::support::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// Returns the column names and the cells of the first row.
async fn table(http: &Http, path: &str) -> (Vec<String>, Value) {
    let request = Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = http.send(request).await;
    assert_eq!(response.status(), 200, "{path}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&body).unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let names = columns.map(|column| column["name"].as_str().unwrap().to_owned());
    (names.collect(), table["rows"][0]["cells"].clone())
}

/// Creates an object and returns its table.
async fn printed(collection: &str, object: Value) -> (Vec<String>, Value) {
    let server = server();
    let http = http(&server);
    let (code, response) = http.post(collection, &object).await;
    assert_eq!(code, 201, "{response}");
    table(
        &http,
        &format!(
            "{collection}/{}",
            object["metadata"]["name"].as_str().unwrap()
        ),
    )
    .await
}

/// Proves wire/tables.
#[tokio::test]
async fn hpa_prints_reference_and_targets() {
    let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment",
        "name": "web"}, "minReplicas": 2, "maxReplicas": 5, "metrics": [{"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]});
    let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": spec});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let (columns, cells) = printed(path, object).await;
    assert_eq!(
        columns,
        [
            "Name",
            "Reference",
            "Targets",
            "MinPods",
            "MaxPods",
            "Replicas",
            "Age"
        ]
    );
    assert_eq!(
        cells,
        json!([
            "web",
            "Deployment/web",
            "cpu: <unknown>/80%",
            "2",
            5,
            0,
            "0s"
        ])
    );
}

/// Proves wire/tables.
#[tokio::test]
async fn ingress_prints_class_hosts_and_ports() {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!({"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]});
    let spec = json!({"ingressClassName": "nginx", "tls": [{"hosts": ["a.example.com"]}],
        "rules": [{"host": "a.example.com", "http": paths}]});
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web"}, "spec": spec});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let (columns, cells) = printed(path, object).await;
    assert_eq!(
        columns,
        ["Name", "Class", "Hosts", "Address", "Ports", "Age"]
    );
    assert_eq!(
        cells,
        json!(["web", "nginx", "a.example.com", "", "80, 443", "0s"])
    );
}

/// Proves wire/tables.
#[tokio::test]
async fn network_policy_prints_its_pod_selector() {
    let selector = json!({"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}]});
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "web"}, "spec": {"podSelector": selector}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let (columns, cells) = printed(path, object).await;
    assert_eq!(columns, ["Name", "Pod-Selector", "Age"]);
    assert_eq!(cells, json!(["web", "app=web,tier in (a,b)", "0s"]));
}

/// Proves wire/tables.
#[tokio::test]
async fn kind_without_a_printer_shows_creation_time() {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "a"}, "rules": []});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (columns, cells) = printed(path, object).await;
    assert_eq!(columns, ["Name", "Created At"]);
    assert_eq!(cells, json!(["a", "2026-01-01T00:00:00Z"]));
}
