//! `DaemonSet`s: nodes, updates, failures, history, and crashes at every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, faults_at, run},
    gateway::Fault,
    image, is_ready, start, virtual_cluster, wait_for,
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Event, Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PropagationPolicy},
};
use pintle_cluster::{Builder, Cluster, Loops};
use serde_json::{Value, json};
use tokio::time::sleep;

fn daemon_set(spec: &Value) -> Value {
    let mut set = json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "main", "image": "agent:1" }] },
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn new_image(image: &str) -> Value {
    let containers = json!([{ "name": "main", "image": image }]);
    json!({ "spec": { "template": { "spec": { "containers": containers } } } })
}

/// Waits until the DaemonSet is rolled out and no Pod is misscheduled.
async fn settled(kubectl: &Kubectl) -> DaemonSet {
    wait_for("the set to settle", async || {
        let set = kubectl.get::<DaemonSet>("agent").await;
        let status = set.status.as_ref()?;
        let desired = status.desired_number_scheduled;
        (status.observed_generation == set.metadata.generation
            && status.current_number_scheduled == desired
            && status.number_misscheduled == 0
            && status.updated_number_scheduled.unwrap_or_default() == desired
            && status.number_available.unwrap_or_default() == desired)
            .then_some(set)
    })
    .await
}

/// Returns the images by node of the Pods that are not being deleted.
async fn placed(kubectl: &Kubectl) -> BTreeMap<String, String> {
    let pods = kubectl.pods().await;
    let place = |pod: &Pod| {
        let node = pod.spec.as_ref().unwrap().node_name.clone();
        (node.unwrap_or_default(), image(pod).to_owned())
    };
    let placed: BTreeMap<_, _> = pods.iter().map(place).collect();
    assert_eq!(placed.len(), pods.len(), "one Pod per node");
    placed
}

async fn patch_node(cluster: &Cluster, name: &str, patch: Value) {
    Api::<Node>::all(cluster.client())
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn events(kubectl: &Kubectl) -> Vec<(String, String)> {
    let events = kubectl.list::<Event>().await.into_iter();
    let mut events: Vec<_> = events
        .filter(|event| event.involved_object.kind.as_deref() == Some("DaemonSet"))
        .filter_map(|event| Some((event.reason?, event.message?)))
        .collect();
    events.sort();
    events
}

/// Proves daemonset/nodes.
#[tokio::test(start_paused = true)]
async fn pods_follow_the_labels_of_nodes() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(3)).await;
    let selector = json!({ "nodeSelector": { "disk": "ssd" },
        "containers": [{ "name": "main", "image": "agent:1" }] });
    let template = json!({ "metadata": { "labels": { "app": "agent" } }, "spec": selector });
    let set = daemon_set(&json!({ "template": template }));
    kubectl.create::<DaemonSet>(set).await;
    let set = settled(&kubectl).await;
    assert_eq!(set.status.unwrap().desired_number_scheduled, 0);

    let ssd = json!({ "metadata": { "labels": { "disk": "ssd" } } });
    for node in ["node-0", "node-2"] {
        patch_node(&cluster, node, ssd.clone()).await;
    }
    sleep(Duration::from_secs(5)).await;
    settled(&kubectl).await;
    let nodes: Vec<_> = placed(&kubectl).await.into_keys().collect();
    assert_eq!(nodes, ["node-0", "node-2"]);
    let names: BTreeSet<_> = kubectl.pods().await.iter().map(Pod::name_any).collect();
    let created = names.iter().map(|it| format!("Created pod: {it}"));
    let created: Vec<_> = created.map(|it| ("SuccessfulCreate".into(), it)).collect();
    assert_eq!(events(&kubectl).await, created);

    let none = json!({ "metadata": { "labels": { "disk": null } } });
    patch_node(&cluster, "node-0", none).await;
    sleep(Duration::from_secs(5)).await;
    let set = settled(&kubectl).await;
    assert_eq!(set.status.unwrap().desired_number_scheduled, 1);
    let nodes: Vec<_> = placed(&kubectl).await.into_keys().collect();
    assert_eq!(nodes, ["node-2"]);
    cluster.stop().await;
}

/// Proves daemonset/nodes, pods/scheduling.
#[tokio::test(start_paused = true)]
async fn taints_repel_pods_and_cordons_do_not() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(3)).await;
    let taint =
        |effect: &str| json!({ "spec": { "taints": [{ "key": "gpu", "effect": effect }] } });
    patch_node(
        &cluster,
        "node-0",
        json!({ "spec": { "unschedulable": true } }),
    )
    .await;
    patch_node(&cluster, "node-1", taint("NoSchedule")).await;
    kubectl.create::<DaemonSet>(daemon_set(&json!({}))).await;
    let set = settled(&kubectl).await;
    assert_eq!(set.status.unwrap().desired_number_scheduled, 2);
    let nodes: Vec<_> = placed(&kubectl).await.into_keys().collect();
    assert_eq!(nodes, ["node-0", "node-2"], "a cordon is tolerated");

    patch_node(&cluster, "node-2", taint("NoSchedule")).await;
    wait_for("the Pod to be misscheduled", async || {
        let status = kubectl.get::<DaemonSet>("agent").await.status?;
        let counts = (status.desired_number_scheduled, status.number_misscheduled);
        (counts == (1, 1)).then_some(())
    })
    .await;
    assert_eq!(placed(&kubectl).await.len(), 2, "it stays");
    patch_node(&cluster, "node-2", taint("NoExecute")).await;
    settled(&kubectl).await;
    let nodes: Vec<_> = placed(&kubectl).await.into_keys().collect();
    assert_eq!(nodes, ["node-0"]);
    cluster.stop().await;
}

