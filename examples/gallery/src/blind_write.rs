//! The controller replaces an object without a `resourceVersion` (infinispan-operator#2166), and so
//! overwrites concurrent changes of other clients.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::PostParams};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Clears the `resourceVersion`.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, true).await
    })
    .await;
}

/// Sends the `resourceVersion`, and retries on a conflict.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, false).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, blind: bool) -> Outcome {
    let maps = kit::api::<ConfigMap>(shop, cx);
    let Some(mut current) = maps.get_opt(&shop.name_any()).await? else {
        let child: ConfigMap = serde_json::from_value(kit::page(shop))?;
        maps.create(&PostParams::default(), &child).await?;
        return Ok(Action::await_change());
    };
    let data = current.data.get_or_insert_default();
    let ours = current.metadata.owner_references.as_ref();
    let ours =
        ours.is_some_and(|owners| owners.iter().any(|it| Some(&it.uid) == shop.uid().as_ref()));
    if !ours {
        // The garbage collector is about to delete it.
        return Ok(Action::requeue_after(std::time::Duration::from_secs(1)));
    }
    if data
        .insert("page".to_owned(), shop.spec.page.clone())
        .as_ref()
        != Some(&shop.spec.page)
    {
        if blind {
            current.metadata.resource_version = None;
        }
        maps.replace(&shop.name_any(), &PostParams::default(), &current)
            .await?;
    }
    Ok(Action::await_change())
}
