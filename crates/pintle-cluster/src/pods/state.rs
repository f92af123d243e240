//! Accessors for the state of a Pod.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::time::Duration;

use crate::meta;

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// The scheduler that the loop replaces.
pub(crate) const SCHEDULER: &str = "default-scheduler";

/// Returns whether the default scheduler should bind the Pod: it has no node, no scheduling gates,
/// and does not request another scheduler.
pub(crate) fn awaits_scheduling(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref());
    let is_ours = scheduler.is_none_or(|name| name.is_empty() || name == SCHEDULER);
    node_name(pod).is_empty() && !is_gated(pod) && is_ours
}

/// Returns whether the Pod has scheduling gates.
fn is_gated(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether the Pod counts as a replica: neither finished nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !meta::is_being_deleted(&pod.metadata)
}

/// Returns whether the Pod is being deleted and has not finished.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && meta::is_being_deleted(&pod.metadata)
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Returns when the Pod became ready, if it is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")
        .filter(|ready| ready.status == "True")
        .and_then(|ready| ready.last_transition_time.as_ref())
        .map(|Time(at)| *at)
}

/// Returns the time until a ready Pod is available: zero if it is, `None` if it is not ready.
pub(crate) fn available_in(pod: &Pod, min_ready: Duration, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready.is_zero() {
        return Some(Duration::ZERO);
    }
    let available_at = ready_since(pod)?.saturating_add(min_ready).ok()?;
    Some(Duration::try_from(available_at.duration_since(now)).unwrap_or_default())
}

pub(crate) fn is_available(pod: &Pod, min_ready: Duration, now: Timestamp) -> bool {
    available_in(pod, min_ready, now).is_some_and(|wait| wait.is_zero())
}

/// The progress of a Pod's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// They have not run yet.
    Creating,
    /// They are running, since this time if it is known.
    Running(Option<Timestamp>),
    /// They have exited and will restart.
    BackOff {
        /// How long they ran.
        ran: Duration,
        /// When they exited.
        until: Timestamp,
    },
}

pub(crate) fn container_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| status.container_statuses.iter().flatten())
}

/// Returns whether a Pod has ephemeral containers that the kubelet has not started.
pub(crate) fn awaits_ephemeral_containers(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut wanted = spec.flat_map(|it| it.ephemeral_containers.iter().flatten());
    let statuses = pod.status.as_ref();
    let statuses = statuses.and_then(|it| it.ephemeral_container_statuses.as_deref());
    let has_run = |name: &str| {
        let known = statuses.unwrap_or_default().iter();
        let mut known = known.filter(|it| it.name == name);
        let state = known.next().and_then(|it| it.state.as_ref());
        state.is_some_and(|it| it.running.is_some() || it.terminated.is_some())
    };
    wanted.any(|container| !has_run(&container.name))
}

/// Returns the progress of the containers of a Pod that has not finished. They all behave alike, so
/// the first one represents all of them.
pub(crate) fn progress(pod: &Pod) -> Progress {
    let Some(first) = container_statuses(pod).next() else {
        // A client other than the simulated kubelet wrote its status.
        return match phase(pod) {
            "Running" => Progress::Running(None),
            _ => Progress::Creating,
        };
    };
    let state = first.state.as_ref();
    let running = state.and_then(|state| state.running.as_ref());
    if let Some(running) = running {
        return Progress::Running(running.started_at.as_ref().map(|Time(at)| *at));
    }
    let last = first.last_state.as_ref();
    let exited = state
        .and_then(|state| state.terminated.as_ref())
        .or_else(|| last.and_then(|last| last.terminated.as_ref()));
    match exited {
        Some(exited) => back_off(exited),
        None => Progress::Creating,
    }
}

fn back_off(exited: &ContainerStateTerminated) -> Progress {
    let at = |time: &Option<Time>| time.as_ref().map(|Time(at)| *at);
    let until = at(&exited.finished_at).unwrap_or_default();
    let since = at(&exited.started_at).unwrap_or(until);
    Progress::BackOff {
        ran: Duration::try_from(until.duration_since(since)).unwrap_or_default(),
        until,
    }
}

/// Returns how often the containers of a Pod have restarted.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let mut statuses = container_statuses(pod);
    statuses.next().map_or(0, |first| first.restart_count)
}
