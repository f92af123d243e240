//! Services: cluster IPs and node ports, and the fields that a change of type drops.
//!
//! The [`Ledger`] tracks allocations. A write that allocates holds a [`Reservation`] until it has
//! committed or failed, so that no concurrent write gets the same address or port.

mod allocator;
mod ledger;
mod ranges;
mod spec;

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use pintle_clock::Clock;
use serde_json::{Value, json};

pub(crate) use self::allocator::NETWORK;
use self::{
    allocator::{AllocationError, Allocator},
    ledger::{Allocation, Ledger},
    spec::{
        HEADLESS, HEALTH_CHECK_PORT, has_address, has_health_check, has_node_ports, is_external,
        list, node_ports, ports_mut, text,
    },
};
use super::Kind;
use crate::{
    api::{Api, ApiError, request::options::Warnings, write::Part},
    meta::{self, Tree},
};

/// The ledger, shared with the reservations.
pub(crate) type SharedLedger = Arc<Mutex<Ledger>>;

/// The allocations of a write in progress. When it is dropped, they are either stored or free
/// again.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: SharedLedger,
    allocation: Allocation,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.lock().remove(&self.allocation);
    }
}

/// `services`.
#[derive(Debug)]
pub(super) struct Services;

impl Kind for Services {
    fn storage_dir(&self) -> Option<&'static str> {
        Some("services/specs")
    }

    /// Allocates the cluster IP and node ports the Service lacks. An update keeps the allocations
    /// of the stored Service.
    fn allocate(
        &self,
        api: &Api,
        service: &mut Tree,
        stored: Option<&Tree>,
    ) -> Result<Option<Reservation>, ApiError> {
        let name = meta::text(service, "name").to_owned();
        let Some(Value::Object(spec)) = service.get_mut("spec") else {
            return Ok(None);
        };
        let old = stored.and_then(|stored| stored.get("spec")?.as_object());
        let mut ledger = api.ledger.lock();
        if let Some(services) = api.registry.builtin_collection("", "services") {
            ledger.follow(&api.store, services);
        }
        let in_range = |address| api.is_in_service_range(address);
        let allocation = Allocator::new(&api.rng, &ledger, &in_range).allocate(spec, old);
        let allocation = allocation.map_err(|error| match error {
            AllocationError::Invalid(errors) => ApiError::invalid("", "Service", &name, errors),
            AllocationError::Exhausted(what) => ApiError::internal(what),
        })?;
        ledger.add(&allocation);
        drop(ledger);
        Ok(Some(Reservation {
            ledger: Arc::clone(&api.ledger),
            allocation,
        }))
    }

    fn prepare_update(&self, part: Part, service: &mut Tree, stored: &Tree, _clock: &Clock) {
        if part == Part::Main {
            drop_former_type(service, stored);
        }
    }

    fn warn(&self, service: &Tree, _stored: Option<&Tree>, warnings: &Warnings) {
        if let Some(Value::Object(spec)) = service.get("spec") {
            warn(spec, warnings);
        }
    }

    /// Endpoints are derived from the selector; without one, the user writes them.
    fn needs_controller(&self, service: &Tree) -> bool {
        let Some(Value::Object(spec)) = service.get("spec") else {
            return false;
        };
        let selector = spec.get("selector").and_then(Value::as_object);
        has_address(spec) && selector.is_some_and(|labels| !labels.is_empty())
    }
}

/// Drops fields that only the previous type of a Service has, unless the update changes them: then
/// validation reports that they do not belong.
fn drop_former_type(service: &mut Tree, stored: &Tree) {
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
    if has_health_check(old) && !has_health_check(spec) {
        drop_unchanged(spec, old, HEALTH_CHECK_PORT);
    }
    if before == "LoadBalancer" && now != "LoadBalancer" {
        drop_unchanged(spec, old, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, old, "loadBalancerClass");
    }
    if is_external(old) && !is_external(spec) {
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

fn warn(spec: &Tree, warnings: &Warnings) {
    let kind = text(spec, "type");
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == HEADLESS;
    let external = !list(spec, "externalIPs").is_empty();
    let warn_if = |applies: bool, what: &str| {
        if applies {
            warnings.add(what.to_owned());
        }
    };
    warn_if(
        headless && !text(spec, "loadBalancerIP").is_empty(),
        "spec.loadBalancerIP is ignored for headless services",
    );
    warn_if(
        headless && external,
        "spec.externalIPs is ignored for headless services",
    );
    warn_if(
        headless && text(spec, "sessionAffinity") != "None",
        "spec.SessionAffinity is ignored for headless services",
    );
    warn_if(
        external && !headless && has_address(spec),
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    warn_if(
        external && !has_address(spec),
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    warn_if(
        has_address(spec) && !text(spec, "externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn_if(
        text(spec, "trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
}

#[cfg(test)]
mod tests;
