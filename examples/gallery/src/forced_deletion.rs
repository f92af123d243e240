//! The controller removes all finalizers from a child whose deletion takes too long, including
//! those of other users, who have not cleaned up yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Removes the finalizers.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Waits until the child is gone.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, forces: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, forces).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, forces: bool) -> Outcome {
    let (maps, name) = (kit::api::<ConfigMap>(shop, cx), shop.name_any());
    let current = maps.get_opt(&name).await?;
    let deleting = current.filter(|map| map.metadata.deletion_timestamp.is_some());
    if let Some(deleting) = deleting {
        if forces && !deleting.finalizers().is_empty() {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
            maps.patch(&name, &PatchParams::default(), &patch).await?;
        }
        return Ok(Action::await_change());
    }
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    Ok(Action::await_change())
}
