//! The controller replaces its object with one of its own type. A property that a user has set, and
//! that only a newer version of the CRD has, is lost.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// The page that was applied last.
const APPLIED: &str = "gallery.example.com/applied";

/// Replaces the object.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Patches the annotation.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, replaces: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, replaces).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, replaces: bool) -> Outcome {
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    if shop.annotations().get(APPLIED) == Some(&shop.spec.page) {
        return Ok(Action::await_change());
    }
    let (shops, name) = (kit::api::<Shop>(shop, cx), shop.name_any());
    if replaces {
        let mut next = shop.clone();
        let page = shop.spec.page.clone();
        next.annotations_mut().insert(APPLIED.to_owned(), page);
        shops.replace(&name, &PostParams::default(), &next).await?;
    } else {
        let annotations = json!({ APPLIED: shop.spec.page });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        shops.patch(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}
