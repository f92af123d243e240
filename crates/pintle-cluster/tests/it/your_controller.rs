//! An example test of a controller, here one that labels every node.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch},
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
