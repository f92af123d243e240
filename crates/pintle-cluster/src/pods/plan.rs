//! Decides what the simulated kubelet of a Pod reports.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    behavior::{Action, Behavior, Exit},
    state::{self, Progress},
    status::{self, Containers, Place},
};

/// How fast simulated nodes start and stop Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time from binding until Running and Ready, and the default time until an exit or
    /// eviction.
    pub(crate) ready_after: Duration,
    /// The time from deletion until stopped, limited by the grace period.
    pub(crate) stop_after: Duration,
}

/// The node of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    /// Whether the node is ready. If it is not, neither are its Pods.
    pub(crate) is_ready: bool,
}

/// The next action of the kubelet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Do nothing until the Pod changes.
    None,
    /// Do nothing yet; reconcile again after this time.
    Wait(Duration),
    /// Write this status.
    Report {
        status: Box<PodStatus>,
        requeue_after: Option<Duration>,
    },
    /// Delete the stopped Pod without a grace period.
    Remove,
}

/// The reason of a Pod that has exceeded its `activeDeadlineSeconds`.
pub(super) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// Returns the next action for a bound Pod whose containers have this behavior.
///
/// `address` allocates the address of the Pod when it starts.
pub(crate) fn step(
    pod: &Pod,
    host: Host,
    address: impl FnOnce() -> Ipv4Addr,
    behavior: &Behavior,
    pace: Pace,
    now: Timestamp,
) -> Step {
    let is_alive = state::is_active(pod);
    let left = deadline_in(pod, now).filter(|_| is_alive);
    if left.is_some_and(|left| left.is_zero()) {
        const WHY: &str = "Pod was active on the node longer than the specified deadline";
        return Step::Report {
            status: Box::new(stopped(pod, host.address, DEADLINE_EXCEEDED, WHY, now)),
            requeue_after: None,
        };
    }
    let step = run(pod, host, address, behavior, pace, now);
    let step = if is_alive {
        acknowledged(pod, step)
    } else {
        step
    };
    match left {
        Some(left) => step.within(left),
        None => step,
    }
}

/// Returns how long a Pod that has started may still run, if it has an active deadline.
fn deadline_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let limit = pod.spec.as_ref()?.active_deadline_seconds?;
    let Time(start) = pod.status.as_ref()?.start_time.as_ref()?;
    let limit = Duration::from_secs(u64::try_from(limit).unwrap_or_default());
    Some(remaining(*start, limit, now))
}

/// Reports that the kubelet has seen the current spec, even if nothing else changes.
fn acknowledged(pod: &Pod, step: Step) -> Step {
    let observed = pod.status.as_ref().and_then(|it| it.observed_generation);
    if observed == pod.metadata.generation {
        return step;
    }
    let report = |requeue_after| Step::Report {
        status: Box::new(status::observed(pod)),
        requeue_after,
    };
    match step {
        Step::None => report(None),
        Step::Wait(wait) => report(Some(wait)),
        step => step,
    }
}

impl Step {
    /// Reconciles again after this time at the latest.
    fn within(self, limit: Duration) -> Self {
        match self {
            Self::None => Self::Wait(limit),
            Self::Wait(wait) => Self::Wait(wait.min(limit)),
            Self::Report {
                status,
                requeue_after,
            } => Self::Report {
                status,
                requeue_after: Some(requeue_after.map_or(limit, |wait| wait.min(limit))),
            },
            Self::Remove => Self::Remove,
        }
    }
}

