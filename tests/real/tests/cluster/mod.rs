//! Compares the loops of the embedded cluster with kube-controller-manager: the same actions lead
//! to the same objects.
//!
//! End states are compared object by object, without generated names, times and hashes. The number
//! of steps in between may differ.

mod autoscalers;
mod daemon_sets;
mod endpoints;
mod garbage;
mod jobs;
mod manifests;
mod mask;
mod namespaces;
mod pair;
mod replication_controllers;
mod volumes;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use real_tests::eventually;
use serde_json::{Value, json};

use self::pair::{Pair, Side};

fn template(labels: &Value, image: &str) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

/// Returns the Deployment `web`, with the fields of `spec` replaced.
fn web(replicas: i32, spec: &Value) -> Value {
    let labels = json!({ "app": "web" });
    let mut deployment = json!({
        "metadata": { "name": "web", "labels": labels, "annotations": { "team": "red" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": template(&labels, "nginx:1"),
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        deployment["spec"][key] = value.clone();
    }
    deployment
}

fn set(name: &str, replicas: i32) -> Value {
    let labels = json!({ "app": "web" });
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": template(&labels, "nginx:1"),
        },
    })
}

/// Starts both sides and rolls out the Deployment `web`.
async fn rolled_out(replicas: i32, spec: Value) -> Pair {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Deployment>(web(replicas, &spec)).await;
        side.roll_out().await;
    })
    .await;
    pair
}

fn reason(deployment: &Deployment, type_: &str) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == type_)?;
    condition.reason.clone()
}

/// Proves cluster/end-states.
#[tokio::test]
async fn deployment_is_created_and_scaled() {
    let pair = rolled_out(3, json!({})).await;
    pair.converge("created").await;
    for replicas in [5, 1, 0, 2] {
        pair.both(async |side| {
            side.set(json!({ "replicas": replicas })).await;
            side.roll_out().await;
        })
        .await;
        pair.converge(&format!("scaled to {replicas}")).await;
    }
    pair.agree("events", async |side| side.events().await).await;
    pair.stop().await;
}

/// Rolls `web` back like `kubectl rollout undo --to-revision`.
async fn undo(side: &Side, revision: &str) {
    let sets = side.list::<ReplicaSet>().await;
    let of = |set: &&ReplicaSet| {
        set.annotations()
            .get("deployment.kubernetes.io/revision")
            .map(String::as_str)
            == Some(revision)
    };
    let set = sets.iter().find(of).unwrap();
    let mut template = json!(set.spec.as_ref().unwrap().template);
    let labels = template["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove("pod-template-hash");
    side.set(json!({ "template": template })).await;
}

/// Proves workloads/revisions, cluster/end-states.
#[tokio::test]
async fn rollback_restores_the_first_image() {
    let pair = rolled_out(3, json!({})).await;
    for image in ["nginx:2", "nginx:3"] {
        pair.both(async |side| {
            side.set_image(image).await;
            side.roll_out().await;
        })
        .await;
        pair.converge(image).await;
    }
    pair.both(async |side| {
        undo(side, "1").await;
        side.roll_out().await;
    })
    .await;
    pair.converge("undone").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn paused_deployment_rolls_out_on_resume() {
    let pair = rolled_out(2, json!({})).await;
    pair.both(async |side| {
        side.set(json!({ "paused": true })).await;
        side.set_image("nginx:2").await;
        side.until("the pause", |web| {
            reason(web, "Progressing").as_deref() == Some("DeploymentPaused")
        })
        .await;
    })
    .await;
    pair.converge("paused").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 4 })).await;
        side.until("four Pods", |web| {
            web.status.as_ref().is_some_and(|s| s.replicas == Some(4))
        })
        .await;
        side.make_ready(|_| true).await;
    })
    .await;
    pair.converge("scaled while paused").await;
    pair.both(async |side| {
        side.set(json!({ "paused": null })).await;
        side.roll_out().await;
    })
    .await;
    pair.converge("resumed").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn recreate_replaces_all_pods() {
    let strategy = json!({ "type": "Recreate", "rollingUpdate": null });
    let pair = rolled_out(3, json!({ "strategy": strategy })).await;
    pair.both(async |side| {
        side.set_image("nginx:2").await;
        side.roll_out().await;
    })
    .await;
    pair.converge("a new image").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 5 })).await;
        side.roll_out().await;
    })
    .await;
    pair.converge("scaled").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn scaling_during_a_rollout_is_proportional() {
    let strategy = json!({
        "type": "RollingUpdate",
        "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 },
    });
    let pair = rolled_out(10, json!({ "strategy": strategy })).await;
    let until_total = async |side: &Side, total: i32| {
        side.until("all sets to have their size", |web| {
            web.status
                .as_ref()
                .is_some_and(|s| s.replicas == Some(total))
        })
        .await;
    };
    pair.both(async |side| {
        // No new Pod becomes ready, so the rollout stops at its limits.
        side.set_image("nginx:2").await;
        until_total(side, 13).await;
    })
    .await;
    pair.converge("the rollout stops").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 15 })).await;
        until_total(side, 18).await;
    })
    .await;
    pair.converge("scaled up").await;
    pair.both(async |side| side.roll_out().await).await;
    pair.converge("the rollout completes").await;
    pair.stop().await;
}

