//! Decides which Pods of a Job to create and delete, and when it is finished.
//!
//! Pure functions of the observed state. A reconcile calls these in order, with writes in between:
//!
//! 1. [`Sync::new`] counts the Pods and decides whether the Job has failed or met its success
//!    policy.
//! 2. [`Sync::work`] returns which Pods to create or delete.
//! 3. [`Sync::done`] takes the result into account and decides whether the Job is complete.
//! 4. [`Sync::track`] and [`Sync::conclude`], in [`track`](super::track), count finished Pods and
//!    release them.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    backoff::{self, Backoff},
    indexes::Indexes,
    is_indexed, is_suspended,
    policy::{self, Failure},
    spec, template,
};
use crate::{
    meta,
    pods::state::{self, is_active, is_ready, is_terminating},
};

/// The maximum number of Pods created or deleted in one reconcile.
const BURST: usize = 500;

/// The state that a reconcile observes.
#[derive(Clone, Copy)]
pub(super) struct Observed<'a> {
    /// A Job that is not finished.
    pub(super) job: &'a Job,
    /// The Pods it controls.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) backoff: &'a Backoff,
    pub(super) now: Timestamp,
}

/// The Pods to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Work {
    None,
    Create(Vec<Pod>),
    /// Release and delete Pods that the Job no longer wants. They do not count as failed.
    Remove(Vec<Arc<Pod>>),
    /// Delete the remaining Pods of a Job that is finished. Their finalizers keep them until they
    /// are counted.
    Terminate(Vec<Arc<Pod>>),
}

/// The outcome of the work.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) created: usize,
    /// The Pods that were deleted, or were already gone.
    pub(super) deleted: Vec<Arc<Pod>>,
}

/// A single reconcile of a Job.
pub(super) struct Sync<'a> {
    pub(super) observed: Observed<'a>,
    /// The status to write.
    pub(super) status: JobStatus,
    pub(super) requeue_after: Option<Duration>,
    /// The back-off including the Pods that have finished since. Valid once the status is written.
    pub(super) backoff: Backoff,
    pub(super) finished: Option<JobCondition>,
    pub(super) terminating: usize,
    pub(super) counted_indexes: Indexes,
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// The last failed Pod of each index that awaits a replacement; the replacement inherits its
    /// failure count.
    pub(super) awaiting: BTreeMap<i32, Arc<Pod>>,
    active: Vec<Arc<Pod>>,
    ready: usize,
    succeeded: i32,
}

pub(super) fn condition(type_: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(meta::time(now)),
        last_transition_time: Some(meta::time(now)),
    }
}

pub(super) fn has(status: &JobStatus, type_: &str) -> Option<JobCondition> {
    let conditions = status.conditions.iter().flatten();
    let mut set = conditions.filter(|it| it.type_ == type_ && it.status == "True");
    set.next().cloned()
}

/// Returns whether a Pod counts as failed. A Pod under deletion does, unless the Job waits for it
/// to finish.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    match state::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_only_failed(job) && meta::is_being_deleted(&pod.metadata),
    }
}