/// Returns the action that follows from the behavior of the containers.
fn run(
    pod: &Pod,
    host: Host,
    address: impl FnOnce() -> Ipv4Addr,
    behavior: &Behavior,
    pace: Pace,
    now: Timestamp,
) -> Step {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.clone());
    let start = started.as_ref().map_or(now, |Time(start)| *start);
    let report = |address, containers: Containers<'_>, requeue_after| {
        let place = Place {
            host: host.address,
            address,
            start,
        };
        Step::Report {
            status: Box::new(status::report(pod, place, &containers, now)),
            requeue_after,
        }
    };
    if let Some(Time(deadline)) = &pod.metadata.deletion_timestamp {
        return match stop(pod, *deadline, pace, now) {
            Step::Remove if is_held(pod) && !state::is_finished(pod) => {
                report(None, Containers::Stopped(&killed()), None)
            }
            step => step,
        };
    }
    if state::is_finished(pod) {
        return Step::None;
    }
    let runs_for = |exit: &Exit| exit.after.unwrap_or(pace.ready_after);
    let changes_after = match &behavior.action {
        Action::Exit(exit) => Some(runs_for(exit)),
        Action::Evict(after) => Some(after.unwrap_or(pace.ready_after)),
        _ => behavior.unready_after,
    };
    let is_ready = |since: Timestamp| {
        let unready = behavior.unready_after;
        behavior.action != Action::NeverReady
            && host.is_ready
            && unready.is_none_or(|time| !remaining(since, time, now).is_zero())
    };
    let ready = is_ready(now);
    match state::progress(pod) {
        Progress::Creating => {
            let delay = behavior.ready_after.unwrap_or(pace.ready_after);
            let wait = remaining(start, delay, now);
            if !wait.is_zero() {
                return match started {
                    Some(_) => Step::Wait(wait),
                    None => report(None, Containers::Creating, Some(wait)),
                };
            }
            let containers = match &behavior.action {
                Action::FailImagePull => Containers::ImagePullBackOff,
                Action::Invalid(why) => {
                    let why = why.to_string();
                    return unless_reported(
                        pod,
                        report(Some(address()), Containers::ConfigError(&why), None),
                    );
                }
                _ => Containers::Running {
                    ready,
                    restarted_after: None,
                },
            };
            unless_reported(pod, report(Some(address()), containers, changes_after))
        }
        Progress::Running(since) => {
            let since = since.unwrap_or(start);
            let ready = is_ready(since);
            let left = changes_after.map(|time| remaining(since, time, now));
            let left = left.filter(|left| !left.is_zero());
            if matches!(behavior.action, Action::Evict(_)) && left.is_none() {
                return Step::Report {
                    status: Box::new(evicted(pod, host.address, now)),
                    requeue_after: None,
                };
            }
            let exits = match &behavior.action {
                Action::Exit(exit) if left.is_none() => Some(exit),
                _ => None,
            };
            let Some(exit) = exits else {
                if state::is_ready(pod) == ready && !state::awaits_ephemeral_containers(pod) {
                    return left.map_or(Step::None, Step::Wait);
                }
                let containers = Containers::Running {
                    ready,
                    restarted_after: None,
                };
                return report(Some(address()), containers, left);
            };
            if !restarts(pod, exit) {
                return report(None, Containers::Ended(exit), None);
            }
            let ran = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            match back_off(state::restarts(pod), ran) {
                Duration::ZERO => {
                    let containers = Containers::Running {
                        ready,
                        restarted_after: Some(exit),
                    };
                    report(None, containers, changes_after)
                }
                delay => report(None, Containers::BackOff { exit, delay }, Some(delay)),
            }
        }
        Progress::BackOff { ran, until } => {
            let wait = remaining(until, back_off(state::restarts(pod), ran), now);
            if !wait.is_zero() {
                return Step::Wait(wait);
            }
            let containers = Containers::Running {
                ready,
                restarted_after: None,
            };
            report(None, containers, changes_after)
        }
    }
}

/// Returns the status of a Pod that the kubelet evicts because the disk of its node is full.
pub(crate) fn evicted(pod: &Pod, host: Ipv4Addr, now: Timestamp) -> PodStatus {
    const WHY: &str = "The node was low on resource: ephemeral-storage. Threshold quantity: 10%, \
                       available: 0%. ";
    let mut status = stopped(pod, host, "Evicted", WHY, now);
    let target = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("TerminationByKubelet".into()),
        message: Some(WHY.into()),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    status::with_condition(&mut status, target, now);
    status
}

/// Returns the status of a Pod whose containers the kubelet stops.
fn stopped(pod: &Pod, host: Ipv4Addr, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let place = Place {
        host,
        address: None,
        start: started.map_or(now, |Time(start)| *start),
    };
    let mut status = status::report(pod, place, &Containers::Stopped(&killed()), now);
    status.reason = Some(reason.into());
    status.message = Some(message.into());
    status
}

/// How often a node with a full disk evicts a Pod.
pub(crate) const EVICTION_PERIOD: Duration = Duration::from_secs(10);

/// Returns the UID of the Pod that a node with a full disk evicts next: the least important one,
/// then the youngest. System-critical Pods are not evicted.
pub(crate) fn next_evicted<'a>(pods: impl Iterator<Item = &'a Pod>) -> Option<&'a str> {
    const CRITICAL: i32 = 2_000_000_000;
    let priority = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.and_then(|spec| spec.priority).unwrap_or_default()
    };
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|Time(at)| *at);
    let candidates = pods.filter(|pod| state::is_active(pod) && priority(pod) < CRITICAL);
    let order = |pod: &&Pod| {
        let meta = &pod.metadata;
        (
            priority(pod),
            Reverse(created(pod)),
            meta.namespace.clone(),
            meta.name.clone(),
        )
    };
    let next = candidates.min_by_key(order);
    next.map(|pod| crate::meta::uid(&pod.metadata))
}

