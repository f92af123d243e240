//! Runs the Pods of Jobs to completion.
//!
//! [`plan`] decides which Pods to create or delete and whether the Job is finished. The reconcile
//! then writes the Pods and counts finished ones as described in [`track`]. [`orphans`] releases
//! Pods that no Job will count.
//!
//! A Job with `managedBy` is left to its controller.

mod backoff;
mod failure;
mod indexes;
mod orphans;
mod plan;
mod policy;
mod template;
mod track;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    batch::v1::{Job, JobCondition, JobSpec},
    core::v1::Pod,
};
use kube::api::Patch;
use parking_lot::Mutex;
use pintle::{
    cache::{ObjectKey, Selector},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::{
    backoff::Backoff,
    plan::{Done, Observed, Sync, Work},
    template::TRACKING,
};
use crate::{
    api::{self, is_namespace_terminating, unless_stale},
    loops::{Environment, LoopError},
    meta,
    replica_set::slow_start,
};

pub(crate) use self::plan::finished_condition;

/// The value of `managedBy` for Jobs of this loop.
const CONTROLLER: &str = "kubernetes.io/job-controller";

/// The back-off of each unfinished Job, along with the Job's UID.
type Backoffs = Arc<Mutex<BTreeMap<ObjectKey, (String, Backoff)>>>;

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("job-controller");
    let jobs = environment.informers.informer::<Job>().lister();
    let shared = environment.clone();
    let backoffs = Backoffs::default();
    let syncing = environment
        .controller::<Job>("job-controller")
        .owns::<Pod>()
        .watches::<Pod>(api::adopters(jobs, selector))
        .workers(5)
        .run_by_key(
            move |key, cx| {
                let (environment, recorder) = (shared.clone(), recorder.clone());
                reconcile(key, cx, environment, recorder, backoffs.clone())
            },
            &stop,
        );
    let releasing = orphans::run(&environment, &stop);
    futures::try_join!(syncing, releasing)?;
    Ok(())
}

fn spec(job: &Job) -> Option<&JobSpec> {
    job.spec.as_ref()
}

fn is_indexed(job: &Job) -> bool {
    spec(job).and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
}

fn is_suspended(job: &Job) -> bool {
    spec(job).and_then(|spec| spec.suspend) == Some(true)
}

/// Returns whether another controller runs the Job.
fn is_foreign(job: &Job) -> bool {
    let manager = spec(job).and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != CONTROLLER)
}

fn selector(job: &Job) -> Selector {
    let selector = spec(job).and_then(|spec| spec.selector.as_ref());
    selector.map_or_else(Selector::nothing, meta::selector)
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
    backoffs: Backoffs,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Job>()?.get(&key) else {
        backoffs.lock().remove(&key);
        return Ok(Action::await_change());
    };
    let job = cached.get()?;
    if is_foreign(&job) || finished_condition(&job).is_some() {
        backoffs.lock().remove(&key);
        return Ok(Action::await_change());
    }
    let selector = selector(&job);
    let selects = |pod: &Pod| meta::selects(&selector, &pod.metadata);
    let claimed = api::claim_with::<_, Pod>(&cx, &*job, selects, Some(TRACKING), |_| true).await?;
    let mut pods = claimed.controlled;
    pods.extend(claimed.adopted.into_iter().map(|pod| {
        let mut pod = (*pod).clone();
        let finalizers = meta::with_finalizer(&pod.metadata, TRACKING);
        pod.metadata.finalizers = Some(finalizers);
        Arc::new(pod)
    }));
    let backoff = match backoffs.lock().get(&key) {
        Some((uid, backoff)) if uid == cached.uid() => backoff.clone(),
        _ => Backoff::default(),
    };
    let mut sync = Sync::new(Observed {
        job: &job,
        pods: &pods,
        backoff: &backoff,
        now: environment.clock.now(),
    });
    let work = sync.work();
    let (done, failed) = perform(&job, &work, &cx, &recorder).await?;
    if let Some((reason, message)) = sync.done(&work, &done) {
        recorder.event(&*job, EventType::Normal, reason, message);
    }
    let remember = |backoff: &Backoff| {
        let record = (cached.uid().to_owned(), backoff.clone());
        backoffs.lock().insert(key.clone(), record);
    };
    let stored = Box::pin(count(&job, &mut sync, remember, &cx)).await?;
    match stored {
        Counted::Stale => return Ok(Action::await_change()),
        Counted::Finished(condition) => announce(&job, &sync, &condition, &recorder),
        Counted::Stored => {}
    }
    if let Some(error) = failed {
        if is_namespace_terminating(&error) {
            return Ok(Action::await_change());
        }
        return Err(error.into());
    }
    Ok(sync
        .requeue_after
        .map_or_else(Action::await_change, Action::requeue_after))
}

/// The outcome of writing the status.
enum Counted {
    /// The cache is stale.
    Stale,
    Stored,
    /// The Job is finished, with this condition.
    Finished(JobCondition),
}

