//! Scheduling of Pods to nodes.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Kubectl, is_ready, start, until_gone, virtual_cluster, wait_for};

fn pod(name: &str, port: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "x", "ports": [port]}]}})
}

async fn node_of(kubectl: &Kubectl, name: &str) -> String {
    wait_for(&format!("{name} to run"), async || {
        let pod = kubectl.get::<Pod>(name).await;
        if is_ready(&pod) {
            pod.spec?.node_name
        } else {
            None
        }
    })
    .await
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn gated_pod_waits_until_its_gates_are_removed() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let mut gated = pod("p", &json!({"containerPort": 80}));
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    kubectl.create::<Pod>(gated).await;
    sleep(Duration::from_secs(60)).await;
    let waiting = kubectl.get::<Pod>("p").await;
    assert_eq!(waiting.spec.unwrap().node_name, None);
    let conditions = waiting.status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].reason.as_deref(), Some("SchedulingGated"));

    kubectl
        .patch::<Pod>("p", json!({"spec": {"schedulingGates": null}}))
        .await;
    node_of(&kubectl, "p").await;
    cluster.stop().await;
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn pod_of_another_scheduler_is_left_to_it() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let mut foreign = pod("p", &json!({"containerPort": 80}));
    foreign["spec"]["schedulerName"] = "mine".into();
    kubectl.create::<Pod>(foreign).await;
    sleep(Duration::from_secs(60)).await;
    let waiting = kubectl.get::<Pod>("p").await;
    assert_eq!(waiting.spec.unwrap().node_name, None);
    let status = waiting.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(status.conditions, None, "no scheduler has handled it");

    // Its own scheduler binds it, and the kubelet runs it.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"}});
    let request = http::Request::post("/api/v1/namespaces/default/pods/p/binding")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&binding).unwrap())
        .unwrap();
    cluster.client().request::<Value>(request).await.unwrap();
    assert_eq!(node_of(&kubectl, "p").await, "node-0");
    cluster.stop().await;
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn pods_with_the_same_host_port_get_different_nodes() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let port = json!({"containerPort": 80, "hostPort": 8080});
    for name in ["a", "b", "c"] {
        kubectl.create::<Pod>(pod(name, &port)).await;
    }
    // The same port number with another protocol does not conflict.
    let udp = json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"});
    kubectl.create::<Pod>(pod("udp", &udp)).await;
    node_of(&kubectl, "udp").await;
    sleep(Duration::from_secs(60)).await;
    let placed: Vec<(String, String)> = kubectl
        .pods()
        .await
        .into_iter()
        .filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?)))
        .filter(|(name, _)| name != "udp")
        .collect();
    let nodes: BTreeSet<&str> = placed.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!((placed.len(), nodes.len()), (2, 2), "{placed:?}");

    // Once one is deleted, the pending Pod gets its port.
    kubectl
        .delete::<Pod>(&placed[0].0, &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<Pod>(), &placed[0].0).await;
    for (name, _) in placed.iter().skip(1) {
        node_of(&kubectl, name).await;
    }
    let all = ["a", "b", "c"].into_iter();
    let pending = all.filter(|name| !placed.iter().any(|(placed, _)| placed == name));
    for name in pending {
        assert_eq!(node_of(&kubectl, name).await, placed[0].1);
    }
    cluster.stop().await;
}

/// Proves objects/no-silent-storage.
#[tokio::test(start_paused = true)]
async fn server_warns_about_kinds_without_a_loop() {
    use http::header;
    use pintle_cluster::Loops;

    let warned = async |cluster: &pintle_cluster::Cluster, plural: &str| {
        let body = json!({"metadata": {"name": "w"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
        let path = format!("/apis/apps/v1/namespaces/default/{plural}?dryRun=All");
        let request = http::Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes().into())
            .unwrap();
        let response = cluster.client().send(request).await.unwrap();
        assert_eq!(response.status(), 201);
        response.headers().contains_key(header::WARNING)
    };
    let whole = virtual_cluster().start().await;
    assert!(!warned(&whole, "deployments").await);
    assert!(!warned(&whole, "daemonsets").await);
    whole.stop().await;
    let some = Loops::ALL.without(Loops::DAEMON_SET);
    let some = virtual_cluster().loops(some).start().await;
    assert!(!warned(&some, "deployments").await);
    assert!(warned(&some, "daemonsets").await);
    some.stop().await;
    let bare = virtual_cluster().loops(Loops::NONE).start().await;
    assert!(warned(&bare, "deployments").await);
    bare.stop().await;
}
