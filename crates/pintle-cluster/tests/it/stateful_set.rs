//! `StatefulSet`s: ordering, updates, claims, history, and crashes at every write.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, faults_at, run},
    gateway::Fault,
    image, is_ready, start, start_of_time, virtual_cluster, wait_for,
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{Event, PersistentVolumeClaim, Pod},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PropagationPolicy},
};
use pintle_cluster::{Builder, Loops};
use serde_json::{Value, json};
use tokio::time::sleep;

fn stateful_set(spec: &Value) -> Value {
    let mut set = json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": { "containers": [{ "name": "main", "image": "db:1" }] },
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn with_claims(policy: &str) -> Value {
    json!({
        "volumeClaimTemplates": [{
            "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": policy, "whenDeleted": policy },
    })
}

fn new_image(image: &str) -> Value {
    let containers = json!([{ "name": "main", "image": image }]);
    json!({ "spec": { "template": { "spec": { "containers": containers } } } })
}

/// Waits until the set has observed its spec and all replicas are ready and updated.
async fn settled(kubectl: &Kubectl) -> StatefulSet {
    wait_for("the set to settle", async || {
        let set = kubectl.get::<StatefulSet>("db").await;
        let desired = set.spec.as_ref()?.replicas?;
        let status = set.status.as_ref()?;
        let all = |count: Option<i32>| count.unwrap_or_default() == desired;
        (status.observed_generation == set.metadata.generation
            && status.replicas == desired
            && all(status.updated_replicas)
            && all(status.available_replicas)
            && status.current_revision == status.update_revision)
            .then_some(set)
    })
    .await
}

async fn images(kubectl: &Kubectl) -> BTreeMap<String, String> {
    let pods = kubectl.pods().await;
    let named = |pod: &Pod| (pod.name_any(), image(pod).to_owned());
    pods.iter().map(named).collect()
}

/// Returns when a Pod was created and when it became ready, in seconds.
fn lifetime(pod: &Pod) -> (i64, i64) {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    let seconds = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().unwrap().0.as_second() - start_of_time().as_second()
    };
    (
        seconds(&pod.metadata.creation_timestamp),
        seconds(&ready.last_transition_time),
    )
}

/// Proves statefulset/order.
#[tokio::test(start_paused = true)]
async fn pods_start_in_order_and_stop_in_reverse() {
    let builder = virtual_cluster()
        .pod_ready_after(Duration::from_secs(10))
        .pod_stop_after(Duration::from_secs(10));
    let (cluster, kubectl) = start(builder).await;
    kubectl
        .create::<StatefulSet>(stateful_set(&json!({})))
        .await;
    let set = settled(&kubectl).await;
    assert_eq!(set.status.unwrap().collision_count, Some(0));
    let pods = kubectl.pods().await;
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    for pair in pods.windows(2) {
        let ((_, ready), (created, _)) = (lifetime(&pair[0]), lifetime(&pair[1]));
        assert!(ready <= created, "{ready} {created}");
    }

    let patch = json!({ "spec": { "replicas": 1 } });
    kubectl.patch::<StatefulSet>("db", patch).await;
    sleep(Duration::from_secs(5)).await;
    // db-2 is stopping, and db-1 waits for it.
    let names: Vec<_> = kubectl
        .pods()
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["db-0", "db-1"]);
    settled(&kubectl).await;
    let mut messages: Vec<_> = kubectl
        .list::<Event>()
        .await
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("StatefulSet"))
        .filter_map(|event| Some((event.reason?, event.message?)))
        .collect();
    messages.sort();
    let create = |it| format!("Create Pod db-{it} in StatefulSet db successful");
    let delete = |it| format!("Delete Pod db-{it} in StatefulSet db successful");
    let created = (0..3).map(|it| ("SuccessfulCreate".to_owned(), create(it)));
    let deleted = (1..3).map(|it| ("SuccessfulDelete".to_owned(), delete(it)));
    assert_eq!(messages, created.chain(deleted).collect::<Vec<_>>());
    cluster.stop().await;
}

/// Proves statefulset/order.
#[tokio::test(start_paused = true)]
async fn parallel_pods_start_together() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "podManagementPolicy": "Parallel", "ordinals": { "start": 5 } });
    kubectl.create::<StatefulSet>(stateful_set(&spec)).await;
    settled(&kubectl).await;
    let pods = kubectl.pods().await;
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db-5", "db-6", "db-7"]);
    let created: Vec<_> = pods.iter().map(|pod| lifetime(pod).0).collect();
    assert!(created.iter().all(|it| *it == created[0]), "{created:?}");
    cluster.stop().await;
}

