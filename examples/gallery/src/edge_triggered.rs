//! The controller deletes a child only if it has observed the change that made it superfluous
//! (instaclustr/cassandra-operator#398). Changes that are made while it is down are missed.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use parking_lot::Mutex;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// The number of replicas of each shop when it was last reconciled.
type Seen = Arc<Mutex<BTreeMap<Option<String>, i32>>>;

/// Compares with the last observed number.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Compares with the children that exist.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, by_edge: bool) {
    let seen = Seen::default();
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| {
        let seen = Arc::clone(&seen);
        async move { sync(&shop, &cx, by_edge.then_some(seen)).await }
    })
    .await;
}

fn name(shop: &Shop, index: i32) -> String {
    format!("{}-{index}", shop.name_any())
}

async fn sync(shop: &Shop, cx: &Context, seen: Option<Seen>) -> Outcome {
    let maps = kit::api::<ConfigMap>(shop, cx);
    let replicas = shop.spec.replicas;
    for index in 0..replicas {
        let data = json!({ "data": { "page": shop.spec.page } });
        let child = kit::child(shop, "ConfigMap", &name(shop, index), data);
        kit::apply::<ConfigMap>(shop, cx, &child).await?;
    }
    let superfluous: Vec<String> = if let Some(seen) = &seen {
        let before = seen.lock().get(&shop.uid()).copied().unwrap_or(replicas);
        (replicas..before).map(|index| name(shop, index)).collect()
    } else {
        let wanted: Vec<String> = (0..replicas).map(|index| name(shop, index)).collect();
        let is_ours = |map: &ConfigMap| {
            let owners = map.metadata.owner_references.iter().flatten();
            let mut uids = owners.map(|it| Some(&it.uid));
            uids.any(|uid| uid == shop.uid().as_ref())
        };
        let all = maps.list(&ListParams::default()).await?;
        let ours = all.items.iter().filter(|map| is_ours(map));
        ours.map(ResourceExt::name_any)
            .filter(|name| !wanted.contains(name))
            .collect()
    };
    for name in superfluous {
        match maps.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
    }
    if let Some(seen) = seen {
        seen.lock().insert(shop.uid(), replicas);
    }
    Ok(Action::await_change())
}
