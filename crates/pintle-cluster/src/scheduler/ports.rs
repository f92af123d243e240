//! Host ports: two Pods on a node cannot use the same one.

use k8s_openapi::api::core::v1::Pod;

const ANY_ADDRESS: &str = "0.0.0.0";

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

/// Returns the host ports of containers and sidecars.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        let all = spec.init_containers.iter().flatten();
        let sidecars = all.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        spec.containers.iter().chain(sidecars)
    });
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
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