/// Returns whether a Pod under deletion is replaced only after it has failed.
fn replaces_only_failed(job: &Job) -> bool {
    let Some(spec) = spec(job) else { return false };
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

impl<'a> Sync<'a> {
    pub(super) fn new(observed: Observed<'a>) -> Self {
        let Observed { job, pods, now, .. } = observed;
        let mut status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let uncounted = uncounted.clone();
        if status.start_time.is_none() && !is_suspended(job) {
            status.start_time = Some(meta::time(now));
        }
        let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
        let mut sync = Self {
            observed,
            status,
            requeue_after: None,
            backoff: Backoff::default(),
            finished: None,
            terminating: pods.iter().filter(|pod| is_terminating(pod)).count(),
            counted_indexes: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            awaiting: BTreeMap::new(),
            ready: active.iter().filter(|pod| is_ready(pod)).count(),
            active,
            succeeded: 0,
        };
        sync.count(&uncounted);
        sync
    }

    fn completions(&self) -> Option<i32> {
        spec(self.observed.job)?.completions
    }

    /// Returns the index of a Pod, if it is a valid index of the Job.
    pub(super) fn valid_index(&self, pod: &Pod) -> Option<i32> {
        let completions = self.completions()?;
        template::index(pod).filter(|index| *index < completions)
    }

    /// Returns the Pods that are not counted yet and, in an indexed Job, have a valid index.
    fn uncounted_pods(&self, counted: Option<&Vec<String>>) -> impl Iterator<Item = &'a Arc<Pod>> {
        let is_known = move |pod: &Pod| {
            let uid = pod.metadata.uid.as_ref();
            counted.is_some_and(|counted| uid.is_some_and(|uid| counted.contains(uid)))
        };
        self.observed.pods.iter().filter(move |pod| {
            let is_valid = !is_indexed(self.observed.job) || self.valid_index(pod).is_some();
            template::is_tracked(pod) && is_valid && !is_known(pod)
        })
    }

    /// Counts Pods and indexes, and decides whether the Job is finished.
    fn count(&mut self, uncounted: &UncountedTerminatedPods) {
        let Observed { job, now, .. } = self.observed;
        let len = |list: &Option<Vec<String>>| meta::clamp(list.iter().flatten().count());
        let succeeded: Vec<&Pod> = self
            .uncounted_pods(uncounted.succeeded.as_ref())
            .filter(|pod| state::phase(pod) == "Succeeded")
            .map(|pod| &**pod)
            .collect();
        let failed: Vec<&Pod> = self
            .uncounted_pods(uncounted.failed.as_ref())
            .filter(|pod| is_failed(job, pod))
            .map(|pod| &**pod)
            .collect();
        self.succeeded = self.status.succeeded.unwrap_or_default()
            + meta::clamp(succeeded.len())
            + len(&uncounted.succeeded);
        let counting = failed
            .iter()
            .filter(|pod| policy::failure(job, pod) != Failure::Ignore);
        let failures = self.status.failed.unwrap_or_default()
            + meta::clamp(counting.count())
            + len(&uncounted.failed);
        self.backoff = self.observed.backoff.with(&succeeded, &failed);

        self.finished = self.earlier_verdict().or_else(|| self.failure(failures));
        if self.finished.is_none() {
            self.requeue(self.until_deadline());
        }
        if is_indexed(job) {
            self.count_indexes();
            if self.finished.is_none() {
                let message = policy::success(job, &self.succeeded_indexes);
                self.finished = message
                    .map(|message| condition("SuccessCriteriaMet", "SuccessPolicy", &message, now));
            }
        }
    }

    fn requeue(&mut self, after: Option<Duration>) {
        self.requeue_after = [self.requeue_after, after].into_iter().flatten().min();
    }

    fn count_indexes(&mut self) {
        let Observed { job, pods, now, .. } = self.observed;
        let completions = self.completions().unwrap_or_default();
        let known = self.status.completed_indexes.as_deref().unwrap_or_default();
        self.counted_indexes = Indexes::parse(known, completions);
        self.succeeded_indexes = self.counted_indexes.clone();
        for pod in pods {
            if let Some(index) = self.valid_index(pod)
                && template::is_tracked(pod)
                && state::phase(pod) == "Succeeded"
            {
                self.succeeded_indexes.insert(index);
            }
        }
        self.succeeded = self.succeeded_indexes.len();
        let Some(spec) = spec(job) else { return };
        let Some(limit) = spec.backoff_limit_per_index else {
            return;
        };
        let known = self.status.failed_indexes.as_deref().unwrap_or_default();
        let mut failed = Indexes::parse(known, completions);
        for pod in pods {
            if let Some(index) = self.valid_index(pod)
                && template::is_tracked(pod)
                && is_failed(job, pod)
                && match policy::failure(job, pod) {
                    Failure::FailIndex => true,
                    Failure::Ignore => false,
                    _ => template::failures(pod) >= u32::try_from(limit).unwrap_or_default(),
                }
            {
                failed.insert(index);
            }
        }
        if self.finished.is_none() {
            let max = spec.max_failed_indexes;
            if max.is_some_and(|max| failed.len() > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                let reason = "MaxFailedIndexesExceeded";
                self.finished = Some(condition("FailureTarget", reason, message, now));
            } else if !failed.is_empty() && failed.len() + self.succeeded >= completions {
                let message = "Job has failed indexes";
                self.finished = Some(condition("FailureTarget", "FailedIndexes", message, now));
            }
        }
        self.awaiting = self.awaiting_replacement(&failed);
        self.failed_indexes = Some(failed);
    }

    fn awaiting_replacement(&self, failed: &Indexes) -> BTreeMap<i32, Arc<Pod>> {
        let mut settled = self.succeeded_indexes.clone();
        settled.extend(self.active.iter().filter_map(|pod| template::index(pod)));
        let mut awaiting: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in self.uncounted_pods(None) {
            let Some(index) = self.valid_index(pod) else {
                continue;
            };
            if !is_failed(self.observed.job, pod)
                || settled.contains(index)
                || failed.contains(index)
            {
                continue;
            }
            let rank = |pod: &Pod| (template::all_failures(pod), backoff::finished_at(pod));
            let known = awaiting.get(&index);
            if known.is_none_or(|known| rank(known) <= rank(pod)) {
                awaiting.insert(index, pod.clone());
            }
        }
        awaiting
    }

    /// Returns which Pods to write.
    pub(super) fn work(&mut self) -> Work {
        let job = self.observed.job;
        if self.finished.is_some() {
            return match self.active.clone() {
                active if active.is_empty() => Work::None,
                active => Work::Terminate(active),
            };
        }
        if meta::is_being_deleted(&job.metadata) {
            return Work::None;
        }
        let wanted = if is_suspended(job) { 0 } else { self.wanted() };
        let mut surplus = self.surplus(self.active.len().saturating_sub(wanted));
        if !surplus.is_empty() {
            surplus.truncate(BURST);
            return Work::Remove(surplus);
        }
        let ending = if replaces_only_failed(job) {
            self.terminating
        } else {
            0
        };
        let missing = wanted.saturating_sub(ending + self.active.len());
        match missing.min(BURST) {
            0 => Work::None,
            missing => self.create(missing),
        }
    }

    /// Returns the number of Pods that should be active.
    fn wanted(&self) -> usize {
        let parallelism = spec(self.observed.job).and_then(|spec| spec.parallelism);
        let parallelism = parallelism.unwrap_or(1);
        let wanted = match self.completions() {
            // After the first success, running Pods may finish, but no new ones start.
            None if self.succeeded > 0 => return self.active.len(),
            None => parallelism,
            Some(completions) => parallelism.min(completions - self.succeeded),
        };
        usize::try_from(wanted).unwrap_or_default()
    }

    /// Returns at least `count` active Pods to delete: those with invalid or duplicate indexes,
    /// then those that have made the least progress.
    fn surplus(&self, count: usize) -> Vec<Arc<Pod>> {
        let mut pods = self.active.clone();
        pods.sort_by_key(|pod| removal_rank(pod));
        let mut surplus = Vec::new();
        if is_indexed(self.observed.job) {
            let mut last = BTreeMap::new();
            for pod in &pods {
                if let Some(index) = self.valid_index(pod) {
                    last.insert(index, meta::uid(&pod.metadata).to_owned());
                }
            }
            let (kept, removed): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
                let index = self.valid_index(pod);
                index.and_then(|index| last.get(&index)).map(String::as_str)
                    == Some(meta::uid(&pod.metadata))
            });
            (pods, surplus) = (kept, removed);
        }
        let more = count.saturating_sub(surplus.len());
        surplus.extend(pods.into_iter().take(more));
        surplus
    }

    fn create(&mut self, count: usize) -> Work {
        let Observed { job, now, .. } = self.observed;
        let per_index = self.failed_indexes.is_some();
        let wait = self.backoff.remaining(now);
        if !per_index && !wait.is_zero() {
            self.requeue(Some(wait));
            return Work::None;
        }
        if !is_indexed(job) {
            let pods = (0..count).map(|_| template::pod(job, None, None));
            return Work::Create(pods.collect());
        }
        let mut taken = self.succeeded_indexes.clone();
        taken.extend(self.active.iter().filter_map(|pod| template::index(pod)));
        if replaces_only_failed(job) {
            let ending = self.observed.pods.iter().filter(|pod| is_terminating(pod));
            taken.extend(ending.filter_map(|pod| template::index(pod)));
        }
        let completions = self.completions().unwrap_or_default();
        if let Some(failed) = &self.failed_indexes {
            taken.merge(failed);
        }
        let mut indexes = taken.missing(completions, count);
        let waits: BTreeMap<i32, Duration> = indexes
            .iter()
            .filter_map(|index| {
                let pod = self.awaiting.get(index)?;
                let failures = template::all_failures(pod).saturating_add(1);
                let wait = backoff::remaining(failures, backoff::finished_at(pod), now);
                (!wait.is_zero()).then_some((*index, wait))
            })
            .collect();
        self.requeue(waits.values().min().copied());
        indexes.retain(|index| !waits.contains_key(index));
        if indexes.is_empty() {
            return Work::None;
        }
        let pods = indexes.into_iter().map(|index| {
            let replaced = self.awaiting.get(&index);
            template::pod(job, Some(index), replaced.map(|pod| &**pod))
        });
        Work::Create(pods.collect())
    }

    /// Records the outcome of the work. Returns the reason and message of the event to emit, if
    /// any.
    pub(super) fn done(
        &mut self,
        work: &Work,
        done: &Done,
    ) -> Option<(&'static str, &'static str)> {
        let Observed { job, now, .. } = self.observed;
        let before = self.active.len();
        let active = before + done.created - done.deleted.len();
        self.ready -= done.deleted.iter().filter(|pod| is_ready(pod)).count();
        self.terminating += done.deleted.len();
        self.status.active = meta::count(active);
        self.status.ready = Some(meta::clamp(self.ready));
        self.status.terminating = Some(meta::clamp(self.terminating));
        if self.finished.is_some() {
            if matches!(work, Work::Terminate(pods) if pods.len() > done.deleted.len()) {
                self.finished = None;
            }
            return None;
        }
        let is_complete = match self.completions() {
            None => self.succeeded > 0 && active == 0,
            Some(completions) => self.succeeded >= completions && active == 0,
        };
        if is_complete {
            let message = "Reached expected number of succeeded pods";
            self.finished = Some(condition(
                "SuccessCriteriaMet",
                "CompletionsReached",
                message,
                now,
            ));
            return None;
        }
        if meta::is_being_deleted(&job.metadata) {
            return None;
        }
        if is_suspended(job) {
            let changed = ensure(&mut self.status, true, "JobSuspended", "Job suspended", now);
            if changed {
                self.status.start_time = None;
            }
            return changed.then_some(("Suspended", "Job suspended"));
        }
        let changed = ensure(&mut self.status, false, "JobResumed", "Job resumed", now);
        if changed {
            // The active deadline starts over.
            self.status.start_time = Some(meta::time(now));
        }
        changed.then_some(("Resumed", "Job resumed"))
    }
}

