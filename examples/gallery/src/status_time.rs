//! Every reconcile writes the time into the status, so a restart changes objects that are up to
//! date (Hostzero keycloak-operator#122).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Shop};

/// Writes the time of every check.
pub async fn broken(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        kit::apply::<ConfigMap>(&shop, &cx, &kit::page(&shop)).await?;
        let now = cx.clock().stamp();
        kit::set_status(&shop, &cx, json!({ "phase": "Ready", "checked": now })).await?;
        Ok(Action::await_change())
    })
    .await;
}

/// Writes the time of the first check.
pub async fn repaired(cx: Cx) {
    kit::run(cx, |shop: Arc<Shop>, cx: Context| async move {
        kit::apply::<ConfigMap>(&shop, &cx, &kit::page(&shop)).await?;
        if shop
            .status
            .as_ref()
            .and_then(|it| it.checked.as_ref())
            .is_none()
        {
            let now = cx.clock().stamp();
            kit::set_status(&shop, &cx, json!({ "phase": "Ready", "checked": now })).await?;
        }
        Ok(Action::await_change())
    })
    .await;
}
