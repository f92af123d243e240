//! Updates the status of `PodDisruptionBudget`s: how many Pods may be evicted now.
//!
//! The eviction subresource of the server relies on this status and decrements it with each
//! eviction it allows. [`plan::plan`] recomputes it whenever a Pod of the budget changes.

mod plan;
mod scale;

use std::sync::Arc;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::{
    plan::{Failure, Plan, Scales},
    scale::Kinds,
};
use crate::{
    api,
    loops::{Environment, LoopError},
    meta,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("controllermanager");
    let budgets = environment
        .informers
        .informer::<PodDisruptionBudget>()
        .lister();
    let shared = environment.clone();
    let kinds = Arc::new(Kinds::default());
    environment
        .controller::<PodDisruptionBudget>("disruption")
        .watches::<Pod>(move |pod, _| budgets_of(&budgets, pod))
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), kinds.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Maps a Pod to the budgets that select it.
fn budgets_of(budgets: &Lister<PodDisruptionBudget>, pod: &Object<Pod>) -> Vec<ObjectKey> {
    let namespace = pod.key().namespace().unwrap_or_default();
    let selects = |budget: &Object<PodDisruptionBudget>| {
        let budget = budget.get();
        budget.is_ok_and(|budget| plan::selector(&budget).matches(pod.labels().iter()))
    };
    let mut budgets = budgets.namespace(namespace).list();
    budgets.retain(selects);
    budgets.iter().map(|budget| budget.key().clone()).collect()
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    kinds: Arc<Kinds>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PodDisruptionBudget>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let budget = cached.get()?;
    let namespace = key.namespace().unwrap_or_default();
    let pods = cx.lister::<Pod>()?.namespace(namespace);
    let mut pods = pods.list_matching(&plan::selector(&budget));
    // The cache is unordered, and the status must not depend on its order.
    pods.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let pods: Vec<Arc<Pod>> = pods.iter().map(Object::get).collect::<Result<_, _>>()?;

    let scales = if plan::needs_scale(&budget) {
        scale::scales(&environment, &kinds, namespace, &pods).await?
    } else {
        Ok(Scales::new())
    };
    let now = environment.clock.now();
    let plan = scales.and_then(|scales| plan::plan(&budget, &pods, &scales, now));
    let Plan {
        status,
        requeue_after,
        not_deleted,
    } = match plan {
        Ok(plan) => plan,
        Err(failure) => {
            let status = plan::failed(&budget, &failure, now);
            if status.is_some() {
                warn_failed(&recorder, &budget, &failure);
                let failed = PodDisruptionBudget {
                    status,
                    ..(*budget).clone()
                };
                api::replace_status(&cx, &failed).await?;
            }
            return Ok(Action::await_change());
        }
    };
    for name in not_deleted {
        let message = format!(
            "Pod was expected by PDB {namespace}/{} to be deleted but it wasn't",
            key.name()
        );
        let pod = pods.iter().find(|pod| meta::name(&pod.metadata) == name);
        if let Some(pod) = pod {
            recorder.event(&**pod, EventType::Warning, "NotDeleted", message);
        }
    }
    if status.is_some() {
        record_anomalies(&recorder, &budget, &pods);
        let counted = PodDisruptionBudget {
            status,
            ..(*budget).clone()
        };
        api::replace_status(&cx, &counted).await?;
    }
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue_after))
}

fn warn_failed(recorder: &EventRecorder, budget: &PodDisruptionBudget, failure: &Failure) {
    let message = format!("Failed to calculate the number of expected pods: {failure}");
    recorder.event(
        budget,
        EventType::Warning,
        "CalculateExpectedPodCountFailed",
        message,
    );
}

/// Emits events about missing or unmanaged Pods. Called when the status changes.
fn record_anomalies(recorder: &EventRecorder, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) {
    if pods.is_empty() {
        let message = "No matching pods found";
        recorder.event(budget, EventType::Normal, "NoPods", message);
    }
    if plan::needs_scale(budget) && !plan::unmanaged(pods).is_empty() {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. \
             As a result, the status of the PDB cannot be calculated correctly, which may result \
             in undefined behavior. To account for these pods please set \".spec.minAvailable\" \
             field of the PDB to an integer value.",
            plan::selector(budget)
        );
        recorder.event(budget, EventType::Warning, "UnmanagedPods", message);
    }
}
