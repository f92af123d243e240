//! Two replicas run without leader election during a rolling update (cilium#42920). Both react to
//! the same change, and each creates a child of its own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::{Value, json};

use crate::kit::{self, Outcome, Shop};

/// Lets the API server choose the name of each child.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Derives the name from the page, so that both replicas create the same child.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, generated: bool) {
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, generated).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, generated: bool) -> Outcome {
    let maps = kit::api::<ConfigMap>(shop, cx);
    let page = |map: &ConfigMap| map.data.as_ref().and_then(|it| it.get("page").cloned());
    let mut found = false;
    for existing in cx.owned::<ConfigMap>()? {
        let map = existing.get()?;
        if page(&map).as_ref() == Some(&shop.spec.page) {
            found = true;
            continue;
        }
        match maps.delete(&map.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => {
                other?;
            }
        }
    }
    if found {
        return Ok(Action::await_change());
    }
    let mut child = kit::page(shop);
    if generated {
        child["metadata"]["name"] = Value::Null;
        child["metadata"]["generateName"] = format!("{}-", shop.name_any()).into();
    } else {
        child["metadata"]["name"] = format!("{}-{}", shop.name_any(), shop.spec.page).into();
    }
    child["immutable"] = json!(true);
    let child: ConfigMap = serde_json::from_value(child)?;
    match maps.create(&PostParams::default(), &child).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => {
            other?;
        }
    }
    Ok(Action::await_change())
}
