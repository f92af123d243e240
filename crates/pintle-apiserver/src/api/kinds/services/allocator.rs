//! Gives one service what it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};

use serde_json::{Value, json};

use super::{
    ledger::{Ledger, Taken},
    spec::{
        HEADLESS, HEALTH, gets_node_ports, has_address, has_node_ports, is_checked, list,
        node_ports, number, ports_mut, text,
    },
};
use crate::{
    meta::Tree,
    schema::{field::FieldError, rules::services},
};
use pintle_clock::Rng;

/// The addresses of services: as many as the last two bytes can tell apart.
pub(crate) const NETWORK: [u8; 2] = [10, 96];

/// How many of the first addresses are left, while there are others, to those who ask for them.
const ADDRESSES_ASKED_FOR: u64 = 256;

const NODE_PORTS: RangeInclusive<u64> = 30_000..=32_767;

/// The same of ports.
const PORTS_ASKED_FOR: u64 = 86;

/// Why a service does not get what it wants.
#[derive(Debug, PartialEq)]
pub(super) enum Denied {
    Wrong(Vec<FieldError>),
    NoneLeft(String),
}

impl From<FieldError> for Denied {
    fn from(error: FieldError) -> Self {
        Self::Wrong(vec![error])
    }
}

/// Gives one service what it needs.
pub(super) struct Giver<'a> {
    rng: &'a Rng,
    /// What others have.
    ledger: &'a Ledger,
    given: Taken,
}

impl<'a> Giver<'a> {
    pub(super) fn new(rng: &'a Rng, ledger: &'a Ledger) -> Self {
        Self {
            rng,
            ledger,
            given: Taken::default(),
        }
    }

    /// Completes a service, after what the stored one has, and says what it was given.
    pub(super) fn give(mut self, spec: &mut Tree, old: Option<&Tree>) -> Result<Taken, Denied> {
        if let Some(old) = old {
            keep(spec, old);
        }
        settle_addresses(spec, old);
        if has_address(spec) {
            settle_families(spec, old)?;
            if old.is_none_or(|old| !has_address(old)) {
                self.give_address(spec)?;
            }
        } else {
            // It says how an address is served.
            spec.remove("internalTrafficPolicy");
        }
        if has_node_ports(spec) {
            match old {
                None => self.give_first_ports(spec)?,
                Some(old) => self.give_more_ports(spec, old)?,
            }
        }
        if is_checked(spec) && !old.is_some_and(is_checked) {
            self.give_health_port(spec)?;
        }
        Ok(self.given)
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        !self.ledger.has_address(address) && !self.given.addresses.contains(&address)
    }

    fn is_free_port(&self, port: u64) -> bool {
        !self.ledger.has_port(port) && !self.given.ports.contains(&port)
    }

    fn give_address(&mut self, spec: &mut Tree) -> Result<(), Denied> {
        let wanted = text(spec, "clusterIP").to_owned();
        let addresses = list(spec, "clusterIPs");
        let address = match wanted.parse::<IpAddr>() {
            _ if wanted.is_empty() && addresses.is_empty() => self.next_address()?,
            Ok(IpAddr::V4(address)) => {
                if let Err(why) = self.take_address(address) {
                    let why = format!("failed to allocate IP {wanted}: {why}");
                    let found = Value::from(addresses.to_vec());
                    return Err(FieldError::invalid("spec.clusterIPs", found, why).into());
                }
                address
            }
            // Headless, or something that the rules for services refuse.
            _ => return Ok(()),
        };
        if addresses.is_empty() {
            spec.insert("clusterIP".into(), json!(address));
            spec.insert("clusterIPs".into(), json!([address]));
        }
        Ok(())
    }

