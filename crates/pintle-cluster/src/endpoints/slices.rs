//! Distributes the endpoints of a Service over `EndpointSlice`s.
//!
//! Endpoints with the same ports and family share slices of up to [`CAPACITY`]. A change rewrites
//! as few slices as possible: existing endpoints are not moved, new ones fill the slices that are
//! written anyway, and only the rest goes to another or a new slice.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::{
            Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode,
            ForZone,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    SERVICE_NAME,
    backends::{self, Family},
};
use crate::{
    meta::{self, Labels},
    pods::state::is_ready,
};

/// The value of [`MANAGED_BY`] on the slices of this loop.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The label with the name of the controller that writes a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of Services without an address, and of their endpoints.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The number of endpoints in a full slice.
const CAPACITY: usize = 100;

/// The zones of nodes: `None` for a node without one.
pub(super) type Zones = BTreeMap<String, Option<String>>;

/// The writes that a Service needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    /// The names of the slices.
    pub(super) delete: Vec<String>,
}

/// Identifies a set of ports, in any order.
type Ports = Vec<(String, Option<i32>, String, Option<String>)>;

/// Identifies an endpoint across changes of its conditions.
type Identity = (Option<String>, Option<String>, Vec<String>, Option<String>);

/// Plans how to make the slices of a Service match its Pods. `existing` must be in a stable order.
///
/// A Pod on a node that does not exist is left out, unless the Service publishes Pods that are not
/// ready.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    zones: &Zones,
    existing: &[Arc<EndpointSlice>],
) -> Changes {
    let mut changes = Changes::default();
    let families = backends::families(service);
    let (of_family, others): (Vec<_>, Vec<_>) = existing
        .iter()
        .filter(|slice| !meta::is_being_deleted(&slice.metadata))
        .cloned()
        .partition(|slice| {
            families
                .iter()
                .any(|family| family.name() == slice.address_type)
        });
    for family in families {
        let mut of_family = of_family.clone();
        of_family.retain(|slice| slice.address_type == family.name());
        changes.extend(plan_family(service, pods, zones, &of_family, family));
    }
    let unsupported = others
        .iter()
        .map(|slice| meta::name(&slice.metadata).to_owned());
    changes.delete.extend(unsupported);
    if meta::is_being_deleted(&service.metadata) {
        // The garbage collector would race with new slices.
        changes.create.clear();
    }
    changes
}

impl Changes {
    fn extend(&mut self, other: Self) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }
}

