//! Computes the Endpoints of a Service, the predecessor of its `EndpointSlice`s.
//!
//! Subsets are packed: addresses with the same ports, in the same state, share one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    backends::{self, Family},
    slices::HEADLESS,
};
use crate::{meta, pods::state::is_ready};

/// The label with the name of the controller that writes Endpoints.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on the Endpoints of this loop.
pub(super) const MANAGER: &str = "endpoint-controller";
/// The annotation of Endpoints that do not hold all addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The maximum number of addresses.
const CAPACITY: usize = 1000;

/// Returns the Endpoints of a Service, or `None` if `current` is up to date.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    current: Option<&Endpoints>,
) -> Option<Endpoints> {
    let mut subsets = subsets(service, pods);
    let truncated = truncate(&mut subsets);
    let mut labels = meta::labels(&service.metadata).clone();
    labels.remove(HEADLESS);
    if backends::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let mut endpoints = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    endpoints.metadata.labels = Some(labels);
    let annotations = endpoints.metadata.annotations.get_or_insert_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.into(), "truncated".into());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    if annotations.is_empty() {
        endpoints.metadata.annotations = None;
    }
    let is_current = current.is_some_and(|current| {
        current.metadata == endpoints.metadata
            && repack(current.subsets.as_deref().unwrap_or_default()) == subsets
    });
    endpoints.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    (!is_current).then_some(endpoints)
}

fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let ports = backends::ports(service);
    let tolerates_unready = backends::publishes_unready(service);
    let family = backends::families(service).first().copied();
    let mut subsets = Vec::new();
    for pod in pods {
        let terminating = meta::is_being_deleted(&pod.metadata);
        if !backends::has_address(pod) || terminating && !tolerates_unready {
            continue;
        }
        let Some(address) = address(service, pod, family.unwrap_or(Family::V4)) else {
            continue;
        };
        let ready = tolerates_unready || is_ready(pod);
        let subset = |port: Option<EndpointPort>| EndpointSubset {
            addresses: ready.then(|| vec![address.clone()]),
            not_ready_addresses: (!ready).then(|| vec![address.clone()]),
            ports: port.map(|port| vec![port]),
        };
        if ports.is_empty() && backends::is_headless(service) {
            subsets.push(subset(None));
        }
        for port in ports {
            if let Some(number) = backends::target_port(pod, port) {
                subsets.push(subset(Some(EndpointPort {
                    name: port.name.clone().filter(|name| !name.is_empty()),
                    port: number,
                    protocol: Some(backends::protocol(port.protocol.as_deref()).to_owned()),
                    app_protocol: port.app_protocol.clone(),
                })));
            }
        }
    }
    repack(&subsets)
}

fn address(service: &Service, pod: &Pod, family: Family) -> Option<EndpointAddress> {
    Some(EndpointAddress {
        ip: backends::addresses_in(pod, family).next()?,
        hostname: backends::hostname(pod, service),
        node_name: backends::node_name(pod),
        target_ref: Some(backends::reference(pod)),
    })
}

/// A port in a form that can be sorted.
type Port = (Option<String>, i32, Option<String>, Option<String>);

/// An address and the UID of its target: two targets may share an address.
type Address = (String, Option<String>);

/// Returns the canonical form of subsets: one for each set of addresses, with all its ports. An
/// address that is both ready and not ready on a port is not ready.
pub(super) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Address, &EndpointAddress> = BTreeMap::new();
    // `None` stands for addresses without ports.
    let mut ready_by_port: BTreeMap<Option<Port>, BTreeMap<Address, bool>> = BTreeMap::new();
    for subset in subsets {
        let ports = subset.ports.iter().flatten();
        let mut keys: Vec<Option<Port>> = ports
            .map(|port| {
                let (name, protocol) = (port.name.clone(), port.protocol.clone());
                Some((name, port.port, protocol, port.app_protocol.clone()))
            })
            .collect();
        if keys.is_empty() {
            keys.push(None);
        }
        let ready = subset.addresses.iter().flatten().map(|it| (it, true));
        let unready = subset.not_ready_addresses.iter().flatten();
        for (address, ready) in ready.chain(unready.map(|it| (it, false))) {
            let target = address.target_ref.as_ref();
            let key = (address.ip.clone(), target.and_then(|it| it.uid.clone()));
            addresses.entry(key.clone()).or_insert(address);
            for port in &keys {
                let states = ready_by_port.entry(port.clone()).or_default();
                *states.entry(key.clone()).or_insert(true) &= ready;
            }
        }
    }
    let mut ports_by_states: BTreeMap<BTreeMap<Address, bool>, BTreeSet<Port>> = BTreeMap::new();
    for (port, states) in ready_by_port {
        ports_by_states.entry(states).or_default().extend(port);
    }
    let mut packed: Vec<EndpointSubset> = Vec::new();
    for (states, ports) in ports_by_states {
        let of = |wanted: bool| {
            let matching = states.iter().filter(|(_, ready)| **ready == wanted);
            let found = matching.filter_map(|(key, _)| addresses.get(key).copied().cloned());
            Some(found.collect::<Vec<_>>()).filter(|found| !found.is_empty())
        };
        let ports = ports.into_iter();
        let ports = ports.map(|(name, port, protocol, app_protocol)| EndpointPort {
            name,
            port,
            protocol,
            app_protocol,
        });
        packed.push(EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: Some(ports.collect::<Vec<_>>()).filter(|ports| !ports.is_empty()),
        });
    }
    packed
}

/// Limits the number of addresses, ready ones first, in proportion to the sizes of the subsets.
/// Returns whether some were dropped.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|it| count(&it.addresses)).sum();
    let unready: usize = subsets
        .iter()
        .map(|it| count(&it.not_ready_addresses))
        .sum();
    if ready + unready <= CAPACITY {
        return false;
    }
    let truncates_ready = ready > CAPACITY;
    let (room, total) = if truncates_ready {
        (CAPACITY, ready)
    } else {
        (CAPACITY - ready, unready)
    };
    let mut left = room;
    for subset in subsets {
        if truncates_ready {
            subset.not_ready_addresses = None;
        }
        let list = if truncates_ready {
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        if let Some(addresses) = list {
            let share = (addresses.len() * room).div_ceil(total.max(1)).min(left);
            addresses.truncate(share);
            left -= addresses.len();
            if addresses.is_empty() {
                *list = None;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests;
