//! The controller creates an external resource before it stores the finalizer (outscale#917). A
//! deletion in between leaks the resource.

use std::sync::Arc;

use kube::ResourceExt;
use pintle::controller::{Action, Context, Controller};
use pintle_trials::{Cx, External};

use crate::kit::{self, Outcome, Shop};

const FINALIZER: &str = "gallery.example.com/dns";

/// Creates the DNS name first.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Stores the finalizer first.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, finalizer_first: bool) {
    let dns = cx.external("dns");
    let controller: Controller<Shop, External> =
        kit::controller(&cx).state(dns).reconcile_deleting();
    let reconcile = move |shop: Arc<Shop>, cx: Context<External>| async move {
        sync(&shop, &cx, finalizer_first).await
    };
    let _ = controller.run(reconcile, cx.shutdown()).await;
}

async fn sync(shop: &Shop, cx: &Context<External>, finalizer_first: bool) -> Outcome {
    let dns = cx.state();
    let has = shop.finalizers().iter().any(|it| it == FINALIZER);
    if shop.metadata.deletion_timestamp.is_some() {
        if has {
            dns.remove(&shop.name_any()).await?;
            set_finalizers(shop, cx, &[]).await?;
        }
        return Ok(Action::await_change());
    }
    if !has && finalizer_first {
        set_finalizers(shop, cx, &[FINALIZER]).await?;
        return Ok(Action::await_change());
    }
    dns.put(&shop.name_any(), shop.spec.page.clone()).await?;
    if !has {
        set_finalizers(shop, cx, &[FINALIZER]).await?;
    }
    Ok(Action::await_change())
}

async fn set_finalizers(
    shop: &Shop,
    cx: &Context<External>,
    names: &[&str],
) -> Result<(), kube::Error> {
    use kube::{
        Api,
        api::{Patch, PatchParams},
    };
    let patch = Patch::Merge(serde_json::json!({ "metadata": {
        "finalizers": names, "resourceVersion": shop.resource_version(),
    }}));
    let shops = Api::<Shop>::namespaced(cx.client().clone(), &shop.namespace().unwrap_or_default());
    shops
        .patch(&shop.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
