//! The controller logs a failed write and reports success (kubernetes#67662), so the write is never
//! retried.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Ignores the error.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Returns the error.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, swallows: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, swallows).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, swallows: bool) -> Outcome {
    let port = 1000 + shop.spec.page.len();
    let spec = json!({ "spec": { "ports": [{ "port": port }], "selector": { "app": "shop" } } });
    let service = kit::child(shop, "Service", &shop.name_any(), spec);
    let applied = kit::apply::<Service>(shop, cx, &service).await;
    if !swallows {
        applied?;
    }
    Ok(Action::await_change())
}
