//! Allocates addresses and node ports for one Service.
//!
//! An update keeps the allocations of the stored Service. Beyond that, explicit requests are
//! honoured if they are free, and the rest is picked at random. A low band of each range is used
//! last, so that explicit requests for it rarely collide.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};

use pintle_clock::Rng;
use serde_json::{Value, json};

use super::{
    ledger::{Allocation, Ledger},
    spec::{
        HEADLESS, HEALTH_CHECK_PORT, allocates_node_ports, has_address, has_health_check,
        has_node_ports, list, node_ports, number, ports_mut, text,
    },
};
use crate::{api::write::validate::rules::services, meta::Tree, schema::field::FieldError};

/// The first two bytes of Service addresses: the range is a /16.
pub(crate) const NETWORK: [u8; 2] = [10, 96];

/// The size of the band at the start of the range that is reserved for explicit requests.
const STATIC_ADDRESSES: u64 = 256;

const NODE_PORTS: RangeInclusive<u64> = 30_000..=32_767;

/// The size of that band in the range of node ports.
const STATIC_PORTS: u64 = 86;

/// Why an allocation failed.
#[derive(Debug, PartialEq)]
pub(super) enum AllocationError {
    Invalid(Vec<FieldError>),
    Exhausted(String),
}

impl From<FieldError> for AllocationError {
    fn from(error: FieldError) -> Self {
        Self::Invalid(vec![error])
    }
}

/// Allocates for one write of a Service.
pub(super) struct Allocator<'a> {
    rng: &'a Rng,
    /// All existing allocations, of this Service and others.
    ledger: &'a Ledger,
    /// Returns whether an address is in a range that a user has added.
    in_range: &'a dyn Fn(Ipv4Addr) -> bool,
    allocated: Allocation,
}

impl<'a> Allocator<'a> {
    pub(super) fn new(
        rng: &'a Rng,
        ledger: &'a Ledger,
        in_range: &'a dyn Fn(Ipv4Addr) -> bool,
    ) -> Self {
        Self {
            rng,
            ledger,
            in_range,
            allocated: Allocation::default(),
        }
    }

    /// Completes a Service and returns the new allocations; `old` is the stored spec.
    pub(super) fn allocate(
        mut self,
        spec: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<Allocation, AllocationError> {
        if let Some(old) = old {
            keep_allocated(spec, old);
        }
        sync_address_fields(spec, old);
        if has_address(spec) {
            resolve_families(spec, old)?;
            if old.is_none_or(|old| !has_address(old)) {
                self.allocate_address(spec)?;
            }
        } else {
            // The policy applies to the cluster IP, which the Service does not have.
            spec.remove("internalTrafficPolicy");
        }
        if has_node_ports(spec) {
            match old {
                None => self.allocate_ports(spec)?,
                Some(old) => self.allocate_missing_ports(spec, old)?,
            }
        }
        if has_health_check(spec) && !old.is_some_and(has_health_check) {
            self.allocate_health_check_port(spec)?;
        }
        Ok(self.allocated)
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        !self.ledger.has_address(address) && !self.allocated.addresses.contains(&address)
    }

    fn is_free_port(&self, port: u64) -> bool {
        !self.ledger.has_port(port) && !self.allocated.ports.contains(&port)
    }

    fn allocate_address(&mut self, spec: &mut Tree) -> Result<(), AllocationError> {
        let wanted = text(spec, "clusterIP").to_owned();
        let addresses = list(spec, "clusterIPs");
        let address = match wanted.parse::<IpAddr>() {
            _ if wanted.is_empty() && addresses.is_empty() => self.next_address()?,
            Ok(IpAddr::V4(address)) => {
                if let Err(why) = self.claim_address(address) {
                    let why = format!("failed to allocate IP {wanted}: {why}");
                    let found = Value::from(addresses.to_vec());
                    return Err(FieldError::invalid("spec.clusterIPs", found, why).into());
                }
                address
            }
            // Headless, or an address that validation rejects.
            _ => return Ok(()),
        };
        if addresses.is_empty() {
            spec.insert("clusterIP".into(), json!(address));
            spec.insert("clusterIPs".into(), json!([address]));
        }
        Ok(())
    }

    fn claim_address(&mut self, address: Ipv4Addr) -> Result<(), &'static str> {
        let [a, b, c, d] = address.octets();
        // The first and the last address belong to the network.
        let is_default = [a, b] == NETWORK && ![[0, 0], [255, 255]].contains(&[c, d]);
        if !is_default && !(self.in_range)(address) {
            return Err("the provided network does not match the current range");
        }
        if !self.is_free(address) {
            return Err("provided IP is already allocated");
        }
        self.allocated.addresses.insert(address);
        Ok(())
    }

