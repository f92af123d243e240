//! The status that a simulated kubelet reports.

use std::{net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{behavior::Exit, helpers, state};
use crate::meta;

/// The state to report for all containers of a Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Containers<'a> {
    /// They are being created.
    Creating,
    /// They cannot start because their image cannot be pulled.
    ImagePullBackOff,
    /// They cannot start, for this reason.
    ConfigError(&'a str),
    /// They run, or run again after an exit.
    Running {
        ready: bool,
        restarted_after: Option<&'a Exit>,
    },
    /// They have exited and restart after this delay.
    BackOff { exit: &'a Exit, delay: Duration },
    /// They have exited for good.
    Ended(&'a Exit),
    /// They are stopped because the Pod is deleted, is evicted, or has exceeded its deadline.
    Stopped(&'a Exit),
}

/// Where a Pod runs, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) host: Ipv4Addr,
    /// `None` leaves the reported address unchanged; there is none before the containers start.
    pub(super) address: Option<Ipv4Addr>,
    pub(super) start: Timestamp,
}

pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

/// Returns the status of a Pod with its containers in this state. Other fields are retained.
pub(super) fn report(pod: &Pod, place: Place, state: &Containers<'_>, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let statuses: Vec<_> = containers(pod)
        .map(|container| container_status(pod, container, state, now))
        .collect();
    let phase = match state {
        Containers::Creating | Containers::ImagePullBackOff | Containers::ConfigError(_) => {
            "Pending"
        }
        Containers::Running { .. } | Containers::BackOff { .. } => "Running",
        Containers::Ended(exit) if exit.code == 0 => "Succeeded",
        Containers::Ended(_) | Containers::Stopped(_) => "Failed",
    };
    let address = place.address.map(|address| address.to_string());
    let mut status = PodStatus {
        phase: Some(phase.into()),
        conditions: Some(conditions(pod, state, now)),
        container_statuses: Some(statuses),
        init_container_statuses: helpers::init_statuses(pod, state, now),
        ephemeral_container_statuses: helpers::ephemeral_statuses(pod, state, now),
        host_ip: Some(place.host.to_string()),
        host_ips: Some(vec![HostIP {
            ip: place.host.to_string(),
        }]),
        pod_ips: address
            .clone()
            .map_or(before.pod_ips, |ip| Some(vec![PodIP { ip }])),
        pod_ip: address.or(before.pod_ip),
        start_time: Some(meta::time(place.start)),
        observed_generation: pod.metadata.generation,
        ..before
    };
    report_resources(pod, &mut status);
    status
}

/// Returns the status of a Pod that has changed while its containers run on: only the observed
/// generation and the resources differ.
pub(super) fn observed(pod: &Pod) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    status.observed_generation = pod.metadata.generation;
    for condition in status.conditions.iter_mut().flatten() {
        if KUBELET_CONDITIONS.contains(&condition.type_.as_str()) {
            condition.observed_generation = pod.metadata.generation;
        }
    }
    report_resources(pod, &mut status);
    status
}

/// Reports that running containers have the resources of the spec. Every resize is granted: the API
/// server has rejected those that no node could grant.
fn report_resources(pod: &Pod, status: &mut PodStatus) {
    let spec = pod.spec.iter();
    let specified = |name: &str| {
        let mut all = spec.clone().flat_map(|spec| {
            spec.containers
                .iter()
                .chain(spec.init_containers.iter().flatten())
        });
        all.find(|container| container.name == name)
    };
    let main = status.container_statuses.iter_mut().flatten();
    let init = status.init_container_statuses.iter_mut().flatten();
    for status in main.chain(init) {
        let is_running = running_since(status).is_some();
        let Some(container) = specified(&status.name).filter(|_| is_running) else {
            continue;
        };
        let resources = container.resources.clone().unwrap_or_default();
        status.allocated_resources.clone_from(&resources.requests);
        status.resources = Some(resources);
    }
}

fn container_status(
    pod: &Pod,
    container: &Container,
    state: &Containers<'_>,
    now: Timestamp,
) -> ContainerStatus {
    let before = state::container_statuses(pod).find(|status| status.name == container.name);
    let image = container.image.clone().unwrap_or_default();
    let mut status = before.cloned().unwrap_or_else(|| ContainerStatus {
        name: container.name.clone(),
        ..ContainerStatus::default()
    });
    let running_since = running_since(&status);
    status.image.clone_from(&image);
    let id = |restarts: i32| {
        let base = container_id(pod, &container.name);
        match restarts {
            0 => base,
            restarts => format!("{base}/{restarts}"),
        }
    };
    let exited = |exit: &Exit, restarts: i32| ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id(restarts)),
            exit_code: exit.code,
            reason: Some(exit.reason().into()),
            started_at: running_since.clone(),
            finished_at: Some(meta::time(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let (started, ready, new) = match state {
        Containers::Creating => (false, false, waiting("ContainerCreating", None)),
        Containers::ImagePullBackOff => {
            let message = format!("Back-off pulling image \"{image}\"");
            (false, false, waiting("ImagePullBackOff", Some(message)))
        }
        Containers::ConfigError(why) => {
            let message = Some((*why).to_owned());
            (false, false, waiting("CreateContainerConfigError", message))
        }
        Containers::Running {
            ready,
            restarted_after,
        } => {
            if let Some(exit) = restarted_after {
                status.last_state = Some(exited(exit, status.restart_count));
            }
            let restarts = restarted_after.is_some() || running_since.is_none() && has_run(&status);
            status.restart_count += i32::from(restarts);
            let since = running_since.filter(|_| !restarts);
            status.image_id = format!("simulated://{image}");
            status.container_id = Some(id(status.restart_count));
            let running = ContainerStateRunning {
                started_at: Some(since.unwrap_or_else(|| meta::time(now))),
            };
            let new = ContainerState {
                running: Some(running),
                ..ContainerState::default()
            };
            (true, *ready, new)
        }
        Containers::BackOff { exit, delay } => {
            status.last_state = Some(exited(exit, status.restart_count));
            let pod_name = format!(
                "{}_{}({})",
                meta::name(&pod.metadata),
                pod.metadata.namespace.as_deref().unwrap_or_default(),
                meta::uid(&pod.metadata)
            );
            let message = format!(
                "back-off {} restarting failed container={} pod={pod_name}",
                minutes_and_seconds(*delay),
                container.name,
            );
            (false, false, waiting("CrashLoopBackOff", Some(message)))
        }
        // Containers that do not run have nothing to stop.
        Containers::Stopped(_) if running_since.is_none() => {
            (false, false, status.state.clone().unwrap_or_default())
        }
        Containers::Ended(exit) | Containers::Stopped(exit) => {
            (false, false, exited(exit, status.restart_count))
        }
    };
    ContainerStatus {
        started: Some(started),
        ready,
        state: Some(new),
        ..status
    }
}

pub(super) fn container_id(pod: &Pod, container: &str) -> String {
    format!("simulated://{}/{container}", meta::uid(&pod.metadata))
}

pub(super) fn running_since(status: &ContainerStatus) -> Option<Time> {
    status.state.as_ref()?.running.as_ref()?.started_at.clone()
}

fn has_run(status: &ContainerStatus) -> bool {
    let last = status.last_state.as_ref();
    last.is_some_and(|last| last.terminated.is_some())
}

pub(super) fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.into()),
            message,
        }),
        ..ContainerState::default()
    }
}

