//! The controller clears the list of finalizers instead of removing its own, and so completes
//! deletions that other finalizers still block.

use std::sync::Arc;

use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::{Cx, External};

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/dns";

/// Removes all finalizers.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Removes its own.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, all: bool) {
    kit::run_external(
        cx,
        "dns",
        move |shop: Arc<Shop>, cx: Context<External>| async move { sync(&shop, &cx, all).await },
    )
    .await;
}

async fn sync(shop: &Shop, cx: &Context<External>, all: bool) -> Outcome {
    let (dns, name) = (cx.state(), shop.name_any());
    let mut finalizers = shop.finalizers().to_vec();
    let has = finalizers.iter().any(|it| it == FINALIZER);
    if shop.metadata.deletion_timestamp.is_none() {
        if has {
            dns.put(&name, shop.spec.page.clone()).await?;
        } else {
            finalizers.push(FINALIZER.to_owned());
            kit::set_finalizers(shop, cx, &finalizers).await?;
        }
    } else if has {
        dns.remove(&name).await?;
        finalizers.retain(|it| !all && it != FINALIZER);
        kit::set_finalizers(shop, cx, &finalizers).await?;
    }
    Ok(Action::await_change())
}
