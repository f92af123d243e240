//! A leader that was cut off for longer than its Lease lasts continues where it stopped
//! (kubernetes#67651), while its successor is at work.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use pintle::{
    controller::{Action, Context, Controller, ReconcileError},
    informer::InformerFactory,
    leader_election::LeaderElection,
};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Shop};

/// Waits for the Lease once, and never looks at it again.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Writes through a gate that closes when the term ends, and stops with the term.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, gated: bool) {
    let election = LeaderElection::new(cx.client(), "shops")
        .identity(format!("replica-{}", cx.process()))
        .retry_period(Duration::from_secs(8))
        .clock(cx.clock())
        .rng(cx.rng());
    let Ok(mut elector) = election.build() else {
        return;
    };
    let client = if gated {
        elector.leadership().gate(&cx.client())
    } else {
        cx.client()
    };
    while let Some(term) = elector.acquire(cx.shutdown()).await {
        let informers = InformerFactory::new(client.clone()).rng(cx.rng());
        let controller = Controller::<Shop>::new("shop", &informers)
            .clock(cx.clock())
            .owns::<ConfigMap>()
            .owns::<Service>();
        let until = if gated { term.ended() } else { cx.shutdown() };
        let _ = controller.run(reconcile, until).await;
        informers.shutdown().await;
    }
}

async fn reconcile(shop: Arc<Shop>, cx: Context) -> Result<Action, ReconcileError> {
    let port = 1000 + shop.spec.page.len();
    let spec = json!({ "spec": { "ports": [{ "port": port }], "selector": { "app": "shop" } } });
    let service = kit::child(&shop, "Service", &shop.name_any(), spec);
    cx.apply_owned(serde_json::from_value::<ConfigMap>(kit::page(&shop))?)
        .await?;
    cx.apply_owned(serde_json::from_value::<Service>(service)?)
        .await?;
    Ok(Action::await_change())
}