/// Writes the status, releases the Pods in it, and counts them.
async fn count(
    job: &Job,
    sync: &mut Sync<'_>,
    remember: impl Fn(&Backoff),
    cx: &Context,
) -> Result<Counted, ReconcileError> {
    let mut job = job.clone();
    let tracked = sync.track();
    if job.status.as_ref() != Some(&sync.status) {
        job.status = Some(sync.status.clone());
        let Some(stored) = unless_stale(cx.replace_status(&job).await)? else {
            return Ok(Counted::Stale);
        };
        job = stored;
        remember(&sync.backoff);
    }
    let releasing = tracked.release.iter().map(|pod| async {
        let released = release(pod, cx).await;
        (meta::uid(&pod.metadata).to_owned(), released)
    });
    let mut released = BTreeSet::new();
    let mut failed = None;
    for (uid, result) in futures::future::join_all(releasing).await {
        match result {
            Ok(()) => drop(released.insert(uid)),
            Err(error) => failed = Some(error),
        }
    }
    let finished = sync.conclude(&tracked, &released);
    if job.status.as_ref() != Some(&sync.status) {
        job.status = Some(sync.status.clone());
        if unless_stale(cx.replace_status(&job).await)?.is_none() {
            return Ok(Counted::Stale);
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(finished.map_or(Counted::Stored, Counted::Finished)),
    }
}

/// Removes the finalizer of a Pod, if it still exists.
async fn release(pod: &Pod, cx: &Context) -> Result<(), kube::Error> {
    if !template::is_tracked(pod) {
        return Ok(());
    }
    let patch = Patch::Strategic(json!({ "metadata": {
        "uid": meta::uid(&pod.metadata),
        "$deleteFromPrimitiveList/finalizers": [TRACKING],
    }}));
    unless_stale(cx.patch::<Pod, _>(&ObjectKey::of(pod), &patch).await)?;
    Ok(())
}

/// Emits the events of a finished Job.
fn announce(job: &Job, sync: &Sync<'_>, condition: &JobCondition, recorder: &EventRecorder) {
    if condition.type_ == "Complete" {
        let completions = spec(job).and_then(|spec| spec.completions);
        let succeeded = sync.status.succeeded.unwrap_or_default();
        if completions.is_some_and(|completions| succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            recorder.event(job, EventType::Warning, "TooManySucceededPods", message);
        }
        recorder.event(job, EventType::Normal, "Completed", "Job completed");
        return;
    }
    let (reason, message) = (condition.reason.clone(), condition.message.clone());
    let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
    recorder.event(job, EventType::Warning, reason, message);
}

/// Creates or deletes Pods. Returns the outcome, with an error if any write failed.
async fn perform(
    job: &Job,
    work: &Work,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(Done, Option<kube::Error>), ReconcileError> {
    match work {
        Work::None => Ok((Done::default(), None)),
        Work::Create(pods) => Ok(create(job, pods, cx, recorder).await),
        Work::Remove(pods) => delete(job, pods, true, cx, recorder).await,
        Work::Terminate(pods) => delete(job, pods, false, cx, recorder).await,
    }
}

/// Creates Pods in batches of 1, 2, 4 and so on, up to the first batch with a failure.
async fn create(
    job: &Job,
    pods: &[Pod],
    cx: &Context,
    recorder: &EventRecorder,
) -> (Done, Option<kube::Error>) {
    let mut done = Done::default();
    let mut rest = pods.iter();
    for batch in slow_start(pods.len()) {
        let batch = rest.by_ref().take(batch).map(|pod| cx.create(pod));
        let mut failed = None;
        for created in futures::future::join_all(batch).await {
            match created {
                Ok(pod) => {
                    done.created += 1;
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    recorder.event(job, EventType::Normal, "SuccessfulCreate", message);
                }
                Err(error) => {
                    if !is_namespace_terminating(&error) {
                        let message = format!("Error creating: {}", api::message(&error));
                        recorder.event(job, EventType::Warning, "FailedCreate", message);
                    }
                    failed = Some(error);
                }
            }
        }
        if failed.is_some() {
            return (done, failed);
        }
    }
    (done, None)
}

async fn delete(
    job: &Job,
    pods: &[Arc<Pod>],
    releases: bool,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(Done, Option<kube::Error>), ReconcileError> {
    let lister = cx.lister::<Pod>()?;
    let deletions = pods.iter().map(|pod| {
        let object = lister.get(&ObjectKey::of(&**pod));
        async move {
            if releases && let Err(error) = release(pod, cx).await {
                return Err(error);
            }
            match object {
                Some(object) => cx.delete(&object).await,
                None => Ok(()),
            }
        }
    });
    let mut done = Done::default();
    let mut failed = None;
    for (pod, deleted) in pods.iter().zip(futures::future::join_all(deletions).await) {
        match deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {}", meta::name(&pod.metadata));
                recorder.event(job, EventType::Normal, "SuccessfulDelete", message);
                done.deleted.push(pod.clone());
            }
            Err(error) => {
                let message = format!("Error deleting: {}", api::message(&error));
                recorder.event(job, EventType::Warning, "FailedDelete", message);
                failed = Some(error);
            }
        }
    }
    Ok((done, failed))
}