/// Orders Pods for removal, as upstream does; the first is removed first.
fn removal_rank(pod: &Pod) -> impl Ord + use<> {
    let progress = match state::phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let created = pod.metadata.creation_timestamp.as_ref();
    let restarts = state::container_statuses(pod).map(|it| it.restart_count);
    (
        !state::node_name(pod).is_empty(),
        progress,
        is_ready(pod),
        Reverse(state::ready_since(pod).unwrap_or(Timestamp::MAX)),
        Reverse(restarts.max()),
        Reverse(created.map(|Time(at)| *at)),
        meta::uid(&pod.metadata).to_owned(),
    )
}

/// Sets the Suspended condition; adds a missing one only if `value` is true. Returns whether it
/// changed.
fn ensure(
    status: &mut JobStatus,
    value: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let mut new = condition("Suspended", reason, message, now);
    new.status = if value { "True" } else { "False" }.into();
    let changed = match conditions.iter_mut().find(|it| it.type_ == "Suspended") {
        Some(old) if old.status == new.status && old.reason == new.reason => false,
        Some(old) => {
            *old = new;
            true
        }
        None if value => {
            conditions.push(new);
            true
        }
        None => false,
    };
    if conditions.is_empty() {
        status.conditions = None;
    }
    changed
}

/// Returns the condition that marks the Job as finished.
pub(crate) fn finished_condition(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|it| matches!(it.type_.as_str(), "Complete" | "Failed") && it.status == "True")
}

#[cfg(test)]
mod tests;
