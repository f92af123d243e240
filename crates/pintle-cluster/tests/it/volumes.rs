//! Binding of claims to volumes, and reclaiming volumes afterwards.

use std::time::Duration;

use crate::support::{Kubectl, annotation, start, until_gone, virtual_cluster, wait_for};
use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pintle_cluster::{ClaimBehavior, Loops};
use serde_json::{Value, json};
use tokio::time::sleep;

fn claim(spec: &Value) -> Value {
    let mut claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        claim["spec"][key] = value.clone();
    }
    claim
}

fn volume(name: &str, spec: &Value) -> Value {
    let mut volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "5Gi" },
            "accessModes": ["ReadWriteOnce"],
            "hostPath": { "path": "/data" },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    volume
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn volumes(kubectl: &Kubectl) -> Api<PersistentVolume> {
    Api::all(kubectl.client.clone())
}

async fn until_claim(kubectl: &Kubectl, name: &str, phase: &str) -> PersistentVolumeClaim {
    wait_for(&format!("{name} to be {phase}"), async || {
        let claim = kubectl.get::<PersistentVolumeClaim>(name).await;
        (claim.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(claim)
    })
    .await
}

async fn until_volume(kubectl: &Kubectl, name: &str, phase: &str) -> PersistentVolume {
    wait_for(&format!("{name} to be {phase}"), async || {
        let volume = volumes(kubectl).get(name).await.unwrap();
        (volume.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(volume)
    })
    .await
}

/// Proves volumes/provisioning, volumes/reclaim.
#[tokio::test(start_paused = true)]
async fn claim_gets_a_volume_of_the_default_class() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl
        .create::<PersistentVolumeClaim>(claim(&json!({})))
        .await;
    let bound = until_claim(&kubectl, "data", "Bound").await;
    let spec = bound.spec.unwrap();
    assert_eq!(spec.storage_class_name.as_deref(), Some("standard"));
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "1Gi");
    let name = spec.volume_name.unwrap();
    assert_eq!(name, format!("pvc-{}", bound.metadata.uid.unwrap()));
    until_volume(&kubectl, &name, "Bound").await;

    // The class allows the volume to grow.
    let larger = json!({ "spec": { "resources": { "requests": { "storage": "3Gi" } } } });
    kubectl.patch::<PersistentVolumeClaim>("data", larger).await;
    wait_for("the larger volume", async || {
        let claim = kubectl.get::<PersistentVolumeClaim>("data").await;
        (claim.status?.capacity?["storage"].0 == "3Gi").then_some(())
    })
    .await;

    let params = DeleteParams::default();
    kubectl
        .delete::<PersistentVolumeClaim>("data", &params)
        .await;
    until_gone(&volumes(&kubectl), &name).await;
    cluster.stop().await;
}

/// Proves volumes/provisioning.
#[tokio::test(start_paused = true)]
async fn claims_of_a_stateful_set_are_bound() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_stateful_set("db", "postgres:1", 3).await;
    for claim in ["data-db-0", "data-db-1", "data-db-2"] {
        wait_for("the claim", async || {
            kubectl
                .api::<PersistentVolumeClaim>()
                .get_opt(claim)
                .await
                .unwrap()
        })
        .await;
        until_claim(&kubectl, claim, "Bound").await;
    }
    let all = volumes(&kubectl)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(all.items.len(), 3);
    cluster.stop().await;
}

/// Proves volumes/matching, volumes/reclaim.
#[tokio::test(start_paused = true)]
async fn static_volume_is_bound_released_and_retained() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(
        &volumes(&kubectl),
        volume("large", &json!({ "capacity": { "storage": "9Gi" } })),
    )
    .await;
    create(&volumes(&kubectl), volume("disk", &json!({}))).await;
    until_volume(&kubectl, "disk", "Available").await;
    let without_class = claim(&json!({ "storageClassName": "" }));
    kubectl
        .create::<PersistentVolumeClaim>(without_class.clone())
        .await;
    let bound = until_claim(&kubectl, "data", "Bound").await;
    assert_eq!(
        bound.spec.as_ref().unwrap().volume_name.as_deref(),
        Some("disk")
    );
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "5Gi");
    let completed = annotation(&bound.metadata, "pv.kubernetes.io/bind-completed");
    assert_eq!(completed, "yes");
    let params = DeleteParams::default();
    kubectl
        .delete::<PersistentVolumeClaim>("data", &params)
        .await;
    until_volume(&kubectl, "disk", "Released").await;
    // A claim of the same name does not get the data of the previous one.
    kubectl.create::<PersistentVolumeClaim>(without_class).await;
    let bound = until_claim(&kubectl, "data", "Bound").await;
    assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some("large"));
    until_volume(&kubectl, "disk", "Released").await;
    // An administrator makes it available again.
    let free = Patch::Merge(json!({ "spec": { "claimRef": null } }));
    let patched = volumes(&kubectl)
        .patch("disk", &PatchParams::default(), &free)
        .await;
    patched.unwrap();
    until_volume(&kubectl, "disk", "Available").await;
    cluster.stop().await;
}

