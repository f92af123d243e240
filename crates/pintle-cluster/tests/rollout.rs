//! What people do with kubectl, on a whole cluster under virtual time.

mod support;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::api::DeleteParams;
use support::{Kubectl, annotation, image, is_ready, virtual_cluster, wait_for};

/// Proves PC-12.
#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_pods_that_are_ready() {
    let cluster = virtual_cluster().start().await;
    let kubectl = Kubectl::new(cluster.client());
    kubectl.create_deployment("web", "nginx:1", 3).await;
    let deployment = kubectl.rollout("web").await;

    let pods = kubectl.pods().await;
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(is_ready));
    let nodes: std::collections::BTreeSet<_> = pods
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap())
        .collect();
    assert_eq!(nodes.len(), 2, "spread over both nodes");
    assert_eq!(
        annotation(&deployment.metadata, "deployment.kubernetes.io/revision"),
        "1"
    );
    cluster.stop().await;
}

/// Proves PC-12.
#[tokio::test(start_paused = true)]
async fn scaling_up_and_down_follows() {
    let cluster = virtual_cluster().start().await;
    let kubectl = Kubectl::new(cluster.client());
    kubectl.create_deployment("web", "nginx:1", 1).await;
    kubectl.rollout("web").await;
    kubectl.scale("web", 5).await;
    kubectl.rollout("web").await;
    assert_eq!(kubectl.pods().await.len(), 5);
    kubectl.scale("web", 2).await;
    kubectl.rollout("web").await;
    assert_eq!(kubectl.pods().await.len(), 2);
    cluster.stop().await;
}

/// Proves PC-12.
#[tokio::test(start_paused = true)]
async fn a_new_image_rolls_out_and_undo_brings_the_old_one_back() {
    let cluster = virtual_cluster().start().await;
    let kubectl = Kubectl::new(cluster.client());
    kubectl.create_deployment("web", "nginx:1", 3).await;
    kubectl.rollout("web").await;
    kubectl.set_image("web", "nginx:2").await;
    kubectl.rollout("web").await;
    assert!(
        kubectl
            .pods()
            .await
            .iter()
            .all(|pod| image(pod) == "nginx:2")
    );

    kubectl.undo("web").await;
    let deployment = kubectl.rollout("web").await;
    assert!(
        kubectl
            .pods()
            .await
            .iter()
            .all(|pod| image(pod) == "nginx:1")
    );
    assert_eq!(
        annotation(&deployment.metadata, "deployment.kubernetes.io/revision"),
        "3"
    );
    assert_eq!(kubectl.list::<ReplicaSet>().await.len(), 2);
    cluster.stop().await;
}

/// Proves W93, PC-12.
#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_takes_everything_with_it() {
    let cluster = virtual_cluster().start().await;
    let kubectl = Kubectl::new(cluster.client());
    kubectl.create_deployment("web", "nginx:1", 3).await;
    kubectl.rollout("web").await;
    kubectl
        .delete::<Deployment>("web", &DeleteParams::background())
        .await;
    wait_for("all to be gone", async || {
        let gone =
            kubectl.list::<ReplicaSet>().await.is_empty() && kubectl.list::<Pod>().await.is_empty();
        gone.then_some(())
    })
    .await;
    cluster.stop().await;
}
