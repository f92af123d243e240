//! The controller creates a child while a feature is enabled, and does not delete it when the
//! feature is disabled (knative/operator#1176).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{ResourceExt, api::DeleteParams};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Never deletes the Service.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Deletes the Service.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, forgets: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, forgets).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, forgets: bool) -> Outcome {
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    let name = shop.name_any();
    if !shop.spec.labels.is_empty() {
        let spec = json!({ "ports": [{ "port": 80 }], "selector": shop.spec.labels });
        let service = kit::child(shop, "Service", &name, json!({ "spec": spec }));
        kit::apply::<Service>(shop, cx, &service).await?;
    } else if !forgets && cx.lister::<Service>()?.get(cx.key()).is_some() {
        let services = kit::api::<Service>(shop, cx);
        match services.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
    }
    Ok(Action::await_change())
}
