//! The controller applies without force (wasmCloud/wadm-operator#140). Once another client has set
//! one of its fields, every apply fails with a conflict.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Applies without force.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, false).await
    })
    .await;
}

/// Applies with force.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, true).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, force: bool) -> Outcome {
    let params = PatchParams {
        force,
        ..PatchParams::apply(kit::MANAGER)
    };
    let patch = Patch::Apply(kit::page(shop));
    kit::api::<ConfigMap>(shop, cx)
        .patch(&shop.name_any(), &params, &patch)
        .await?;
    Ok(Action::await_change())
}
