//! The controller merges labels into the child and never removes any (k8ssandra/cass-operator#330).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::{Value, json};

use crate::kit::{self, Shop};

fn labelled(shop: &Shop) -> Value {
    let mut child = kit::page(shop);
    child["metadata"]["labels"] = json!(shop.spec.labels);
    child
}

/// Sends a merge patch.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        let maps = kit::api::<ConfigMap>(&shop, &cx);
        if maps.get_opt(&shop.name_any()).await?.is_none() {
            kit::apply::<ConfigMap>(&shop, &cx, &kit::page(&shop)).await?;
        }
        let patch = Patch::Merge(labelled(&shop));
        maps.patch(&shop.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(Action::await_change())
    })
    .await;
}

/// Uses server-side apply, which removes labels that are no longer set.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        kit::apply::<ConfigMap>(&shop, &cx, &labelled(&shop)).await?;
        Ok(Action::await_change())
    })
    .await;
}
