//! Collects the rules of aggregated `ClusterRole`s, such as `view`, `edit` and `admin`.

mod plan;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, ReconcileError},
};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
};

/// The field manager of the rules; upstream's controller uses the same name.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let roles = environment.informers.informer::<ClusterRole>().lister();
    environment
        .controller::<ClusterRole>("role-aggregation")
        .watches::<ClusterRole>(move |_, _| aggregated(&roles))
        .run_by_key(reconcile, &stop)
        .await?;
    Ok(())
}

/// Returns the roles that aggregate others. There are few, and any role may match their selectors.
fn aggregated(roles: &Lister<ClusterRole>) -> Vec<ObjectKey> {
    let aggregates =
        |role: &Object<ClusterRole>| role.get().is_ok_and(|role| role.aggregation_rule.is_some());
    let mut roles = roles.list();
    roles.retain(aggregates);
    roles.iter().map(|role| role.key().clone()).collect()
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let lister = cx.lister::<ClusterRole>()?;
    let Some(cached) = lister.get(&key) else {
        return Ok(Action::await_change());
    };
    let role = cached.get()?;
    if role.aggregation_rule.is_none() {
        return Ok(Action::await_change());
    }
    let mut roles = lister.list();
    // The cache is unordered, and the rules must not depend on its order.
    roles.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let roles: Vec<Arc<ClusterRole>> = roles.iter().map(Object::get).collect::<Result<_, _>>()?;
    if let Some(rules) = plan::rules(&role, &roles) {
        let patch = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": key.name() }, "rules": rules,
        });
        let params = PatchParams::apply(MANAGER).force();
        let api = Api::<ClusterRole>::all(cx.client().clone());
        unless_stale(api.patch(key.name(), &params, &Patch::Apply(patch)).await)?;
    }
    Ok(Action::await_change())
}
