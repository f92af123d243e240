//! The controller writes the entries of a hash map in iteration order
//! (stackabletech/airflow-operator#372). Each process writes a different order.

#![allow(clippy::disallowed_types, reason = "the bug")]

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;

use crate::kit::{self, Outcome, Shop};

/// Iterates over a `HashMap`.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Sorts the entries.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_shuffled: bool) {
    let settings: HashMap<String, String> = (0..8)
        .map(|i| (format!("key{i}"), format!("value{i}")))
        .collect();
    let settings = Arc::new(settings);
    kit::run(cx, move |shop: Arc<Shop>, cx: Context| {
        let settings = Arc::clone(&settings);
        async move { sync(&shop, &cx, &settings, is_shuffled).await }
    })
    .await;
}

async fn sync(
    shop: &Shop,
    cx: &Context,
    settings: &HashMap<String, String>,
    is_shuffled: bool,
) -> Outcome {
    let mut lines: Vec<String> = settings
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !is_shuffled {
        lines.sort();
    }
    let mut page = kit::page(shop);
    page["data"]["settings"] = lines.join("\n").into();
    kit::apply::<ConfigMap>(shop, cx, &page).await?;
    Ok(Action::await_change())
}
