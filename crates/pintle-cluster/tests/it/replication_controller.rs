//! `ReplicationController`s: the predecessors of `ReplicaSet`s.

use crate::support::{is_ready, start, virtual_cluster, wait_for};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::DeleteParams;
use serde_json::json;

/// Proves replicaset/scale.
#[tokio::test(start_paused = true)]
async fn controller_keeps_its_number_of_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
    });
    let mut orphan = template.clone();
    orphan["metadata"]["name"] = json!("orphan");
    kubectl.create::<Pod>(orphan).await;
    let spec = json!({ "replicas": 3, "selector": { "app": "web" }, "template": template });
    let web = json!({ "metadata": { "name": "web" }, "spec": spec });
    kubectl.create::<ReplicationController>(web).await;
    let until = async |count: i32| {
        wait_for(&format!("{count} Pods"), async || {
            let status = kubectl.get::<ReplicationController>("web").await.status?;
            let pods = kubectl.pods().await;
            let all_ready = pods.iter().all(is_ready);
            let ready = status.ready_replicas.unwrap_or_default();
            (all_ready && (status.replicas, ready) == (count, count)).then_some(pods)
        })
        .await
    };
    let pods = until(3).await;
    assert!(
        pods.iter()
            .any(|pod| pod.metadata.name.as_deref() == Some("orphan"))
    );
    for pod in pods {
        let owners = pod.metadata.owner_references.unwrap();
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].controller),
            ("ReplicationController", Some(true))
        );
    }
    kubectl
        .delete::<Pod>("orphan", &DeleteParams::default())
        .await;
    until(3).await;
    kubectl
        .patch::<ReplicationController>("web", json!({ "spec": { "replicas": 1 } }))
        .await;
    until(1).await;
    kubectl
        .delete::<ReplicationController>("web", &DeleteParams::background())
        .await;
    wait_for("no Pods", async || {
        kubectl.list::<Pod>().await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}