/// Proves statefulset/update.
#[tokio::test(start_paused = true)]
async fn update_stops_at_the_partition_and_rolls_back() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let partition =
        |it: i32| json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": it } });
    let spec = json!({ "updateStrategy": partition(2) });
    kubectl.create::<StatefulSet>(stateful_set(&spec)).await;
    let first = settled(&kubectl).await.status.unwrap().current_revision;

    kubectl.patch::<StatefulSet>("db", new_image("db:2")).await;
    sleep(Duration::from_secs(60)).await;
    let expect = |images: [&str; 3]| {
        let named = images.iter().enumerate();
        named
            .map(|(it, image)| (format!("db-{it}"), (*image).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(images(&kubectl).await, expect(["db:1", "db:1", "db:2"]));
    let status = kubectl.get::<StatefulSet>("db").await.status.unwrap();
    assert_eq!(status.current_revision, first);
    assert_ne!(status.update_revision, first);
    // A Pod below the partition comes back at the old revision.
    kubectl
        .delete::<Pod>("db-0", &DeleteParams::default())
        .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(images(&kubectl).await, expect(["db:1", "db:1", "db:2"]));

    let all = json!({ "spec": { "updateStrategy": partition(0) } });
    kubectl.patch::<StatefulSet>("db", all).await;
    settled(&kubectl).await;
    assert_eq!(images(&kubectl).await, expect(["db:2"; 3]));

    kubectl.patch::<StatefulSet>("db", new_image("db:1")).await;
    let status = settled(&kubectl).await.status.unwrap();
    assert_eq!(status.current_revision, first);
    let mut revisions = kubectl.list::<ControllerRevision>().await;
    revisions.sort_by_key(|it| it.revision);
    let numbers: Vec<_> = revisions.iter().map(|it| it.revision).collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(revisions[1].metadata.name, first);
    cluster.stop().await;
}

/// Proves statefulset/update.
#[tokio::test(start_paused = true)]
async fn on_delete_updates_only_deleted_pods() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "updateStrategy": { "type": "OnDelete" } });
    kubectl.create::<StatefulSet>(stateful_set(&spec)).await;
    settled(&kubectl).await;
    kubectl.patch::<StatefulSet>("db", new_image("db:2")).await;
    kubectl
        .delete::<Pod>("db-1", &DeleteParams::default())
        .await;
    sleep(Duration::from_secs(60)).await;
    let images: Vec<_> = images(&kubectl).await.into_values().collect();
    assert_eq!(images, ["db:1", "db:2", "db:1"]);
    cluster.stop().await;
}

/// Proves workloads/revisions.
#[tokio::test(start_paused = true)]
async fn history_limit_deletes_the_oldest_revisions() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "replicas": 1, "revisionHistoryLimit": 1 });
    kubectl.create::<StatefulSet>(stateful_set(&spec)).await;
    settled(&kubectl).await;
    for image in ["db:2", "db:3", "db:4"] {
        kubectl.patch::<StatefulSet>("db", new_image(image)).await;
        settled(&kubectl).await;
    }
    sleep(Duration::from_secs(10)).await;
    let mut numbers: Vec<_> = kubectl
        .list::<ControllerRevision>()
        .await
        .iter()
        .map(|it| it.revision)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4]);
    cluster.stop().await;
}

/// Proves statefulset/claims.
#[tokio::test(start_paused = true)]
async fn claims_are_kept_or_deleted_by_policy() {
    for (policy, left) in [
        ("Retain", vec!["data-db-0", "data-db-1", "data-db-2"]),
        ("Delete", vec!["data-db-0"]),
    ] {
        let (cluster, kubectl) = start(virtual_cluster()).await;
        kubectl
            .create::<StatefulSet>(stateful_set(&with_claims(policy)))
            .await;
        settled(&kubectl).await;
        assert_eq!(kubectl.list::<PersistentVolumeClaim>().await.len(), 3);
        kubectl
            .patch::<StatefulSet>("db", json!({ "spec": { "replicas": 1 } }))
            .await;
        settled(&kubectl).await;
        sleep(Duration::from_secs(60)).await;
        let claims = async || {
            let claims = kubectl.list::<PersistentVolumeClaim>().await;
            claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        assert_eq!(claims().await, left, "{policy}");

        // Scaling up again reuses or recreates them.
        kubectl
            .patch::<StatefulSet>("db", json!({ "spec": { "replicas": 3 } }))
            .await;
        settled(&kubectl).await;
        assert_eq!(claims().await.len(), 3);
        kubectl
            .delete::<StatefulSet>("db", &DeleteParams::default())
            .await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(kubectl.pods().await.len(), 0);
        let expected = if policy == "Retain" { 3 } else { 0 };
        assert_eq!(claims().await.len(), expected, "{policy}");
        cluster.stop().await;
    }
}

/// Proves statefulset/recreate.
#[tokio::test(start_paused = true)]
async fn failed_or_deleted_pod_is_replaced() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl
        .create::<StatefulSet>(stateful_set(&json!({})))
        .await;
    settled(&kubectl).await;
    let before = kubectl.get::<Pod>("db-1").await.uid();
    let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    kubectl
        .api::<Pod>()
        .patch_status("db-1", &PatchParams::default(), &failed)
        .await
        .unwrap();
    sleep(Duration::from_secs(30)).await;
    settled(&kubectl).await;
    let after = kubectl.get::<Pod>("db-1").await;
    assert_ne!(after.uid(), before);
    assert!(is_ready(&after));
    cluster.stop().await;
}

