//! How long a Job waits before it replaces failed Pods: 10 s after the first failure, doubled for
//! each further one up to 10 min.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

use crate::pods::state;

const INITIAL: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_mins(10);

/// The failures of a Job since its last success. As upstream, they are forgotten when the loop
/// restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// Returns the back-off updated with Pods that have finished since.
    pub(super) fn with(&self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let failures: Vec<Timestamp> = failed
            .iter()
            .map(|pod| finished_at(pod))
            .filter(|at| last_success.is_none_or(|success| *at > success))
            .collect();
        let before = if last_success.is_some() {
            Self::default()
        } else {
            self.clone()
        };
        let new = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        Self {
            failures: before.failures.saturating_add(new),
            last: failures.into_iter().max().or(before.last),
        }
    }

    /// Returns how long to wait before creating Pods.
    pub(super) fn remaining(&self, now: Timestamp) -> Duration {
        self.last
            .map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// Returns the remaining delay after this many failures, the last of them at `last`.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let factor = 1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
    let delay = INITIAL.saturating_mul(factor).min(LIMIT);
    let end = last.saturating_add(delay).unwrap_or(now);
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}

/// Returns when a Pod finished: when its last container exited or, if that is unknown, when it
/// became unready, was deleted, or was created, in this order.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let at = |time: Option<&Time>| time.map(|Time(at)| *at);
    exited_at(pod)
        .or_else(|| {
            let ready = state::condition(pod, "Ready").filter(|ready| ready.status == "False");
            at(ready.and_then(|ready| ready.last_transition_time.as_ref()))
        })
        .or_else(|| {
            let grace = pod.metadata.deletion_grace_period_seconds;
            let grace = u64::try_from(grace.unwrap_or_default()).unwrap_or_default();
            let deadline = at(pod.metadata.deletion_timestamp.as_ref())?;
            deadline.saturating_sub(Duration::from_secs(grace)).ok()
        })
        .or_else(|| at(pod.metadata.creation_timestamp.as_ref()))
        .unwrap_or_default()
}

/// Returns when the last of the containers and sidecars exited, or `None` if one is still running
/// or its exit time is unknown.
fn exited_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_sidecar = |name: &str| {
        let init = pod.spec.iter();
        let mut init = init.flat_map(|spec| spec.init_containers.iter().flatten());
        init.any(|it| it.name == name && it.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten();
    let sidecars = sidecars.filter(|container| is_sidecar(&container.name));
    let mut last = None;
    for container in status.container_statuses.iter().flatten().chain(sidecars) {
        let exited = container.state.as_ref()?.terminated.as_ref()?;
        let Time(at) = exited.finished_at.as_ref()?;
        last = last.max(Some(*at));
    }
    last
}

#[cfg(test)]
mod tests;
