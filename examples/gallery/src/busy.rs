//! The controller ignores changes while an operation is in progress (pingcap/tidb-operator#4946).
//! If it crashes during the operation, it ignores all further changes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Returns early while the phase is `Progressing`.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, true).await
    })
    .await;
}

/// Continues the operation.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, false).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, waits: bool) -> Outcome {
    let phase = shop.status.as_ref().and_then(|it| it.phase.as_deref());
    if phase == Some("Progressing") && waits {
        return Ok(Action::await_change());
    }
    let map = cx.lister::<ConfigMap>()?.get(cx.key());
    let current = map
        .and_then(|map| map.get().ok())
        .and_then(|map| map.data.clone());
    let done = current.is_some_and(|data| data.get("page") == Some(&shop.spec.page));
    if !done {
        kit::set_status(shop, cx, json!({ "phase": "Progressing" })).await?;
        kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    }
    if !done || phase != Some("Ready") {
        kit::set_status(shop, cx, json!({ "phase": "Ready" })).await?;
    }
    Ok(Action::await_change())
}
