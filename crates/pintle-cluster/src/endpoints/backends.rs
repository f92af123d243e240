//! The Pods behind a Service, with their addresses and ports.

use std::net::IpAddr;

use k8s_openapi::{
    api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use pintle::cache::Selector;

use crate::{
    meta,
    pods::state::{self, is_finished, is_ready},
};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv6() {
            Self::V6
        } else {
            Self::V4
        }
    }

    /// Returns the name that Services and `EndpointSlice`s use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Returns the families of a Service, in its order of preference.
pub(super) fn families(service: &Service) -> Vec<Family> {
    let spec = service.spec.as_ref();
    let named = spec
        .iter()
        .flat_map(|spec| spec.ip_families.iter().flatten());
    let named: Vec<_> = named
        .filter_map(|name| match name.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref()?.parse().ok());
    address.map_or_else(
        || vec![Family::V4, Family::V6],
        |address| vec![Family::of(address)],
    )
}

/// Returns the selector of a Service whose endpoints are derived from Pods, or `None` if users
/// write them.
pub(super) fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let labels = spec.selector.as_ref()?;
    let all = Selector::everything();
    Some(
        labels
            .iter()
            .fold(all, |all, (key, value)| all.equals(key, value)),
    )
}

/// Returns whether clients reach the Service only through its endpoints.
pub(super) fn is_headless(service: &Service) -> bool {
    let address = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

/// Returns whether Pods that are not ready count as ready.
pub(super) fn publishes_unready(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Returns whether the Pod has an address and may still use it.
pub(super) fn has_address(pod: &Pod) -> bool {
    !is_finished(pod) && addresses(pod).next().is_some()
}

fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let status = pod.status.iter();
    let addresses = status.flat_map(|status| status.pod_ips.iter().flatten());
    addresses.filter_map(|address| address.ip.parse().ok())
}

/// Returns whether a Pod has changed in a way that may affect its endpoints.
pub(super) fn has_changed(old: &Pod, new: &Pod) -> bool {
    let relevant = |pod: &Pod| {
        let (labels, status) = (meta::labels(&pod.metadata).clone(), pod.status.as_ref());
        let addresses = status.and_then(|status| status.pod_ips.clone());
        let is_terminating = meta::is_being_deleted(&pod.metadata);
        let flags = (is_ready(pod), is_terminating, has_address(pod));
        (labels, addresses, flags)
    };
    relevant(old) != relevant(new)
}

/// Returns the addresses of a Pod in one family.
pub(super) fn addresses_in(pod: &Pod, family: Family) -> impl Iterator<Item = String> {
    let of_family = addresses(pod).filter(move |address| Family::of(*address) == family);
    of_family.map(|address| address.to_string())
}

/// Returns the host name under which DNS serves the Pod for this Service.
pub(super) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let subdomain = spec.subdomain.as_deref().unwrap_or_default();
    let hostname = spec.hostname.clone().filter(|name| !name.is_empty());
    hostname.filter(|_| subdomain == meta::name(&service.metadata))
}

/// Returns a reference to the Pod.
pub(super) fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns a Pod's node name, if it has one.
pub(super) fn node_name(pod: &Pod) -> Option<String> {
    Some(state::node_name(pod).to_owned()).filter(|name| !name.is_empty())
}

/// Returns the ports of a Service.
pub(super) fn ports(service: &Service) -> &[ServicePort] {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    ports.unwrap_or_default()
}

/// Returns the number of the port to which a Service sends traffic in this Pod. A name refers to a
/// port of a container or sidecar with the same protocol.
pub(super) fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let named = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .find(|other| {
            other.name.as_ref() == Some(name)
                && protocol(other.protocol.as_deref()) == protocol(port.protocol.as_deref())
        });
    named.map(|port| port.container_port)
}

pub(super) fn protocol(protocol: Option<&str>) -> &str {
    protocol.filter(|it| !it.is_empty()).unwrap_or("TCP")
}

#[cfg(test)]
mod tests;
