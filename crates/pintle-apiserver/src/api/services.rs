//! What the server gives a service: an address, and ports of the nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Api;
use crate::meta::Tree;

/// The first port of nodes a service may get, and how many there are.
const NODE_PORTS: (u64, u64) = (30_000, 2_768);

impl Api {
    /// Gives a new service its cluster address and node ports, unless it brought its own or wants
    /// none.
    pub(crate) fn allocate_service(&self, service: &mut Tree) {
        let Some(Value::Object(spec)) = service.get_mut("spec") else {
            return;
        };
        let kind = spec
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("ClusterIP")
            .to_owned();
        if kind == "ExternalName" {
            return;
        }
        let (addresses, mut ports) = self.taken();
        let wanted = spec
            .get("clusterIP")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let address = if wanted.is_empty() {
            self.free_address(&addresses)
        } else {
            wanted
        };
        spec.insert("clusterIP".into(), address.clone().into());
        spec.entry("clusterIPs").or_insert_with(|| json!([address]));
        spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
        spec.entry("ipFamilyPolicy")
            .or_insert_with(|| json!("SingleStack"));
        let wanted = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
        if kind != "NodePort" && !(kind == "LoadBalancer" && wanted) {
            return;
        }
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if port["nodePort"].as_u64().unwrap_or(0) == 0 {
                let free = self.free_port(&ports);
                ports.insert(free);
                port["nodePort"] = free.into();
            }
        }
    }

    /// The addresses and node ports of all services.
    fn taken(&self) -> (BTreeSet<String>, BTreeSet<u64>) {
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        let table = self.registry.builtin_table("", "services");
        let Some(Ok(snapshot)) = table.map(|table| self.store.snapshot(table)) else {
            return (addresses, ports);
        };
        for service in snapshot.objects.values() {
            let service = Value::Object(service.decode());
            addresses.extend(service["spec"]["clusterIP"].as_str().map(str::to_owned));
            let list = service["spec"]["ports"].as_array();
            ports.extend(
                list.into_iter()
                    .flatten()
                    .filter_map(|port| port["nodePort"].as_u64()),
            );
        }
        (addresses, ports)
    }

    /// An address of 10.96.0.0/16 nobody has; the first few belong to the cluster itself.
    fn free_address(&self, taken: &BTreeSet<String>) -> String {
        let start = self.chance.below(65_000);
        (0..65_000)
            .map(|step| 256 + (start + step) % 65_000)
            .map(|at| format!("10.96.{}.{}", at / 256, at % 256))
            .find(|address| !taken.contains(address))
            .unwrap_or_else(|| "None".to_owned())
    }

    fn free_port(&self, taken: &BTreeSet<u64>) -> u64 {
        let (first, count) = NODE_PORTS;
        let start = self.chance.below(count);
        (0..count)
            .map(|step| first + (start + step) % count)
            .find(|port| !taken.contains(port))
            .unwrap_or(0)
    }
}

/// What a service was given stays its own when an update does not mention it.
pub(crate) fn keep_allocated(service: &mut Tree, stored: &Tree) {
    let old = stored.get("spec").cloned().unwrap_or_default();
    let Some(Value::Object(spec)) = service.get_mut("spec") else {
        return;
    };
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        return;
    }
    let silent = |value: Option<&Value>| {
        value.is_none_or(|value| value.is_null() || value.as_str() == Some(""))
    };
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if silent(spec.get(field))
            && let Some(kept) = old.get(field)
        {
            spec.insert(field.to_owned(), kept.clone());
        }
    }
    let old_ports = old["ports"].as_array().cloned().unwrap_or_default();
    if !matches!(
        spec.get("type").and_then(Value::as_str),
        Some("NodePort" | "LoadBalancer")
    ) {
        return;
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if port["nodePort"].as_u64().unwrap_or(0) == 0 {
            let before = old_ports
                .iter()
                .find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
            if let Some(kept) = before.and_then(|old| old["nodePort"].as_u64()) {
                port["nodePort"] = kept.into();
            }
        }
    }
}
