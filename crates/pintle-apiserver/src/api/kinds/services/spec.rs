//! What the specification of a service says.

use serde_json::Value;

use crate::meta::Tree;

/// The address of a service that has none.
pub(super) const HEADLESS: &str = "None";

/// The field of the port that balancers check.
pub(super) const HEALTH: &str = "healthCheckNodePort";

/// Whether a service has an address in the cluster, if only `None`.
pub(super) fn has_address(spec: &Tree) -> bool {
    text(spec, "type") != "ExternalName"
}

pub(super) fn has_node_ports(spec: &Tree) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Whether it gets ports of the nodes that it does not ask for.
pub(super) fn gets_node_ports(spec: &Tree) -> bool {
    let declines = spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    has_node_ports(spec) && !(text(spec, "type") == "LoadBalancer" && declines)
}

/// Whether balancers check its nodes.
pub(super) fn is_checked(spec: &Tree) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Whether it can be reached from outside.
pub(super) fn is_reached(spec: &Tree) -> bool {
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

/// A number that is set: zero is not.
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