/// Rolls out an image. Returns the largest numbers of Pods and of unavailable nodes on the way.
async fn roll_out(kubectl: &Kubectl, image: &str) -> (usize, i32) {
    kubectl.patch::<DaemonSet>("agent", new_image(image)).await;
    let (mut pods, mut unavailable) = (0, 0);
    for _ in 0..3000 {
        sleep(Duration::from_millis(100)).await;
        pods = pods.max(kubectl.pods().await.len());
        let ready = kubectl
            .pods()
            .await
            .iter()
            .filter(|it| is_ready(it))
            .count();
        let nodes = 4_i32 - i32::try_from(ready).unwrap();
        unavailable = unavailable.max(nodes);
        let set = kubectl.get::<DaemonSet>("agent").await;
        let status = set.status.unwrap();
        if status.observed_generation == set.metadata.generation
            && status.updated_number_scheduled == Some(4)
            && status.number_available == Some(4)
            && kubectl.pods().await.len() == 4
        {
            return (pods, unavailable);
        }
    }
    panic!("timed out waiting for the rollout of {image}");
}

/// Proves daemonset/update.
#[tokio::test(start_paused = true)]
async fn rolling_updates_keep_their_limits() {
    for (limits, expected) in [
        (json!({ "maxUnavailable": 1 }), (4, 1)),
        (json!({ "maxUnavailable": "50%" }), (4, 2)),
        (json!({ "maxUnavailable": 0, "maxSurge": 1 }), (5, 0)),
        (json!({ "maxUnavailable": 0, "maxSurge": "75%" }), (7, 0)),
    ] {
        let (cluster, kubectl) = start(virtual_cluster().nodes(4)).await;
        let strategy = json!({ "updateStrategy": { "rollingUpdate": limits } });
        kubectl.create::<DaemonSet>(daemon_set(&strategy)).await;
        settled(&kubectl).await;
        assert_eq!(roll_out(&kubectl, "agent:2").await, expected, "{limits}");
        let images: BTreeSet<_> = placed(&kubectl).await.into_values().collect();
        assert_eq!(images, ["agent:2".to_owned()].into());
        cluster.stop().await;
    }
}

/// Proves daemonset/update.
#[tokio::test(start_paused = true)]
async fn min_ready_seconds_slow_an_update_down() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(4)).await;
    kubectl
        .create::<DaemonSet>(daemon_set(&json!({ "minReadySeconds": 20 })))
        .await;
    settled(&kubectl).await;
    let start = tokio::time::Instant::now();
    roll_out(&kubectl, "agent:2").await;
    // Each of the four Pods is replaced when the previous one has been ready for 20 s.
    let took = start.elapsed().as_secs();
    assert!((80..100).contains(&took), "{took} s");
    cluster.stop().await;
}

/// Proves daemonset/update.
#[tokio::test(start_paused = true)]
async fn on_delete_updates_deleted_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let strategy = json!({ "updateStrategy": { "type": "OnDelete" } });
    kubectl.create::<DaemonSet>(daemon_set(&strategy)).await;
    settled(&kubectl).await;
    kubectl
        .patch::<DaemonSet>("agent", new_image("agent:2"))
        .await;
    sleep(Duration::from_secs(60)).await;
    let status = kubectl.get::<DaemonSet>("agent").await.status.unwrap();
    assert_eq!(status.updated_number_scheduled, None);
    let images: BTreeSet<_> = placed(&kubectl).await.into_values().collect();
    assert_eq!(images, ["agent:1".to_owned()].into());
    for pod in kubectl.pods().await {
        kubectl
            .delete::<Pod>(&pod.name_any(), &DeleteParams::default())
            .await;
    }
    settled(&kubectl).await;
    let images: BTreeSet<_> = placed(&kubectl).await.into_values().collect();
    assert_eq!(images, ["agent:2".to_owned()].into());
    cluster.stop().await;
}

