//! The controller writes `observedGeneration` only together with another change of the status.
//! Users who wait for it wait forever.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Compares the phase only.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Also compares the generation.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_stale: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, is_stale).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, is_stale: bool) -> Outcome {
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    let generation = shop.metadata.generation;
    let status = shop.status.clone().unwrap_or_default();
    let same = status.phase.as_deref() == Some("Ready");
    if !same || (!is_stale && status.observed_generation != generation) {
        let status = json!({ "phase": "Ready", "observedGeneration": generation });
        kit::set_status(shop, cx, status).await?;
    }
    Ok(Action::await_change())
}
