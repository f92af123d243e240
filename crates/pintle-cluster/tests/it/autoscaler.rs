//! `HorizontalPodAutoscaler`s: the size of a workload follows its load.

use std::time::Duration;

use crate::support::{Kubectl, start, virtual_cluster, wait_for};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::Pod,
};
use pintle_cluster::Loops;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

fn autoscaler(kind: &str, metrics: &Value, behavior: &Value) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "minReplicas": 1, "maxReplicas": 10,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": "web" },
            "metrics": metrics, "behavior": behavior,
        },
    })
}

fn cpu() -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
    json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }])
}

/// Creates a Deployment whose Pods request 100m of CPU.
async fn deploy(kubectl: &Kubectl, replicas: i32) {
    kubectl.create_deployment("web", "nginx", replicas).await;
    let resources = json!({ "requests": { "cpu": "100m" } });
    let containers = json!([{ "name": "main", "image": "nginx", "resources": resources }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    kubectl.patch::<Deployment>("web", patch).await;
    kubectl.rollout("web").await;
}

async fn until_size(kubectl: &Kubectl, replicas: i32) -> HorizontalPodAutoscaler {
    wait_for(&format!("{replicas} replicas"), async || {
        let web = kubectl.get::<Deployment>("web").await;
        let autoscaler = kubectl.get::<HorizontalPodAutoscaler>("web").await;
        let status = autoscaler.status.as_ref()?;
        let is_size = web.spec?.replicas == Some(replicas);
        (is_size && status.current_replicas == Some(replicas)).then_some(autoscaler)
    })
    .await
}

fn reason(autoscaler: &HorizontalPodAutoscaler, type_: &str) -> String {
    let conditions = autoscaler
        .status
        .as_ref()
        .unwrap()
        .conditions
        .iter()
        .flatten();
    let mut conditions = conditions.filter(|it| it.type_ == type_);
    conditions
        .next()
        .unwrap()
        .reason
        .clone()
        .unwrap_or_default()
}

/// Proves autoscaler/metrics, autoscaler/limits.
#[tokio::test(start_paused = true)]
async fn deployment_follows_its_cpu_usage() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    deploy(&kubectl, 2).await;
    let autoscaler = autoscaler("Deployment", &cpu(), &Value::Null);
    kubectl.create::<HorizontalPodAutoscaler>(autoscaler).await;
    let blind = wait_for("a condition", async || {
        let found = kubectl.get::<HorizontalPodAutoscaler>("web").await;
        found.status.as_ref()?.conditions.as_ref()?;
        Some(found)
    })
    .await;
    assert_eq!(reason(&blind, "ScalingActive"), "FailedGetResourceMetric");

    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "90m")
        .unwrap();
    wait_for("four replicas", async || {
        let web = kubectl.get::<Deployment>("web").await;
        (web.spec?.replicas == Some(4)).then_some(())
    })
    .await;
    // The load of each Pod falls as they share it.
    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "50m")
        .unwrap();
    let steady = until_size(&kubectl, 4).await;
    assert_eq!(reason(&steady, "ScalingActive"), "ValidMetricFound");
    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "10m")
        .unwrap();
    let start = Instant::now();
    until_size(&kubectl, 1).await;
    assert!(
        start.elapsed() > Duration::from_mins(3),
        "the last peak delays scaling down"
    );
    cluster.stop().await;
}

/// Proves autoscaler/metrics.
#[tokio::test(start_paused = true)]
async fn annotations_set_the_load() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_stateful_set("web", "nginx", 1).await;
    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    let external = json!({ "metric": { "name": "queue" }, "target": target });
    let queue = json!([{ "type": "External", "external": external }]);
    let mut autoscaler = autoscaler("StatefulSet", &queue, &Value::Null);
    autoscaler["metadata"]["annotations"] = json!({ "pintle.dev/metrics": "queue=25" });
    kubectl.create::<HorizontalPodAutoscaler>(autoscaler).await;
    wait_for("three replicas", async || {
        let web = kubectl.get::<StatefulSet>("web").await;
        (web.spec?.replicas == Some(3) && kubectl.pods().await.len() == 3).then_some(())
    })
    .await;
    let requests = json!({ "type": "AverageValue", "averageValue": "100" });
    let pods = json!({ "metric": { "name": "requests" }, "target": requests });
    let metrics = json!({ "spec": { "metrics": [{ "type": "Pods", "pods": pods }] } });
    kubectl
        .patch::<HorizontalPodAutoscaler>("web", metrics)
        .await;
    let usage = json!({ "metadata": { "annotations": { "pintle.dev/usage": "requests=200" } } });
    for pod in kubectl.pods().await {
        kubectl
            .patch::<Pod>(&pod.metadata.name.unwrap(), usage.clone())
            .await;
    }
    wait_for("six replicas", async || {
        let web = kubectl.get::<StatefulSet>("web").await;
        (web.spec?.replicas == Some(6)).then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves autoscaler/limits, cluster/end-states.
#[tokio::test(start_paused = true)]
async fn scaling_behavior_is_honored_and_steady_load_is_idle() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    deploy(&kubectl, 1).await;
    let policy = json!({ "type": "Pods", "value": 1, "periodSeconds": 60 });
    let behavior = json!({ "scaleUp": { "policies": [policy] } });
    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "100m")
        .unwrap();
    let autoscaler = autoscaler("Deployment", &cpu(), &behavior);
    kubectl.create::<HorizontalPodAutoscaler>(autoscaler).await;
    let start = Instant::now();
    until_size(&kubectl, 4).await;
    assert!(start.elapsed() > Duration::from_mins(2), "one Pod a minute");
    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "50m")
        .unwrap();
    sleep(Duration::from_mins(10)).await;
    let before = kubectl.get::<HorizontalPodAutoscaler>("web").await;
    sleep(Duration::from_mins(30)).await;
    let after = kubectl.get::<HorizontalPodAutoscaler>("web").await;
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
    cluster.stop().await;
}

/// Proves autoscaler/metrics, cluster/loops.
#[tokio::test(start_paused = true)]
async fn unknown_target_is_reported() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let missing = autoscaler("Deployment", &cpu(), &Value::Null);
    kubectl
        .create::<HorizontalPodAutoscaler>(missing.clone())
        .await;
    wait_for("a condition", async || {
        let found = kubectl.get::<HorizontalPodAutoscaler>("web").await;
        let conditions = found.status?.conditions?;
        (conditions[0].reason.as_deref() == Some("FailedGetScale")).then_some(())
    })
    .await;
    cluster.stop().await;

    let loops = Loops::ALL.without(Loops::AUTOSCALER);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    kubectl.create::<HorizontalPodAutoscaler>(missing).await;
    sleep(Duration::from_mins(1)).await;
    let found = kubectl.get::<HorizontalPodAutoscaler>("web").await;
    assert_eq!(found.status.and_then(|status| status.conditions), None);
    cluster.stop().await;
}
