//! Before the controller removes its finalizer, it writes to a child once more. In a namespace that
//! is being deleted, the child is gone and cannot be created, so the namespace is stuck.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::{Cx, External};
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/closing";

/// Fails if the child cannot be written.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Changes the child only if it exists.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, checks: bool) {
    let reconcile =
        move |shop: Arc<Shop>, cx: Context<External>| async move { sync(&shop, &cx, checks).await };
    kit::run_external(cx, "registry", reconcile).await;
}

async fn sync(shop: &Shop, cx: &Context<External>, checks: bool) -> Outcome {
    let (maps, name) = (kit::api::<ConfigMap>(shop, cx), shop.name_any());
    let has = shop.finalizers().iter().any(|it| it == FINALIZER);
    if shop.metadata.deletion_timestamp.is_some() {
        let exists = !checks || maps.get_opt(&name).await?.is_some();
        if has && exists {
            let closed = json!({ "data": { "page": "closed" } });
            let child = kit::child(shop, "ConfigMap", &name, closed);
            let written = kit::apply::<ConfigMap>(shop, cx, &child).await;
            let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden());
            // It may have been deleted since.
            if !(checks && written.as_ref().is_err_and(is_gone)) {
                written?;
            }
        }
        if has {
            kit::set_finalizers::<&str>(shop, cx, &[]).await?;
        }
        return Ok(Action::await_change());
    }
    if !has {
        kit::set_finalizers(shop, cx, &[FINALIZER]).await?;
        return Ok(Action::await_change());
    }
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    Ok(Action::await_change())
}
