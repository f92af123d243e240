//! Creates, updates and deletes the Pods of `StatefulSet`s, which have stable names and claims.
//!
//! A reconcile first finds the `ControllerRevision` of the set's template and creates it if it is
//! new. Then [`plan::plan`] decides which Pods and claims to write, and the history is truncated.
//!
//! `maxUnavailable` is ignored, as in kube-controller-manager with default feature gates.

mod claims;
mod identity;
mod plan;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::api::Patch;
use pintle::{
    cache::{Lister, Object, ObjectKey, Selector},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{Observed, Step};
use crate::{
    api::{self, is_namespace_terminating},
    loops::{Environment, LoopError},
    meta,
    replica_set::slow_start,
    revisions,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("statefulset-controller");
    let sets = environment.informers.informer::<StatefulSet>().lister();
    let claimants = sets.clone();
    let shared = environment.clone();
    environment
        .controller::<StatefulSet>("statefulset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(api::adopters(sets, selector))
        // A set waits for an earlier Pod's claim to be gone before it creates the new one.
        .watches_if::<PersistentVolumeClaim>(api::only_deletions(), move |claim, _| {
            claimants_of(&claimants, claim)
        })
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Maps a claim to the sets that would create one of this name.
fn claimants_of(
    sets: &Lister<StatefulSet>,
    claim: &Object<PersistentVolumeClaim>,
) -> Vec<ObjectKey> {
    let namespace = claim.key().namespace().unwrap_or_default();
    let mut sets = sets.namespace(namespace).list();
    sets.retain(|set| {
        let set = set.get();
        set.is_ok_and(|set| identity::is_claim_of(&set, claim.key().name()))
    });
    sets.iter().map(|set| set.key().clone()).collect()
}

fn selector(set: &StatefulSet) -> Selector {
    let spec = set.spec.as_ref();
    spec.map_or_else(Selector::nothing, |spec| meta::selector(&spec.selector))
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<StatefulSet>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let mut set = (*cached.get()?).clone();
    let selector = selector(&set);
    // A Pod without a member's name is released even if its labels match.
    let is_member = |pod: &Pod| {
        let metadata = &pod.metadata;
        meta::selects(&selector, metadata) && identity::ordinal(&set, metadata).is_some()
    };
    let claimed = api::claim_with::<_, Pod>(&cx, &set, is_member, None, |_| true).await?;
    let mut pods = claimed.controlled;
    pods.extend(claimed.adopted);

    // Revisions that the set controls are never released: the selector must match the template, so
    // it also matches them.
    let is_orphan = |it: &ControllerRevision| meta::controller_of(&it.metadata).is_none();
    let claimed = api::claim::<_, ControllerRevision>(&cx, &set, &selector, is_orphan).await?;
    let mut history = claimed.controlled;
    history.extend(claimed.adopted);
    revisions::sort(&mut history);

    let update = match update_revision(&mut set, &history, &cx).await {
        Ok(update) => update,
        Err(error) if is_namespace_terminating(&error) => return Ok(Action::await_change()),
        Err(error) => return Err(error.into()),
    };
    let Some(update) = update else {
        return Ok(Action::await_change());
    };
    let before = cached.get()?.status.clone().unwrap_or_default();
    let current = history
        .iter()
        .find(|it| it.metadata.name.is_some() && it.metadata.name == before.current_revision)
        .unwrap_or(&update);
    let claims = existing_claims(&set, &cx)?;
    let planned = plan::plan(&Observed {
        set: &set,
        pods: &pods,
        claims: &claims,
        current,
        update: &update,
        now: environment.clock.now(),
    });

    let failed = Box::pin(apply(&set, planned.steps, &cx, &recorder)).await;
    if planned.status != before {
        let mut set = set.clone();
        set.status = Some(planned.status);
        api::replace_status(&cx, &set).await?;
    }
    let mut live: Vec<&str> = pods.iter().map(|pod| identity::revision(pod)).collect();
    live.extend([meta::name(&current.metadata), meta::name(&update.metadata)]);
    let limit = set
        .spec
        .as_ref()
        .and_then(|spec| spec.revision_history_limit);
    let lister = cx.lister::<ControllerRevision>()?;
    for surplus in revisions::surplus(&history, &live, limit) {
        if let Some(object) = lister.get(&ObjectKey::of(&*surplus)) {
            cx.delete(&object).await?;
        }
    }
    match failed {
        Ok(()) => Ok(planned
            .requeue_after
            .map_or_else(Action::await_change, Action::requeue_after)),
        Err(Failure::Api(error)) if is_namespace_terminating(&error) => Ok(Action::await_change()),
        Err(error) => Err(ReconcileError::retry(error.to_string())),
    }
}

/// Returns the revision of the set's template, creating or renumbering it if necessary, and records
/// collisions of its name in the status of `set`. Returns `None` if the cache is stale.
async fn update_revision(
    set: &mut StatefulSet,
    history: &[Arc<ControllerRevision>],
    cx: &Context,
) -> Result<Option<Arc<ControllerRevision>>, kube::Error> {
    let owner = revisions::Owner {
        metadata: &set.metadata,
        reference: meta::controller_reference(&*set),
        label: revisions::DATA_HASH,
    };
    let template = identity::spec(set).template;
    let before = set.status.as_ref().and_then(|it| it.collision_count);
    let mut collisions = before.unwrap_or_default();
    let obtained = revisions::obtain(cx, &owner, &template, history, &mut collisions).await?;
    if collisions != before.unwrap_or_default() {
        set.status.get_or_insert_default().collision_count = Some(collisions);
    }
    Ok(obtained)
}

/// Returns the cached claims whose names the set's own claims would have.
fn existing_claims(
    set: &StatefulSet,
    cx: &Context,
) -> Result<BTreeMap<String, Arc<PersistentVolumeClaim>>, ReconcileError> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let mut claims = BTreeMap::new();
    if identity::spec(set).volume_claim_templates.is_none() {
        return Ok(claims);
    }
    for claim in cx
        .lister::<PersistentVolumeClaim>()?
        .namespace(namespace)
        .list()
    {
        if identity::is_claim_of(set, claim.key().name()) {
            claims.insert(claim.key().name().to_owned(), claim.get()?);
        }
    }
    Ok(claims)
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("pvc {0} is being deleted")]
    ClaimDeleted(String),
}

/// Applies the steps one by one or, with parallel management, in growing batches.
async fn apply(
    set: &StatefulSet,
    steps: Vec<Step>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), Failure> {
    if !plan::is_parallel(set) {
        for step in steps {
            apply_one(set, step, cx, recorder).await?;
        }
        return Ok(());
    }
    // Deletions come last: once a condemned Pod is gone, the owners of its claims can no longer be
    // set.
    let (deletions, others): (Vec<_>, Vec<_>) = steps
        .into_iter()
        .partition(|step| matches!(step, Step::Delete(_)));
    for steps in [others, deletions] {
        let batches = slow_start(steps.len());
        let mut steps = steps.into_iter();
        for batch in batches {
            let batch = steps.by_ref().take(batch);
            let applied = batch.map(|step| apply_one(set, step, cx, recorder));
            for result in futures::future::join_all(applied).await {
                result?;
            }
        }
    }
    Ok(())
}

async fn apply_one(
    set: &StatefulSet,
    step: Step,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), Failure> {
    match step {
        Step::Create { pod, claims } => {
            let name = meta::name(&pod.metadata);
            let created = match create_claims(set, name, claims, cx, recorder).await {
                Ok(()) => cx.create(&*pod).await.map(drop),
                Err(error) => Err(error),
            };
            if matches!(&created, Err(kube::Error::Api(it)) if it.is_already_exists()) {
                // Another controller's Pod: retry without an event, as upstream does.
                return Ok(created?);
            }
            record(set, "Create", name, &created, recorder);
            Ok(created?)
        }
        Step::CreateClaims { pod, claims } => {
            let name = meta::name(&pod.metadata);
            Ok(create_claims(set, name, claims, cx, recorder).await?)
        }
        Step::AwaitClaim { claim, pod } => {
            let failure = Failure::ClaimDeleted(claim);
            if let Some(pod) = pod {
                record_failure(set, "Create", &pod, &failure.to_string(), recorder);
            }
            Err(failure)
        }
        Step::SetOwners {
            pod,
            claim,
            owners,
            has_conflict,
        } => {
            let name = meta::name(&claim.metadata);
            if has_conflict {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a \
                     manging controller, the retention policy is ignored for this claim"
                );
                recorder.event(set, EventType::Warning, "ConflictingController", message);
            }
            let patch = json!({ "metadata": {
                "uid": meta::uid(&claim.metadata),
                "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": owners,
            }});
            let key = ObjectKey::of(&*claim);
            let patched = cx
                .patch::<PersistentVolumeClaim, _>(&key, &Patch::Merge(patch))
                .await
                .map(drop);
            if patched.is_err() {
                record(set, "Update", meta::name(&pod.metadata), &patched, recorder);
            }
            Ok(patched?)
        }
        Step::Correct(pod) => {
            let updated = cx.replace(&*pod).await.map(drop);
            record(set, "Update", meta::name(&pod.metadata), &updated, recorder);
            Ok(updated?)
        }
        Step::Delete(pod) => {
            let lister = cx.lister::<Pod>().ok();
            let Some(object) = lister.and_then(|it| it.get(&ObjectKey::of(&*pod))) else {
                return Ok(());
            };
            let deleted = cx.delete(&object).await;
            record(set, "Delete", meta::name(&pod.metadata), &deleted, recorder);
            Ok(deleted?)
        }
    }
}

