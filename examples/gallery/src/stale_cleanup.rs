//! At start, the controller deletes Secrets whose shop is missing from a list with
//! `resourceVersion=0` (elastic/cloud-on-k8s#4956). An API server that lags behind does not list a
//! new shop yet, so the Secret of a live shop is deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use pintle::controller::{Action, Context, ReconcileError};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Shop};

/// Lists shops at any `resourceVersion`.
pub async fn broken(cx: Cx) {
    run(cx, ListParams::default().match_any()).await;
}

/// Lists the most recent shops.
pub async fn repaired(cx: Cx) {
    run(cx, ListParams::default()).await;
}

async fn run(cx: Cx, params: ListParams) {
    if clean_up(&cx, &params).await.is_err() {
        // The process exits and is restarted.
        return;
    }
    let controller = kit::controller(&cx).owns::<Secret>();
    let reconcile = |shop: Arc<Shop>, cx: Context| async move {
        let key = json!({ "stringData": { "key": shop.name_any() } });
        let secret = kit::child(&shop, "Secret", &shop.name_any(), key);
        kit::apply::<Secret>(&shop, &cx, &secret).await?;
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let _ = controller.run(reconcile, cx.shutdown()).await;
}

async fn clean_up(cx: &Cx, params: &ListParams) -> Result<(), kube::Error> {
    let secrets = Api::<Secret>::all(cx.client())
        .list(&ListParams::default())
        .await?;
    let shops = Api::<Shop>::all(cx.client()).list(params).await?;
    let names: Vec<String> = shops.iter().map(ResourceExt::name_any).collect();
    for secret in secrets {
        let owners = secret.metadata.owner_references.iter().flatten();
        let mut kinds = owners.map(|it| it.kind.as_str());
        if kinds.any(|kind| kind == "Shop") && !names.contains(&secret.name_any()) {
            let namespace = secret.namespace().unwrap_or_default();
            let api = Api::<Secret>::namespaced(cx.client(), &namespace);
            match api
                .delete(&secret.name_any(), &DeleteParams::default())
                .await
            {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }
    Ok(())
}
