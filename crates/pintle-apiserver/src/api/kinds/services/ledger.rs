//! Tracks allocated addresses and node ports without reading all Services for each allocation.
//!
//! The ledger follows the event log of Services like a watcher: before each allocation it applies
//! the events since the last one, so each state of a Service is decoded once. Reservations of
//! writes that have not committed yet count as allocated.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use serde_json::Value;

use super::spec::{HEALTH_CHECK_PORT, has_address, node_ports, number, text};
use crate::store::{CollectionId, Cursor, EventKind, Object, Store};

/// The addresses and node ports of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    pub(super) ports: BTreeSet<u64>,
}

impl Allocation {
    fn of(service: &Object) -> Self {
        let mut allocation = Self::default();
        let service = service.decode();
        if let Some(Value::Object(spec)) = service.get("spec") {
            let address = text(spec, "clusterIP").parse::<Ipv4Addr>();
            // A Service of type ExternalName may name an address but does not hold it.
            let address = address.ok().filter(|_| has_address(spec));
            allocation.addresses.extend(address);
            allocation.ports.extend(node_ports(spec));
            allocation.ports.extend(number(spec.get(HEALTH_CHECK_PORT)));
        }
        allocation
    }
}

/// The addresses and node ports of all Services, stored or reserved.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The position in the event log; `None` to start from a snapshot.
    cursor: Option<Cursor>,
    /// The allocations of each stored Service.
    stored: BTreeMap<Arc<str>, Allocation>,
    /// How often each address is counted: a Service that is stored while its reservation is held
    /// counts twice.
    addresses: BTreeMap<Ipv4Addr, usize>,
    ports: BTreeMap<u64, usize>,
}

impl Ledger {
    pub(super) fn has_address(&self, address: Ipv4Addr) -> bool {
        self.addresses.contains_key(&address)
    }

    pub(super) fn has_port(&self, port: u64) -> bool {
        self.ports.contains_key(&port)
    }

    pub(super) fn add(&mut self, allocation: &Allocation) {
        for address in &allocation.addresses {
            *self.addresses.entry(*address).or_default() += 1;
        }
        for port in &allocation.ports {
            *self.ports.entry(*port).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, allocation: &Allocation) {
        for address in &allocation.addresses {
            release(&mut self.addresses, address);
        }
        for port in &allocation.ports {
            release(&mut self.ports, port);
        }
    }

    /// Applies the events since the last call.
    pub(super) fn follow(&mut self, store: &Store, services: CollectionId) {
        loop {
            let Some(cursor) = &mut self.cursor else {
                if !self.begin(store, services) {
                    return;
                }
                continue;
            };
            match cursor.next_batch() {
                Ok((events, _)) if events.is_empty() => return,
                Ok((events, _)) => {
                    for event in events {
                        let exists = event.kind != EventKind::Deleted;
                        let now = exists.then(|| Allocation::of(&event.object));
                        self.replace(&event.object.key, now);
                    }
                }
                // The log no longer has every event since the last call: start over.
                Err(_) => self.cursor = None,
            }
        }
    }

    /// Starts over from the stored Services. Returns false if they cannot be followed.
    fn begin(&mut self, store: &Store, services: CollectionId) -> bool {
        let Ok(snapshot) = store.snapshot(services) else {
            return false;
        };
        for allocation in std::mem::take(&mut self.stored).into_values() {
            self.remove(&allocation);
        }
        for (key, service) in &snapshot.objects {
            self.replace(key, Some(Allocation::of(service)));
        }
        self.cursor = store.cursor(services, snapshot.revision).ok();
        self.cursor.is_some()
    }

    fn replace(&mut self, key: &Arc<str>, now: Option<Allocation>) {
        if let Some(before) = self.stored.remove(key) {
            self.remove(&before);
        }
        if let Some(now) = now {
            self.add(&now);
            self.stored.insert(Arc::clone(key), now);
        }
    }
}

fn release<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
