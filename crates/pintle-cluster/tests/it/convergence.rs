//! Crashes the loops at every write of a rollout and restarts them, or fails each write once.
//!
//! This catches the following bugs, as verified by introducing each of them:
//!
//! - Keys or timers that exist only in memory, such as the delayed start of a Pod: the rollout
//!   never completes after a restart.
//! - Objects created before their owner is stored, such as a Pod before its set: they are leaked.
//! - A reconcile with several writes that does not resume where it was interrupted.
//!
//! It does not catch bugs that need several crashes or a stale cache.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, builder, run},
    gateway::{Fault, Gateway},
    image, is_ready, revision, virtual_server, wait_for,
};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::CronJob,
    core::v1::{
        Endpoints, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret,
        Service,
    },
    networking::v1::ServiceCIDR,
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, api::PostParams};
use pintle_cluster::{Builder, ClaimBehavior, Cluster, Loops};
use serde_json::json;
use tokio::time::{Instant, sleep};

fn loops(builder: Builder) -> Builder {
    builder.loops(Loops::DEPLOYMENT | Loops::REPLICA_SET | Loops::PODS | Loops::NODES)
}

/// The result of a rollout: set sizes by revision, and Pods by image.
#[derive(Debug, PartialEq)]
struct EndState {
    sets: Vec<(i64, i32)>,
    pods: BTreeMap<String, usize>,
}

async fn end_state(kubectl: &Kubectl) -> EndState {
    // Old Pods may still be terminating when the rollout is complete.
    wait_for("terminating Pods to be gone", async || {
        let all = kubectl.list::<Pod>().await;
        all.iter()
            .all(|pod| pod.metadata.deletion_timestamp.is_none())
            .then_some(())
    })
    .await;
    let mut sets: Vec<_> = kubectl
        .list::<ReplicaSet>()
        .await
        .iter()
        .map(|set| (revision(set), set.spec.as_ref().unwrap().replicas.unwrap()))
        .collect();
    sets.sort_unstable();
    let mut pods = BTreeMap::new();
    for pod in kubectl.list::<Pod>().await {
        assert!(is_ready(&pod));
        *pods.entry(image(&pod).to_owned()).or_default() += 1;
    }
    EndState { sets, pods }
}

/// Rolls out a new image, with or without a fault at one write. Returns the result and the writes.
async fn roll_out(fault: Option<Fault>) -> (EndState, Vec<String>) {
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    sleep(Duration::from_secs(5)).await;

    loops.arm();
    kubectl.set_image("web", "nginx:2").await;
    loops.recover().await;
    kubectl.rollout("web").await;
    let end = end_state(&kubectl).await;
    let writes = loops.stop().await;
    (end, writes)
}

/// Returns the result and the writes of a rollout without faults.
fn undisturbed() -> (EndState, Vec<String>) {
    let (end, writes) = run(roll_out(None));
    assert_eq!(end.pods, [("nginx:2".to_owned(), 2)].into());
    assert!(writes.len() > 10, "{writes:#?}");
    (end, writes)
}

/// Proves cluster/crash-safe.
#[test]
fn crash_at_any_write_leads_to_the_same_result() {
    let (reference, writes) = undisturbed();
    let again = undisturbed();
    assert_eq!(
        (&reference, &writes),
        (&again.0, &again.1),
        "runs are reproducible"
    );
    // Nothing changes between two writes, so a crash after one equals a crash before the next.
    let crashes = (0..writes.len()).map(Fault::CrashAfter);
    for crash in [Fault::CrashBefore(0)].into_iter().chain(crashes) {
        let (end, _) = run(roll_out(Some(crash)));
        assert_eq!(end, reference, "{crash:?} of {writes:#?}");
    }
}

/// Proves cluster/crash-safe.
#[test]
fn failed_write_or_lost_response_leads_to_the_same_result() {
    let (reference, writes) = undisturbed();
    let faults_at = |at| [Fault::LoseResponse(at), Fault::Fail(at)];
    for fault in (0..writes.len()).flat_map(faults_at) {
        let (end, _) = run(roll_out(Some(fault)));
        assert_eq!(end, reference, "{fault:?} of {writes:#?}");
    }
}