/// Drops a report that would change nothing.
fn unless_reported(pod: &Pod, step: Step) -> Step {
    match step {
        Step::Report { status, .. } if pod.status.as_ref() == Some(&*status) => Step::None,
        step => step,
    }
}

/// Returns how containers exit that the kubelet stops: by SIGTERM.
fn killed() -> Exit {
    Exit {
        code: 143,
        reason: None,
        after: None,
    }
}

/// Returns whether a finalizer holds the Pod.
pub(crate) fn is_held(pod: &Pod) -> bool {
    let finalizers = pod.metadata.finalizers.as_ref();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns the status of a Pod that is deleted before it is bound and held by a finalizer, or
/// `None` if it needs none. As upstream's Pod garbage collector does, this reports that it will
/// never run.
pub(crate) fn never_ran(pod: &Pod) -> Option<PodStatus> {
    if !is_held(pod) || state::is_finished(pod) {
        return None;
    }
    Some(PodStatus {
        phase: Some("Failed".into()),
        ..pod.status.clone().unwrap_or_default()
    })
}

/// Returns whether the kubelet restarts containers that exit like this.
fn restarts(pod: &Pod, exit: &Exit) -> bool {
    let policy = pod.spec.as_ref();
    match policy.and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => exit.code != 0,
        _ => true,
    }
}

/// Returns how long containers wait before they restart, as the kubelet does: not at all the first
/// time, then 10 s, doubled each time up to 5 min. A run of ten minutes resets the back-off.
fn back_off(restarts: i32, ran: Duration) -> Duration {
    const INITIAL: Duration = Duration::from_secs(10);
    const LIMIT: Duration = Duration::from_mins(5);
    const RESET: Duration = Duration::from_mins(10);
    match u32::try_from(restarts) {
        Ok(restarts) if restarts > 0 && ran < RESET => {
            let factor = 1_u32.checked_shl(restarts - 1).unwrap_or(u32::MAX);
            INITIAL.saturating_mul(factor).min(LIMIT)
        }
        _ => Duration::ZERO,
    }
}

/// Stops a deleted Pod after the configured delay, at the latest at the end of its grace period.
fn stop(pod: &Pod, deadline: Timestamp, pace: Pace, now: Timestamp) -> Step {
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .unwrap_or_default();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let deleted_at = deadline.saturating_sub(grace).unwrap_or(deadline);
    let wait = remaining(deleted_at, pace.stop_after.min(grace), now);
    if !wait.is_zero() {
        return Step::Wait(wait);
    }
    if grace.is_zero() && is_held(pod) && state::is_finished(pod) {
        // The owners of its finalizers decide when it is removed.
        return Step::None;
    }
    Step::Remove
}

pub(crate) fn remaining(since: Timestamp, duration: Duration, now: Timestamp) -> Duration {
    let end = since.saturating_add(duration).unwrap_or(now);
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}

/// Allocates the addresses of simulated Pods from 10.244.0.0/16.
///
/// Allocation is round-robin, so that a freed address is not reused immediately.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    last: u16,
    by_uid: BTreeMap<String, u16>,
    used: BTreeSet<u16>,
}

impl Addresses {
    /// Returns the address of a Pod, allocating one if necessary. If all are in use, addresses are
    /// shared.
    pub(crate) fn get_or_allocate(&mut self, uid: &str) -> Ipv4Addr {
        if let Some(host) = self.by_uid.get(uid) {
            return Self::address(*host);
        }
        let next = |after: u16| if after >= u16::MAX - 1 { 1 } else { after + 1 };
        let mut candidate = next(self.last);
        while candidate != self.last && self.used.contains(&candidate) {
            candidate = next(candidate);
        }
        self.last = candidate;
        self.set(uid, candidate);
        Self::address(candidate)
    }

    /// Records an address from the status of a Pod.
    pub(crate) fn insert(&mut self, uid: &str, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>()
            && let [10, 244, high, low] = address.octets()
        {
            self.set(uid, u16::from_be_bytes([high, low]));
        }
    }

    /// Releases the address of a Pod.
    pub(crate) fn free(&mut self, uid: &str) {
        if let Some(host) = self.by_uid.remove(uid) {
            self.used.remove(&host);
        }
    }

    fn set(&mut self, uid: &str, host: u16) {
        self.free(uid);
        self.by_uid.insert(uid.into(), host);
        self.used.insert(host);
    }

    fn address(host: u16) -> Ipv4Addr {
        let [high, low] = host.to_be_bytes();
        Ipv4Addr::new(10, 244, high, low)
    }
}

#[cfg(test)]
mod tests;