/// Proves volumes/binding.
#[tokio::test(start_paused = true)]
async fn claim_and_volume_reserve_each_other() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    // The claim names its volume, which appears later.
    let spec = json!({ "storageClassName": "", "volumeName": "disk" });
    kubectl.create::<PersistentVolumeClaim>(claim(&spec)).await;
    sleep(Duration::from_mins(1)).await;
    until_claim(&kubectl, "data", "Pending").await;
    // The volume names another claim, which appears later.
    let reference = json!({ "name": "later", "namespace": "default" });
    create(
        &volumes(&kubectl),
        volume("reserved", &json!({ "claimRef": reference })),
    )
    .await;
    create(&volumes(&kubectl), volume("disk", &json!({}))).await;
    until_claim(&kubectl, "data", "Bound").await;
    let mut later = claim(&json!({ "storageClassName": "" }));
    later["metadata"]["name"] = json!("later");
    kubectl.create::<PersistentVolumeClaim>(later).await;
    let later = until_claim(&kubectl, "later", "Bound").await;
    assert_eq!(later.spec.unwrap().volume_name.as_deref(), Some("reserved"));
    cluster.stop().await;
}

/// Proves volumes/first-consumer.
#[tokio::test(start_paused = true)]
async fn binding_waits_for_the_first_consumer() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let class = json!({
        "metadata": { "name": "late" }, "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(&Api::<StorageClass>::all(cluster.client()), class).await;
    let spec = json!({ "storageClassName": "late" });
    kubectl.create::<PersistentVolumeClaim>(claim(&spec)).await;
    sleep(Duration::from_mins(1)).await;
    until_claim(&kubectl, "data", "Pending").await;
    let pod = json!({
        "metadata": { "name": "user" },
        "spec": {
            "containers": [{ "name": "main", "image": "nginx" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        },
    });
    kubectl.create::<Pod>(pod).await;
    let bound = until_claim(&kubectl, "data", "Bound").await;
    let node = kubectl
        .get::<Pod>("user")
        .await
        .spec
        .unwrap()
        .node_name
        .unwrap();
    let selected = annotation(&bound.metadata, "volume.kubernetes.io/selected-node");
    assert_eq!(selected, node);
    cluster.stop().await;
}

/// Proves volumes/binding, cluster/loops.
#[tokio::test(start_paused = true)]
async fn claim_is_lost_with_its_volume() {
    let loops = Loops::ALL.without(Loops::VOLUME_PROTECTION);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    kubectl
        .create::<PersistentVolumeClaim>(claim(&json!({})))
        .await;
    let bound = until_claim(&kubectl, "data", "Bound").await;
    let name = bound.spec.unwrap().volume_name.unwrap();
    let finalizers = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let params = PatchParams::default();
    volumes(&kubectl)
        .patch(&name, &params, &finalizers)
        .await
        .unwrap();
    volumes(&kubectl)
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    until_claim(&kubectl, "data", "Lost").await;
    cluster.stop().await;

    let loops = Loops::ALL.without(Loops::PROVISIONER);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    kubectl
        .create::<PersistentVolumeClaim>(claim(&json!({})))
        .await;
    sleep(Duration::from_mins(1)).await;
    until_claim(&kubectl, "data", "Pending").await;
    cluster.stop().await;
}

/// Proves volumes/script.
#[tokio::test(start_paused = true)]
async fn claims_bind_late_or_never() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let phase = async |name: &str| {
        let claim = kubectl.get::<PersistentVolumeClaim>(name).await;
        claim.status.unwrap().phase.unwrap()
    };
    let create = async |name: &str, behavior: Option<&str>| {
        let annotations = behavior.map(|it| json!({ ClaimBehavior::ANNOTATION: it }));
        let resources = json!({ "requests": { "storage": "1Gi" } });
        let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
        let metadata = json!({ "name": name, "labels": { "app": name },
            "annotations": annotations });
        let claim = json!({ "metadata": metadata, "spec": spec });
        kubectl.create::<PersistentVolumeClaim>(claim).await;
    };
    cluster
        .claims()
        .matching("app=scripted")
        .never_bind()
        .unwrap();
    create("plain", None).await;
    create("never", Some("never-bind")).await;
    create("late", Some("bind after=1m")).await;
    create("scripted", None).await;
    create("typo", Some("bnid")).await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(phase("plain").await, "Bound");
    for name in ["never", "late", "scripted", "typo"] {
        assert_eq!(phase(name).await, "Pending", "{name}");
    }
    let events = kubectl.list::<Event>().await.into_iter();
    let mut warnings = events.filter(|it| it.reason.as_deref() == Some("InvalidBehavior"));
    assert!(
        warnings
            .next()
            .unwrap()
            .message
            .unwrap()
            .contains("\"bnid\"")
    );

    sleep(Duration::from_secs(20)).await;
    assert_eq!(phase("late").await, "Bound");
    cluster.claims().matching("app=scripted").reset().unwrap();
    let annotation = json!({ "annotations": { ClaimBehavior::ANNOTATION: null } });
    let patch = json!({ "metadata": annotation });
    kubectl.patch::<PersistentVolumeClaim>("never", patch).await;
    sleep(Duration::from_secs(5)).await;
    for name in ["never", "scripted"] {
        assert_eq!(phase(name).await, "Bound", "{name}");
    }
    cluster.stop().await;
}

/// Proves volumes/pods-wait, volumes/ephemeral.
#[tokio::test(start_paused = true)]
async fn pods_wait_for_their_claims() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    cluster.claims().matching("app=slow").never_bind().unwrap();
    let pod = async |name: &str, source: Value| {
        let mut volume = source;
        volume["name"] = json!("data");
        let containers = json!([{ "name": "main", "image": "nginx" }]);
        let spec = json!({ "containers": containers, "volumes": [volume] });
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        kubectl.create::<Pod>(pod).await;
    };
    let resources = json!({ "requests": { "storage": "1Gi" } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
    let metadata = json!({ "name": "slow", "labels": { "app": "slow" } });
    let claim = json!({ "metadata": metadata, "spec": spec });
    kubectl.create::<PersistentVolumeClaim>(claim).await;
    pod(
        "missing",
        json!({ "persistentVolumeClaim": { "claimName": "none" } }),
    )
    .await;
    pod(
        "waiting",
        json!({ "persistentVolumeClaim": { "claimName": "slow" } }),
    )
    .await;
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": spec });
    pod(
        "scratch",
        json!({ "ephemeral": { "volumeClaimTemplate": template } }),
    )
    .await;
    sleep(Duration::from_secs(10)).await;
    let scheduled = async |name: &str| {
        let pod = kubectl.get::<Pod>(name).await;
        let conditions = pod.status.unwrap().conditions.unwrap();
        let scheduled = conditions.into_iter().find(|it| it.type_ == "PodScheduled");
        let scheduled = scheduled.unwrap();
        (
            scheduled.status == "True",
            scheduled.message.unwrap_or_default(),
        )
    };
    let (is_scheduled, why) = scheduled("missing").await;
    let not_found = r#"0/2 nodes are available: persistentvolumeclaim "none" not found."#;
    assert!(!is_scheduled && why.starts_with(not_found), "{why}");
    let (is_scheduled, why) = scheduled("waiting").await;
    let unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert!(!is_scheduled && why.starts_with(unbound), "{why}");
    assert!(scheduled("scratch").await.0);
    let claim = kubectl.get::<PersistentVolumeClaim>("scratch-data").await;
    assert_eq!(claim.metadata.labels.unwrap()["a"], "b");

    cluster.claims().matching("app=slow").reset().unwrap();
    sleep(Duration::from_secs(10)).await;
    assert!(scheduled("waiting").await.0);
    kubectl
        .delete::<Pod>("scratch", &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<PersistentVolumeClaim>(), "scratch-data").await;

    // A deleted claim remains while its Pod uses it, but no other Pod can use it.
    let claims = kubectl.api::<PersistentVolumeClaim>();
    claims
        .delete("slow", &DeleteParams::default())
        .await
        .unwrap();
    pod(
        "late",
        json!({ "persistentVolumeClaim": { "claimName": "slow" } }),
    )
    .await;
    sleep(Duration::from_secs(10)).await;
    let (is_scheduled, why) = scheduled("late").await;
    assert!(
        !is_scheduled && why.contains(r#""slow" is being deleted"#),
        "{why}"
    );
    cluster.stop().await;
}
