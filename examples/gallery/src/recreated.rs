//! The controller remembers reconciled objects by name and generation (kube-rs/kube#1830), and so
//! skips an object that was deleted and recreated.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use parking_lot::Mutex;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Shop};

type Handled = Arc<Mutex<BTreeMap<String, Option<i64>>>>;

/// Remembers by name.
pub async fn broken(cx: Cx) {
    run(cx, ResourceExt::name_any).await;
}

/// Remembers by UID.
pub async fn repaired(cx: Cx) {
    run(cx, |shop| shop.uid().unwrap_or_default()).await;
}

async fn run(cx: Cx, key: fn(&Shop) -> String) {
    let handled = Handled::default();
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| {
        let handled = Arc::clone(&handled);
        async move {
            let exists = cx.lister::<ConfigMap>()?.get(cx.key()).is_some();
            let generation = shop.metadata.generation;
            let known = handled.lock().get(&key(&shop)) == Some(&generation);
            // A missing child is always restored, unless the garbage collector is still deleting
            // the old one.
            if known && (exists || key(&shop) == shop.name_any()) {
                return Ok(Action::await_change());
            }
            kit::apply::<ConfigMap>(&shop, &cx, &kit::page(&shop)).await?;
            handled.lock().insert(key(&shop), generation);
            Ok(Action::await_change())
        }
    })
    .await;
}
