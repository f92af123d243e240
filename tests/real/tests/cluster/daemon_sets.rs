//! `DaemonSet`s: the same Pods, revisions, counters and events as kube-controller-manager.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use real_tests::eventually;
use serde_json::{Value, from_value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::mask::masked;
use super::pair::{Pair, Side};

/// Returns the name prefix of a test's nodes, which is also their label. Nodes are cluster-scoped.
fn pool(side: &Side) -> String {
    format!("{}-pool", side.namespace)
}

fn nodes(side: &Side) -> Api<Node> {
    Api::all(side.client.clone())
}

/// Reports the nodes as ready while it exists, as their kubelets would.
struct Heartbeat(JoinHandle<()>);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn heartbeat(side: &Side) -> Heartbeat {
    let (nodes, pool) = (nodes(side), pool(side));
    Heartbeat(tokio::spawn(async move {
        for beat in 0.. {
            for node in ["a", "b", "c"] {
                let time = format!("2026-01-01T{:02}:{:02}:00Z", beat / 60 % 24, beat % 60);
                let ready = json!({
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "lastHeartbeatTime": time, "lastTransitionTime": "2026-01-01T00:00:00Z",
                });
                let status = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
                // The node may be gone.
                let name = format!("{pool}-{node}");
                let _ = nodes
                    .patch_status(&name, &PatchParams::default(), &status)
                    .await;
            }
            sleep(Duration::from_secs(5)).await;
        }
    }))
}

/// Creates the nodes `a`, `b` and `c`, ready and without taints.
async fn create_nodes(side: &Side) -> Heartbeat {
    for node in ["a", "b", "c"] {
        let name = format!("{}-{node}", pool(side));
        let node = json!({ "metadata": { "name": name, "labels": { "pool": pool(side) } } });
        let node = from_value(node).unwrap();
        nodes(side)
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
    }
    let heartbeat = heartbeat(side);
    eventually("the nodes to be ready", async || {
        let mut clean = true;
        for node in ["a", "b", "c"] {
            let name = format!("{}-{node}", pool(side));
            let found = nodes(side).get(&name).await.unwrap();
            let ready = found.status.is_some_and(|it| it.conditions.is_some());
            let tainted = found.spec.is_some_and(|it| it.taints.is_some());
            if ready && tainted {
                taint(side, node, &Value::Null).await;
            }
            clean &= ready && !tainted;
        }
        clean.then_some(())
    })
    .await;
    heartbeat
}

async fn delete_nodes(side: &Side) {
    for node in ["a", "b", "c"] {
        let name = format!("{}-{node}", pool(side));
        let _ = nodes(side).delete(&name, &DeleteParams::default()).await;
    }
}

/// Replaces the taints of a node.
async fn taint(side: &Side, node: &str, taints: &Value) {
    let name = format!("{}-{node}", pool(side));
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    nodes(side)
        .patch(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn agent(side: &Side, spec: &Value) -> Value {
    let mut set = json!({
        "metadata": { "name": "agent", "annotations": { "team": "red" } },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": {
                    "nodeSelector": { "pool": pool(side) },
                    "containers": [{ "name": "main", "image": "agent:1" }],
                },
            },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        set["spec"][key] = value.clone();
    }
    set
}

async fn set_image(side: &Side, image: &str) {
    let containers = json!([{ "name": "main", "image": image }]);
    let template = json!({ "spec": { "containers": containers } });
    side.patch::<DaemonSet>("agent", json!({ "spec": { "template": template } }))
        .await;
}

/// Waits until all Pods are current and available, marking them as ready.
async fn roll_out(side: &Side, nodes: i32) {
    Box::pin(eventually("the rollout", async || {
        side.make_ready(|_| true).await;
        let set = side.api::<DaemonSet>().get("agent").await.unwrap();
        let status = set.status?;
        let pods = side.list::<Pod>().await;
        (status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.current_number_scheduled == nodes
            && status.updated_number_scheduled.unwrap_or_default() == nodes
            && status.number_available.unwrap_or_default() == nodes
            && i32::try_from(pods.len()) == Ok(nodes))
        .then_some(())
    }))
    .await;
}

/// Returns the set, its Pods, revisions and events, without times and generated names.
async fn snapshot(side: &Side) -> Value {
    let mut revisions = side.list::<ControllerRevision>().await;
    revisions.sort_by_key(|it| it.revision);
    let mut names = vec![pool(side)];
    let hashes = revisions.iter();
    names.extend(hashes.filter_map(|it| it.labels().get("controller-revision-hash").cloned()));
    let pods = side.list::<Pod>().await;
    let mut pods: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let tolerations = &pod.spec.as_ref().unwrap().tolerations;
            json!([masked(json!(pod), &names), tolerations])
        })
        .collect();
    pods.sort_by_key(Value::to_string);
    let mut events: Vec<Value> = Vec::new();
    for event in side.list::<Event>().await {
        // Without the names of Pods.
        let message = event.message.unwrap_or_default();
        let words = message.split(' ').filter(|it| !it.contains("agent-"));
        let message = words.collect::<Vec<_>>().join(" ");
        let source = event.source.and_then(|source| source.component);
        let event = json!([event.type_, event.reason, source, message]);
        events.push(masked(event, &names));
    }
    events.sort_by_key(Value::to_string);
    json!({
        "sets": masked(json!(side.list::<DaemonSet>().await), &names),
        "revisions": masked(json!(revisions), &names),
        "pods": pods,
        "events": events,
    })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

/// Starts both sides with three nodes, and waits for the Pods of the set.
async fn rolled_out(spec: &Value) -> (Pair, (Heartbeat, Heartbeat)) {
    let pair = Pair::start().await;
    let heartbeats = tokio::join!(create_nodes(&pair.real), create_nodes(&pair.ours));
    pair.both(async |side| {
        side.create::<DaemonSet>(agent(side, spec)).await;
        roll_out(side, 3).await;
    })
    .await;
    (pair, heartbeats)
}

async fn stop(pair: Pair) {
    pair.both(delete_nodes).await;
    pair.stop().await;
}

/// Proves daemonset/nodes, daemonset/status, cluster/end-states.
#[tokio::test]
async fn daemon_set_follows_taints() {
    let (pair, _heartbeats) = rolled_out(&json!({})).await;
    compare(&pair, "three nodes").await;
    let repel = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    let evict = json!([{ "key": "gpu", "effect": "NoExecute" }]);
    pair.both(async |side| {
        taint(side, "a", &repel).await;
        taint(side, "b", &evict).await;
        eventually("the Pod to be evicted", async || {
            // kube-controller-manager does not react to the first taint.
            let limit = side.list::<Pod>().await.len();
            let annotation =
                json!({ "metadata": { "annotations": { "pods": limit.to_string() } } });
            side.patch::<DaemonSet>("agent", annotation).await;
            let set = side.api::<DaemonSet>().get("agent").await.unwrap();
            (limit == 2 && set.status?.number_misscheduled == 1).then_some(())
        })
        .await;
    })
    .await;
    compare(&pair, "one Pod is misscheduled, one evicted").await;
    pair.both(async |side| {
        taint(side, "a", &Value::Null).await;
        taint(side, "b", &Value::Null).await;
        roll_out(side, 3).await;
    })
    .await;
    compare(&pair, "back").await;
    stop(pair).await;
}

/// Proves daemonset/update, workloads/revisions, cluster/end-states.
#[tokio::test]
async fn daemon_set_rolls_out_updates() {
    for spec in [
        json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 2 } },
            "revisionHistoryLimit": 1 }),
        json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } } }),
    ] {
        let (pair, _heartbeats) = rolled_out(&spec).await;
        for image in ["agent:2", "agent:3", "agent:1"] {
            pair.both(async |side| {
                set_image(side, image).await;
                roll_out(side, 3).await;
            })
            .await;
            compare(&pair, &format!("{image} with {spec}")).await;
        }
        stop(pair).await;
    }
}

