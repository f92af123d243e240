//! The controller recognizes its children by name prefix instead of owner reference, and so deletes
//! similarly named objects of other users.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Deletes objects whose names start with the shop's name.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, false).await
    })
    .await;
}

/// Deletes objects that the shop owns.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        sync(&shop, &cx, true).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context, by_owner: bool) -> Outcome {
    let name = |i: i32| format!("{}-{i}", shop.name_any());
    for i in 0..shop.spec.replicas {
        let child = kit::child(shop, "ConfigMap", &name(i), json!({}));
        kit::apply::<ConfigMap>(shop, cx, &child).await?;
    }
    let maps = kit::api::<ConfigMap>(shop, cx);
    for map in maps.list(&ListParams::default()).await? {
        let owned = map
            .owner_references()
            .iter()
            .any(|it| Some(&it.uid) == shop.uid().as_ref());
        let ours = if by_owner {
            owned
        } else {
            map.name_any().starts_with(&shop.name_any())
        };
        let wanted = (0..shop.spec.replicas).any(|i| name(i) == map.name_any());
        if ours && !wanted {
            match maps.delete(&map.name_any(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => {
                    other?;
                }
            }
        }
    }
    Ok(Action::await_change())
}
