//! Deletion of owners and dependents.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Pod},
};
use kube::{ResourceExt as _, api::DeleteParams};
use real_tests::eventually;
use serde_json::{Value, json};

use super::{pair::Pair, rolled_out, web};

/// Proves gc/collects, gc/propagation.
#[tokio::test]
async fn deletion_cascades_to_dependents() {
    for (policy, params) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
    ] {
        let pair = rolled_out(2, json!({})).await;
        pair.both(async |side| {
            side.api::<Deployment>()
                .delete("web", &params)
                .await
                .unwrap();
            side.until_none_left::<Pod>().await;
            side.until_none_left::<ReplicaSet>().await;
            side.until_none_left::<Deployment>().await;
        })
        .await;
        pair.converge(policy).await;
        pair.stop().await;
    }
}

/// Proves gc/propagation, workloads/adoption.
#[tokio::test]
async fn orphans_are_adopted_by_a_new_deployment() {
    let pair = rolled_out(2, json!({})).await;
    pair.both(async |side| {
        let deployments = side.api::<Deployment>();
        deployments
            .delete("web", &DeleteParams::orphan())
            .await
            .unwrap();
        side.until_none_left::<Deployment>().await;
    })
    .await;
    pair.converge("orphaned").await;
    pair.both(async |side| {
        side.create::<Deployment>(web(2, &json!({}))).await;
        side.roll_out().await;
    })
    .await;
    pair.converge("adopted").await;
    pair.stop().await;
}

/// Returns a ConfigMap with these owners.
pub(super) fn map(name: &str, owners: &[&ConfigMap]) -> Value {
    let owner = |owner: &&ConfigMap| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
            "blockOwnerDeletion": true,
        })
    };
    let owners: Vec<_> = owners.iter().map(owner).collect();
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

/// Proves gc/collects.
#[tokio::test]
async fn dependents_of_absent_owners_are_collected() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let owner = side.create::<ConfigMap>(map("owner", &[])).await;
        let mut absent = owner.clone();
        absent.metadata.name = Some("absent".into());
        absent.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
        let mut stale = owner.clone();
        stale.metadata.uid = Some("11111111-2222-3333-4444-666666666666".into());
        side.create::<ConfigMap>(map("retained", &[&owner, &absent]))
            .await;
        side.create::<ConfigMap>(map("of-absent", &[&absent])).await;
        side.create::<ConfigMap>(map("of-stale", &[&stale])).await;
        eventually("the dependents to be gone", async || {
            // kube-root-ca.crt is the third.
            (side.list::<ConfigMap>().await.len() == 3).then_some(())
        })
        .await;
    })
    .await;
    pair.converge("collected").await;
    pair.stop().await;
}

/// Proves gc/propagation.
#[tokio::test]
async fn cycle_of_owners_is_deleted() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let a = side.create::<ConfigMap>(map("a", &[])).await;
        let b = side.create::<ConfigMap>(map("b", &[&a])).await;
        let c = side.create::<ConfigMap>(map("c", &[&b])).await;
        let owners = map("a", &[&c])["metadata"]["ownerReferences"].clone();
        side.patch::<ConfigMap>("a", json!({ "metadata": { "ownerReferences": owners } }))
            .await;
        let maps = side.api::<ConfigMap>();
        maps.delete("a", &DeleteParams::foreground()).await.unwrap();
        eventually("all to be gone", async || {
            (side.list::<ConfigMap>().await.len() <= 1).then_some(())
        })
        .await;
    })
    .await;
    pair.converge("all gone").await;
    pair.stop().await;
}
