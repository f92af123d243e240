//! `ReplicationController`s: the same Pods and counters as kube-controller-manager.

use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::DeleteParams;
use real_tests::eventually;
use serde_json::{Value, json};

use super::mask::masked;
use super::pair::{Pair, Side};
use super::{pod, template};

async fn snapshot(side: &Side) -> Value {
    let controllers = side.list::<ReplicationController>().await;
    let mut pods: Vec<Value> = side
        .list::<Pod>()
        .await
        .iter()
        .map(|pod| masked(json!(pod), &[]))
        .collect();
    pods.sort_by_key(Value::to_string);
    json!({ "controllers": masked(json!(controllers), &[]), "pods": pods })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

async fn until(side: &Side, replicas: i32) {
    eventually("the Pods", async || {
        let controllers = side.api::<ReplicationController>();
        let found = controllers.get("web").await.unwrap();
        let status = found.status?;
        let is_current = status.observed_generation == found.metadata.generation;
        (is_current && status.replicas == replicas).then_some(())
    })
    .await;
}

/// Proves replicaset/scale, cluster/end-states.
#[tokio::test]
async fn controller_is_created_scaled_and_deleted() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Pod>(pod("orphan")).await;
        let labels = json!({ "app": "web" });
        let template = template(&labels, "nginx:1");
        side.create::<ReplicationController>(json!({
            "metadata": { "name": "web" },
            "spec": { "replicas": 3, "selector": labels, "template": template },
        }))
        .await;
        until(side, 3).await;
        side.make_ready(|_| true).await;
    })
    .await;
    compare(&pair, "created").await;
    pair.both(async |side| {
        let spec = json!({ "spec": { "replicas": 0 } });
        side.patch::<ReplicationController>("web", spec).await;
        until(side, 0).await;
    })
    .await;
    compare(&pair, "scaled to zero").await;
    pair.both(async |side| {
        let spec = json!({ "spec": { "replicas": 2 } });
        side.patch::<ReplicationController>("web", spec).await;
        until(side, 2).await;
        let controllers = side.api::<ReplicationController>();
        let background = DeleteParams::background();
        controllers.delete("web", &background).await.unwrap();
        side.until_none_left::<Pod>().await;
    })
    .await;
    compare(&pair, "deleted").await;
    pair.stop().await;
}
