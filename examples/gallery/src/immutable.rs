//! The controller derives an immutable field from a mutable one. Once the user changes it, every
//! update of the child is rejected.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Selects Pods by the labels of the shop.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Selects Pods by a fixed label.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_derived: bool) {
    let controller = kit::controller(&cx).owns::<Deployment>();
    let reconcile =
        move |shop: Arc<Shop>, cx: Context| async move { sync(&shop, &cx, is_derived).await };
    let _ = controller.run(reconcile, cx.shutdown()).await;
}

async fn sync(shop: &Shop, cx: &Context, is_derived: bool) -> Outcome {
    let mut selector = json!({ "app": shop.name_any() });
    let mut labels = selector.clone();
    for (name, value) in &shop.spec.labels {
        labels[name.as_str()] = value.as_str().into();
    }
    if is_derived {
        selector = labels.clone();
    }
    let spec = json!({
        "replicas": shop.spec.replicas,
        "selector": { "matchLabels": selector },
        "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "shop", "image": "shop:1" }] },
        },
    });
    let mut child = kit::child(
        shop,
        "Deployment",
        &shop.name_any(),
        json!({ "spec": spec }),
    );
    child["apiVersion"] = "apps/v1".into();
    kit::apply::<Deployment>(shop, cx, &child).await?;
    Ok(Action::await_change())
}
