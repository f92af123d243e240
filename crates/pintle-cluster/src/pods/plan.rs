//! Decides where a Pod runs and what its simulated kubelet reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    behavior::{Action, Behavior, Exit},
    fit,
    state::{self, Progress},
    status::{self, Containers, Place, condition, containers},
};
use crate::meta;

/// How fast simulated nodes start and stop Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time from binding until Running and Ready, and the default time until an exit.
    pub(crate) ready_after: Duration,
    /// The time from deletion until stopped, limited by the grace period.
    pub(crate) stop_after: Duration,
}

/// The next action of the kubelet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing until the Pod changes.
    None,
    /// Nothing yet; reconcile again after this time.
    Wait(Duration),
    /// Write this status.
    Report {
        status: Box<PodStatus>,
        requeue_after: Option<Duration>,
    },
    /// Delete the stopped Pod without a grace period.
    Remove,
}

/// A node that might run the Pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a Node,
    /// The number of Pods assigned to it.
    pub(crate) pods: usize,
    /// Whether the host ports of the Pod are free.
    pub(crate) ports_free: bool,
}

/// A host port of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Returns whether any of `others` is the same port on an overlapping address.
    pub(crate) fn conflicts(&self, others: &[Self]) -> bool {
        let anywhere = |port: &Self| port.address == ANY_ADDRESS;
        others.iter().any(|other| {
            other.port == self.port
                && other.protocol == self.protocol
                && (other.address == self.address || anywhere(other) || anywhere(self))
        })
    }
}

const ANY_ADDRESS: &str = "0.0.0.0";

/// Returns the host ports of containers and sidecars.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod.spec.iter().flat_map(|spec| {
        let all = spec.init_containers.iter().flatten();
        all.filter(|container| container.restart_policy.as_deref() == Some("Always"))
    });
    let ports = containers(pod)
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    ports
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|port| *port > 0)?,
                protocol: some(&port.protocol).unwrap_or_else(|| "TCP".into()),
                address: some(&port.host_ip).unwrap_or_else(|| ANY_ADDRESS.into()),
            })
        })
        .collect()
}

/// Returns the fitting node with the fewest Pods, the first by name among equals.
pub(crate) fn choose_node<'a>(pod: &Pod, candidates: &[Candidate<'a>]) -> Option<&'a Node> {
    candidates
        .iter()
        .filter(|candidate| fits(pod, candidate))
        .min_by_key(|candidate| (candidate.pods, meta::name(&candidate.node.metadata)))
        .map(|candidate| candidate.node)
}

fn fits(pod: &Pod, candidate: &Candidate<'_>) -> bool {
    let node = candidate.node;
    let Some(spec) = &pod.spec else {
        return false;
    };
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default();
    (!cordoned || fit::tolerates_cordon(tolerations))
        && !meta::is_being_deleted(&node.metadata)
        && is_node_ready(node)
        && fit::selects(spec, node)
        && fit::tolerates(tolerations, node, |effect| effect != "PreferNoSchedule")
        && candidate.pods < capacity(node)
        && candidate.ports_free
}

fn is_node_ready(node: &Node) -> bool {
    let mut conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn capacity(node: &Node) -> usize {
    node.status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref())
        .and_then(|allocatable| allocatable.get("pods"))
        .and_then(|pods| pods.0.parse().ok())
        .unwrap_or(110)
}

/// Returns the status of a Pod that fits no node, or `None` if it already has that status.
pub(crate) fn unschedulable(pod: &Pod, nodes: usize, now: Timestamp) -> Option<PodStatus> {
    let message = format!("0/{nodes} nodes are available.");
    let is_current = state::condition(pod, "PodScheduled").is_some_and(|it| {
        it.reason.as_deref() == Some("Unschedulable") && it.message.as_ref() == Some(&message)
    });
    if is_current {
        return None;
    }
    let mut status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != "PodScheduled");
    conditions.push(PodCondition {
        reason: Some("Unschedulable".into()),
        message: Some(message),
        ..condition("PodScheduled", false, now)
    });
    Some(status)
}

/// Returns the next action for a bound Pod whose containers behave like this.
///
/// `address` allocates the address of the Pod when it starts.
pub(crate) fn step(
    pod: &Pod,
    host: Ipv4Addr,
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
            host,
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
    let run_again = match &behavior.action {
        Action::Exit(exit) => Some(runs_for(exit)),
        _ => None,
    };
    let ready = behavior.action != Action::NeverReady;
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
            unless_reported(pod, report(Some(address()), containers, run_again))
        }
        Progress::Running(since) => {
            let since = since.unwrap_or(start);
            let Action::Exit(exit) = &behavior.action else {
                if state::is_ready(pod) == ready {
                    return Step::None;
                }
                let containers = Containers::Running {
                    ready,
                    restarted_after: None,
                };
                return report(Some(address()), containers, None);
            };
            let wait = remaining(since, runs_for(exit), now);
            if !wait.is_zero() {
                return Step::Wait(wait);
            }
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
                    report(None, containers, run_again)
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
            report(None, containers, run_again)
        }
    }
}

/// Drops a report that would change nothing.
fn unless_reported(pod: &Pod, step: Step) -> Step {
    match step {
        Step::Report { status, .. } if pod.status.as_ref() == Some(&*status) => Step::None,
        step => step,
    }
}

/// Returns how the containers of a deleted Pod exit: by SIGTERM.
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

/// Returns the status of a Pod that is deleted before it is bound and held by a finalizer, or `None`
/// if it needs none. As upstream's Pod garbage collector does, this reports that it will never run.
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

/// Returns how long containers wait before they restart, as the kubelet does: the first time not at
/// all, then 10 s, doubled each time up to 5 min. A run of ten minutes resets the back-off.
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

/// Stops a deleted Pod after the configured delay or at the end of its grace period.
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
        // The owners of the finalizers decide when it goes.
        return Step::None;
    }
    Step::Remove
}

fn remaining(since: Timestamp, duration: Duration, now: Timestamp) -> Duration {
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
