//! The properties of a Pod that the scheduler needs, computed once.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::apis::meta::v1::Time,
};
use pintle_apiserver::quota::pod_requests;
use serde_json::{Value, json};

use super::{
    affinity::Terms,
    claims::Used,
    ports::{self, HostPort},
    spread::Spread,
};
use crate::{meta, pods::state, volume_protection::plan::ephemeral_claim};

/// Amounts by resource, in whole units, or thousandths for `cpu`.
pub(super) type Resources = BTreeMap<String, i64>;

/// The request assumed for a container without one when nodes are compared: a tenth of a CPU and
/// 200 MiB.
const DEFAULT_CPU: &str = "100m";
const DEFAULT_MEMORY: &str = "200Mi";

/// A Pod and the properties computed from it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodInfo {
    pub(super) pod: Arc<Pod>,
    pub(super) uid: String,
    pub(super) priority: i32,
    pub(super) requests: Resources,
    /// The requests, with defaults for containers that request no CPU or memory.
    pub(super) scored: Resources,
    pub(super) ports: Vec<HostPort>,
    pub(super) terms: Terms,
    pub(super) spread: Spread,
    pub(super) claims: Vec<Used>,
}

impl PodInfo {
    pub(super) fn new(pod: Arc<Pod>) -> Self {
        let (requests, scored) = requests(&pod);
        Self {
            uid: meta::uid(&pod.metadata).to_owned(),
            priority: priority(&pod),
            requests,
            scored,
            ports: ports::host_ports(&pod),
            terms: Terms::of(&pod),
            spread: Spread::of(&pod),
            claims: claims(&pod),
            pod,
        }
    }

    /// Returns the properties of a newer state of the Pod, recomputing them only if they may
    /// differ.
    pub(super) fn updated(&self, pod: Arc<Pod>) -> Self {
        let resized = |pod: &Pod| {
            let mut statuses = state::container_statuses(pod);
            statuses.any(|status| status.resources.is_some())
        };
        if self.pod.spec == pod.spec
            && self.pod.metadata.labels == pod.metadata.labels
            && !resized(&pod)
        {
            return Self {
                pod,
                ..self.clone()
            };
        }
        Self::new(pod)
    }

    pub(super) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn is_terminating(&self) -> bool {
        meta::is_being_deleted(&self.pod.metadata)
    }

    /// Returns when the Pod started. A Pod that has not started counts as the latest.
    pub(super) fn started_at(&self) -> Timestamp {
        let status = self.pod.status.as_ref();
        let started = status.and_then(|status| status.start_time.as_ref());
        started.map_or(Timestamp::MAX, |Time(at)| *at)
    }

    /// Returns the node on which preemption has made room.
    pub(super) fn nominated(&self) -> Option<&str> {
        let status = self.pod.status.as_ref()?;
        let node = status.nominated_node_name.as_deref();
        node.filter(|node| !node.is_empty())
    }
}

/// Returns the claims that a Pod uses.
fn claims(pod: &Pod) -> Vec<Used> {
    let spec = pod.spec.iter();
    let volumes = spec.flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => Some(Used {
                name: claim.claim_name.clone(),
                is_ephemeral: false,
            }),
            None => volume.ephemeral.is_some().then(|| Used {
                name: ephemeral_claim(pod, &volume.name),
                is_ephemeral: true,
            }),
        })
        .collect()
}

pub(super) fn priority(pod: &Pod) -> i32 {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.priority).unwrap_or_default()
}

/// Returns the requests of a Pod: its own, and those with defaults.
fn requests(pod: &Pod) -> (Resources, Resources) {
    let Some(spec) = &pod.spec else {
        return <(Resources, Resources)>::default();
    };
    let asks = |resources: &Option<ResourceRequirements>| {
        let resources = resources.as_ref();
        resources.is_some_and(|it| it.requests.is_some() || it.limits.is_some())
    };
    let containers = || {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    };
    let any = containers().any(|container: &Container| asks(&container.resources));
    if !any && spec.init_containers.is_none() && spec.overhead.is_none() && !asks(&spec.resources) {
        // Most Pods in tests request nothing.
        let count = i64::try_from(spec.containers.len()).unwrap_or(i64::MAX);
        let scored = [
            ("cpu".to_owned(), 100 * count),
            ("memory".to_owned(), (200 << 20) * count),
        ];
        return (Resources::new(), scored.into());
    }
    let Ok(mut pod) = serde_json::to_value(pod) else {
        return <(Resources, Resources)>::default();
    };
    let requests = pod_requests(&pod);
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"][list].as_array_mut();
        for container in containers.into_iter().flatten() {
            set_defaults(container);
        }
    }
    (requests, pod_requests(&pod))
}

fn set_defaults(container: &mut Value) {
    let requests = &mut container["resources"]["requests"];
    for (name, amount) in [("cpu", DEFAULT_CPU), ("memory", DEFAULT_MEMORY)] {
        if requests[name].is_null() {
            requests[name] = json!(amount);
        }
    }
}
