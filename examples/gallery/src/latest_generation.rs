//! To report its progress, the controller reads the shop again and stores the generation of what it
//! read. If the user has changed the shop in the meantime, that change counts as done.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Stores the generation of the newest shop.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Stores the generation that it has reconciled.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_latest: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, is_latest).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, is_latest: bool) -> Outcome {
    let (shops, name) = (kit::api::<Shop>(shop, cx), shop.name_any());
    let Some(shop) = &shops.get_opt(&name).await? else {
        return Ok(Action::await_change());
    };
    let maps = kit::api::<ConfigMap>(shop, cx);
    let uid = shop.uid().unwrap_or_default();
    let mut current = maps.list(&ListParams::default()).await?.items;
    current.retain(|map| map.owner_references().iter().any(|it| it.uid == uid));
    let status = shop.status.clone().unwrap_or_default();
    if status.observed_generation == shop.metadata.generation && current.len() == 1 {
        return Ok(Action::await_change());
    }
    // Every page has a map of its own.
    let wanted = format!("{name}-{}", shop.spec.page);
    let map = kit::child(shop, "ConfigMap", &wanted, json!({}));
    kit::apply::<ConfigMap>(shop, cx, &map).await?;
    for map in current.iter().filter(|map| map.name_any() != wanted) {
        let deleted = maps.delete(&map.name_any(), &DeleteParams::default()).await;
        if !matches!(&deleted, Err(kube::Error::Api(status)) if status.is_not_found()) {
            deleted?;
        }
    }
    let latest = shops.get_status(&name).await?;
    let generation = if is_latest {
        latest.metadata.generation
    } else {
        shop.metadata.generation
    };
    // A shop with the same name is another one.
    let patch = json!({
        "metadata": { "uid": uid }, "status": { "observedGeneration": generation },
    });
    let patch = Patch::Merge(patch);
    shops
        .patch_status(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(Action::await_change())
}