    fn next_address(&mut self) -> Result<Ipv4Addr, AllocationError> {
        let [a, b] = NETWORK;
        let all = self.candidates(1..=u64::from(u16::MAX) - 1, STATIC_ADDRESSES);
        let free = all
            .filter_map(|at| u16::try_from(at).ok())
            .map(u16::to_be_bytes)
            .map(|[c, d]| Ipv4Addr::new(a, b, c, d))
            .find(|address| self.is_free(*address));
        let free = free.ok_or_else(|| {
            AllocationError::Exhausted("failed to allocate a serviceIP: range is full".to_owned())
        })?;
        self.allocated.addresses.insert(free);
        Ok(free)
    }

    /// Allocates the node ports of a new Service. Ports with the same number but different
    /// protocols share a node port.
    fn allocate_ports(&mut self, spec: &mut Tree) -> Result<(), AllocationError> {
        let automatic = allocates_node_ports(spec);
        let mut requested = BTreeMap::new();
        for port in list(spec, "ports") {
            if let Some(node_port) = number(port.get("nodePort")) {
                requested
                    .entry(number(port.get("port")))
                    .or_insert(node_port);
            }
        }
        let mut allocated = BTreeMap::new();
        for (i, port) in ports_mut(spec).enumerate() {
            let (of, wanted) = (number(port.get("port")), number(port.get("nodePort")));
            if wanted.is_none() && !automatic {
                continue;
            }
            let node_port = match (allocated.get(&of).copied(), wanted) {
                (Some(shared), None) => shared,
                (Some(shared), Some(wanted)) if shared == wanted => shared,
                (Some(_), Some(wanted)) => self.claim_node_port(i, wanted)?,
                (None, _) => match requested.get(&of) {
                    Some(wanted) => self.claim_node_port(i, *wanted)?,
                    None => self.next_port("nodePort")?,
                },
            };
            allocated.entry(of).or_insert(node_port);
            port.insert("nodePort".into(), node_port.into());
        }
        Ok(())
    }

    /// Allocates the node ports that an updated Service lacks.
    fn allocate_missing_ports(
        &mut self,
        spec: &mut Tree,
        old: &Tree,
    ) -> Result<(), AllocationError> {
        let automatic = allocates_node_ports(spec);
        let mut own: BTreeSet<u64> = node_ports(old).collect();
        for (i, port) in ports_mut(spec).enumerate() {
            match number(port.get("nodePort")) {
                Some(wanted) if own.contains(&wanted) => {}
                Some(wanted) => {
                    own.insert(self.claim_node_port(i, wanted)?);
                }
                None if automatic => {
                    let free = self.next_port("nodePort")?;
                    port.insert("nodePort".into(), free.into());
                }
                None => {}
            }
        }
        Ok(())
    }

    fn allocate_health_check_port(&mut self, spec: &mut Tree) -> Result<(), AllocationError> {
        let port = match number(spec.get(HEALTH_CHECK_PORT)) {
            Some(wanted) => self.claim_port(wanted).map_err(|why| {
                AllocationError::Exhausted(format!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ))
            })?,
            None => self.next_port("HealthCheck NodePort 0")?,
        };
        spec.insert(HEALTH_CHECK_PORT.into(), port.into());
        Ok(())
    }

    /// Claims the node port that `spec.ports[i]` requests.
    fn claim_node_port(&mut self, i: usize, wanted: u64) -> Result<u64, AllocationError> {
        self.claim_port(wanted).map_err(|why| {
            FieldError::invalid(format!("spec.ports[{i}].nodePort"), wanted, why).into()
        })
    }

    fn claim_port(&mut self, wanted: u64) -> Result<u64, String> {
        if !NODE_PORTS.contains(&wanted) {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        if !self.is_free_port(wanted) {
            return Err("provided port is already allocated".to_owned());
        }
        self.allocated.ports.insert(wanted);
        Ok(wanted)
    }

    fn next_port(&mut self, what: &str) -> Result<u64, AllocationError> {
        let mut all = self.candidates(NODE_PORTS, STATIC_PORTS);
        let free = all.find(|port| self.is_free_port(*port));
        let free = free.ok_or_else(|| {
            AllocationError::Exhausted(format!("failed to allocate a {what}: range is full"))
        })?;
        self.allocated.ports.insert(free);
        Ok(free)
    }

    /// Iterates over a range from a random start, with the first `reserved` values last.
    fn candidates(
        &self,
        range: RangeInclusive<u64>,
        reserved: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = range.into_inner();
        let others = first + reserved;
        let count = last - others + 1;
        let start = self.rng.below(count);
        let others = (0..count).map(move |step| others + (start + step) % count);
        others.chain(first..first + reserved)
    }
}

/// Keeps the allocations of the stored Service that the update leaves out.
fn keep_allocated(spec: &mut Tree, old: &Tree) {
    if has_address(spec) && has_address(old) {
        if text(spec, "clusterIP").is_empty() {
            copy_field(spec, old, "clusterIP");
        }
        if list(spec, "clusterIPs").is_empty() {
            copy_field(spec, old, "clusterIPs");
        }
    }
    if allocates_node_ports(spec) && allocates_node_ports(old) {
        let now: BTreeSet<u64> = node_ports(spec).collect();
        let name = |port: &Tree| text(port, "name").to_owned();
        let before: BTreeMap<String, u64> = list(old, "ports")
            .iter()
            .filter_map(Value::as_object)
            .filter_map(|port| Some((name(port), number(port.get("nodePort"))?)))
            .filter(|(_, port)| !now.contains(port))
            .collect();
        for port in ports_mut(spec) {
            if number(port.get("nodePort")).is_none()
                && let Some(kept) = before.get(&name(port))
            {
                port.insert("nodePort".into(), (*kept).into());
            }
        }
    }
    if has_health_check(spec)
        && has_health_check(old)
        && number(spec.get(HEALTH_CHECK_PORT)).is_none()
    {
        copy_field(spec, old, HEALTH_CHECK_PORT);
    }
}

