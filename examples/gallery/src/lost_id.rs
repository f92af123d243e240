//! The controller creates an external resource under a random id, then stores the id
//! (aws-controllers-k8s#2062). A crash in between leaks the resource, and another one is created.

use std::sync::Arc;

use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_clock::Rng;
use pintle_trials::{Cx, External};
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/bucket";

/// Creates the resource before it stores the id.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Derives the id from the UID of the shop.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_random: bool) {
    let rng = cx.rng();
    kit::run_external(
        cx,
        "buckets",
        move |shop: Arc<Shop>, cx: Context<External>| {
            let rng = rng.clone();
            async move { sync(&shop, &cx, is_random.then_some(rng)).await }
        },
    )
    .await;
}

async fn sync(shop: &Shop, cx: &Context<External>, rng: Option<Rng>) -> Outcome {
    let has = shop.finalizers().iter().any(|it| it == FINALIZER);
    let stored = shop.status.as_ref().and_then(|status| status.id.clone());
    if shop.metadata.deletion_timestamp.is_some() {
        if has {
            let known = rng.is_none().then(|| shop.uid().unwrap_or_default());
            if let Some(id) = stored.or(known) {
                cx.state().remove(&id).await?;
            }
            kit::set_finalizers::<&str>(shop, cx, &[]).await?;
        }
        return Ok(Action::await_change());
    }
    if !has {
        kit::set_finalizers(shop, cx, &[FINALIZER]).await?;
        return Ok(Action::await_change());
    }
    let id = stored.clone().unwrap_or_else(|| match &rng {
        Some(rng) => format!("bucket-{:010x}", rng.below(1 << 40)),
        None => shop.uid().unwrap_or_default(),
    });
    cx.state().put(&id, shop.spec.page.clone()).await?;
    if stored.is_none() {
        kit::set_status(shop, cx, json!({ "id": id })).await?;
    }
    Ok(Action::await_change())
}
