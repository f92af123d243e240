//! What the server gives a service: an address in the cluster, and ports of its nodes.
//!
//! The [`Ledger`] tracks what is allocated. Allocations that are not stored yet are promised: the
//! write holds a [`Promise`] until it has committed or failed.

mod allocator;
mod ledger;
mod spec;

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::allocator::NETWORK;
use self::{
    allocator::{Denied, Giver},
    ledger::{Ledger, Taken},
    spec::{
        HEADLESS, HEALTH, has_address, has_node_ports, is_checked, is_reached, list, node_ports,
        ports_mut, text,
    },
};
use crate::api::{Api, ApiError, request::options::Warnings};
use crate::{
    meta::{self, Tree},
    registry::Resource,
};

/// The ledger, shared with the promises.
pub(crate) type Ledgered = Arc<Mutex<Ledger>>;

/// What one write was given. Dropped when the write is through: then it is stored, or free again.
#[derive(Debug)]
pub(crate) struct Promise {
    ledger: Ledgered,
    given: Taken,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.ledger.lock().remove(&self.given);
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
        let mut ledger = self.ledger.lock();
        if let Some(services) = resource.collection {
            ledger.follow(&self.store, services);
        }
        let given = Giver::new(&self.rng, &ledger).give(spec, old);
        let given = given.map_err(|denied| match denied {
            Denied::Wrong(errors) => ApiError::invalid("", &resource.kind, &name, errors),
            Denied::NoneLeft(what) => ApiError::internal(what),
        })?;
        ledger.add(&given);
        drop(ledger);
        Ok(Some(Promise {
            ledger: Arc::clone(&self.ledger),
            given,
        }))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        ApiServer,
        api::{request::options::WriteOptions, write::managers::Mark},
        store::DECODED,
    };

    fn create(api: &Api, services: &Arc<Resource>, name: &str) -> Result<(), ApiError> {
        let Value::Object(service) = json!({"metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
        else {
            panic!("an object")
        };
        let options = WriteOptions::default();
        api.create_object(services, Some("default"), service, &options, Mark::Update)
            .map(|_| ())
    }

    /// Proves objects/linear-installs.
    #[test]
    fn giving_reads_no_service_a_second_time() {
        let api = Arc::clone(&ApiServer::builder().build().api);
        let catalog = api.registry.catalog();
        let services = catalog.find("", "v1", "services").unwrap();
        let mut work = Vec::new();
        for batch in 0..3 {
            DECODED.set(0);
            for i in 0..100 {
                create(&api, services, &format!("s{batch}-{i}")).unwrap();
            }
            work.push(DECODED.get());
        }
        // The first batch also reads the services that exist at the start.
        assert!(work[1] <= work[0] && work[2] == work[1], "{work:?}");
        assert!(work[2] <= 200, "{work:?}");
    }
}
