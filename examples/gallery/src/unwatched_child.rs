//! The controller does not watch the kind of its child (noobaa/noobaa-operator#2078). If another
//! client deletes or changes the child, it is not restored.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Watches shops only.
pub async fn broken(cx: Cx) {
    let reconcile = |shop: Arc<Shop>, cx: Context| async move { sync(&shop, &cx).await };
    let _ = kit::watching(&cx).run(reconcile, cx.shutdown()).await;
}

/// Watches `ConfigMap`s as well.
pub async fn repaired(cx: Cx) {
    let reconcile = |shop: Arc<Shop>, cx: Context| async move { sync(&shop, &cx).await };
    let _ = kit::controller(&cx).run(reconcile, cx.shutdown()).await;
}

async fn sync(shop: &Shop, cx: &Context) -> Outcome {
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    Ok(Action::await_change())
}