fn plan_family(
    service: &Service,
    pods: &[Arc<Pod>],
    zones: &Zones,
    existing: &[Arc<EndpointSlice>],
    family: Family,
) -> Changes {
    let mut desired: BTreeMap<Ports, (Vec<EndpointPort>, BTreeMap<Identity, Endpoint>)> =
        BTreeMap::new();
    for pod in pods.iter().filter(|pod| backends::has_address(pod)) {
        let ports = endpoint_ports(service, pod);
        let (_, endpoints) = desired
            .entry(ports_key(&ports))
            .or_insert_with(|| (ports, BTreeMap::new()));
        if let Some(endpoint) = endpoint(service, pod, zones, family) {
            endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    let (owned, foreign): (Vec<_>, Vec<_>) =
        existing.iter().partition(|slice| is_owned(slice, service));
    let mut by_ports: BTreeMap<Ports, Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in owned {
        let key = ports_key(slice.ports.as_deref().unwrap_or_default());
        by_ports.entry(key).or_default().push(slice);
    }
    let labels = labels(service);
    let new = |ports| new_slice(service, &labels, ports, family);
    let mut changes = Changes::default();
    for (key, (ports, endpoints)) in desired {
        let slices = by_ports.remove(&key).unwrap_or_default();
        changes.extend(pack(&slices, endpoints, &labels, || new(ports.clone())));
    }
    let name = |slice: &EndpointSlice| meta::name(&slice.metadata).to_owned();
    let obsolete: Vec<&EndpointSlice> = by_ports.into_values().flatten().collect();
    changes
        .delete
        .extend(obsolete.iter().map(|slice| name(slice)));
    let owned_and_deleted = changes.delete.clone();
    changes
        .delete
        .extend(foreign.iter().map(|slice| name(slice)));

    // An empty slice distinguishes a Service without endpoints from one that has not been processed
    // yet.
    if changes.create.is_empty() && changes.delete.len() == existing.len() {
        let placeholder = new(Vec::new());
        let is_placeholder = |slice: &&Arc<EndpointSlice>| {
            is_owned(slice, service)
                && slice.metadata.labels == placeholder.metadata.labels
                && slice.ports.iter().flatten().next().is_none()
                && slice.endpoints.iter().flatten().next().is_none()
        };
        match existing.iter().find(is_placeholder) {
            Some(kept) => changes.delete.retain(|deleted| *deleted != name(kept)),
            None => changes.create.push(placeholder),
        }
    }
    recycle(&mut changes, existing, &owned_and_deleted);
    changes
}

/// Fits endpoints into the slices with their ports.
fn pack(
    existing: &[&EndpointSlice],
    mut desired: BTreeMap<Identity, Endpoint>,
    labels: &Labels,
    new: impl Fn() -> EndpointSlice,
) -> Changes {
    let mut changes = Changes::default();
    let mut unchanged: Vec<EndpointSlice> = Vec::new();
    for slice in existing {
        let before = slice.endpoints.as_deref().unwrap_or_default();
        let kept: Vec<Endpoint> = before
            .iter()
            .filter_map(|endpoint| desired.remove(&identity(endpoint)))
            .collect();
        if kept.is_empty() && !before.is_empty() {
            changes.delete.push(meta::name(&slice.metadata).to_owned());
            continue;
        }
        let is_current = kept == before && slice.metadata.labels.as_ref() == Some(labels);
        let mut slice = (*slice).clone();
        slice.endpoints = Some(kept);
        slice.metadata.labels = Some(labels.clone());
        if is_current {
            unchanged.push(slice);
        } else {
            changes.update.push(slice);
        }
    }
    let fill = |slice: &mut EndpointSlice, desired: &mut BTreeMap<Identity, Endpoint>| {
        let endpoints = slice.endpoints.get_or_insert_default();
        while endpoints.len() < CAPACITY
            && let Some((_, endpoint)) = desired.pop_first()
        {
            endpoints.push(endpoint);
        }
    };
    // Fill the fullest first.
    changes.update.sort_by_key(|slice| usize::MAX - len(slice));
    for slice in &mut changes.update {
        fill(slice, &mut desired);
    }
    while !desired.is_empty() {
        // Prefer the slice that becomes fullest, if one can hold all the rest.
        let fits = |slice: &EndpointSlice| len(slice) + desired.len() <= CAPACITY;
        let candidates = unchanged.iter().enumerate();
        let best = candidates
            .filter(|(_, slice)| desired.len() < CAPACITY && fits(slice))
            .max_by_key(|(index, slice)| (len(slice), usize::MAX - index));
        if let Some((index, _)) = best {
            let mut slice = unchanged.remove(index);
            fill(&mut slice, &mut desired);
            changes.update.push(slice);
        } else {
            let mut slice = new();
            fill(&mut slice, &mut desired);
            changes.create.push(slice);
        }
    }
    changes
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

/// Rewrites slices instead of deleting them while creating others.
fn recycle(changes: &mut Changes, existing: &[Arc<EndpointSlice>], recyclable: &[String]) {
    let named = |name: &str| existing.iter().find(|it| meta::name(&it.metadata) == name);
    let mut deleted = std::mem::take(&mut changes.delete);
    deleted.retain(|name| {
        let Some(old) = named(name).filter(|_| recyclable.contains(name)) else {
            return true;
        };
        let Some(mut slice) = changes.create.pop() else {
            return true;
        };
        slice.metadata = ObjectMeta {
            labels: slice.metadata.labels,
            owner_references: slice.metadata.owner_references,
            ..old.metadata.clone()
        };
        changes.update.push(slice);
        false
    });
    changes.delete = deleted;
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.metadata.owner_references.iter().flatten();
    owners.any(|owner| {
        owner.uid == meta::uid(&service.metadata)
            && owner.kind == "Service"
            && owner.api_version == "v1"
    })
}

/// Returns the ports of a Pod that belong to the Service. A named port that the Pod lacks is left
/// out.
fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = backends::ports(service).iter();
    ports
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(backends::target_port(pod, port)?),
                protocol: Some(backends::protocol(port.protocol.as_deref()).to_owned()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

pub(super) fn ports_key(ports: &[EndpointPort]) -> Ports {
    let port = |port: &EndpointPort| {
        (
            port.name.clone().unwrap_or_default(),
            port.port,
            backends::protocol(port.protocol.as_deref()).to_owned(),
            port.app_protocol.clone(),
        )
    };
    let mut key: Ports = ports.iter().map(port).collect();
    key.sort_unstable();
    key
}

pub(super) fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref();
    let mut addresses = endpoint.addresses.clone();
    addresses.sort_unstable();
    (
        target.and_then(|target| target.name.clone()),
        target.and_then(|target| target.namespace.clone()),
        addresses,
        endpoint.hostname.clone(),
    )
}

/// Returns the endpoint of a Pod, or `None` if it has no address in the family, or if its node does
/// not exist and the Service publishes only ready Pods.
fn endpoint(service: &Service, pod: &Pod, zones: &Zones, family: Family) -> Option<Endpoint> {
    let addresses: Vec<String> = backends::addresses_in(pod, family).collect();
    let node_name = backends::node_name(pod);
    let node = node_name.as_ref().and_then(|name| zones.get(name));
    let publishes_unready = backends::publishes_unready(service);
    if addresses.is_empty() || node.is_none() && !publishes_unready {
        return None;
    }
    let zone = node.cloned().flatten();
    let (serving, terminating) = (is_ready(pod), meta::is_being_deleted(&pod.metadata));
    let ready = publishes_unready || serving && !terminating;
    let distribution = service.spec.as_ref()?.traffic_distribution.as_deref();
    Some(Endpoint {
        hints: hints(distribution, zone.as_deref(), node_name.as_deref()).filter(|_| ready),
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: backends::hostname(pod, service),
        node_name,
        target_ref: Some(backends::reference(pod)),
        zone,
        ..Endpoint::default()
    })
}

/// Returns the consumers that should prefer an endpoint: those in its zone or on its node.
fn hints(
    distribution: Option<&str>,
    zone: Option<&str>,
    node: Option<&str>,
) -> Option<EndpointHints> {
    let same_node = match distribution? {
        "PreferSameNode" => true,
        "PreferClose" | "PreferSameZone" => false,
        _ => return None,
    };
    let zone = zone.map(|name| {
        vec![ForZone {
            name: name.to_owned(),
        }]
    });
    let node = node.filter(|_| same_node);
    let node = node.map(|name| {
        vec![ForNode {
            name: name.to_owned(),
        }]
    });
    (zone.is_some() || node.is_some()).then_some(EndpointHints {
        for_zones: zone,
        for_nodes: node,
    })
}

/// Returns the labels of a Service's slices: the Service's own and the reserved ones.
fn labels(service: &Service) -> Labels {
    let mut labels = meta::labels(&service.metadata).clone();
    labels.remove(HEADLESS);
    if backends::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), meta::name(&service.metadata).into());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn new_slice(
    service: &Service,
    labels: &Labels,
    ports: Vec<EndpointPort>,
    family: Family,
) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(super::prefix(meta::name(&service.metadata))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: meta::controller_reference(service).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: family.name().into(),
        ports: Some(ports),
        endpoints: Some(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