/// Formats like Go: `10s`, `2m40s`.
fn minutes_and_seconds(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Sets a condition. Its transition time changes only with its status.
pub(crate) fn with_condition(status: &mut PodStatus, new: PodCondition, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter_mut().find(|it| it.type_ == new.type_);
    let same = known.as_ref().filter(|known| known.status == new.status);
    let since = same.and_then(|known| known.last_transition_time.clone());
    let new = PodCondition {
        last_transition_time: Some(since.unwrap_or_else(|| meta::time(now))),
        ..new
    };
    match known {
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}

pub(super) fn condition(type_: &str, value: bool, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: type_.into(),
        status: if value { "True" } else { "False" }.into(),
        last_transition_time: Some(meta::time(now)),
        ..PodCondition::default()
    }
}

/// The conditions that the kubelet owns, in its order.
const KUBELET_CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// Returns the conditions in the kubelet's order, followed by those of other writers. Transition
/// times change only with the status.
fn conditions(pod: &Pod, state: &Containers<'_>, now: Timestamp) -> Vec<PodCondition> {
    let names: Vec<&str> = containers(pod)
        .map(|container| container.name.as_str())
        .collect();
    let ready = matches!(state, Containers::Running { ready: true, .. });
    let has_sandbox = !matches!(
        state,
        Containers::Creating | Containers::Ended(_) | Containers::Stopped(_)
    );
    let reason = match state {
        Containers::Ended(exit) if exit.code == 0 => "PodCompleted",
        Containers::Ended(_) | Containers::Stopped(_) => "PodFailed",
        _ => "ContainersNotReady",
    };
    let explain = |condition: &mut PodCondition| {
        if condition.type_.ends_with("Ready") && !ready {
            condition.reason = Some(reason.into());
            condition.message = (reason == "ContainersNotReady")
                .then(|| format!("containers with unready status: [{}]", names.join(" ")));
        } else if condition.type_ == "Initialized" && reason == "PodCompleted" {
            condition.reason = Some(reason.into());
        }
    };
    let own = KUBELET_CONDITIONS.iter();
    let own = own.zip([has_sandbox, true, ready, ready, true]);
    let mut conditions: Vec<PodCondition> = own
        .map(|(type_, value)| {
            let mut new = condition(type_, value, now);
            new.observed_generation = pod.metadata.generation;
            explain(&mut new);
            match state::condition(pod, type_) {
                Some(old) if old.status == new.status => PodCondition {
                    last_transition_time: old.last_transition_time.clone(),
                    ..new
                },
                _ => new,
            }
        })
        .collect();
    let all = pod.status.iter();
    let all = all.flat_map(|status| status.conditions.iter().flatten());
    let foreign = all.filter(|it| !KUBELET_CONDITIONS.contains(&it.type_.as_str()));
    conditions.extend(foreign.cloned());
    conditions
}
