//! The controller assumes that a child exists because its status says so, and panics if a user has
//! deleted it (aws-load-balancer-controller#4879).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Indexes into the data of the child.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Restores the child.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, assumes: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, assumes).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, assumes: bool) -> Outcome {
    let uid = shop.uid();
    let created = shop.status.as_ref().is_some_and(|it| it.id == uid);
    if created && assumes {
        let maps = kit::api::<ConfigMap>(shop, cx);
        let current = maps.get_opt(&shop.name_any()).await?;
        let data = current.and_then(|map| map.data).unwrap_or_default();
        if data["page"] == shop.spec.page {
            return Ok(Action::await_change());
        }
    }
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    if !created {
        kit::set_status(shop, cx, json!({ "id": uid })).await?;
    }
    Ok(Action::await_change())
}
