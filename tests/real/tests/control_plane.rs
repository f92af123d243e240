//! The control plane that `cargo xtask real-cluster up` starts.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use real_tests::{TestNamespace, eventually};
use serde_json::{from_value, json};

#[tokio::test]
async fn control_plane_has_the_pinned_version() {
    let namespace = TestNamespace::create().await;
    let version = namespace.client().apiserver_version().await.unwrap();
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "36")
    );
    assert_eq!(version.git_version, "v1.36.4");
}

#[tokio::test]
async fn controller_manager_creates_pods_of_a_deployment() {
    let namespace = TestNamespace::create().await;
    let deployment: Deployment = from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    }))
    .unwrap();
    namespace
        .api()
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();

    let pods = namespace.api::<Pod>();
    let labeled = ListParams::default().labels("app=web");
    let pods = eventually("two Pods", async || {
        let pods = pods.list(&labeled).await.unwrap().items;
        (pods.len() == 2).then_some(pods)
    })
    .await;

    for pod in pods {
        let owners = pod.metadata.owner_references.unwrap_or_default();
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0].kind, "ReplicaSet");
    }
}

#[tokio::test]
async fn namespace_gets_a_default_service_account() {
    let namespace = TestNamespace::create().await;
    let accounts = namespace.api::<ServiceAccount>();
    eventually("the default service account", async || {
        accounts.get_opt("default").await.unwrap()
    })
    .await;
}
