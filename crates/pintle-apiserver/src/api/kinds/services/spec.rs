//! Reads the spec of a Service.

use serde_json::Value;

use crate::meta::Tree;

/// The `clusterIP` of a headless Service.
pub(super) const HEADLESS: &str = "None";

/// The field of the node port that load balancers probe.
pub(super) const HEALTH_CHECK_PORT: &str = "healthCheckNodePort";

/// Returns true if the Service has a `clusterIP`, even if it is `None`.
pub(super) fn has_address(spec: &Tree) -> bool {
    text(spec, "type") != "ExternalName"
}

pub(super) fn has_node_ports(spec: &Tree) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Returns true if node ports are allocated without being requested.
pub(super) fn allocates_node_ports(spec: &Tree) -> bool {
    let declines = spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    has_node_ports(spec) && !(text(spec, "type") == "LoadBalancer" && declines)
}

/// Returns true if load balancers probe the Service's nodes.
pub(super) fn has_health_check(spec: &Tree) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Returns true if the Service can be reached from outside the cluster.
pub(super) fn is_external(spec: &Tree) -> bool {
    has_node_ports(spec)
        || text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

pub(super) fn text<'a>(fields: &'a Tree, field: &str) -> &'a str {
    fields
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn list<'a>(fields: &'a Tree, field: &str) -> &'a [Value] {
    let list = fields.get(field).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Returns a number; zero counts as unset.
pub(super) fn number(value: Option<&Value>) -> Option<u64> {
    value.and_then(Value::as_u64).filter(|number| *number != 0)
}

pub(super) fn node_ports(spec: &Tree) -> impl Iterator<Item = u64> {
    let ports = list(spec, "ports").iter();
    ports.filter_map(|port| number(port.get("nodePort")))
}

pub(super) fn ports_mut(spec: &mut Tree) -> impl Iterator<Item = &mut Tree> {
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter_map(Value::as_object_mut)
}
