//! Nodes that fail, come back, are drained and run out of disk.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Event, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use pintle_cluster::{Cluster, NodeBehavior, NodeTemplate};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Kubectl, is_ready, start, until_gone, virtual_cluster, wait_for};

async fn run(kubectl: &Kubectl, name: &str, node: &str, tolerations: &Value) {
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": node },
                "tolerations": tolerations,
                "containers": [{ "name": "c", "image": "x" }],
            },
        }))
        .await;
    wait_for(&format!("{name} to run"), async || {
        is_ready(&kubectl.get::<Pod>(name).await).then_some(())
    })
    .await;
}

async fn node(cluster: &Cluster, name: &str) -> Node {
    Api::<Node>::all(cluster.client()).get(name).await.unwrap()
}

fn condition(node: &Node, type_: &str) -> (String, String) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let found = conditions.iter().find(|it| it.type_ == type_).unwrap();
    (found.status.clone(), found.reason.clone().unwrap())
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().unwrap().taints.iter().flatten();
    taints
        .map(|taint| format!("{}:{}", taint.key, taint.effect))
        .collect()
}

async fn annotate(cluster: &Cluster, name: &str, behavior: Option<&str>) {
    let annotations = json!({ NodeBehavior::ANNOTATION: behavior });
    let patch = json!({ "metadata": { "annotations": annotations } });
    let nodes = Api::<Node>::all(cluster.client());
    let params = PatchParams::default();
    nodes
        .patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Proves nodes/lifecycle, nodes/eviction, nodes/script.
#[tokio::test(start_paused = true)]
async fn lost_node_loses_its_pods_and_comes_back() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let none = json!([]);
    run(&kubectl, "web", "node-0", &none).await;
    run(&kubectl, "other", "node-1", &none).await;
    let short = json!([{ "key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 20 }]);
    run(&kubectl, "hasty", "node-0", &short).await;
    let forever = json!([{ "operator": "Exists" }]);
    run(&kubectl, "patient", "node-0", &forever).await;

    cluster.node("node-0").lose().unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        condition(&node(&cluster, "node-0").await, "Ready").0,
        "True"
    );
    sleep(Duration::from_secs(30)).await;
    let lost = node(&cluster, "node-0").await;
    let unknown = ("Unknown".to_owned(), "NodeStatusUnknown".to_owned());
    assert_eq!(condition(&lost, "Ready"), unknown);
    assert_eq!(
        taints(&lost),
        [
            format!("{UNREACHABLE}:NoSchedule"),
            format!("{UNREACHABLE}:NoExecute")
        ]
    );
    assert!(!is_ready(&kubectl.get::<Pod>("web").await), "immediately");
    assert!(is_ready(&kubectl.get::<Pod>("other").await));

    let deleted = async |name: &str| {
        kubectl
            .get::<Pod>(name)
            .await
            .metadata
            .deletion_timestamp
            .is_some()
    };
    sleep(Duration::from_secs(30)).await;
    assert!(deleted("hasty").await, "it tolerates the taint for 20 s");
    assert!(!deleted("web").await);
    sleep(Duration::from_secs(300)).await;
    assert!(deleted("web").await, "it tolerates the taint for 300 s");
    let events: Vec<_> = kubectl.list::<Event>().await;
    let has = |reason: &str| events.iter().any(|it| it.reason.as_deref() == Some(reason));
    assert!(has("NodeNotReady") && has("TaintManagerEviction"));
    sleep(Duration::from_secs(3600)).await;
    assert!(deleted("web").await, "its kubelet is not there to stop it");
    assert!(!deleted("patient").await);
    let target = kubectl
        .get::<Pod>("web")
        .await
        .status
        .unwrap()
        .conditions
        .unwrap();
    let target = target
        .iter()
        .find(|it| it.type_ == "DisruptionTarget")
        .unwrap();
    assert_eq!(target.reason.as_deref(), Some("DeletionByTaintManager"));

    cluster.node("node-0").recover().unwrap();
    until_gone(&kubectl.api::<Pod>(), "web").await;
    wait_for("the node to be ready", async || {
        let node = node(&cluster, "node-0").await;
        (condition(&node, "Ready").0 == "True" && taints(&node).is_empty()).then_some(())
    })
    .await;
    wait_for("the patient Pod to be ready", async || {
        is_ready(&kubectl.get::<Pod>("patient").await).then_some(())
    })
    .await;
    assert!(cluster.node("nowhere").lose().is_err());
    cluster.stop().await;
}

/// Proves nodes/eviction.
#[tokio::test(start_paused = true)]
async fn pods_are_removed_with_their_node() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    run(&kubectl, "web", "node-0", &json!([])).await;
    cluster.node("node-0").lose().unwrap();
    kubectl.delete::<Pod>("web", &DeleteParams::default()).await;
    sleep(Duration::from_secs(600)).await;
    kubectl.get::<Pod>("web").await; // stuck
    let nodes = Api::<Node>::all(cluster.client());
    nodes
        .delete("node-0", &DeleteParams::default())
        .await
        .unwrap();
    until_gone(&kubectl.api::<Pod>(), "web").await;

    run(&kubectl, "db", "node-1", &json!([])).await;
    nodes
        .delete("node-1", &DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_secs(30)).await;
    kubectl.get::<Pod>("db").await;
    until_gone(&kubectl.api::<Pod>(), "db").await;
    sleep(Duration::from_secs(60)).await;
    assert!(
        nodes.get_opt("node-1").await.unwrap().is_none(),
        "it stays deleted"
    );

    cluster.node("node-1").recover().unwrap();
    run(&kubectl, "again", "node-1", &json!([])).await;
    cluster.stop().await;
}

/// Proves nodes/lifecycle.
#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_while_all_nodes_are_lost() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    run(&kubectl, "web", "node-0", &json!([])).await;
    for name in ["node-0", "node-1"] {
        cluster.node(name).lose().unwrap();
    }
    sleep(Duration::from_secs(3600)).await;
    let web = kubectl.get::<Pod>("web").await;
    assert!(!is_ready(&web) && web.metadata.deletion_timestamp.is_none());
    assert_eq!(
        taints(&node(&cluster, "node-0").await),
        [format!("{UNREACHABLE}:NoSchedule")]
    );
    cluster.node("node-1").recover().unwrap();
    sleep(Duration::from_secs(400)).await;
    let web = kubectl.get::<Pod>("web").await;
    assert!(web.metadata.deletion_timestamp.is_some());
    cluster.stop().await;
}

