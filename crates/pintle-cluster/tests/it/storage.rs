//! Deletion of persistent volumes and claims.

use std::time::Duration;

use crate::support::{is_ready, start, until_gone, virtual_cluster, wait_for};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use pintle_cluster::Loops;
use serde_json::{Value, json};

fn claim(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

fn pod_with(claim: &str) -> Value {
    json!({
        "metadata": { "name": "user" },
        "spec": {
            "containers": [{ "name": "main", "image": "nginx" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        },
    })
}

/// Proves volumes/protection.
#[tokio::test(start_paused = true)]
async fn unused_claim_and_its_namespace_are_deleted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<PersistentVolumeClaim>(claim("data")).await;
    kubectl
        .delete::<PersistentVolumeClaim>("data", &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<PersistentVolumeClaim>(), "data").await;

    let namespaces = Api::<Namespace>::all(cluster.client());
    let team = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    namespaces
        .create(&PostParams::default(), &team)
        .await
        .unwrap();
    let kubectl = kubectl.in_namespace("team");
    kubectl.create::<PersistentVolumeClaim>(claim("data")).await;
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    until_gone(&namespaces, "team").await;
    cluster.stop().await;
}

/// Proves volumes/protection.
#[tokio::test(start_paused = true)]
async fn claim_in_use_is_deleted_after_its_pod() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<PersistentVolumeClaim>(claim("data")).await;
    kubectl.create::<Pod>(pod_with("data")).await;
    wait_for("the Pod to run", async || {
        is_ready(&kubectl.get::<Pod>("user").await).then_some(())
    })
    .await;
    kubectl
        .delete::<PersistentVolumeClaim>("data", &DeleteParams::default())
        .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let held = kubectl.get::<PersistentVolumeClaim>("data").await.metadata;
    assert!(held.deletion_timestamp.is_some());
    assert_eq!(held.finalizers.unwrap(), ["kubernetes.io/pvc-protection"]);

    kubectl
        .delete::<Pod>("user", &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<PersistentVolumeClaim>(), "data").await;
    cluster.stop().await;
}

/// Proves volumes/protection.
#[tokio::test(start_paused = true)]
async fn bound_volume_is_deleted_once_released() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let volumes = Api::<PersistentVolume>::all(cluster.client());
    let volume = json!({
        "metadata": { "name": "disk" },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "hostPath": { "path": "/data" },
        },
    });
    let volume = serde_json::from_value(volume).unwrap();
    volumes
        .create(&PostParams::default(), &volume)
        .await
        .unwrap();
    let mut claim = claim("data");
    claim["spec"]["storageClassName"] = json!("");
    kubectl.create::<PersistentVolumeClaim>(claim).await;
    wait_for("the binding", async || {
        let phase = volumes.get("disk").await.unwrap().status?.phase?;
        (phase == "Bound").then_some(())
    })
    .await;
    volumes
        .delete("disk", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let held = volumes.get("disk").await.unwrap().metadata;
    assert_eq!(held.finalizers.unwrap(), ["kubernetes.io/pv-protection"]);
    kubectl
        .delete::<PersistentVolumeClaim>("data", &DeleteParams::default())
        .await;
    until_gone(&volumes, "disk").await;
    cluster.stop().await;
}

/// Proves cluster/loops.
#[tokio::test(start_paused = true)]
async fn claim_is_not_deleted_without_the_loop() {
    let loops = Loops::ALL.without(Loops::VOLUME_PROTECTION);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    kubectl.create::<PersistentVolumeClaim>(claim("data")).await;
    kubectl
        .delete::<PersistentVolumeClaim>("data", &DeleteParams::default())
        .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    kubectl.get::<PersistentVolumeClaim>("data").await;
    cluster.stop().await;
}
