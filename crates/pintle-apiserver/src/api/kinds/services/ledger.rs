//! Tracks which addresses and node ports are taken, without reading all services for each allocation.
//!
//! The ledger follows the event log of services like a watcher: before each allocation it applies the
//! events since the last one, so each state of a service is decoded once. Allocations that are not
//! stored yet are promised, and count as taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use serde_json::Value;

use super::spec::{HEALTH, has_address, node_ports, number, text};
use crate::store::{CollectionId, Cursor, EventKind, Object, Store};

/// The address and ports of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    pub(super) ports: BTreeSet<u64>,
}

impl Taken {
    fn of(service: &Object) -> Self {
        let mut taken = Self::default();
        let service = service.decode();
        if let Some(Value::Object(spec)) = service.get("spec") {
            let address = text(spec, "clusterIP").parse::<Ipv4Addr>();
            // A service of type ExternalName may name an address but does not hold it.
            let address = address.ok().filter(|_| has_address(spec));
            taken.addresses.extend(address);
            taken.ports.extend(node_ports(spec));
            taken.ports.extend(number(spec.get(HEALTH)));
        }
        taken
    }
}

/// The addresses and ports of all services, stored or promised.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The position in the event log; `None` to start from a snapshot.
    cursor: Option<Cursor>,
    /// The allocations of each stored service.
    stored: BTreeMap<Arc<str>, Taken>,
    /// How often each is taken: a service that is stored while its promise is held counts twice.
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

    pub(super) fn add(&mut self, taken: &Taken) {
        for address in &taken.addresses {
            *self.addresses.entry(*address).or_default() += 1;
        }
        for port in &taken.ports {
            *self.ports.entry(*port).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, taken: &Taken) {
        for address in &taken.addresses {
            take_one(&mut self.addresses, address);
        }
        for port in &taken.ports {
            take_one(&mut self.ports, port);
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
                        let there = event.kind != EventKind::Deleted;
                        let now = there.then(|| Taken::of(&event.object));
                        self.replace(&event.object.key, now);
                    }
                }
                // The log no longer has every event since the last call: start over.
                Err(_) => self.cursor = None,
            }
        }
    }

    /// Starts over from the stored services.
    fn begin(&mut self, store: &Store, services: CollectionId) -> bool {
        let Ok(snapshot) = store.snapshot(services) else {
            return false;
        };
        for taken in std::mem::take(&mut self.stored).into_values() {
            self.remove(&taken);
        }
        for (key, service) in &snapshot.objects {
            self.replace(key, Some(Taken::of(service)));
        }
        self.cursor = store.cursor(services, snapshot.revision).ok();
        self.cursor.is_some()
    }

    fn replace(&mut self, key: &Arc<str>, now: Option<Taken>) {
        if let Some(before) = self.stored.remove(key) {
            self.remove(&before);
        }
        if let Some(now) = now {
            self.add(&now);
            self.stored.insert(Arc::clone(key), now);
        }
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