fn copy_field(spec: &mut Tree, old: &Tree, field: &str) {
    if let Some(kept) = old.get(field) {
        spec.insert(field.to_owned(), kept.clone());
    }
}

/// Keeps `clusterIPs` in step with a `clusterIP` that changed alone.
fn sync_address_fields(spec: &mut Tree, old: Option<&Tree>) {
    const ONE: &str = "clusterIP";
    const LIST: &str = "clusterIPs";
    let address = text(spec, ONE).to_owned();
    let Some(old) = old else {
        if !address.is_empty() && list(spec, LIST).is_empty() {
            spec.insert(LIST.into(), json!([address]));
        }
        return;
    };
    if address == text(old, ONE) {
        if list(spec, LIST).is_empty() {
            copy_field(spec, old, LIST);
        }
    } else if list(spec, LIST) == list(old, LIST) {
        if address.is_empty() {
            spec.remove(LIST);
        } else {
            spec.insert(LIST.into(), json!([address]));
        }
    }
}

/// Resolves the IP families of a Service, in a cluster that only has IPv4.
fn resolve_families(spec: &mut Tree, old: Option<&Tree>) -> Result<(), AllocationError> {
    let selectorless = text(spec, "clusterIP") == HEADLESS
        && spec.get("selector").is_none_or(|selector| {
            let selector = selector.as_object();
            selector.is_none_or(serde_json::Map::is_empty)
        });
    let fields = ["type", "ipFamilyPolicy", "clusterIPs", "ipFamilies"];
    let same = |old: &Tree| {
        fields
            .iter()
            .all(|field| spec.get(*field) == old.get(*field))
    };
    if text(spec, "ipFamilyPolicy") == "PreferDualStack" && old.is_some_and(same) {
        return Ok(());
    }
    if text(spec, "ipFamilyPolicy").is_empty() {
        let policy = match old.map(|old| text(old, "ipFamilyPolicy")) {
            Some(policy) if !policy.is_empty() => policy,
            _ if selectorless => "RequireDualStack",
            _ => "SingleStack",
        };
        spec.insert("ipFamilyPolicy".into(), policy.into());
    }
    let errors = services::addresses(&Value::Object(spec.clone()));
    if !errors.is_empty() {
        return Err(AllocationError::Invalid(errors));
    }
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    let wrong = |why: &str| FieldError::invalid("spec.ipFamilyPolicy", policy.as_str(), why);
    let mut errors = Vec::new();
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let before = old.map_or(&[][..], |old| list(old, field));
        let now = list(spec, field);
        if policy != "SingleStack" && !now.is_empty() && now.len() < before.len() {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(wrong(&why));
        } else if policy == "SingleStack" && now == before && now.len() > 1 {
            let first = now.iter().take(1).cloned().collect();
            spec.insert(field.into(), first);
        }
    }
    let (addresses, mut families) = (list(spec, "clusterIPs"), list(spec, "ipFamilies").to_vec());
    if policy == "SingleStack" {
        let two = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if addresses.len() == 2 {
            errors.push(wrong(&format!("{two} cluster IPs are specified")));
        }
        if families.len() == 2 {
            errors.push(wrong(&format!("{two} IP families are specified")));
        }
    }
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        let address = address.as_str().unwrap_or_default();
        if matches!(address.parse(), Ok(IpAddr::V6(_))) {
            let field = format!("spec.clusterIPs[{i}]");
            let why = "IPv6 is not configured on this cluster";
            errors.push(FieldError::invalid(field, addresses.to_vec(), why));
        }
    }
    if !errors.is_empty() {
        return Err(AllocationError::Invalid(errors));
    }
    if selectorless {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if let [one] = families.as_slice()
            && policy != "SingleStack"
        {
            let other = if one == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
    } else {
        if policy == "RequireDualStack" {
            errors.push(wrong(
                "this cluster is not configured for dual-stack services",
            ));
        }
        for (i, family) in families.iter().enumerate() {
            if family == "IPv6" {
                let field = format!("spec.ipFamilies[{i}]");
                let why = "not configured on this cluster";
                errors.push(FieldError::invalid(field, family.clone(), why));
            }
        }
        if !errors.is_empty() {
            return Err(AllocationError::Invalid(errors));
        }
        if families.is_empty() {
            families.push("IPv4".into());
        }
    }
    spec.insert("ipFamilies".into(), families.into());
    Ok(())
}
