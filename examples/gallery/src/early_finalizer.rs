//! The controller removes its finalizer before it cleans up. A crash in between leaks the external
//! resource.

use std::sync::Arc;

use kube::ResourceExt;
use pintle::controller::{Action, Context};
use pintle_trials::{Cx, External};

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/dns";

/// Removes the finalizer first.
pub async fn broken(cx: Cx) {
    run(cx, true).await;
}

/// Cleans up first.
pub async fn repaired(cx: Cx) {
    run(cx, false).await;
}

async fn run(cx: Cx, is_early: bool) {
    kit::run_external(cx, "dns", move |shop: Arc<Shop>, cx: Context<External>| async move {
        sync(&shop, &cx, is_early).await
    })
    .await;
}

async fn sync(shop: &Shop, cx: &Context<External>, is_early: bool) -> Outcome {
    let (dns, name) = (cx.state(), shop.name_any());
    let has = shop.finalizers().iter().any(|it| it == FINALIZER);
    if shop.metadata.deletion_timestamp.is_none() {
        if has {
            dns.put(&name, shop.spec.page.clone()).await?;
        } else {
            kit::set_finalizers(shop, cx, &[FINALIZER]).await?;
        }
    } else if has && is_early {
        kit::set_finalizers::<&str>(shop, cx, &[]).await?;
        dns.remove(&name).await?;
    } else if has {
        dns.remove(&name).await?;
        kit::set_finalizers::<&str>(shop, cx, &[]).await?;
    }
    Ok(Action::await_change())
}
