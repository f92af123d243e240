//! An example test of a controller, here one that labels every node.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PostParams},
};
use pintle::{
    controller::{Action, Context, Controller},
    informer::InformerFactory,
};
use pintle_cluster::Cluster;
use serde_json::json;
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

/// Proves cluster/your-controller.
#[tokio::test(start_paused = true)]
async fn controller_labels_every_node() {
    let cluster = Cluster::builder().nodes(3).start().await;
    let informers = InformerFactory::new(cluster.client());
    let shutdown = CancellationToken::new();
    let stopping = shutdown.clone();
    let controller = tokio::spawn(async move {
        let controller = Controller::<Node>::new("labels", &informers);
        let reconcile = |key, cx: Context| async move {
            let label = json!({ "metadata": { "labels": { "seen": "yes" } } });
            cx.patch::<Node, _>(&key, &Patch::Merge(label)).await?;
            Ok(Action::await_change())
        };
        controller.run_by_key(reconcile, &stopping).await
    });
    sleep(Duration::from_secs(10)).await;

    let nodes = Api::<Node>::all(cluster.client())
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(nodes.items.len(), 3);
    assert!(nodes.iter().all(|node| node.labels()["seen"] == "yes"));
    shutdown.cancel();
    controller.await.unwrap().unwrap();
    cluster.stop().await;
}

/// Proves cluster/your-controller.
#[tokio::test(start_paused = true)]
async fn pods_become_ready_in_virtual_time_by_default() {
    // Longer than the test takes, so a cluster on the system clock would fail it.
    let delay = Duration::from_mins(10);
    let cluster = Cluster::builder().pod_ready_after(delay).start().await;
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    sleep(Duration::from_mins(5)).await;
    let status = pods.get("p").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    sleep(Duration::from_mins(6)).await;
    let status = pods.get("p").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    cluster.stop().await;
}