    fn take_address(&mut self, address: Ipv4Addr) -> Result<(), &'static str> {
        let [a, b, c, d] = address.octets();
        // The first and the last are the network's own.
        if [a, b] != NETWORK || [c, d] == [0, 0] || [c, d] == [255, 255] {
            return Err("the provided network does not match the current range");
        }
        if !self.is_free(address) {
            return Err("provided IP is already allocated");
        }
        self.given.addresses.insert(address);
        Ok(())
    }

    fn next_address(&mut self) -> Result<Ipv4Addr, Denied> {
        let [a, b] = NETWORK;
        let all = self.candidates(1..=u64::from(u16::MAX) - 1, ADDRESSES_ASKED_FOR);
        let free = all
            .filter_map(|at| u16::try_from(at).ok())
            .map(u16::to_be_bytes)
            .map(|[c, d]| Ipv4Addr::new(a, b, c, d))
            .find(|address| self.is_free(*address));
        let free = free.ok_or_else(|| {
            Denied::NoneLeft("failed to allocate a serviceIP: range is full".to_owned())
        })?;
        self.given.addresses.insert(free);
        Ok(free)
    }

    /// Ports of a new service. Those of one number, for two protocols, share a port of the nodes.
    fn give_first_ports(&mut self, spec: &mut Tree) -> Result<(), Denied> {
        let automatic = gets_node_ports(spec);
        let mut asked = BTreeMap::new();
        for port in list(spec, "ports") {
            if let Some(node_port) = number(port.get("nodePort")) {
                asked.entry(number(port.get("port"))).or_insert(node_port);
            }
        }
        let mut given = BTreeMap::new();
        for (i, port) in ports_mut(spec).enumerate() {
            let (of, wanted) = (number(port.get("port")), number(port.get("nodePort")));
            if wanted.is_none() && !automatic {
                continue;
            }
            let node_port = match (given.get(&of).copied(), wanted) {
                (Some(shared), None) => shared,
                (Some(shared), Some(wanted)) if shared == wanted => shared,
                (Some(_), Some(wanted)) => self.take_port(i, wanted)?,
                (None, _) => match asked.get(&of) {
                    Some(wanted) => self.take_port(i, *wanted)?,
                    None => self.next_port("nodePort")?,
                },
            };
            given.entry(of).or_insert(node_port);
            port.insert("nodePort".into(), node_port.into());
        }
        Ok(())
    }

    /// Ports of a service that had some, or is of another type now.
    fn give_more_ports(&mut self, spec: &mut Tree, old: &Tree) -> Result<(), Denied> {
        let automatic = gets_node_ports(spec);
        let mut own: BTreeSet<u64> = node_ports(old).collect();
        for (i, port) in ports_mut(spec).enumerate() {
            match number(port.get("nodePort")) {
                Some(wanted) if own.contains(&wanted) => {}
                Some(wanted) => {
                    own.insert(self.take_port(i, wanted)?);
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

    fn give_health_port(&mut self, spec: &mut Tree) -> Result<(), Denied> {
        let port = match number(spec.get(HEALTH)) {
            Some(wanted) => self.claim_port(wanted).map_err(|why| {
                Denied::NoneLeft(format!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ))
            })?,
            None => self.next_port("HealthCheck NodePort 0")?,
        };
        spec.insert(HEALTH.into(), port.into());
        Ok(())
    }

    /// The port that the entry `i` of the service's ports asks for.
    fn take_port(&mut self, i: usize, wanted: u64) -> Result<u64, Denied> {
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
        self.given.ports.insert(wanted);
        Ok(wanted)
    }

    fn next_port(&mut self, what: &str) -> Result<u64, Denied> {
        let mut all = self.candidates(NODE_PORTS, PORTS_ASKED_FOR);
        let free = all.find(|port| self.is_free_port(*port));
        let free = free.ok_or_else(|| {
            Denied::NoneLeft(format!("failed to allocate a {what}: range is full"))
        })?;
        self.given.ports.insert(free);
        Ok(free)
    }

    /// Everything in a range, from somewhere on; the first `asked_for` come last.
    fn candidates(
        &self,
        range: RangeInclusive<u64>,
        asked_for: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = range.into_inner();
        let others = first + asked_for;
        let count = last - others + 1;
        let start = self.rng.below(count);
        let others = (0..count).map(move |step| others + (start + step) % count);
        others.chain(first..first + asked_for)
    }
}

/// What a service was given stays its own when an update does not mention it.
fn keep(spec: &mut Tree, old: &Tree) {
    if has_address(spec) && has_address(old) {
        if text(spec, "clusterIP").is_empty() {
            keep_field(spec, old, "clusterIP");
        }
        if list(spec, "clusterIPs").is_empty() {
            keep_field(spec, old, "clusterIPs");
        }
    }
    if gets_node_ports(spec) && gets_node_ports(old) {
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
    if is_checked(spec) && is_checked(old) && number(spec.get(HEALTH)).is_none() {
        keep_field(spec, old, HEALTH);
    }
}

fn keep_field(spec: &mut Tree, old: &Tree, field: &str) {
    if let Some(kept) = old.get(field) {
        spec.insert(field.to_owned(), kept.clone());
    }
}

/// Who says something of the address alone means the list of addresses, too.
fn settle_addresses(spec: &mut Tree, old: Option<&Tree>) {
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
            keep_field(spec, old, LIST);
        }
    } else if list(spec, LIST) == list(old, LIST) {
        if address.is_empty() {
            spec.remove(LIST);
        } else {
            spec.insert(LIST.into(), json!([address]));
        }
    }
}

/// Settles which families of addresses a service has, in a cluster that has IPv4 alone.
fn settle_families(spec: &mut Tree, old: Option<&Tree>) -> Result<(), Denied> {
    let bare = text(spec, "clusterIP") == HEADLESS
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
            _ if bare => "RequireDualStack",
            _ => "SingleStack",
        };
        spec.insert("ipFamilyPolicy".into(), policy.into());
    }
    let errors = services::addresses(&Value::Object(spec.clone()));
    if !errors.is_empty() {
        return Err(Denied::Wrong(errors));
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
        return Err(Denied::Wrong(errors));
    }
    if bare {
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
            return Err(Denied::Wrong(errors));
        }
        if families.is_empty() {
            families.push("IPv4".into());
        }
    }
    spec.insert("ipFamilies".into(), families.into());
    Ok(())
}
