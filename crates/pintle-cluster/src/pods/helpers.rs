//! The status of init containers, sidecars and ephemeral containers. They do nothing by themselves:
//! init containers succeed immediately; sidecars and ephemeral containers run until the Pod ends.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
};

use super::{
    behavior::Exit,
    status::{Containers, container_id, running_since, waiting},
};
use crate::meta;

/// A container that a [`Behavior`](super::Behavior) does not cover.
#[derive(Clone, Copy)]
struct Helper<'a> {
    name: &'a str,
    image: Option<&'a str>,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Exits before the main containers start.
    Init,
    /// Starts before the main containers and is ready.
    Sidecar,
    /// Was added later; it is never ready.
    Ephemeral,
}

/// Returns the status of the init containers, sidecars included.
pub(super) fn init_statuses(
    pod: &Pod,
    state: &Containers<'_>,
    now: Timestamp,
) -> Option<Vec<ContainerStatus>> {
    let spec = pod.spec.as_ref()?;
    let known = pod.status.as_ref();
    let known = known.and_then(|it| it.init_container_statuses.as_deref());
    let helpers = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| Helper {
            name: &container.name,
            image: container.image.as_deref(),
            role: match container.restart_policy.as_deref() {
                Some("Always") => Role::Sidecar,
                _ => Role::Init,
            },
        });
    statuses(pod, helpers, known.unwrap_or_default(), state, now)
}

/// Returns the status of the ephemeral containers.
pub(super) fn ephemeral_statuses(
    pod: &Pod,
    state: &Containers<'_>,
    now: Timestamp,
) -> Option<Vec<ContainerStatus>> {
    let spec = pod.spec.as_ref()?;
    let known = pod.status.as_ref();
    let known = known.and_then(|it| it.ephemeral_container_statuses.as_deref());
    let helpers = spec.ephemeral_containers.iter().flatten();
    let helpers = helpers.map(|container| Helper {
        name: &container.name,
        image: container.image.as_deref(),
        role: Role::Ephemeral,
    });
    statuses(pod, helpers, known.unwrap_or_default(), state, now)
}

fn statuses<'a>(
    pod: &Pod,
    helpers: impl Iterator<Item = Helper<'a>>,
    known: &[ContainerStatus],
    state: &Containers<'_>,
    now: Timestamp,
) -> Option<Vec<ContainerStatus>> {
    let statuses: Vec<_> = helpers
        .map(|helper| {
            let before = known.iter().find(|status| status.name == helper.name);
            status(pod, helper, before, state, now)
        })
        .collect();
    Some(statuses).filter(|it| !it.is_empty())
}

fn status(
    pod: &Pod,
    helper: Helper<'_>,
    before: Option<&ContainerStatus>,
    state: &Containers<'_>,
    now: Timestamp,
) -> ContainerStatus {
    let id = container_id(pod, helper.name);
    let exited = |since, exit: &Exit| ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id.clone()),
            exit_code: exit.code,
            reason: Some(exit.reason().into()),
            started_at: since,
            finished_at: Some(meta::time(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let ended = before
        .and_then(|before| before.state.clone())
        .filter(|state| state.terminated.is_some());
    let since = before.and_then(running_since);
    let is_init = helper.role == Role::Init;
    let new = match state {
        _ if ended.is_some() => ended.unwrap_or_default(),
        Containers::Creating if helper.role != Role::Ephemeral => waiting("PodInitializing", None),
        Containers::Ended(exit) | Containers::Stopped(exit) if since.is_some() => {
            exited(since, exit)
        }
        Containers::Creating | Containers::Ended(_) | Containers::Stopped(_) => {
            waiting("ContainerCreating", None)
        }
        Containers::ImagePullBackOff | Containers::ConfigError(_)
            if helper.role == Role::Ephemeral =>
        {
            waiting("ContainerCreating", None)
        }
        _ if is_init => exited(Some(meta::time(now)), &Exit::new(0)),
        _ => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(since.unwrap_or_else(|| meta::time(now))),
            }),
            ..ContainerState::default()
        },
    };
    let has_started = new.waiting.is_none();
    let is_running = new.running.is_some();
    let image = helper.image.unwrap_or_default();
    ContainerStatus {
        name: helper.name.to_owned(),
        image: image.to_owned(),
        image_id: if has_started {
            format!("simulated://{image}")
        } else {
            String::new()
        },
        container_id: has_started.then_some(id),
        started: (helper.role != Role::Ephemeral).then_some(is_running),
        ready: match helper.role {
            Role::Init => has_started,
            Role::Sidecar => is_running,
            Role::Ephemeral => false,
        },
        state: Some(new),
        ..ContainerStatus::default()
    }
}
