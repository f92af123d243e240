//! Objects that every server starts with.

use crate::support::*;
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

async fn names(http: &Http, path: &str) -> Vec<String> {
    let (code, list) = http.get(path).await;
    assert_eq!(code, 200, "{path}");
    let items = list["items"].as_array().unwrap().iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
    names.collect()
}

async fn one(http: &Http, path: &str) -> Value {
    let (code, object) = http.get(path).await;
    assert_eq!(code, 200, "{path}: {object}");
    object
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn rbac_bootstrap_objects_exist() {
    let server = server();
    let http = http(&server);
    let admin = one(&http, &format!("{RBAC}/clusterroles/cluster-admin")).await;
    assert_eq!(
        admin["rules"],
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]}])
    );
    let metadata = &admin["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"kubernetes.io/bootstrapping": "rbac-defaults"})
    );
    assert_eq!(
        metadata["annotations"],
        json!({"rbac.authorization.kubernetes.io/autoupdate": "true"})
    );
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["managedFields"][0]["manager"], "kube-apiserver");
    let binding = one(&http, &format!("{RBAC}/clusterrolebindings/cluster-admin")).await;
    assert_eq!(binding["subjects"][0]["name"], "system:masters");
    let view = one(&http, &format!("{RBAC}/clusterroles/view")).await;
    assert_eq!(
        view["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"],
        json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"})
    );
    let selected = "labelSelector=rbac.authorization.k8s.io/aggregate-to-view%3Dtrue";
    let aggregated = names(&http, &format!("{RBAC}/clusterroles?{selected}")).await;
    assert_eq!(aggregated, ["system:aggregate-to-view"]);
    let system = format!("{RBAC}/namespaces/kube-system/rolebindings");
    assert!(names(&http, &system).await.len() > 3);
    assert_eq!(
        names(&http, &format!("{RBAC}/namespaces/kube-public/roles"))
            .await
            .len(),
        1
    );
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn bootstrap_object_can_be_changed() {
    let server = server();
    let http = http(&server);
    let path = format!("{RBAC}/clusterroles/view");
    let seeded = one(&http, &path).await;
    let (code, same) = http.put(&path, &seeded).await;
    assert_eq!(code, 200, "{same}");
    assert_eq!(same, seeded, "a no-op write changes nothing");
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    let (code, changed) = http.merge(&path, &label).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["metadata"]["uid"], seeded["metadata"]["uid"]);
    assert_eq!(http.delete(&path).await.0, 200);
    assert_eq!(http.get(&path).await.0, 404);
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn system_priority_classes_exist() {
    let server = server();
    let http = http(&server);
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    assert_eq!(
        names(&http, path).await,
        ["system-cluster-critical", "system-node-critical"]
    );
    let node = one(&http, &format!("{path}/system-node-critical")).await;
    assert_eq!(node["value"], 2_000_001_000);
    assert_eq!(node["preemptionPolicy"], "PreemptLowerPriority");
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn every_group_version_has_an_api_service() {
    let server = server();
    let http = http(&server);
    let all = names(&http, API_SERVICES).await;
    for name in [
        "v1.",
        "v1.apps",
        "v2.autoscaling",
        "v1.apiextensions.k8s.io",
    ] {
        assert!(all.iter().any(|other| other == name), "{name} of {all:?}");
    }
    let apps = one(&http, &format!("{API_SERVICES}/v1.apps")).await;
    assert_eq!(apps["spec"]["service"], Value::Null);
    assert_eq!(apps["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(apps["status"]["conditions"][0]["status"], "True");

    http.post(DEFINITIONS, &foo_definition()).await;
    let foo = one(&http, &format!("{API_SERVICES}/v1.example.com")).await;
    assert_eq!(
        foo["spec"],
        json!({"group": "example.com", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    assert_eq!(foo["status"]["conditions"][0]["type"], "Available");
    http.delete(&format!("{DEFINITIONS}/foos.example.com"))
        .await;
    assert_eq!(
        http.get(&format!("{API_SERVICES}/v1.example.com")).await.0,
        404
    );
}

/// Proves errors/status-reasons, bootstrap/objects.
#[tokio::test]
async fn api_service_of_another_server_is_rejected() {
    let server = server();
    let http = http(&server);
    let spec = json!({"group": "metrics.k8s.io", "version": "v1beta1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
        "service": {"namespace": "kube-system", "name": "metrics-server"}});
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec});
    let (code, rejected) = http.post(API_SERVICES, &service).await;
    assert_eq!(code, 501, "{rejected}");
    let message = rejected["message"].as_str().unwrap();
    assert!(message.contains("API aggregation"), "{message}");
    let patch = json!({"spec": {"service": {"namespace": "a", "name": "b"}}});
    let (code, _) = http.merge(&format!("{API_SERVICES}/v1.apps"), &patch).await;
    assert_eq!(code, 501);
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn component_statuses_follow_reports() {
    let server = server();
    let http = http(&server);
    let path = "/api/v1/componentstatuses";
    assert_eq!(
        names(&http, path).await,
        ["controller-manager", "etcd-0", "scheduler"]
    );
    let store = one(&http, &format!("{path}/etcd-0")).await;
    assert_eq!(
        store["conditions"],
        json!([{"type": "Healthy", "status": "True", "message": "ok"}])
    );
    let scheduler = format!("{path}/scheduler");
    assert_eq!(
        one(&http, &scheduler).await["conditions"][0]["status"],
        "False"
    );
    server.report_component("scheduler", Ok(()));
    assert_eq!(
        one(&http, &scheduler).await["conditions"][0]["status"],
        "True"
    );
    assert_eq!(http.get(&format!("{path}/none")).await.0, 404);
    let selected = names(
        &http,
        &format!("{path}?fieldSelector=metadata.name%3Detcd-0"),
    )
    .await;
    assert_eq!(selected, ["etcd-0"]);
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn service_cidr_matches_the_allocator() {
    let server = server();
    let http = http(&server);
    let path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let cidr = one(&http, path).await;
    assert_eq!(cidr["spec"]["cidrs"], json!(["10.96.0.0/16"]));
    let ready = &cidr["status"]["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["status"]),
        (&json!("Ready"), &json!("True"))
    );
}

/// Proves bootstrap/objects.
#[tokio::test]
async fn kubernetes_endpoints_follow_listeners() {
    let server = ApiServer::builder().build();
    let http = http(&server);
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    assert_eq!(
        one(&http, endpoints).await.get("subsets"),
        None,
        "in process"
    );
    assert_eq!(one(&http, slice).await["endpoints"], json!([]));
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let port = bound.address().port();
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    assert_eq!(
        one(&http, endpoints).await["subsets"],
        json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}])
    );
    let listening = one(&http, slice).await;
    assert_eq!(listening["ports"], ports);
    assert_eq!(
        listening["endpoints"],
        json!([{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}])
    );
    assert_eq!(
        listening["metadata"]["labels"]["kubernetes.io/service-name"],
        "kubernetes"
    );
    bound.shutdown().await;
    assert_eq!(one(&http, endpoints).await.get("subsets"), None, "closed");
}
