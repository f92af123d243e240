//! Rollouts and Pod lifecycles under virtual time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Node, Pod},
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use pintle::{
    informer::{Event, SharedInformer},
    source::{KubeSource, Scope},
};
use pintle_cluster::Loops;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{annotation, image, is_ready, start, until_gone, virtual_cluster, wait_for};

/// Proves cluster/end-states.
#[tokio::test(start_paused = true)]
async fn deployment_becomes_ready_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
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

/// Proves cluster/end-states.
#[tokio::test(start_paused = true)]
async fn scaling_creates_and_deletes_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
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

/// Proves cluster/end-states.
#[tokio::test(start_paused = true)]
async fn new_image_rolls_out_and_undo_restores_the_old_one() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
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

/// Proves cluster/loops.
#[tokio::test(start_paused = true)]
async fn disabled_loops_do_nothing() {
    let (cluster, kubectl) = start(virtual_cluster().loops(Loops::NONE)).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(kubectl.list::<ReplicaSet>().await.is_empty());
    cluster.stop().await;

    let some = Loops::DEPLOYMENT | Loops::REPLICA_SET;
    let (cluster, kubectl) = start(virtual_cluster().loops(some)).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    wait_for("two Pods", async || {
        (kubectl.pods().await.len() == 2).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        !kubectl.pods().await.iter().any(is_ready),
        "no loop runs them"
    );
    kubectl
        .delete::<Deployment>("web", &DeleteParams::background())
        .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(kubectl.pods().await.len(), 2, "no loop collects them");
    cluster.stop().await;
}

/// Proves cluster/end-states.
#[tokio::test(start_paused = true)]
async fn selector_that_does_not_match_the_template_is_rejected() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "other" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
            },
        },
    }));
    let result = kubectl
        .api::<Deployment>()
        .create(&PostParams::default(), &deployment.unwrap())
        .await;
    let kube::Error::Api(status) = result.unwrap_err() else {
        panic!("not an API error");
    };
    assert_eq!(status.code, 422);
    assert!(
        status
            .message
            .contains("`selector` does not match template `labels`"),
        "{status:?}"
    );
    cluster.stop().await;
}

/// Proves deployment/rolling-bounds.
#[tokio::test(start_paused = true)]
async fn rolling_update_stays_within_its_bounds() {
    let (cluster, kubectl) = start(virtual_cluster().pod_stop_after(Duration::from_secs(3))).await;
    kubectl.create_deployment("web", "nginx:1", 4).await;
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } });
    kubectl
        .patch::<Deployment>("web", json!({ "spec": { "strategy": strategy } }))
        .await;
    kubectl.rollout("web").await;

    // Record the counts after every change of a Pod.
    let pods = SharedInformer::<Pod>::new(KubeSource::<Pod>::new(cluster.client(), Scope::all()));
    let (mut states, seen) = (BTreeMap::new(), Arc::new(Mutex::new(Vec::new())));
    let recorded = seen.clone();
    let _watching = pods.on_event(move |event| {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                let pod = object.get().unwrap();
                let deleted = object.is_being_deleted();
                states.insert(object.key().clone(), (!deleted, !deleted && is_ready(&pod)));
            }
            Event::Deleted(deleted) => drop(states.remove(&deleted.key)),
        }
        let count = |pick: fn(&(bool, bool)) -> bool| states.values().filter(|s| pick(s)).count();
        recorded.lock().push((count(|s| s.0), count(|s| s.1)));
    });
    let stop = CancellationToken::new();
    let informer = tokio::spawn({
        let (pods, stop) = (pods.clone(), stop.clone());
        async move { pods.run(&stop).await }
    });
    pods.synced().await;
    seen.lock().clear();
    kubectl.set_image("web", "nginx:2").await;
    kubectl.rollout("web").await;
    stop.cancel();
    informer.await.unwrap();

    let seen = seen.lock().clone();
    assert!(seen.len() > 10);
    assert!(seen.iter().all(|(active, _)| *active <= 5), "{seen:?}");
    assert!(
        seen.iter().all(|(_, available)| *available >= 3),
        "{seen:?}"
    );
    cluster.stop().await;
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn unschedulable_pod_waits_for_a_fitting_node() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": "selective" },
            "spec": {
                "nodeSelector": { "disk": "fast" },
                "containers": [{ "name": "main", "image": "nginx" }],
            },
        }))
        .await;
    wait_for("the Unschedulable condition", async || {
        let status = kubectl.get::<Pod>("selective").await.status?;
        let mut conditions = status.conditions?.into_iter();
        conditions
            .find(|c| c.reason.as_deref() == Some("Unschedulable"))
            .map(drop)
    })
    .await;
    let nodes = kube::Api::<Node>::all(cluster.client());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "disk": "fast" } } }));
    nodes
        .patch("node-1", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let pod = wait_for("the Pod to run", async || {
        Some(kubectl.get::<Pod>("selective").await).filter(is_ready)
    })
    .await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
    cluster.stop().await;
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn pending_pod_runs_once_another_is_deleted_or_finishes() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(1)).await;
    let one = json!({ "status": { "allocatable": { "pods": "1" } } });
    let nodes = kube::Api::<Node>::all(cluster.client());
    wait_for("the node", async || {
        let params = PatchParams::default();
        nodes
            .patch_status("node-0", &params, &Patch::Merge(&one))
            .await
            .ok()
    })
    .await;
    let pod = async |name: &str| {
        let containers = json!([{ "name": "main", "image": "nginx" }]);
        let pod = json!({ "metadata": { "name": name }, "spec": { "containers": containers } });
        kubectl.create::<Pod>(pod).await
    };
    let runs = async |name: &str| {
        let start = Instant::now();
        wait_for("the Pod to run", async || {
            is_ready(&kubectl.get::<Pod>(name).await).then_some(())
        })
        .await;
        start.elapsed()
    };
    pod("first").await;
    runs("first").await;
    pod("second").await;
    pod("third").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        !is_ready(&kubectl.get::<Pod>("second").await),
        "the node is full"
    );

    // Neither the node nor the pending Pods change, so the deletion itself must trigger scheduling.
    kubectl
        .delete::<Pod>("first", &DeleteParams::default())
        .await;
    wait_for("the first to be gone", async || {
        (kubectl.pods().await.len() == 2).then_some(())
    })
    .await;
    let waiting: Vec<_> = ["second", "third"].into();
    let next = wait_for("one of them to run", async || {
        for name in &waiting {
            if is_ready(&kubectl.get::<Pod>(name).await) {
                return Some(*name);
            }
        }
        None
    });
    let next = tokio::time::timeout(Duration::from_secs(8), next)
        .await
        .unwrap();

    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    let params = PatchParams::default();
    kubectl
        .api::<Pod>()
        .patch_status(next, &params, &done)
        .await
        .unwrap();
    let last = if next == "second" { "third" } else { "second" };
    assert!(
        runs(last).await < Duration::from_secs(8),
        "a finished Pod does not count"
    );
    cluster.stop().await;
}

