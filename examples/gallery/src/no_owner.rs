//! The child has no owner reference, so it is not deleted with the shop.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Shop};

/// Omits the owner reference.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Sets the owner reference.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, owned: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        let mut child = kit::page(&shop);
        if !owned {
            child["metadata"]["ownerReferences"] = json!([]);
        }
        kit::apply::<ConfigMap>(&shop, &cx, &child).await?;
        Ok(Action::await_change())
    })
    .await;
}
