//! The controller recreates a child that differs from what it created
//! (paperclipinc/openclaw-operator#29). A webhook that sets a default makes it differ immediately.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Compares everything that it could have set.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Compares only the fields it has set.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, compares_all: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, compares_all).await
    })
    .await;
}

fn annotations(map: &ConfigMap) -> BTreeMap<String, String> {
    map.metadata.annotations.clone().unwrap_or_default()
}

async fn sync(shop: &Shop, cx: &Context, compares_all: bool) -> Outcome {
    let (maps, name) = (kit::api::<ConfigMap>(shop, cx), shop.name_any());
    let wanted: ConfigMap = serde_json::from_value(kit::page(shop))?;
    let Some(current) = maps.get_opt(&name).await? else {
        maps.create(&PostParams::default(), &wanted).await?;
        return Ok(Action::await_change());
    };
    let same_annotations = !compares_all || annotations(&current) == annotations(&wanted);
    let is_ours = current.metadata.owner_references == wanted.metadata.owner_references;
    if current.data == wanted.data && is_ours && same_annotations {
        return Ok(Action::await_change());
    }
    match maps.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => {
            other?;
        }
    }
    // Its deletion starts the next reconcile.
    Ok(Action::await_change())
}
