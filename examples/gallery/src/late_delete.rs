//! To replace an immutable Secret, the controller deletes it by name. A delete request that arrives
//! late removes the new Secret.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use pintle::controller::{Action, Context};
use pintle_trials::Cx;
use serde_json::json;

use crate::kit::{self, Outcome, Shop};

/// Deletes any object of that name.
pub async fn broken(cx: Cx) {
    run(cx, false).await;
}

/// Deletes only the object it has seen.
pub async fn repaired(cx: Cx) {
    run(cx, true).await;
}

async fn run(cx: Cx, by_uid: bool) {
    let controller = kit::controller(&cx).owns::<Secret>();
    let reconcile =
        move |shop: Arc<Shop>, cx: Context| async move { sync(&shop, &cx, by_uid).await };
    let _ = controller.run(reconcile, cx.shutdown()).await;
}

async fn sync(shop: &Shop, cx: &Context, by_uid: bool) -> Outcome {
    let (secrets, name) = (kit::api::<Secret>(shop, cx), shop.name_any());
    let Some(current) = secrets.get_opt(&name).await? else {
        let key = json!({ "stringData": { "key": shop.spec.page }, "immutable": true });
        let secret = kit::child(shop, "Secret", &name, key);
        let secret: Secret = serde_json::from_value(secret)?;
        secrets.create(&PostParams::default(), &secret).await?;
        return Ok(Action::await_change());
    };
    let key = current.data.as_ref().and_then(|data| data.get("key"));
    if key.is_some_and(|key| key.0 == shop.spec.page.as_bytes()) {
        return Ok(Action::await_change());
    }
    let mut params = DeleteParams::default();
    if by_uid {
        params = params.preconditions(Preconditions {
            uid: current.uid(),
            resource_version: None,
        });
    }
    match secrets.delete(&name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => {
            other?;
        }
    }
    // Its deletion starts the next reconcile.
    Ok(Action::await_change())
}