/// Proves daemonset/failures.
#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_with_back_off() {
    let (cluster, kubectl) = start(virtual_cluster().nodes(1)).await;
    kubectl.create::<DaemonSet>(daemon_set(&json!({}))).await;
    settled(&kubectl).await;
    let mut delays = Vec::new();
    for _ in 0..4 {
        let failed = kubectl.pods().await.remove(0).name_any();
        let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
        let pods = kubectl.api::<Pod>();
        pods.patch_status(&failed, &PatchParams::default(), &status)
            .await
            .unwrap();
        let start = tokio::time::Instant::now();
        wait_for("a replacement", async || {
            let pods = kubectl.pods().await;
            pods.iter()
                .any(|pod| pod.name_any() != failed)
                .then_some(())
        })
        .await;
        delays.push(start.elapsed().as_secs());
    }
    // Immediately, then 1, 2 and 4 s after the previous deletion.
    assert_eq!(delays[0], 0);
    assert!(delays.is_sorted() && delays[3] >= 3, "{delays:?}");
    let failures = events(&kubectl).await;
    let failures = failures.iter().filter(|(reason, message)| {
        reason == "FailedDaemonPod"
            && message.starts_with("Found failed daemon pod default/agent-")
            && message.ends_with(" on node node-0, will try to kill it")
    });
    assert_eq!(failures.count(), 4);
    cluster.stop().await;
}

/// Proves workloads/revisions.
#[tokio::test(start_paused = true)]
async fn revisions_are_numbered_and_limited() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "revisionHistoryLimit": 1 });
    kubectl.create::<DaemonSet>(daemon_set(&spec)).await;
    settled(&kubectl).await;
    for image in ["agent:2", "agent:3", "agent:2"] {
        kubectl.patch::<DaemonSet>("agent", new_image(image)).await;
        settled(&kubectl).await;
    }
    sleep(Duration::from_secs(5)).await;
    let mut revisions = kubectl.list::<ControllerRevision>().await;
    revisions.sort_by_key(|it| it.revision);
    let numbers: Vec<_> = revisions.iter().map(|it| it.revision).collect();
    assert_eq!(numbers, [3, 4], "the second is the fourth after a rollback");
    for pod in kubectl.pods().await {
        let hash = &pod.labels()["controller-revision-hash"];
        assert_eq!(revisions[1].name_any(), format!("agent-{hash}"));
        assert_eq!(pod.labels()["pod-template-generation"], "4");
    }
    cluster.stop().await;
}

/// Proves workloads/adoption.
#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_adopted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<DaemonSet>(daemon_set(&json!({}))).await;
    settled(&kubectl).await;
    let names = async || -> BTreeSet<_> {
        let pods = kubectl.list::<Pod>().await;
        pods.iter().map(Pod::name_any).collect()
    };
    let before = names().await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    kubectl.delete::<DaemonSet>("agent", &orphan).await;
    crate::support::until_gone(&kubectl.api::<DaemonSet>(), "agent").await;
    kubectl.create::<DaemonSet>(daemon_set(&json!({}))).await;
    let set = settled(&kubectl).await;
    assert_eq!(names().await, before);
    for pod in kubectl.pods().await {
        assert_eq!(pod.owner_references()[0].uid, set.uid().unwrap());
    }
    assert_eq!(kubectl.list::<ControllerRevision>().await.len(), 1);

    // A Pod that is relabelled is released and replaced.
    let released = kubectl.pods().await.remove(0).name_any();
    let relabel = json!({ "metadata": { "labels": { "app": "debug" } } });
    kubectl.patch::<Pod>(&released, relabel).await;
    wait_for("a replacement", async || {
        (names().await.len() == 3).then_some(())
    })
    .await;
    let released = kubectl.get::<Pod>(&released).await;
    assert!(released.owner_references().is_empty());
    cluster.stop().await;
}

fn loops(builder: Builder) -> Builder {
    builder
        .nodes(2)
        .loops(Loops::DAEMON_SET | Loops::PODS | Loops::NODES)
}

/// Rolls out a new image, with or without a fault at one write. Returns the images by node, the
/// numbers of the revisions, and the writes.
async fn update(fault: Option<Fault>) -> (BTreeMap<String, String>, Vec<i64>, Vec<String>) {
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    kubectl.create::<DaemonSet>(daemon_set(&json!({}))).await;
    settled(&kubectl).await;
    sleep(Duration::from_secs(5)).await;

    loops.arm();
    kubectl
        .patch::<DaemonSet>("agent", new_image("agent:2"))
        .await;
    loops.recover().await;
    settled(&kubectl).await;
    wait_for("terminating Pods to be gone", async || {
        (kubectl.list::<Pod>().await.len() == 2).then_some(())
    })
    .await;
    let images = placed(&kubectl).await;
    let mut revisions: Vec<_> = kubectl
        .list::<ControllerRevision>()
        .await
        .iter()
        .map(|it| it.revision)
        .collect();
    revisions.sort_unstable();
    let writes = loops.stop().await;
    (images, revisions, writes)
}

/// Proves cluster/crash-safe.
#[test]
fn faults_at_any_write_of_an_update_change_nothing() {
    let (images, revisions, writes) = run(update(None));
    assert_eq!(images.len(), 2);
    assert!(images.values().all(|it| it == "agent:2"), "{images:?}");
    assert_eq!(revisions, [1, 2]);
    assert!(writes.len() > 8, "{writes:#?}");
    for fault in (0..writes.len()).flat_map(faults_at) {
        let (found, numbers, _) = run(update(Some(fault)));
        assert_eq!(
            (&found, &numbers),
            (&images, &revisions),
            "{fault:?} of {writes:#?}"
        );
    }
}
