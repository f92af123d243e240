//! Counts finished Pods exactly once.
//!
//! A finalizer keeps a finished Pod until it is counted. The Pod's UID is first written to
//! `uncountedTerminatedPods`, then the finalizer is removed, then the UID moves to the counter.
//! After a crash at any point, the finalizer and the list show which steps are done. Succeeded Pods
//! of an Indexed Job are counted by `completedIndexes` instead.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::{
    batch::v1::{JobCondition, JobStatus},
    core::v1::Pod,
};

use super::{
    is_indexed,
    plan::{Sync, condition, is_failed},
    policy::{self, Failure},
    template,
};
use crate::{meta, pods::state};

/// The maximum number of Pods counted in one reconcile, which bounds the size of the status.
const MAX_UNCOUNTED: usize = 500;

/// The Pods of a reconcile that the status accounts for.
pub(super) struct Tracked {
    /// The Pods to release: their finalizers can be removed once the status is written.
    pub(super) release: Vec<Arc<Pod>>,
    /// The UIDs of all Pods with the tracking finalizer.
    held: BTreeSet<String>,
    /// Whether the limit was reached, so that further Pods may remain to be counted.
    is_partial: bool,
}

impl Sync<'_> {
    /// Adds finished Pods, and the verdict on the Job, to the status.
    pub(super) fn track(&mut self) -> Tracked {
        let job = self.observed.job;
        let uid = |pod: &Pod| meta::uid(&pod.metadata).to_owned();
        let mut pods: Vec<_> = self.observed.pods.to_vec();
        pods.retain(|pod| template::is_tracked(pod));
        if is_indexed(job) {
            pods.sort_by_key(|pod| template::index(pod));
        }
        let held = pods.iter().map(|pod| uid(pod)).collect();
        let known = self.status.uncounted_terminated_pods.clone();
        let known = known.unwrap_or_default();
        count_released(&mut self.status, &held);
        let mut tracked = Tracked {
            release: Vec::new(),
            held,
            is_partial: false,
        };
        let knows = |list: &Option<Vec<String>>, uid: &String| {
            list.as_ref().is_some_and(|list| list.contains(uid))
        };
        let fails_rest = self
            .finished
            .as_ref()
            .is_some_and(|it| it.type_ != "SuccessCriteriaMet");
        let mut new_indexes = self.counted_indexes.clone();
        let mut added = 0;
        for pod in pods {
            let is_failed = is_failed(job, &pod);
            if !self.may_release(&pod, is_failed) {
                continue;
            }
            let uid = uid(&pod);
            let index = self.valid_index(&pod);
            let uncounted = self
                .status
                .uncounted_terminated_pods
                .get_or_insert_default();
            if state::phase(&pod) == "Succeeded" && !knows(&known.failed, &uid) {
                if is_indexed(job) {
                    if let Some(index) = index
                        && !new_indexes.contains(index)
                    {
                        new_indexes.insert(index);
                        added += 1;
                    }
                } else if !knows(&known.succeeded, &uid) {
                    uncounted.succeeded.get_or_insert_default().push(uid);
                }
            } else if (is_failed || fails_rest)
                && !knows(&known.failed, &uid)
                && (!is_indexed(job) || index.is_some())
                && policy::failure(job, &pod) != Failure::Ignore
            {
                uncounted.failed.get_or_insert_default().push(uid);
            }
            tracked.release.push(pod);
            let len = |list: &Option<Vec<String>>| list.iter().flatten().count();
            if added + len(&uncounted.succeeded) + len(&uncounted.failed) >= MAX_UNCOUNTED {
                tracked.is_partial = true;
                break;
            }
        }
        if is_indexed(job) {
            self.status.succeeded = Some(self.succeeded_indexes.len()).filter(|it| *it != 0);
            let text = self.succeeded_indexes.to_string();
            self.status.completed_indexes = Some(text).filter(|text| !text.is_empty());
            let failed = self.failed_indexes.as_ref().map(ToString::to_string);
            self.status.failed_indexes = failed;
        }
        self.announce();
        tracked
    }

    /// Returns whether the finalizer of a Pod can be removed.
    fn may_release(&self, pod: &Pod, is_failed: bool) -> bool {
        if meta::is_being_deleted(&self.observed.job.metadata)
            || self.finished.is_some()
            || state::phase(pod) == "Succeeded"
        {
            return true;
        }
        let awaiting = template::index(pod).and_then(|index| self.awaiting.get(&index));
        is_failed && awaiting.is_none_or(|it| it.metadata.uid != pod.metadata.uid)
    }

    /// Adds the interim condition, if any, to the status, so that it is stored before the Pods that
    /// led to it are released. Prepares the final condition for [`conclude`](Self::conclude).
    fn announce(&mut self) {
        let Some(finished) = self.finished.take() else {
            return;
        };
        let conditions = self.status.conditions.get_or_insert_default();
        let type_ = match finished.type_.as_str() {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            other => other,
        };
        let is_interim = type_ != finished.type_;
        if is_interim && conditions.iter().all(|it| it.type_ != finished.type_) {
            conditions.push(finished.clone());
        }
        let (reason, message) = (finished.reason.as_deref(), finished.message.as_deref());
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        self.finished = Some(condition(type_, reason, message, self.observed.now));
    }

    /// Counts the released Pods in the status and finishes the Job once all Pods are counted and
    /// gone. Returns the final condition when the Job is finished.
    pub(super) fn conclude(
        &mut self,
        tracked: &Tracked,
        released: &BTreeSet<String>,
    ) -> Option<JobCondition> {
        let held: BTreeSet<String> = tracked.held.difference(released).cloned().collect();
        count_released(&mut self.status, &held);
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        let is_counted = uncounted.is_none_or(|it| it.succeeded.is_none() && it.failed.is_none());
        let all_released = released.len() == tracked.release.len();
        if tracked.is_partial || !all_released || !is_counted || self.terminating > 0 {
            return None;
        }
        let finished = self.finished.clone()?;
        let conditions = self.status.conditions.get_or_insert_default();
        conditions.retain(|it| it.type_ != finished.type_);
        conditions.push(finished.clone());
        if finished.type_ == "Complete" {
            let at = finished.last_transition_time.clone();
            self.status.completion_time = at;
        }
        Some(finished)
    }
}

/// Moves the uncounted Pods that are no longer held to the counters.
fn count_released(status: &mut JobStatus, held: &BTreeSet<String>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let count = |list: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let Some(uids) = list else { return };
        let before = uids.len();
        uids.retain(|uid| held.contains(uid));
        let counted = meta::clamp(before - uids.len());
        *counter = Some(counter.unwrap_or_default() + counted).filter(|it| *it != 0);
        if uids.is_empty() {
            *list = None;
        }
    };
    count(&mut uncounted.succeeded, &mut status.succeeded);
    count(&mut uncounted.failed, &mut status.failed);
}
