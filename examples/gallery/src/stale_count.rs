//! The controller creates a child with a generated name if its cache has none
//! (ray-project/kuberay#715). If the watch is late, the cache does not have the first one yet, and
//! a second one is created.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::PostParams};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::{Value, json};

use crate::kit::{self, Outcome, Shop};

/// Lets the API server choose the name.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Derives the name from the shop, so that a second create fails.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, generated: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, generated).await
    })
    .await;
}

fn child(shop: &Shop, generated: bool) -> Value {
    let mut child = kit::page(shop);
    if generated {
        child["metadata"]["name"] = Value::Null;
        child["metadata"]["generateName"] = format!("{}-", shop.name_any()).into();
    }
    child
}

async fn sync(shop: &Shop, cx: &Context, generated: bool) -> Outcome {
    let children = cx.owned::<ConfigMap>()?;
    if children.is_empty() {
        let child: ConfigMap = serde_json::from_value(child(shop, generated))?;
        let created = kit::api::<ConfigMap>(shop, cx)
            .create(&PostParams::default(), &child)
            .await;
        match created {
            // It exists, and its event is on the way.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => {
                other?;
            }
        }
    }
    for existing in children {
        let map = existing.get()?;
        let page = map.data.as_ref().and_then(|data| data.get("page"));
        if page != Some(&shop.spec.page) {
            let mut child = kit::page(shop);
            child["metadata"]["name"] = map.name_any().into();
            kit::apply::<ConfigMap>(shop, cx, &child).await?;
        }
    }
    let generation = shop.metadata.generation;
    let observed = shop.status.as_ref().and_then(|it| it.observed_generation);
    if observed != generation {
        // The event of this write starts the next reconcile, whatever the other watches do.
        kit::set_status(shop, cx, json!({ "observedGeneration": generation })).await?;
    }
    Ok(Action::await_change())
}