/// Creates something for every loop, and waits until the cluster has converged.
async fn populate(cluster: &Cluster, kubectl: &Kubectl) {
    kubectl.create_deployment("web", "nginx:1", 3).await;
    kubectl.rollout("web").await;
    kubectl.set_image("web", "nginx:2").await;
    kubectl.rollout("web").await;
    kubectl.create_stateful_set("db", "postgres:1", 2).await;
    kubectl.create_job("pi", "pi:1", 2).await;
    kubectl.create_daemon_set("agent", "agent:1").await;
    let (app, ports) = (json!({ "app": "web" }), json!([{ "port": 80 }]));
    let service = json!({ "selector": app, "ports": ports });
    let service = json!({ "metadata": { "name": "web" }, "spec": service });
    kubectl.create::<Service>(service).await;
    let template = json!({
        "metadata": { "labels": { "app": "old" } },
        "spec": { "containers": [{ "name": "main", "image": "old:1" }] },
    });
    kubectl
        .create::<ReplicationController>(json!({
            "metadata": { "name": "old" }, "spec": { "template": template },
        }))
        .await;
    let nowhere = json!({ "metadata": { "name": "nowhere" }, "spec": {
        "nodeSelector": { "disk": "none" }, "containers": [{ "name": "c", "image": "x" }] } });
    kubectl.create::<Pod>(nowhere).await;
    let limits = json!({ "metadata": { "name": "limits" }, "spec": { "hard": { "pods": 100 } } });
    kubectl.create::<ResourceQuota>(limits).await;
    let budget = json!({ "metadata": { "name": "web" }, "spec": {
        "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    kubectl.create::<PodDisruptionBudget>(budget).await;
    cluster
        .load()
        .matching("app=web")
        .uses("cpu", "100m")
        .unwrap();
    let target = json!({ "type": "AverageValue", "averageValue": "100m" });
    let reference = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let autoscaler = json!({ "metadata": { "name": "web" }, "spec": {
        "maxReplicas": 5, "scaleTargetRef": reference,
        "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }] } });
    kubectl.create::<HorizontalPodAutoscaler>(autoscaler).await;
    let account = json!({ "kubernetes.io/service-account.name": "default" });
    let token = json!({ "metadata": { "name": "token", "annotations": account },
        "type": "kubernetes.io/service-account-token" });
    kubectl.create::<Secret>(token).await;
    let resources = json!({ "requests": { "storage": "1Gi" } });
    for (name, behavior) in [
        ("data", "bind"),
        ("late", "bind after=20s"),
        ("never", "never-bind"),
    ] {
        let annotations = json!({ ClaimBehavior::ANNOTATION: behavior });
        let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
        let metadata = json!({ "name": name, "annotations": annotations });
        let claim = json!({ "metadata": metadata, "spec": spec });
        kubectl.create::<PersistentVolumeClaim>(claim).await;
    }
    let endpoints = json!({ "metadata": { "name": "mirrored" },
        "subsets": [{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 1 }] }] });
    let service = json!({ "metadata": { "name": "mirrored" }, "spec": { "ports": ports } });
    kubectl.create::<Service>(service).await;
    kubectl.create::<Endpoints>(endpoints).await;
    let ranges = Api::<ServiceCIDR>::all(kubectl.client.clone());
    let range = json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["203.0.113.0/24"] } });
    let range = serde_json::from_value(range).unwrap();
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let yearly = json!({ "schedule": "0 0 31 12 *", "jobTemplate": { "spec": { "template": {
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x" }] },
    }}}});
    let yearly = json!({ "metadata": { "name": "yearly" }, "spec": yearly });
    kubectl.create::<CronJob>(yearly).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(kubectl.pods().await.len(), 10);
}

/// Proves cluster/end-states.
#[test]
fn idle_cluster_writes_nothing_for_a_day() {
    run(async {
        let server = virtual_server();
        let kubectl = Kubectl::new(server.client());
        let gateway = Gateway::new(&server, None);
        let began = Instant::now();
        let all = builder(&server, &gateway, began).loops(Loops::ALL);
        let cluster = all.start().await;
        populate(&cluster, &kubectl).await;
        gateway.reset();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(gateway.traffic().writes, Vec::<String>::new());
        assert_eq!(gateway.traffic().events, 0);
        cluster.stop().await;

        // Do not run the nodes loop, whose leases would add 8640 writes.
        let others = Loops::ALL.without(Loops::NODES);
        let others = builder(&server, &gateway, began).loops(others);
        let cluster = others.start().await;
        cluster
            .load()
            .matching("app=web")
            .uses("cpu", "100m")
            .unwrap();
        // Loops that restart may repeat an event.
        sleep(Duration::from_mins(1)).await;
        assert_eq!(gateway.traffic().writes, Vec::<String>::new());
        gateway.reset();
        sleep(Duration::from_hours(24)).await;
        assert_eq!(gateway.traffic().writes, Vec::<String>::new());
        assert_eq!(gateway.traffic().events, 0);
        cluster.stop().await;
    });
}

/// Proves cluster/end-states.
#[test]
fn only_due_schedules_write_in_a_day() {
    run(async {
        let server = virtual_server();
        let kubectl = Kubectl::new(server.client());
        let gateway = Gateway::new(&server, None);
        let began = Instant::now();
        let all = builder(&server, &gateway, began).loops(Loops::ALL);
        let cluster = all.start().await;
        populate(&cluster, &kubectl).await;
        cluster.stop().await;
        let others = Loops::ALL.without(Loops::NODES);
        let others = builder(&server, &gateway, began).loops(others);
        let cluster = others.start().await;
        cluster
            .load()
            .matching("app=web")
            .uses("cpu", "100m")
            .unwrap();
        let tick = json!({ "schedule": "30 */6 * * *", "jobTemplate": { "spec": { "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x" }] },
        }}}});
        let tick = json!({ "metadata": { "name": "tick" }, "spec": tick });
        kubectl.create::<CronJob>(tick).await;
        sleep(Duration::from_secs(10)).await;
        gateway.reset();
        sleep(Duration::from_hours(24)).await;
        let writes = gateway.traffic().writes;
        let jobs = |write: &&String| write.starts_with("POST") && write.ends_with("/jobs");
        assert_eq!(writes.iter().filter(jobs).count(), 4, "{writes:#?}");
        let mut others = writes;
        others.retain(|write| {
            let is_new =
                write.starts_with("POST") && (write.ends_with("/jobs") || write.ends_with("/pods"));
            // The Jobs' Pods count towards the quota.
            !is_new && !write.contains("/tick") && !write.contains("/resourcequotas/limits")
        });
        assert_eq!(others, Vec::<String>::new());
        cluster.stop().await;
    });
}

/// Proves factory/inputs.
#[test]
fn each_kind_is_listed_and_watched_at_most_once() {
    run(async {
        let server = virtual_server();
        let kubectl = Kubectl::new(server.client());
        let gateway = Gateway::new(&server, None);
        let all = builder(&server, &gateway, Instant::now()).loops(Loops::ALL);
        let cluster = all.start().await;
        kubectl.create_deployment("web", "nginx:1", 3).await;
        kubectl.rollout("web").await;
        let traffic = gateway.traffic();
        let kinds = traffic.watches.len();
        assert!(kinds > 20, "the collector watches every kind: {kinds}");
        for (path, watches) in &traffic.watches {
            assert_eq!(*watches, 1, "watches of {path}");
            assert!(
                traffic.lists.get(path).copied().unwrap_or_default() <= 1,
                "reads of {path}"
            );
        }
        cluster.stop().await;
    });
}