/// Creates the claims of a Pod.
async fn create_claims(
    set: &StatefulSet,
    pod: &str,
    claims: Vec<PersistentVolumeClaim>,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), kube::Error> {
    let set_name = meta::name(&set.metadata);
    for claim in claims {
        let name = meta::name(&claim.metadata);
        match cx.create(&claim).await {
            Ok(_) => {
                let message =
                    format!("Create Claim {name} Pod {pod} in StatefulSet {set_name} success");
                recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
            }
            Err(error) => {
                if !matches!(&error, kube::Error::Api(it) if it.is_already_exists()) {
                    let cause = api::message(&error);
                    let message = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: \
                         {cause}"
                    );
                    recorder.event(set, EventType::Warning, "FailedCreate", message);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Emits the event for a write to a Pod.
fn record(
    set: &StatefulSet,
    verb: &str,
    pod: &str,
    result: &Result<(), kube::Error>,
    recorder: &EventRecorder,
) {
    let name = meta::name(&set.metadata);
    match result {
        Ok(()) => {
            let message = format!("{verb} Pod {pod} in StatefulSet {name} successful");
            recorder.event(set, EventType::Normal, format!("Successful{verb}"), message);
        }
        Err(error) if is_namespace_terminating(error) => {}
        Err(error) => record_failure(set, verb, pod, &api::message(error), recorder),
    }
}

fn record_failure(set: &StatefulSet, verb: &str, pod: &str, cause: &str, recorder: &EventRecorder) {
    let name = meta::name(&set.metadata);
    let message = format!("{verb} Pod {pod} in StatefulSet {name} failed error: {cause}");
    recorder.event(set, EventType::Warning, format!("Failed{verb}"), message);
}