/// Proves statefulset/recreate.
#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_adopted_by_a_new_set() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl
        .create::<StatefulSet>(stateful_set(&json!({})))
        .await;
    settled(&kubectl).await;
    let uids = async || {
        let pods = kubectl.pods().await;
        pods.iter().map(ResourceExt::uid).collect::<Vec<_>>()
    };
    let before = uids().await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    kubectl.delete::<StatefulSet>("db", &orphan).await;
    wait_for("the set to be gone", async || {
        let set = kubectl.api::<StatefulSet>().get_opt("db").await.unwrap();
        set.is_none().then_some(())
    })
    .await;
    let set: StatefulSet = kubectl.create(stateful_set(&json!({}))).await;
    settled(&kubectl).await;
    assert_eq!(uids().await, before);
    for pod in kubectl.pods().await {
        assert_eq!(Some(pod.owner_references()[0].uid.clone()), set.uid());
    }
    assert_eq!(kubectl.list::<ControllerRevision>().await.len(), 1);
    cluster.stop().await;
}

/// Proves statefulset/recreate.
#[tokio::test(start_paused = true)]
async fn pod_with_a_foreign_name_is_released() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let set: StatefulSet = kubectl.create(stateful_set(&json!({}))).await;
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db",
        "uid": set.uid(), "controller": true });
    let other = json!({
        "metadata": { "name": "other", "labels": { "app": "db" }, "ownerReferences": [owner] },
        "spec": { "containers": [{ "name": "main", "image": "a" }] },
    });
    kubectl.create::<Pod>(other).await;
    wait_for("the Pod to be released", async || {
        let pod = kubectl.get::<Pod>("other").await;
        pod.owner_references().is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

fn loops(builder: Builder) -> Builder {
    builder.loops(Loops::STATEFUL_SET | Loops::PODS | Loops::NODES)
}

/// Updates a set and scales it up, with or without a fault at one write. Returns the images by Pod,
/// the claims, the revisions, and the writes.
async fn update(
    fault: Option<Fault>,
) -> (
    (BTreeMap<String, String>, Vec<String>, Vec<i64>),
    Vec<String>,
) {
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    let mut spec = with_claims("Delete");
    spec["replicas"] = json!(2);
    kubectl.create::<StatefulSet>(stateful_set(&spec)).await;
    settled(&kubectl).await;
    sleep(Duration::from_secs(5)).await;

    loops.arm();
    let mut patch = new_image("db:2");
    patch["spec"]["replicas"] = json!(3);
    kubectl.patch::<StatefulSet>("db", patch).await;
    loops.recover().await;
    settled(&kubectl).await;
    let claims = kubectl.list::<PersistentVolumeClaim>().await;
    let claims = claims.iter().map(ResourceExt::name_any).collect();
    let mut revisions: Vec<_> = kubectl
        .list::<ControllerRevision>()
        .await
        .iter()
        .map(|it| it.revision)
        .collect();
    revisions.sort_unstable();
    let end = (images(&kubectl).await, claims, revisions);
    let writes = loops.stop().await;
    (end, writes)
}

/// Proves cluster/crash-safe.
#[test]
fn update_survives_a_fault_at_any_write() {
    let (reference, writes) = run(update(None));
    assert!(reference.0.len() == 3 && reference.0.values().all(|it| it == "db:2"));
    assert_eq!((reference.1.len(), &*reference.2), (3, &[1, 2][..]));
    assert!(writes.len() > 10, "{writes:#?}");
    let faults = (0..writes.len()).flat_map(faults_at);
    for fault in [Fault::CrashBefore(0)].into_iter().chain(faults) {
        let (end, _) = run(update(Some(fault)));
        assert_eq!(end, reference, "{fault:?} of {writes:#?}");
    }
}