/// Proves nodes/script.
#[tokio::test(start_paused = true)]
async fn node_is_scripted_by_annotation() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    run(&kubectl, "web", "node-0", &json!([])).await;
    annotate(&cluster, "node-0", Some("not-ready memory-pressure")).await;
    sleep(Duration::from_secs(10)).await;
    let sick = node(&cluster, "node-0").await;
    assert_eq!(
        condition(&sick, "Ready"),
        ("False".into(), "KubeletNotReady".into())
    );
    assert_eq!(condition(&sick, "MemoryPressure").0, "True");
    let mut all = taints(&sick);
    all.sort();
    assert_eq!(
        all,
        [
            "node.kubernetes.io/memory-pressure:NoSchedule",
            "node.kubernetes.io/not-ready:NoExecute",
            "node.kubernetes.io/not-ready:NoSchedule"
        ]
    );
    assert!(!is_ready(&kubectl.get::<Pod>("web").await));
    annotate(&cluster, "node-0", Some("aflame")).await;
    sleep(Duration::from_secs(10)).await;
    let invalid = node(&cluster, "node-0").await;
    assert_eq!(condition(&invalid, "Ready").1, "InvalidBehavior");
    annotate(&cluster, "node-0", None).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        taints(&node(&cluster, "node-0").await),
        Vec::<String>::new()
    );
    assert!(is_ready(&kubectl.get::<Pod>("web").await));

    annotate(&cluster, "node-0", Some("lost")).await;
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        condition(&node(&cluster, "node-0").await, "Ready").0,
        "Unknown"
    );
    annotate(&cluster, "node-0", Some("healthy")).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        condition(&node(&cluster, "node-0").await, "Ready").0,
        "True"
    );
    cluster.stop().await;
}

