//! The controller retries the errors on its list and takes every other one for a refusal. 504 is
//! missing from the list: the server may have applied the request.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Service;
use kube::{Error, ResourceExt, api::PostParams};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Takes 504 for a refusal.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Takes only the errors of the client for a refusal.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, has_list: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, has_list).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, has_list: bool) -> Outcome {
    let shops = kit::api::<Shop>(shop, cx);
    let Some(shop) = &shops.get_opt(&shop.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let status = shop.status.clone().unwrap_or_default();
    let is_current = status.observed_generation == shop.metadata.generation;
    let services = kit::api::<Service>(shop, cx);
    if is_current && status.phase.as_deref() == Some("Refused") {
        // Trying again would not help.
        return Ok(Action::await_change());
    }
    let mut phase = "Ready";
    let current = services.get_opt(&shop.name_any()).await?;
    let uid = shop.uid().unwrap_or_default();
    let is_owned = |it: &Service| it.owner_references().iter().any(|it| it.uid == uid);
    if current.as_ref().is_some_and(|it| !is_owned(it)) {
        // The garbage collector is about to delete it.
        return Ok(Action::requeue(Duration::from_secs(5)));
    }
    if current.is_none() {
        let spec = json!({ "spec": { "ports": [{ "port": 80 }], "selector": { "app": "shop" } } });
        let service = kit::child(shop, "Service", &shop.name_any(), spec);
        let service: Service = serde_json::from_value(service)?;
        let retries = |code| {
            if has_list {
                matches!(code, 409 | 429 | 500 | 503)
            } else {
                matches!(code, 409 | 429) || code >= 500
            }
        };
        match services.create(&PostParams::default(), &service).await {
            Err(Error::Api(status)) if !retries(status.code) => phase = "Refused",
            other => {
                other?;
            }
        }
    }
    if !is_current || status.phase.as_deref() != Some(phase) {
        let status = json!({ "phase": phase, "observedGeneration": shop.metadata.generation });
        kit::set_status(shop, cx, status).await?;
    }
    Ok(Action::await_change())
}