/// Proves pods/lifecycle.
#[tokio::test(start_paused = true)]
async fn deleted_pod_stops_within_its_grace_period() {
    let (cluster, kubectl) = start(virtual_cluster().pod_stop_after(Duration::from_secs(10))).await;
    for (name, grace, takes) in [
        ("slow", None, 10),
        ("limited", Some(4), 4),
        ("killed", Some(0), 0),
    ] {
        kubectl
            .create::<Pod>(json!({
                "metadata": { "name": name },
                "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
            }))
            .await;
        wait_for("the Pod to run", async || {
            is_ready(&kubectl.get::<Pod>(name).await).then_some(())
        })
        .await;
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        kubectl.delete::<Pod>(name, &params).await;
        let start = Instant::now();
        until_gone(&kubectl.api::<Pod>(), name).await;
        let took = start.elapsed().as_secs_f64();
        assert!(
            (f64::from(takes) - 1.0..f64::from(takes) + 1.5).contains(&took),
            "{name}: {took}"
        );
    }
    cluster.stop().await;
}

/// Proves gc/collects, cluster/end-states.
#[tokio::test(start_paused = true)]
async fn deleting_a_deployment_deletes_sets_and_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_deployment("web", "nginx:1", 3).await;
    kubectl.rollout("web").await;
    kubectl
        .delete::<Deployment>("web", &DeleteParams::background())
        .await;
    wait_for("sets and Pods to be gone", async || {
        let gone =
            kubectl.list::<ReplicaSet>().await.is_empty() && kubectl.list::<Pod>().await.is_empty();
        gone.then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves workloads/adoption, workloads/revisions.
#[tokio::test(start_paused = true)]
async fn deployment_adopts_the_set_of_an_orphaned_one() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "nginx:1" }] },
    });
    let deployment = |name: &str| {
        let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": template });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    kubectl.create::<Deployment>(deployment("first")).await;
    kubectl.rollout("first").await;
    let before = kubectl.list::<ReplicaSet>().await.remove(0);
    kubectl
        .delete::<Deployment>("first", &DeleteParams::orphan())
        .await;
    until_gone(&kubectl.api::<Deployment>(), "first").await;
    kubectl.create::<Deployment>(deployment("second")).await;
    kubectl.rollout("second").await;
    let sets = kubectl.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 1, "{sets:?}");
    assert_eq!(sets[0].metadata.uid, before.metadata.uid);
    cluster.stop().await;
}