/// Proves workloads/revisions.
#[tokio::test]
async fn sets_beyond_the_history_limit_are_deleted() {
    let pair = rolled_out(1, json!({ "revisionHistoryLimit": 1 })).await;
    for image in ["nginx:2", "nginx:3", "nginx:4"] {
        pair.both(async |side| {
            side.set_image(image).await;
            side.roll_out().await;
        })
        .await;
    }
    pair.both(async |side| {
        eventually("old sets to be deleted", async || {
            (side.list::<ReplicaSet>().await.len() == 2).then_some(())
        })
        .await;
    })
    .await;
    pair.converge("limited history").await;
    pair.stop().await;
}

/// Proves deployment/conditions.
#[tokio::test]
async fn stalled_rollout_exceeds_its_deadline() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Deployment>(web(1, &json!({ "progressDeadlineSeconds": 2 })))
            .await;
        side.until("the deadline", |web| {
            reason(web, "Progressing").as_deref() == Some("ProgressDeadlineExceeded")
        })
        .await;
    })
    .await;
    pair.converge("after the deadline").await;
    pair.both(async |side| side.roll_out().await).await;
    pair.converge("complete after the deadline").await;
    pair.stop().await;
}

/// Waits until the status of a set shows this many Pods.
async fn until_set(side: &Side, name: &str, replicas: i32) {
    eventually("the set to have its Pods", async || {
        let set = side.api::<ReplicaSet>().get(name).await.unwrap();
        let status = set.status?;
        let observed = status.observed_generation == set.metadata.generation;
        (observed && status.replicas == replicas).then_some(())
    })
    .await;
}

fn pod(name: &str) -> Value {
    let mut pod = template(&json!({ "app": "web" }), "nginx:1");
    pod["metadata"]["name"] = json!(name);
    pod
}

/// Proves workloads/adoption.
#[tokio::test]
async fn orphans_are_adopted_and_mismatches_released() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Pod>(pod("orphan")).await;
        side.create::<ReplicaSet>(set("web", 2)).await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.converge("adopted").await;
    pair.both(async |side| {
        let relabel = json!({ "metadata": { "labels": { "app": "debug" } } });
        side.patch::<Pod>("orphan", relabel).await;
        eventually("a replacement", async || {
            (side.list::<Pod>().await.len() == 3).then_some(())
        })
        .await;
    })
    .await;
    pair.converge("released").await;
    pair.stop().await;
}

/// Proves workloads/adoption.
#[tokio::test]
async fn sets_with_the_same_selector_keep_their_pods() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<ReplicaSet>(set("first", 1)).await;
        until_set(side, "first", 1).await;
        // The first set is complete, and the second must not take its Pod.
        side.create::<ReplicaSet>(set("second", 1)).await;
        until_set(side, "second", 1).await;
    })
    .await;
    pair.converge("one Pod each").await;
    pair.stop().await;
}

/// Proves replicaset/scale.
#[tokio::test]
async fn cheapest_pod_is_deleted_and_failed_pod_replaced() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        for (name, cost) in [("high", "10"), ("low", "-10"), ("medium", "0")] {
            let mut pod = pod(name);
            let cost = json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
            pod["metadata"]["annotations"] = cost;
            side.create::<Pod>(pod).await;
        }
        side.make_ready(|_| true).await;
        side.create::<ReplicaSet>(set("web", 3)).await;
        until_set(side, "web", 3).await;
        side.patch::<ReplicaSet>("web", json!({ "spec": { "replicas": 2 } }))
            .await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.converge("the cheapest Pod is deleted").await;
    pair.both(async |side| {
        let failed = side.api::<Pod>().get("high").await.unwrap();
        side.set_status(&failed, json!({ "phase": "Failed" })).await;
        eventually("a replacement", async || {
            let pods = side.list::<Pod>().await;
            (pods.len() == 3).then_some(())
        })
        .await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.converge("the failed Pod is replaced").await;
    pair.stop().await;
}

/// Returns the Status of a rejected request.
fn rejection<T: std::fmt::Debug>(result: kube::Result<T>, namespace: &str) -> Value {
    match result {
        Err(kube::Error::Api(status)) => {
            let text = json!(status).to_string().replace(namespace, "NAMESPACE");
            serde_json::from_str(&text).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Proves cluster/end-states.
#[tokio::test]
async fn selector_must_match_the_template() {
    let pair = rolled_out(1, json!({})).await;
    let mismatch = json!({ "selector": { "matchLabels": { "app": "other" } } });
    pair.agree("creation", async |side| {
        let mut deployment = web(1, &mismatch);
        deployment["metadata"]["name"] = json!("mismatch");
        let of_others = side.try_create::<Deployment>(deployment.clone()).await;
        deployment["spec"]["selector"] = json!({});
        let of_all = side.try_create::<Deployment>(deployment).await;
        let namespace = &side.namespace;
        json!([
            rejection(of_others, namespace),
            rejection(of_all, namespace)
        ])
    })
    .await;
    pair.agree("update", async |side| {
        let patch = Patch::Merge(json!({ "spec": mismatch }));
        let changed = side
            .api::<Deployment>()
            .patch("web", &PatchParams::default(), &patch)
            .await;
        rejection(changed, &side.namespace)
    })
    .await;
    pair.converge("unchanged").await;
    pair.stop().await;
}
