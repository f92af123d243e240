//! The controller creates a child with a generated name and stores the name in the status. If the
//! response to the create is lost, it creates another one (kubernetes#67662).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::PostParams};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::{Value, json};

use crate::kit::{self, Outcome, Shop};

/// Learns the name from the response.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Knows the name before the child exists.
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
    let mut child = kit::page(shop);
    let latest = kit::api::<Shop>(shop, cx).get(&shop.name_any()).await?;
    let stored = latest.status.and_then(|status| status.id);
    let known = if generated {
        stored.clone()
    } else {
        Some(shop.name_any())
    };
    let name = if let Some(name) = known {
        child["metadata"]["name"] = name.clone().into();
        kit::apply::<ConfigMap>(shop, cx, &child).await?;
        name
    } else {
        child["metadata"]["name"] = Value::Null;
        child["metadata"]["generateName"] = format!("{}-", shop.name_any()).into();
        let child: ConfigMap = serde_json::from_value(child)?;
        let maps = kit::api::<ConfigMap>(shop, cx);
        maps.create(&PostParams::default(), &child)
            .await?
            .name_any()
    };
    if stored.as_ref() != Some(&name) {
        kit::set_status(shop, cx, json!({ "id": name })).await?;
    }
    Ok(Action::await_change())
}
