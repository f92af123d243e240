//! The controller retries a failed request immediately, without back-off. While the API server is
//! down, it sends thousands of requests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Retries in a loop.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Returns the error, so that the retry is delayed.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_hot: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, is_hot).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, is_hot: bool) -> Outcome {
    loop {
        match kit::apply::<ConfigMap>(shop, cx, &kit::page(shop)).await {
            Ok(_) => return Ok(Action::await_change()),
            Err(_) if is_hot => {}
            Err(error) => return Err(error.into()),
        }
    }
}