/// Proves daemonset/update, daemonset/failures, cluster/end-states.
#[tokio::test]
async fn daemon_set_replaces_deleted_and_failed_pods() {
    let (pair, _heartbeats) =
        rolled_out(&json!({ "updateStrategy": { "type": "OnDelete" } })).await;
    let on = |pod: &Pod, node: &str| {
        let affinity = json!(pod.spec.as_ref().unwrap().affinity);
        affinity.to_string().contains(&format!("pool-{node}\""))
    };
    pair.both(async |side| {
        set_image(side, "agent:2").await;
        let pods = side.list::<Pod>().await;
        let deleted = pods.iter().find(|pod| on(pod, "a")).unwrap().name_any();
        let api = side.api::<Pod>();
        api.delete(&deleted, &DeleteParams::default())
            .await
            .unwrap();
        eventually("the replacement", async || {
            side.make_ready(|_| true).await;
            let status = side.api::<DaemonSet>().get("agent").await.unwrap().status?;
            let counts = (status.updated_number_scheduled, status.number_available);
            (counts == (Some(1), Some(3))).then_some(())
        })
        .await;
    })
    .await;
    compare(&pair, "one Pod is updated").await;
    pair.both(async |side| {
        let pods = side.list::<Pod>().await;
        let failed = pods.iter().find(|pod| on(pod, "b")).unwrap();
        side.set_status(failed, json!({ "phase": "Failed", "conditions": null }))
            .await;
        eventually("the replacement", async || {
            side.make_ready(|pod| pod.uid() != failed.uid()).await;
            let status = side.api::<DaemonSet>().get("agent").await.unwrap().status?;
            let counts = (status.updated_number_scheduled, status.number_available);
            (counts == (Some(2), Some(3))).then_some(())
        })
        .await;
    })
    .await;
    compare(&pair, "the failed Pod is replaced").await;
    stop(pair).await;
}

/// Proves workloads/adoption, gc/propagation, cluster/end-states.
#[tokio::test]
async fn daemon_set_adopts_orphans() {
    let (pair, _heartbeats) = rolled_out(&json!({})).await;
    pair.both(async |side| {
        let sets = side.api::<DaemonSet>();
        sets.delete("agent", &DeleteParams::orphan()).await.unwrap();
        side.until_none_left::<DaemonSet>().await;
    })
    .await;
    compare(&pair, "orphaned").await;
    pair.both(async |side| {
        side.create::<DaemonSet>(agent(side, &json!({}))).await;
        roll_out(side, 3).await;
    })
    .await;
    compare(&pair, "adopted").await;
    pair.both(async |side| {
        let released = side.list::<Pod>().await.remove(0).name_any();
        let relabel = json!({ "metadata": { "labels": { "app": "debug" } } });
        side.patch::<Pod>(&released, relabel).await;
        eventually("the replacement", async || {
            side.make_ready(|_| true).await;
            let status = side.api::<DaemonSet>().get("agent").await.unwrap().status?;
            let pods = side.list::<Pod>().await.len();
            (pods == 4 && status.number_available == Some(3)).then_some(())
        })
        .await;
    })
    .await;
    stop(pair).await;
}
