//! The controller reads the shop again at the end and reports that generation as done, although it
//! has applied an earlier one. A change that users make in between is never applied.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Reports the newest generation, and does nothing for a shop whose generation is reported.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Reports the generation that was applied.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, newest: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, newest).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, newest: bool) -> Outcome {
    let latest = kit::api::<Shop>(shop, cx).get(&shop.name_any()).await?;
    let status = latest.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    let is_done = observed == latest.metadata.generation;
    if is_done && newest {
        return Ok(Action::await_change());
    }
    kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await?;
    let generation = if newest {
        let shops = kit::api::<Shop>(shop, cx);
        shops.get(&shop.name_any()).await?.metadata.generation
    } else {
        shop.metadata.generation
    };
    if observed != generation {
        kit::set_status(shop, cx, json!({ "observedGeneration": generation })).await?;
    }
    Ok(Action::await_change())
}
