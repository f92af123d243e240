//! Copies Endpoints that a user writes for a Service without a selector to `EndpointSlice`s.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{EndpointAddress, Endpoints, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    SERVICE_NAME,
    backends::Family,
    slices::{Changes, MANAGED_BY, identity, ports_key},
    subsets::repack,
    trigger::TRIGGER_TIME,
};
use crate::meta::{self, Labels};

/// The value of [`MANAGED_BY`] on the slices of this loop.
pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The maximum number of addresses of a subset that are mirrored.
pub(super) const CAPACITY: usize = 1000;

const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The writes that Endpoints need.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mirror {
    pub(super) changes: Changes,
    /// The number of addresses that were left out because a subset has too many.
    pub(super) skipped: usize,
}

/// Returns whether the Endpoints must be mirrored.
pub(super) fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let labels = meta::labels(&endpoints.metadata);
    let has_selector = |service: &Service| {
        let spec = service.spec.as_ref();
        spec.is_some_and(|spec| spec.selector.is_some())
    };
    labels.get(SKIP).is_none_or(|skip| skip != "true")
        && meta::annotation(&endpoints.metadata, LEADER).is_none()
        && service.is_some_and(|service| !has_selector(service))
}

/// Plans how to make the mirrored slices match the Endpoints. `existing` must be in a stable order.
pub(super) fn plan(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>]) -> Mirror {
    let subsets = repack(endpoints.subsets.as_deref().unwrap_or_default());
    let mut skipped = 0;
    let mut slices: Vec<EndpointSlice> = Vec::new();
    for subset in subsets {
        let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port.port),
            protocol: port.protocol.clone(),
            app_protocol: port.app_protocol.clone(),
        });
        let ports: Vec<EndpointPort> = ports.collect();
        let ready = subset.addresses.iter().flatten().map(|it| (it, true));
        let unready = subset.not_ready_addresses.iter().flatten();
        let all: Vec<_> = ready.chain(unready.map(|it| (it, false))).collect();
        skipped += all.len().saturating_sub(CAPACITY);
        let mut by_family: BTreeMap<Family, Vec<Endpoint>> = BTreeMap::new();
        for (address, ready) in all.into_iter().take(CAPACITY) {
            if let Some((family, endpoint)) = endpoint(address, ready) {
                by_family.entry(family).or_default().push(endpoint);
            }
        }
        for (family, found) in by_family {
            slices.push(slice(endpoints, ports.clone(), family, found));
        }
    }
    Mirror {
        changes: changes(slices, existing),
        skipped,
    }
}

fn changes(desired: Vec<EndpointSlice>, existing: &[Arc<EndpointSlice>]) -> Changes {
    let mut changes = Changes::default();
    let key = |slice: &EndpointSlice| {
        let ports = ports_key(slice.ports.as_deref().unwrap_or_default());
        (slice.address_type.clone(), ports)
    };
    let mut left: Vec<&Arc<EndpointSlice>> = existing
        .iter()
        .filter(|slice| !meta::is_being_deleted(&slice.metadata))
        .collect();
    let mut missing = Vec::new();
    for slice in desired {
        match left.iter().position(|other| key(other) == key(&slice)) {
            Some(at) => {
                let old = left.remove(at);
                if !is_current(old, &slice) {
                    changes.update.push(renamed(slice, old));
                }
            }
            None => missing.push(slice),
        }
    }
    // Slices that would be deleted are rewritten instead.
    for slice in missing {
        let same_family = |other: &&Arc<EndpointSlice>| other.address_type == slice.address_type;
        match left.iter().position(same_family) {
            Some(at) => {
                let old = left.remove(at);
                changes.update.push(renamed(slice, old));
            }
            None => changes.create.push(slice),
        }
    }
    let names = left
        .iter()
        .map(|slice| meta::name(&slice.metadata).to_owned());
    changes.delete.extend(names);
    changes
}

/// Returns the new state of an existing slice.
fn renamed(slice: EndpointSlice, old: &EndpointSlice) -> EndpointSlice {
    let new = slice.metadata;
    EndpointSlice {
        metadata: ObjectMeta {
            labels: new.labels,
            annotations: new.annotations,
            owner_references: new.owner_references,
            ..old.metadata.clone()
        },
        ..slice
    }
}

fn is_current(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    let sorted = |slice: &EndpointSlice| {
        let mut endpoints = slice.endpoints.clone().unwrap_or_default();
        endpoints.sort_by_cached_key(identity);
        endpoints
    };
    let annotations =
        |slice: &EndpointSlice| slice.metadata.annotations.clone().unwrap_or_default();
    sorted(old) == sorted(new)
        && old.metadata.labels == new.metadata.labels
        && annotations(old) == annotations(new)
        && old.metadata.owner_references == new.metadata.owner_references
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Option<(Family, Endpoint)> {
    let ip = address.ip.parse().ok()?;
    let endpoint = Endpoint {
        addresses: vec![std::net::IpAddr::to_string(&ip)],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((Family::of(ip), endpoint))
}

fn slice(
    endpoints: &Endpoints,
    ports: Vec<EndpointPort>,
    family: Family,
    found: Vec<Endpoint>,
) -> EndpointSlice {
    let name = meta::name(&endpoints.metadata);
    let mut labels: Labels = meta::labels(&endpoints.metadata).clone();
    labels.insert(SERVICE_NAME.into(), name.into());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(TRIGGER_TIME);
    annotations.remove(LAST_APPLIED);
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(super::prefix(name)),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|them| !them.is_empty()),
            owner_references: meta::controller_reference(endpoints).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: family.name().into(),
        ports: Some(ports),
        endpoints: Some(found),
    }
}

#[cfg(test)]
mod tests;
