//! What the server gives a service: an address in the cluster, and ports of its nodes.
//!
//! Nobody is given what another service has. What was given and is not stored yet is [`Promised`]:
//! the write that was given it holds a [`Promise`] until it is through.

mod giver;
mod spec;

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{
    giver::{Denied, Giver},
    spec::{
        HEADLESS, HEALTH, has_address, has_node_ports, is_checked, is_reached, list, node_ports,
        number, ports_mut, text,
    },
};
use super::{Api, error::ApiError, options::Warnings};
use crate::{
    meta::{self, Tree},
    registry::Resource,
};

/// What was given to services that are not stored yet.
pub(crate) type Promised = Arc<Mutex<Taken>>;

/// What services have.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u64>,
}

/// What one write was given. Dropped when the write is through: then it is stored, or free again.
#[derive(Debug)]
pub(crate) struct Promise {
    promised: Promised,
    given: Taken,
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut promised = self.promised.lock();
        for address in &self.given.addresses {
            promised.addresses.remove(address);
        }
        for port in &self.given.ports {
            promised.ports.remove(port);
        }
    }
}

impl Api {
    /// Gives a service the address and ports it needs and has not; an update first keeps those of
    /// the stored one. Hold the promise until the service is stored. No other kind gets anything.
    pub(crate) fn give_service(
        &self,
        resource: &Resource,
        service: &mut Tree,
        stored: Option<&Tree>,
    ) -> Result<Option<Promise>, ApiError> {
        if !resource.is("", "services") {
            return Ok(None);
        }
        let name = meta::text(service, "name").to_owned();
        let Some(Value::Object(spec)) = service.get_mut("spec") else {
            return Ok(None);
        };
        let old = stored.and_then(|stored| stored.get("spec")?.as_object());
        let mut promised = self.promised.lock();
        let taken = || self.taken(&promised);
        let given = Giver::new(&self.chance, &taken).give(spec, old);
        let given = given.map_err(|denied| match denied {
            Denied::Wrong(errors) => ApiError::invalid("", &resource.kind, &name, errors),
            Denied::NoneLeft(what) => ApiError::internal(what),
        })?;
        promised.addresses.extend(&given.addresses);
        promised.ports.extend(&given.ports);
        drop(promised);
        Ok(Some(Promise {
            promised: Arc::clone(&self.promised),
            given,
        }))
    }

    /// What all stored services have, and what is promised.
    fn taken(&self, promised: &Taken) -> Taken {
        let mut taken = Taken {
            addresses: promised.addresses.clone(),
            ports: promised.ports.clone(),
        };
        let table = self.registry.builtin_table("", "services");
        let Some(Ok(snapshot)) = table.map(|table| self.store.snapshot(table)) else {
            return taken;
        };
        for service in snapshot.objects.values() {
            let service = service.decode();
            if let Some(Value::Object(spec)) = service.get("spec") {
                let address = text(spec, "clusterIP").parse::<Ipv4Addr>();
                // A service outside may name an address, but does not have it.
                let address = address.ok().filter(|_| has_address(spec));
                taken.addresses.extend(address);
                taken.ports.extend(node_ports(spec));
                taken.ports.extend(number(spec.get(HEALTH)));
            }
        }
        taken
    }
}

/// A service that turns into one of another type loses what only the old type has, unless the update
/// changes it: then the rules for services tell that it does not belong there.
pub(crate) fn drop_former(service: &mut Tree, stored: &Tree) {
    let Some(old) = stored.get("spec").and_then(Value::as_object) else {
        return;
    };
    let Some(Value::Object(spec)) = service.get_mut("spec") else {
        return;
    };
    let kind = |spec: &Tree| text(spec, "type").to_owned();
    let (before, now) = (kind(old), kind(spec));
    if has_address(old) && now == "ExternalName" {
        if list(spec, "clusterIPs") == list(old, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        drop_unchanged(spec, old, "ipFamilies");
        drop_unchanged(spec, old, "ipFamilyPolicy");
    }
    if has_node_ports(old) && !has_node_ports(spec) {
        let had: BTreeSet<u64> = node_ports(old).collect();
        if node_ports(spec).all(|port| had.contains(&port)) {
            for port in ports_mut(spec) {
                port.remove("nodePort");
            }
        }
    }
    if is_checked(old) && !is_checked(spec) {
        drop_unchanged(spec, old, HEALTH);
    }
    if before == "LoadBalancer" && now != "LoadBalancer" {
        drop_unchanged(spec, old, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, old, "loadBalancerClass");
    }
    if is_reached(old) && !is_reached(spec) {
        drop_unchanged(spec, old, "externalTrafficPolicy");
    }
    if now != "LoadBalancer"
        && let Some(Value::Object(status)) = service.get_mut("status")
    {
        status.insert("loadBalancer".into(), json!({}));
    }
}

fn drop_unchanged(spec: &mut Tree, old: &Tree, field: &str) {
    if spec.get(field) == old.get(field) {
        spec.remove(field);
    }
}

/// What is told of a service that is taken as it is.
pub(crate) fn warn(resource: &Resource, service: &Tree, warnings: &Warnings) {
    let spec = match service.get("spec") {
        Some(Value::Object(spec)) if resource.is("", "services") => spec,
        _ => return,
    };
    let kind = text(spec, "type");
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == HEADLESS;
    let external = !list(spec, "externalIPs").is_empty();
    let tell = |applies: bool, what: &str| {
        if applies {
            warnings.add(what.to_owned());
        }
    };
    tell(
        headless && !text(spec, "loadBalancerIP").is_empty(),
        "spec.loadBalancerIP is ignored for headless services",
    );
    tell(
        headless && external,
        "spec.externalIPs is ignored for headless services",
    );
    tell(
        headless && text(spec, "sessionAffinity") != "None",
        "spec.SessionAffinity is ignored for headless services",
    );
    tell(
        external && !headless && has_address(spec),
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    tell(
        external && !has_address(spec),
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    tell(
        has_address(spec) && !text(spec, "externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    tell(
        text(spec, "trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
}