/// Proves nodes/script.
#[tokio::test(start_paused = true)]
async fn full_disk_evicts_pods_one_by_one() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    run(&kubectl, "old", "node-0", &json!([])).await;
    sleep(Duration::from_secs(5)).await;
    run(&kubectl, "new", "node-0", &json!([])).await;
    cluster.node("node-0").fill_disk().unwrap();
    sleep(Duration::from_secs(15)).await;
    let full = node(&cluster, "node-0").await;
    assert_eq!(condition(&full, "DiskPressure").0, "True");
    assert_eq!(
        taints(&full),
        ["node.kubernetes.io/disk-pressure:NoSchedule"]
    );
    let evicted = kubectl.get::<Pod>("new").await.status.unwrap();
    assert_eq!(evicted.phase.as_deref(), Some("Failed"));
    assert_eq!(evicted.reason.as_deref(), Some("Evicted"));
    let message = evicted.message.unwrap();
    assert!(
        message.starts_with("The node was low on resource: ephemeral-storage."),
        "{message}"
    );
    assert!(is_ready(&kubectl.get::<Pod>("old").await));
    cluster.node("node-0").recover().unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(is_ready(&kubectl.get::<Pod>("old").await));
    assert_eq!(
        taints(&node(&cluster, "node-0").await),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

/// Proves nodes/script.
#[tokio::test(start_paused = true)]
async fn drain_respects_budgets_and_daemon_sets() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_daemon_set("agent", "agent:1").await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    let budget = json!({ "metadata": { "name": "web" }, "spec": {
        "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } } });
    kubectl.create::<PodDisruptionBudget>(budget).await;
    sleep(Duration::from_secs(5)).await;

    let node_0 = cluster.node("node-0");
    let mut drain = Box::pin(async { node_0.drain().await });
    let limit = Duration::from_secs(60);
    let blocked = tokio::time::timeout(limit, &mut drain).await;
    assert!(blocked.is_err(), "the budget allows no eviction");
    assert_eq!(
        taints(&node(&cluster, "node-0").await),
        ["node.kubernetes.io/unschedulable:NoSchedule"]
    );
    kubectl.scale("web", 3).await;
    drain.await.unwrap();
    let here = kubectl.pods().await.into_iter();
    let here = here.filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("node-0"));
    let owners: Vec<_> = here
        .filter_map(|pod| pod.metadata.owner_references)
        .map(|owners| owners[0].kind.clone())
        .collect();
    assert_eq!(owners, ["DaemonSet"]);
    kubectl.rollout("web").await;
    cluster.node("node-0").uncordon().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        taints(&node(&cluster, "node-0").await),
        Vec::<String>::new()
    );
    let agent = kubectl.get::<DaemonSet>("agent").await.status.unwrap();
    assert_eq!(agent.number_ready, 2);
    cluster.stop().await;
}

/// Proves nodes/simulated.
#[tokio::test(start_paused = true)]
async fn nodes_have_their_own_labels_taints_and_resources() {
    let gpu = NodeTemplate::new("gpu")
        .label("disk", "ssd")
        .taint("gpu", "true", pintle_cluster::TaintEffect::NoSchedule)
        .allocatable("nvidia.com/gpu", "2");
    let (cluster, kubectl) = start(virtual_cluster().nodes(1).node(gpu)).await;
    sleep(Duration::from_secs(1)).await;
    let found = node(&cluster, "gpu").await;
    assert_eq!(found.metadata.labels.as_ref().unwrap()["disk"], "ssd");
    assert_eq!(taints(&found), ["gpu:NoSchedule"]);
    let tolerant = json!([{ "key": "gpu", "operator": "Exists" }]);
    run(&kubectl, "train", "gpu", &tolerant).await;
    cluster.stop().await;
}
