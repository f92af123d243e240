//! Starts the Jobs of `CronJob`s.
//!
//! [`plan`] finds the most recent scheduled time since the last one; the reconcile starts its Job
//! and deletes finished Jobs beyond the history limits. The name of a Job contains its scheduled
//! time, so a loop that crashes before writing the status does not start it twice.

mod plan;
mod schedule;

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use kube::Api;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::plan::{Observed, Start};
use crate::{
    api::{self, is_namespace_terminating},
    loops::{Environment, LoopError},
    meta,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("cronjob-controller");
    let shared = environment.clone();
    environment
        .controller::<CronJob>("cronjob-controller")
        .owns::<Job>()
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<CronJob>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let cron = cached.get()?;
    let mut jobs = Vec::new();
    for job in api::controlled::<Job>(&cx, cached.uid())? {
        jobs.push(job.get()?);
    }
    let planned = plan::plan(&Observed {
        cron: &cron,
        jobs: &jobs,
        now: environment.clock.now(),
    });
    for (type_, reason, message) in planned.events {
        recorder.event(&*cron, type_, reason, message);
    }
    let mut status = planned.status;
    let mut failed = None;
    for job in &planned.delete {
        if let Err(error) = delete(&cron, job, &cx, &recorder).await {
            failed = Some(error);
        }
    }
    if let Some(start) = planned.start
        && let Err(error) = self::start(&cron, start, &jobs, &mut status, &cx, &recorder).await
    {
        failed = Some(error);
    }
    if status != cron.status.clone().unwrap_or_default() {
        let mut cron = (*cron).clone();
        cron.status = Some(status);
        api::replace_status(&cx, &cron).await?;
    }
    match failed {
        Some(error) if is_namespace_terminating(&error) => Ok(Action::await_change()),
        Some(error) => Err(error.into()),
        None => Ok(planned
            .requeue_after
            .map_or_else(Action::await_change, Action::requeue_after)),
    }
}

/// Creates the Job for a scheduled time and adds it to the status.
async fn start(
    cron: &CronJob,
    start: Start,
    jobs: &[Arc<Job>],
    status: &mut CronJobStatus,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), kube::Error> {
    if start.replaces {
        for active in status.active.clone().unwrap_or_default() {
            let uid = active.uid.as_deref().unwrap_or_default();
            if let Some(job) = jobs.iter().find(|job| meta::uid(&job.metadata) == uid) {
                delete(cron, job, cx, recorder).await?;
            }
            plan::forget(status, uid);
        }
    }
    let job = match cx.create(&*start.job).await {
        Ok(job) => {
            let message = format!("Created job {}", meta::name(&job.metadata));
            recorder.event(cron, EventType::Normal, "SuccessfulCreate", message);
            job
        }
        Err(kube::Error::Api(error)) if error.is_already_exists() => {
            // The Job was created before a crash, or belongs to another controller.
            let namespace = cron.metadata.namespace.as_deref().unwrap_or_default();
            let stored = Api::<Job>::namespaced(cx.client().clone(), namespace);
            let existing = stored.get_opt(meta::name(&start.job.metadata)).await?;
            let owner = existing
                .as_ref()
                .and_then(|job| meta::controller_of(&job.metadata));
            let is_ours = owner.is_some_and(|owner| Some(&owner.uid) == cron.metadata.uid.as_ref());
            let Some(job) = existing.filter(|_| is_ours) else {
                return Ok(());
            };
            job
        }
        Err(error) => {
            if !is_namespace_terminating(&error) {
                let message = format!("Error creating job: {}", api::message(&error));
                recorder.event(cron, EventType::Warning, "FailedCreate", message);
            }
            return Err(error);
        }
    };
    *status = plan::started(std::mem::take(status), &job, start.scheduled);
    Ok(())
}

/// Deletes a Job and, in the background, its Pods.
async fn delete(
    cron: &CronJob,
    job: &Job,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), kube::Error> {
    let lister = cx.lister::<Job>().ok();
    let Some(object) = lister.and_then(|lister| lister.get(&ObjectKey::of(job))) else {
        return Ok(());
    };
    let deleted = cx.delete(&object).await;
    match &deleted {
        Ok(()) => {
            let message = format!("Deleted job {}", object.key().name());
            recorder.event(cron, EventType::Normal, "SuccessfulDelete", message);
        }
        Err(error) => {
            let message = format!("Deleted job: {}", api::message(error));
            recorder.event(cron, EventType::Warning, "FailedDelete", message);
        }
    }
    deleted
}
