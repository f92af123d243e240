//! Endpoints of the `kubernetes` Service: the addresses this server listens on.
//!
//! Without a listener the endpoints exist and are empty. Each listener adds its address and removes
//! it when it closes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
};

use serde_json::{Value, json};

use super::Kind;
use crate::{
    api::{Api, kinds::properties::Generation, request::options::WriteOptions},
    meta::{self, Tree},
    store::{Change, Expect, Refused, key_of},
};

/// `endpoints`.
#[derive(Debug)]
pub(super) struct Endpoints;

impl Kind for Endpoints {
    fn deprecation(&self) -> Option<&'static str> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }
}

/// Keeps an address in the endpoints of `kubernetes` until it is dropped.
#[derive(Debug)]
pub(crate) struct Announced {
    api: Arc<Api>,
    address: SocketAddr,
}

impl Announced {
    /// Adds the address of a listener.
    pub(crate) fn new(api: &Arc<Api>, bound: SocketAddr) -> Self {
        let address = SocketAddr::new(reachable(bound.ip()), bound.port());
        api.change_listeners(|listeners| listeners.push(address));
        Self {
            api: Arc::clone(api),
            address,
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.api.change_listeners(|listeners| {
            if let Some(at) = listeners.iter().position(|other| *other == self.address) {
                listeners.remove(at);
            }
        });
    }
}

/// Returns an address clients can use for a listener, which may be bound to all addresses.
fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    // Sends nothing: connecting a UDP socket only selects the source address.
    let source = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    source().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// Returns the subsets of the Endpoints, one for each port.
fn subsets(listeners: &[SocketAddr]) -> Vec<Value> {
    let mut ports: Vec<u16> = listeners.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
        .into_iter()
        .map(|port| {
            let mut addresses: Vec<IpAddr> = listeners
                .iter()
                .filter(|address| address.port() == port)
                .map(SocketAddr::ip)
                .collect();
            addresses.sort_unstable();
            addresses.dedup();
            let addresses: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
            json!({"addresses": addresses,
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}]})
        })
        .collect()
}

impl Api {
    /// Changes the listener addresses and writes them into the endpoints of `kubernetes`.
    fn change_listeners(&self, change: impl FnOnce(&mut Vec<SocketAddr>)) {
        // Hold the lock until both objects are written, so that the last change is the last write.
        let mut listeners = self.listeners.lock();
        change(&mut listeners);
        let subsets = subsets(&listeners);
        self.rewrite("", "endpoints", |endpoints| {
            if subsets.is_empty() {
                endpoints.remove("subsets");
            } else {
                endpoints.insert("subsets".into(), subsets.clone().into());
            }
        });
        // An EndpointSlice has one set of ports and one address family.
        let first = subsets.first().cloned().unwrap_or_default();
        let addresses = first["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(|at| at["ip"].as_str()).collect();
        let v6 = !addresses.is_empty() && addresses.iter().all(|ip| ip.contains(':'));
        let endpoints: Vec<Value> = addresses
            .iter()
            .filter(|ip| ip.contains(':') == v6)
            .map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}}))
            .collect();
        self.rewrite("discovery.k8s.io", "endpointslices", |slice| {
            let family = if v6 { "IPv6" } else { "IPv4" };
            slice.insert("addressType".into(), family.into());
            slice.insert("endpoints".into(), endpoints.clone().into());
            match first["ports"].as_array() {
                Some(ports) => slice.insert("ports".into(), ports.clone().into()),
                None => slice.remove("ports"),
            };
        });
    }

    /// Changes the object `default/kubernetes` of a kind, if it exists.
    fn rewrite(&self, group: &str, plural: &str, change: impl Fn(&mut Tree)) {
        let catalog = self.registry.catalog();
        let Some(resource) = catalog.find(group, "v1", plural) else {
            return;
        };
        let Some(collection) = resource.collection else {
            return;
        };
        let key = key_of(Some("default"), "kubernetes");
        let options = WriteOptions {
            manager: "kube-apiserver".to_owned(),
            ..WriteOptions::default()
        };
        while let Some(current) = self.store.get(collection, &key) {
            let stored = current.decode();
            let mut tree = stored.clone();
            change(&mut tree);
            if tree == stored {
                return;
            }
            if resource.generation != Generation::None {
                meta::set_generation(&mut tree, meta::generation(&stored) + 1);
            }
            let stored = Value::Object(stored);
            self.record_manager(resource, "", &options, Some(&stored), &mut tree);
            let put = Change::Put(Arc::new(resource.encode(tree)));
            let expect = Expect::Revision(current.revision);
            match self.store.commit(collection, &key, expect, put) {
                // A concurrent write won: read it again.
                Err(Refused::Mismatch) => {}
                Ok(_) | Err(Refused::NotServed) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
