//! Pods that crash, exit and never start, by annotation and by API.

use std::time::Duration;

use crate::support::{Kubectl, is_ready, start, virtual_cluster};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use pintle_cluster::Behavior;
use serde_json::json;
use tokio::time::sleep;

async fn create(kubectl: &Kubectl, name: &str, behavior: Option<&str>, policy: &str) {
    let annotations = behavior.map(|it| json!({ Behavior::ANNOTATION: it }));
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": name, "labels": { "app": name }, "annotations": annotations },
            "spec": {
                "restartPolicy": policy,
                "containers": [{ "name": "main", "image": "nginx:1" }],
            },
        }))
        .await;
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().phase.as_deref().unwrap()
}

fn container(pod: &Pod) -> ContainerStatus {
    let statuses = pod.status.as_ref().unwrap().container_statuses.clone();
    statuses.unwrap().remove(0)
}

fn waiting(pod: &Pod) -> Option<String> {
    container(pod).state?.waiting?.reason
}

/// Proves pods/script.
#[tokio::test(start_paused = true)]
async fn annotation_decides_how_a_pod_ends() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, "done", Some("exit after=10s"), "Never").await;
    create(
        &kubectl,
        "failed",
        Some("exit code=3 after=10s"),
        "OnFailure",
    )
    .await;
    create(&kubectl, "oom", Some("oom-kill"), "Never").await;
    create(&kubectl, "typo", Some("exit-code 3"), "Never").await;
    create(&kubectl, "plain", None, "Never").await;
    sleep(Duration::from_secs(8)).await;
    assert_eq!(phase(&kubectl.get::<Pod>("done").await), "Running");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(phase(&kubectl.get::<Pod>("done").await), "Succeeded");
    let oom = kubectl.get::<Pod>("oom").await;
    let ended = container(&oom).state.unwrap().terminated.unwrap();
    assert_eq!((phase(&oom), ended.exit_code), ("Failed", 137));
    assert_eq!(ended.reason.as_deref(), Some("OOMKilled"));
    sleep(Duration::from_secs(10)).await;
    let failed = kubectl.get::<Pod>("failed").await;
    assert_eq!(phase(&failed), "Running");
    assert_eq!(waiting(&failed).as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(container(&failed).restart_count, 1);
    let typo = kubectl.get::<Pod>("typo").await;
    assert_eq!(
        waiting(&typo).as_deref(),
        Some("CreateContainerConfigError")
    );
    assert!(is_ready(&kubectl.get::<Pod>("plain").await));
    cluster.stop().await;
}

/// Proves pods/script.
#[tokio::test(start_paused = true)]
async fn script_changes_running_pods_and_new_ones() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, "web", None, "Always").await;
    create(&kubectl, "db", None, "Always").await;
    sleep(Duration::from_secs(60)).await;
    assert!(is_ready(&kubectl.get::<Pod>("web").await));

    cluster.pods().matching("app=web").crash_loop().unwrap();
    sleep(Duration::from_secs(5)).await;
    let web = kubectl.get::<Pod>("web").await;
    assert_eq!(waiting(&web).as_deref(), Some("CrashLoopBackOff"));
    assert!(!is_ready(&web));
    assert!(is_ready(&kubectl.get::<Pod>("db").await));

    cluster.pods().matching("app=web").run().unwrap();
    sleep(Duration::from_secs(60)).await;
    let web = kubectl.get::<Pod>("web").await;
    assert!(is_ready(&web));
    assert!(container(&web).restart_count > 1);

    cluster.pods().never_ready().unwrap();
    sleep(Duration::from_secs(1)).await;
    for name in ["web", "db"] {
        assert!(!is_ready(&kubectl.get::<Pod>(name).await), "{name}");
    }
    cluster.pods().reset().unwrap();
    cluster
        .pods()
        .in_namespace("elsewhere")
        .fail_image_pull()
        .unwrap();
    cluster
        .pods()
        .matching("app=slow")
        .fail_image_pull()
        .unwrap();
    create(&kubectl, "slow", None, "Always").await;
    sleep(Duration::from_secs(30)).await;
    for name in ["web", "db"] {
        assert!(is_ready(&kubectl.get::<Pod>(name).await), "{name}");
    }
    let slow = kubectl.get::<Pod>("slow").await;
    assert_eq!(waiting(&slow).as_deref(), Some("ImagePullBackOff"));
    assert!(cluster.pods().matching("app in (").run().is_err());
    cluster.stop().await;
}

/// Proves pods/lifecycle.
#[tokio::test(start_paused = true)]
async fn deleted_pod_waits_for_its_finalizer() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, "web", None, "Always").await;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    kubectl.patch::<Pod>("web", held).await;
    sleep(Duration::from_secs(10)).await;
    kubectl.delete::<Pod>("web", &DeleteParams::default()).await;
    sleep(Duration::from_secs(60)).await;
    let web = kubectl.get::<Pod>("web").await;
    assert_eq!(phase(&web), "Failed");
    assert_eq!(web.metadata.deletion_grace_period_seconds, Some(0));
    let version = web.metadata.resource_version;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(
        kubectl.get::<Pod>("web").await.metadata.resource_version,
        version
    );
    let free = json!({ "metadata": { "finalizers": null } });
    kubectl.patch::<Pod>("web", free).await;
    assert!(kubectl.api::<Pod>().get_opt("web").await.unwrap().is_none());
    cluster.stop().await;
}
