//! Type-checks `ValidatingAdmissionPolicy` objects against the schemas of the kinds they match, and
//! writes the warnings to their status.

mod schemas;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
};
use pintle_apiserver::policy_warnings;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::schemas::Schemas;
use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
};

/// The field manager of the status; upstream's controller uses the same name.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    environment
        .controller::<ValidatingAdmissionPolicy>("policy-status")
        .run_by_key(reconcile, &stop)
        .await?;
    Ok(())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<ValidatingAdmissionPolicy>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let policy = cached.get()?;
    let observed = policy.status.as_ref();
    let observed = observed.and_then(|status| status.observed_generation);
    let generation = policy.metadata.generation.unwrap_or_default();
    if generation <= observed.unwrap_or_default() {
        return Ok(Action::await_change());
    }
    let policy = serde_json::to_value(&*policy)?;
    let schemas = Schemas::of_policy(cx.client(), &policy).await?;
    let warnings = policy_warnings(
        &policy,
        |group, version, plural| schemas.kinds(group, version, plural),
        |group, version, kind| schemas.schema(group, version, kind),
    );
    let patch = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": key.name() },
        "status": {
            "observedGeneration": generation,
            "typeChecking": { "expressionWarnings": warnings },
        },
    });
    let params = PatchParams::apply(MANAGER).force();
    let api = Api::<ValidatingAdmissionPolicy>::all(cx.client().clone());
    unless_stale(
        api.patch_status(key.name(), &params, &Patch::Apply(patch))
            .await,
    )?;
    Ok(Action::await_change())
}
