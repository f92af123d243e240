//! Resolves a Service to the addresses behind it.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::{
    api::Api,
    store::{key_of, key_range, namespace_bounds},
};

/// Returns the addresses of a Service's ready endpoints, from its `EndpointSlice`s or, without any,
/// its `Endpoints`.
///
/// # Errors
///
/// Fails with upstream's message if the Service, its port or a ready endpoint is missing.
pub(super) fn addresses(
    api: &Api,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, String> {
    let services = api.registry.builtin_collection("", "services");
    let service = services.and_then(|services| {
        let stored = api.store.get(services, &key_of(Some(namespace), name))?;
        Some(Value::Object(stored.decode()))
    });
    let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let mut ports = ports.filter(|found| found["port"] == port);
    let wanted = ports
        .next()
        .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let port_name = wanted["name"].as_str().unwrap_or_default();
    let mut found = from_slices(api, namespace, name, port_name);
    if found.is_empty() {
        found = from_endpoints(api, namespace, name, port_name);
    }
    if found.is_empty() {
        return Err(format!("no endpoints available for service {name:?}"));
    }
    Ok(found)
}

fn from_slices(api: &Api, namespace: &str, service: &str, port: &str) -> Vec<SocketAddr> {
    let collection = api
        .registry
        .builtin_collection("discovery.k8s.io", "endpointslices");
    let Some(Ok(snapshot)) = collection.map(|collection| api.store.snapshot(collection)) else {
        return Vec::new();
    };
    let bounds = namespace_bounds(namespace);
    let slices = snapshot
        .objects
        .range::<str, _>(key_range(Some(&bounds), None))
        .filter(|(_, slice)| {
            let labels = &slice.header().labels;
            labels.get("kubernetes.io/service-name").map(String::as_str) == Some(service)
        });
    let mut addresses = Vec::new();
    for (_, slice) in slices {
        let slice = Value::Object(slice.decode());
        let Some(port) = port_number(&slice["ports"], port) else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] == Value::Bool(false) {
                continue;
            }
            let first = endpoint["addresses"][0].as_str();
            let address = first.and_then(|text| text.parse::<IpAddr>().ok());
            addresses.extend(address.map(|address| SocketAddr::new(address, port)));
        }
    }
    addresses
}

fn from_endpoints(api: &Api, namespace: &str, service: &str, port: &str) -> Vec<SocketAddr> {
    let collection = api.registry.builtin_collection("", "endpoints");
    let stored = collection
        .and_then(|collection| api.store.get(collection, &key_of(Some(namespace), service)));
    let Some(endpoints) = stored.map(|stored| Value::Object(stored.decode())) else {
        return Vec::new();
    };
    let mut addresses = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let Some(port) = port_number(&subset["ports"], port) else {
            continue;
        };
        for address in subset["addresses"].as_array().into_iter().flatten() {
            let address = address["ip"].as_str().and_then(|ip| ip.parse().ok());
            addresses.extend(address.map(|address| SocketAddr::new(address, port)));
        }
    }
    addresses
}

/// Returns the number of the port with this name.
fn port_number(ports: &Value, name: &str) -> Option<u16> {
    let mut ports = ports.as_array().into_iter().flatten();
    let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    port["port"].as_u64()?.try_into().ok()
}
