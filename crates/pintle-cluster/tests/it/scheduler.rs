//! The scheduler as clients see it: placement, unschedulable Pods, and preemption.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    core::v1::{Event, Pod},
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use pintle_cluster::{Cluster, NodeTemplate};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Kubectl, is_ready, start, until_gone, virtual_cluster, wait_for};

/// Returns a Pod that requests this many CPUs.
fn pod(name: &str, cpu: &str, spec: &Value) -> Value {
    let app = name.split('-').next();
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": app } },
        "spec": { "containers": [
            { "name": "c", "image": "x", "resources": { "requests": { "cpu": cpu } } }] },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

async fn node_of(kubectl: &Kubectl, name: &str) -> String {
    wait_for(&format!("{name} to run"), async || {
        let pod = kubectl.get::<Pod>(name).await;
        if is_ready(&pod) {
            pod.spec?.node_name
        } else {
            None
        }
    })
    .await
}

async fn refusal(kubectl: &Kubectl, name: &str) -> String {
    wait_for(&format!("{name} to be unschedulable"), async || {
        let conditions = kubectl.get::<Pod>(name).await.status?.conditions?;
        let mut conditions = conditions.into_iter();
        let refused = conditions.find(|it| it.reason.as_deref() == Some("Unschedulable"))?;
        assert_eq!(
            (refused.type_.as_str(), refused.status.as_str()),
            ("PodScheduled", "False")
        );
        refused.message
    })
    .await
}

async fn messages(kubectl: &Kubectl, reason: &str) -> Vec<String> {
    let events = kubectl.list::<Event>().await.into_iter();
    events
        .filter(|event| event.reason.as_deref() == Some(reason))
        .filter_map(|event| event.message)
        .collect()
}

async fn priority(cluster: &Cluster, name: &str, value: i32) {
    let class = json!({ "metadata": { "name": name }, "value": value });
    let class = serde_json::from_value(class).unwrap();
    let classes = Api::<PriorityClass>::all(cluster.client());
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
}

fn small(name: &str) -> NodeTemplate {
    NodeTemplate::new(name)
        .allocatable("cpu", "2")
        .label("topology.kubernetes.io/zone", name)
}

/// Proves pods/scheduling, scheduler/reasons.
#[tokio::test(start_paused = true)]
async fn unschedulable_pod_reports_the_reason_and_waits() {
    let cluster = virtual_cluster().nodes(0).node(small("a")).node(small("b"));
    let (cluster, kubectl) = start(cluster).await;
    for name in ["web-1", "web-2"] {
        kubectl.create::<Pod>(pod(name, "1500m", &json!({}))).await;
    }
    let placed = [
        node_of(&kubectl, "web-1").await,
        node_of(&kubectl, "web-2").await,
    ];
    assert_eq!(placed, ["a", "b"]);
    kubectl.create::<Pod>(pod("late", "1", &json!({}))).await;
    let why = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, \
               preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
    assert_eq!(refusal(&kubectl, "late").await, why);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(
        messages(&kubectl, "FailedScheduling").await,
        [why],
        "reported once"
    );

    kubectl
        .delete::<Pod>("web-2", &DeleteParams::default())
        .await;
    assert_eq!(node_of(&kubectl, "late").await, "b");
    cluster.stop().await;
}

/// Proves scheduler/preemption.
#[tokio::test(start_paused = true)]
async fn important_pod_preempts_a_less_important_one() {
    let cluster = virtual_cluster().nodes(0).node(small("a")).node(small("b"));
    let (cluster, kubectl) = start(cluster.pod_stop_after(Duration::from_secs(5))).await;
    priority(&cluster, "high", 1000).await;
    let budget = json!({ "metadata": { "name": "web" }, "spec": {
        "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    kubectl.create::<PodDisruptionBudget>(budget).await;
    kubectl.create::<Pod>(pod("web-1", "2", &json!({}))).await;
    assert_eq!(node_of(&kubectl, "web-1").await, "a");
    kubectl.create::<Pod>(pod("batch-1", "2", &json!({}))).await;
    assert_eq!(node_of(&kubectl, "batch-1").await, "b");

    // Evicting from node `b` violates no budget, so it is chosen although node `a` comes first.
    let high = json!({ "priorityClassName": "high" });
    kubectl.create::<Pod>(pod("db-1", "2", &high)).await;
    sleep(Duration::from_secs(2)).await;
    let waiting = kubectl.get::<Pod>("db-1").await;
    let nominated = waiting.status.unwrap().nominated_node_name;
    assert_eq!(nominated.as_deref(), Some("b"));
    let victim = kubectl.get::<Pod>("batch-1").await;
    assert!(victim.metadata.deletion_timestamp.is_some());
    let conditions = victim.status.unwrap().conditions.unwrap();
    let target = conditions
        .iter()
        .find(|it| it.type_ == "DisruptionTarget")
        .unwrap();
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    // A less important Pod does not use the freed resources in the meantime.
    kubectl.create::<Pod>(pod("late-1", "1", &json!({}))).await;

    assert_eq!(node_of(&kubectl, "db-1").await, "b");
    until_gone(&kubectl.api::<Pod>(), "batch-1").await;
    let uid = kubectl.get::<Pod>("db-1").await.metadata.uid.unwrap();
    let preempted = messages(&kubectl, "Preempted").await;
    assert_eq!(preempted, [format!("Preempted by pod {uid} on node b")]);
    let refused = refusal(&kubectl, "late-1").await;
    assert!(
        refused.starts_with("0/2 nodes are available: 2 Insufficient cpu."),
        "{refused}"
    );
    assert!(is_ready(&kubectl.get::<Pod>("web-1").await));

    // A Pod that never preempts waits.
    let class =
        json!({ "metadata": { "name": "polite" }, "value": 2000, "preemptionPolicy": "Never" });
    let classes = Api::<PriorityClass>::all(cluster.client());
    let class = serde_json::from_value(class).unwrap();
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
    let polite = json!({ "priorityClassName": "polite" });
    kubectl.create::<Pod>(pod("polite-1", "2", &polite)).await;
    let refused = refusal(&kubectl, "polite-1").await;
    assert!(
        refused.ends_with("preemption: not eligible due to preemptionPolicy=Never."),
        "{refused}"
    );
    cluster.stop().await;
}

/// Proves pods/scheduling.
#[tokio::test(start_paused = true)]
async fn pods_spread_and_respect_anti_affinity() {
    let cluster = virtual_cluster()
        .nodes(0)
        .node(small("a"))
        .node(small("b"))
        .node(small("c"));
    let (cluster, kubectl) = start(cluster).await;
    let selector = json!({ "matchLabels": { "app": "web" } });
    let apart = json!({ "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": selector }] } } });
    for name in ["web-1", "web-2", "web-3"] {
        kubectl.create::<Pod>(pod(name, "100m", &json!({}))).await;
        node_of(&kubectl, name).await;
    }
    kubectl.create::<Pod>(pod("web-4", "100m", &apart)).await;
    let why = refusal(&kubectl, "web-4").await;
    let expected = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.";
    assert!(why.starts_with(expected), "{why}");
    // Relabeling another Pod makes room.
    let relabel = json!({ "metadata": { "labels": { "app": "other" } } });
    kubectl.patch::<Pod>("web-2", relabel).await;
    let freed = node_of(&kubectl, "web-2").await;
    assert_eq!(node_of(&kubectl, "web-4").await, freed);

    let spread = json!({ "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "db" } } }] });
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..6 {
        let name = format!("db-{index}");
        kubectl.create::<Pod>(pod(&name, "100m", &spread)).await;
        *counts.entry(node_of(&kubectl, &name).await).or_default() += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [2, 2, 2]);
    cluster.stop().await;
}

/// Proves scheduler/preemption.
#[tokio::test(start_paused = true)]
async fn pending_pods_are_scheduled_by_priority() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(0).node(small("a"))).await;
    kubectl.create::<Pod>(pod("first-1", "2", &json!({}))).await;
    node_of(&kubectl, "first-1").await;
    kubectl.create::<Pod>(pod("low-1", "2", &json!({}))).await;
    let polite =
        json!({ "metadata": { "name": "polite" }, "value": 5, "preemptionPolicy": "Never" });
    let classes = Api::<PriorityClass>::all(cluster.client());
    let polite = serde_json::from_value(polite).unwrap();
    classes
        .create(&PostParams::default(), &polite)
        .await
        .unwrap();
    kubectl
        .create::<Pod>(pod(
            "high-1",
            "2",
            &json!({ "priorityClassName": "polite" }),
        ))
        .await;
    refusal(&kubectl, "high-1").await;
    kubectl
        .delete::<Pod>("first-1", &DeleteParams::default())
        .await;
    assert_eq!(node_of(&kubectl, "high-1").await, "a");
    refusal(&kubectl, "low-1").await;
    cluster.stop().await;
}
