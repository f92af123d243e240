//! A loop without a framework: when its watch ends, it lists only to learn where to start the next
//! one. Changes in between are missed (aws-load-balancer-controller#4879).

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use pintle_trials::Cx;

use crate::kit::{self, MANAGER, Shop};

/// Ignores the shops of all lists except the first.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Reconciles the shops of every list.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_blind: bool) {
    let shops = Api::<Shop>::all(cx.client());
    let mut first = true;
    loop {
        match follow(&cx, &shops, first || !is_blind).await {
            Ok(()) => first = false,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// Lists the shops and follows one watch to its end.
async fn follow(cx: &Cx, shops: &Api<Shop>, uses_list: bool) -> Result<(), kube::Error> {
    let list = shops.list(&ListParams::default()).await?;
    if uses_list {
        for shop in &list {
            sync(cx, shop).await;
        }
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    let watch = shops.watch(&WatchParams::default(), &version).await?;
    let mut watch = pin!(watch);
    while let Some(event) = watch.next().await {
        match event {
            Ok(WatchEvent::Added(shop) | WatchEvent::Modified(shop)) => sync(cx, &shop).await,
            Ok(WatchEvent::Error(_)) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Applies the child until it succeeds.
async fn sync(cx: &Cx, shop: &Shop) {
    if shop.metadata.deletion_timestamp.is_some() {
        return;
    }
    let maps = Api::<ConfigMap>::namespaced(cx.client(), &shop.namespace().unwrap_or_default());
    let params = PatchParams::apply(MANAGER).force();
    let (name, page) = (shop.name_any(), Patch::Apply(kit::page(shop)));
    while maps.patch(&name, &params, &page).await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
