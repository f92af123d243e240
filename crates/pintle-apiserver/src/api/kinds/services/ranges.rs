//! The ranges of addresses that users add with `ServiceCIDR`s.

use std::net::Ipv4Addr;

use serde_json::Value;

use crate::{api::Api, meta::Tree};

/// A range of IPv4 addresses: its first address, and the bits that differ within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    hosts: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
        let free = 32_u32.checked_sub(bits.parse().ok()?)?;
        let hosts = 1_u32.checked_shl(free).map_or(u32::MAX, |it| it - 1);
        Some(Self {
            first: address & !hosts,
            hosts,
        })
    }

    /// Returns whether a Service can get the address. The first and the last belong to the network.
    fn allocates(self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        address & !self.hosts == self.first
            && address != self.first
            && address != self.first | self.hosts
    }
}

impl Api {
    /// Returns whether a Service may request an address: a `ServiceCIDR` that is ready and not
    /// being deleted contains it.
    pub(super) fn is_in_service_range(&self, address: Ipv4Addr) -> bool {
        let group = "networking.k8s.io";
        let ranges = self.registry.builtin_collection(group, "servicecidrs");
        let Some(ranges) = ranges.and_then(|ranges| self.store.snapshot(ranges).ok()) else {
            return false;
        };
        ranges
            .objects
            .values()
            .any(|range| !range.header().deleting && contains(&range.decode(), address))
    }
}

fn contains(range: &Tree, address: Ipv4Addr) -> bool {
    let at = |part: &str, field: &str| range.get(part).and_then(|part| part[field].as_array());
    let mut conditions = at("status", "conditions").into_iter().flatten();
    let mut ranges = at("spec", "cidrs").into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
        && ranges.any(|range| {
            let range = Value::as_str(range).and_then(Range::parse);
            range.is_some_and(|range| range.allocates(address))
        })
}
