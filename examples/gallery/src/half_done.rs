//! A reconcile makes two writes, but checks only the first to decide whether there is work
//! (rabbitmq/cluster-operator#782). After a crash in between, the second write is never made.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::{Value, json};

use crate::kit::{self, Outcome, Shop};

fn service(shop: &Shop) -> Value {
    let port = 1000 + shop.spec.page.len();
    let spec = json!({ "spec": { "ports": [{ "port": port }], "selector": { "app": "shop" } } });
    kit::child(shop, "Service", &shop.name_any(), spec)
}

/// Compares the ConfigMap only.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, true).await
    })
    .await;
}

/// Applies both.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, false).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, only_first: bool) -> Outcome {
    let current = kit::api::<ConfigMap>(shop, cx)
        .get_opt(&shop.name_any())
        .await?;
    let data = current.and_then(|map| map.data);
    let same = data.is_some_and(|data| data.get("page") == Some(&shop.spec.page));
    if same && only_first {
        return Ok(Action::await_change());
    }
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    kit::apply::<Service>(shop, cx, &service(shop)).await?;
    Ok(Action::await_change())
}
