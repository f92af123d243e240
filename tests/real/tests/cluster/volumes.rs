//! Claims and volumes: the same bindings and phases as kube-controller-manager.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, from_value, json};

use super::mask::masked;
use super::pair::{Pair, Side};

fn volumes(side: &Side) -> Api<PersistentVolume> {
    Api::all(side.client.clone())
}

/// Returns a name for a cluster-scoped object that is unique to the test, because tests share the
/// real cluster.
fn named(side: &Side, name: &str) -> String {
    format!("{}-{name}", side.namespace)
}

async fn volume(side: &Side, name: &str, size: &str, policy: &str) {
    let volume = json!({
        "metadata": { "name": named(side, name) },
        "spec": {
            "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"],
            "storageClassName": named(side, "manual"), "persistentVolumeReclaimPolicy": policy,
            "csi": { "driver": "disk.example.com", "volumeHandle": name },
        },
    });
    volumes(side)
        .create(&PostParams::default(), &from_value(volume).unwrap())
        .await
        .unwrap();
}

async fn claim(side: &Side, name: &str, class: &str, spec: &Value) {
    let mut claim = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": named(side, class),
            "resources": { "requests": { "storage": "2Gi" } },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        claim["spec"][key] = value.clone();
    }
    side.create::<PersistentVolumeClaim>(claim).await;
}

async fn class(side: &Side, name: &str, provisioner: &str, mode: &str) {
    let class = json!({
        "metadata": { "name": named(side, name) },
        "provisioner": provisioner, "volumeBindingMode": mode,
    });
    Api::<StorageClass>::all(side.client.clone())
        .create(&PostParams::default(), &from_value(class).unwrap())
        .await
        .unwrap();
}

async fn delete_claim(side: &Side, name: &str) {
    let claims = side.api::<PersistentVolumeClaim>();
    let params = DeleteParams::default();
    claims.delete(name, &params).await.unwrap();
}

async fn own_volumes(side: &Side) -> Vec<PersistentVolume> {
    let all = volumes(side).list(&ListParams::default()).await.unwrap();
    let own = format!("{}-", side.namespace);
    let all = all.items.into_iter();
    all.filter(|volume| volume.name_any().starts_with(&own))
        .collect()
}

async fn snapshot(side: &Side) -> Value {
    let names = [side.namespace.clone()];
    let mut volumes = masked(json!(own_volumes(side).await), &names);
    for volume in volumes.as_array_mut().unwrap() {
        if let Some(status) = volume["status"].as_object_mut() {
            status.remove("lastPhaseTransitionTime");
        }
    }
    let claims = side.list::<PersistentVolumeClaim>().await;
    json!({ "volumes": volumes, "claims": masked(json!(claims), &names) })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

/// Deletes the cluster-scoped objects of the test.
async fn clean_up(side: &Side) {
    for volume in own_volumes(side).await {
        let name = volume.name_any();
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let params = PatchParams::default();
        let _ = volumes(side).patch(&name, &params, &free).await;
        let _ = volumes(side).delete(&name, &DeleteParams::default()).await;
    }
    let classes = Api::<StorageClass>::all(side.client.clone());
    for name in ["late", "external", "none"] {
        let _ = classes
            .delete(&named(side, name), &DeleteParams::default())
            .await;
    }
}

/// Proves volumes/matching, volumes/binding, volumes/reclaim, cluster/end-states.
#[tokio::test]
async fn claims_are_bound_and_volumes_released() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        volume(side, "large", "9Gi", "Retain").await;
        volume(side, "small", "1Gi", "Retain").await;
        volume(side, "medium", "5Gi", "Delete").await;
    })
    .await;
    compare(&pair, "available").await;
    pair.both(async |side| {
        claim(side, "data", "manual", &json!({})).await;
        let wanted = json!({ "volumeName": named(side, "small") });
        claim(side, "mismatch", "manual", &wanted).await;
        let wanted = json!({ "volumeName": named(side, "missing") });
        claim(side, "early", "manual", &wanted).await;
    })
    .await;
    compare(&pair, "one claim is bound").await;
    pair.both(async |side| {
        volume(side, "missing", "3Gi", "Retain").await;
        delete_claim(side, "data").await;
    })
    .await;
    compare(&pair, "another claim is bound, and one volume released").await;
    pair.both(async |side| claim(side, "data", "manual", &json!({})).await)
        .await;
    compare(&pair, "only the largest volume was left").await;
    pair.both(async |side| {
        delete_claim(side, "data").await;
        delete_claim(side, "early").await;
    })
    .await;
    compare(&pair, "released").await;
    pair.both(async |side| clean_up(side).await).await;
    pair.stop().await;
}

/// Proves volumes/binding, volumes/first-consumer, cluster/end-states.
#[tokio::test]
async fn claims_wait_for_their_requirements() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        class(side, "late", "disk.example.com", "WaitForFirstConsumer").await;
        class(side, "external", "disk.example.com", "Immediate").await;
        class(side, "none", "kubernetes.io/no-provisioner", "Immediate").await;
        for name in ["late", "external", "none", "unknown"] {
            claim(side, name, name, &json!({})).await;
        }
    })
    .await;
    compare(&pair, "pending").await;
    pair.both(async |side| {
        volume(side, "disk", "2Gi", "Retain").await;
        claim(side, "data", "manual", &json!({})).await;
    })
    .await;
    compare(&pair, "bound").await;
    pair.both(async |side| {
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let params = PatchParams::default();
        let name = named(side, "disk");
        volumes(side).patch(&name, &params, &free).await.unwrap();
        let params = DeleteParams::default();
        volumes(side).delete(&name, &params).await.unwrap();
        // The protection finalizer may have been added again in between.
        let params = PatchParams::default();
        let _ = volumes(side).patch(&name, &params, &free).await;
    })
    .await;
    compare(&pair, "lost").await;
    pair.both(async |side| clean_up(side).await).await;
    pair.stop().await;
}
