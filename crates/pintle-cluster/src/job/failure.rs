//! Decides whether a Job has failed.

use std::time::Duration;

use k8s_openapi::{api::batch::v1::JobCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::{
    is_suspended,
    plan::{Observed, Sync, condition, has, is_failed},
    policy::{self, Failure},
    spec,
};
use crate::{meta, pods::state};

impl Sync<'_> {
    /// Returns the verdict of an earlier reconcile that is still waiting for Pods to finish.
    pub(super) fn earlier_verdict(&self) -> Option<JobCondition> {
        has(&self.status, "SuccessCriteriaMet").or_else(|| {
            let target = has(&self.status, "FailureTarget")?;
            Some(JobCondition {
                type_: "Failed".into(),
                last_probe_time: Some(meta::time(self.observed.now)),
                last_transition_time: Some(meta::time(self.observed.now)),
                ..target
            })
        })
    }

    /// Returns the failure condition if the Job has failed.
    pub(super) fn failure(&self, failures: i32) -> Option<JobCondition> {
        let Observed { job, pods, now, .. } = self.observed;
        let spec = spec(job)?;
        let target = |reason, message: &str| Some(condition("FailureTarget", reason, message, now));
        let mut failed = pods.iter().filter(|pod| is_failed(job, pod));
        let message = failed.find_map(|pod| match policy::failure(job, pod) {
            Failure::FailJob(message) => Some(message),
            _ => None,
        });
        if let Some(message) = message {
            return target("PodFailurePolicy", &message);
        }
        let limit = spec.backoff_limit.unwrap_or(6);
        if failures > limit || self.restarted_too_often(limit) {
            let message = "Job has reached the specified backoff limit";
            return target("BackoffLimitExceeded", message);
        }
        if self.until_deadline().is_some_and(|left| left.is_zero()) {
            let message = "Job was active longer than specified deadline";
            return target("DeadlineExceeded", message);
        }
        None
    }

    /// Returns whether containers that restart in place have used up the back-off limit.
    fn restarted_too_often(&self, limit: i32) -> bool {
        let template = spec(self.observed.job).and_then(|spec| spec.template.spec.as_ref());
        let policy = template.and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let restarts: i32 = self
            .observed
            .pods
            .iter()
            .filter(|pod| matches!(state::phase(pod), "Running" | "Pending"))
            .filter_map(|pod| pod.status.as_ref())
            .flat_map(|status| {
                let init = status.init_container_statuses.iter().flatten();
                init.chain(status.container_statuses.iter().flatten())
            })
            .map(|container| container.restart_count)
            .sum();
        restarts >= limit.max(1)
    }

    /// Returns the time until the deadline, zero if it has passed, or `None` if no deadline is
    /// running.
    pub(super) fn until_deadline(&self) -> Option<Duration> {
        let Observed { job, now, .. } = self.observed;
        if is_suspended(job) {
            return None;
        }
        let seconds = spec(job)?.active_deadline_seconds?;
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let Time(start) = self.status.start_time.as_ref()?;
        let deadline = start.saturating_add(seconds).ok()?;
        Some(Duration::try_from(deadline.duration_since(now)).unwrap_or_default())
    }
}
