//! The cleanup fails if the object it deletes is already gone (kubernetes#108645). A crash between
//! the cleanup and the removal of the finalizer leaves the object stuck in deletion.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::DeleteParams};
use pintle::controller::{Action, Context, ReconcileError};
use pintle_trials::Cx;

use crate::kit::{self, Shop};

const FINALIZER: &str = "gallery.example.com/page";

/// Treats "not found" as a failure.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Treats "not found" as success.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, tolerant: bool) {
    let controller =
        kit::controller(&cx).finalizer(FINALIZER, move |shop: Arc<Shop>, cx: Context| async move {
            let maps = kit::api::<ConfigMap>(&shop, &cx);
            match maps
                .delete(&shop.name_any(), &DeleteParams::default())
                .await
            {
                Err(kube::Error::Api(status)) if tolerant && status.is_not_found() => Ok(()),
                Err(error) => Err(ReconcileError::from(error)),
                Ok(_) => Ok(()),
            }
        });
    let reconcile = |shop: Arc<Shop>, cx: Context| async move {
        kit::apply::<ConfigMap>(&shop, &cx, &kit::page(&shop)).await?;
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let _ = controller.run(reconcile, cx.shutdown()).await;
}
