//! The owner reference names a kind that does not exist (kubernetes#65200). The garbage collector
//! deletes the child, and the controller does not notice, because the reference does not name a
//! Shop.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Spells the kind in lower case.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Takes the owner reference from the object.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_wrong: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, is_wrong).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, is_wrong: bool) -> Outcome {
    let mut page = kit::page(shop);
    if is_wrong {
        page["metadata"]["ownerReferences"][0]["kind"] = "shop".into();
    }
    kit::apply::<ConfigMap>(shop, cx, &page).await?;
    Ok(Action::await_change())
}
