//! The controller creates a bucket under a random id and then stores the id. To clean up after a
//! crash in between, a new process removes the buckets whose id is not stored. During a rolling
//! update, the old process may be about to store it.

use std::{collections::BTreeMap, sync::Arc};

use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use pintle::controller::{Action, Context, ReconcileError};
use pintle_trials::{Cx, External};
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/bucket";
const SERVICE: &str = "buckets";

/// Chooses random ids, and removes unknown buckets at the start.
pub async fn broken(cx: Cx) {
    if clean(&cx).await.is_ok() {
        run(cx, true).await;
    }
}

/// Derives the id from the UID of the shop, so that no bucket is ever unknown.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn clean(cx: &Cx) -> Result<(), ReconcileError> {
    let shops = Api::<Shop>::all(cx.client());
    let shops = shops.list(&ListParams::default()).await?;
    let stored = |shop: &Shop| shop.status.as_ref()?.id.clone();
    let stored: Vec<String> = shops.iter().filter_map(stored).collect();
    let buckets = cx.external(SERVICE);
    for id in buckets.list().await? {
        if !stored.contains(&id) {
            buckets.remove(&id).await?;
        }
    }
    Ok(())
}

async fn run(cx: Cx, is_random: bool) {
    let rng = cx.rng();
    // The buckets that this process has created.
    let mine: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let reconcile = move |shop: Arc<Shop>, cx: Context<External>| {
        let uid = shop.uid().unwrap_or_default();
        let id = if is_random {
            let random = || format!("bucket-{:010x}", rng.below(1 << 40));
            mine.lock().entry(uid).or_insert_with(random).clone()
        } else {
            uid
        };
        async move { sync(&shop, &cx, id).await }
    };
    kit::run_external(cx, SERVICE, reconcile).await;
}

async fn sync(shop: &Shop, cx: &Context<External>, mine: String) -> Outcome {
    let buckets = cx.state();
    let stored = shop.status.as_ref().and_then(|status| status.id.clone());
    let has = shop.finalizers().iter().any(|it| it == FINALIZER);
    if shop.metadata.deletion_timestamp.is_some() {
        if has {
            for id in stored.iter().chain([&mine]) {
                buckets.remove(id).await?;
            }
            let others = shop.finalizers().iter().filter(|it| *it != FINALIZER);
            kit::set_finalizers(shop, cx, &others.collect::<Vec<_>>()).await?;
        }
        return Ok(Action::await_change());
    }
    if !has {
        let mut all: Vec<&str> = shop.finalizers().iter().map(String::as_str).collect();
        all.push(FINALIZER);
        kit::set_finalizers(shop, cx, &all).await?;
        return Ok(Action::await_change());
    }
    match stored {
        None => {
            buckets.put(&mine, "private").await?;
            let version = shop.resource_version();
            let patch = json!({
                "metadata": { "resourceVersion": version }, "status": { "id": mine },
            });
            let (name, params) = (shop.name_any(), PatchParams::default());
            kit::api::<Shop>(shop, cx)
                .patch_status(&name, &params, &Patch::Merge(patch))
                .await?;
        }
        // Another process was faster.
        Some(stored) if stored != mine => {
            buckets.remove(&mine).await?;
        }
        Some(_) => {}
    }
    Ok(Action::await_change())
}
