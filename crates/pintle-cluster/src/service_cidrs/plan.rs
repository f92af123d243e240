//! Decides the next writes to `ServiceCIDR`s and `IPAddress`es.

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::Service,
        networking::v1::{
            IPAddress, IPAddressSpec, ParentReference, ServiceCIDR, ServiceCIDRStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};

use crate::{meta, pods::plan::remaining};

/// Protects a range until no Service has an address in it.
pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long a deleted range is retained, so that allocators stop using it first.
const GRACE: Duration = Duration::from_secs(10);

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The next step for a `ServiceCIDR`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RangeStep {
    None,
    /// Reconcile again after this time.
    Wait(Duration),
    /// Add the finalizer.
    Protect,
    /// Remove the finalizer.
    Release,
    /// Write this status.
    Report(Box<ServiceCIDRStatus>),
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    network: u128,
    bits: u32,
    /// 32 or 128.
    width: u32,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, width) = number(address.parse().ok()?);
        let bits = bits.parse().ok().filter(|bits| *bits <= width)?;
        let mut prefix = Self {
            network: address,
            bits,
            width,
        };
        prefix.network &= !prefix.hosts();
        Some(prefix)
    }

    /// Returns the bits that differ between its addresses.
    fn hosts(self) -> u128 {
        let free = self.width - self.bits;
        1_u128.checked_shl(free).map_or(u128::MAX, |it| it - 1)
    }

    fn contains(self, other: Self) -> bool {
        self.width == other.width
            && self.bits <= other.bits
            && other.network & !self.hosts() == self.network
    }

    /// Returns whether a Service can get the address from this range: it is neither the network's
    /// nor, in IPv4, the broadcast address.
    fn allocates(self, address: IpAddr) -> bool {
        let (address, width) = number(address);
        width == self.width
            && address & !self.hosts() == self.network
            && address != self.network
            && (width == 128 || address != self.network | self.hosts())
    }
}

fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u32::from(address).into(), 32),
        IpAddr::V6(address) => (address.into(), 128),
    }
}

fn prefixes(range: &ServiceCIDR) -> Vec<Prefix> {
    let spec = range.spec.as_ref();
    let texts = spec.and_then(|spec| spec.cidrs.as_deref());
    let texts = texts.unwrap_or_default().iter();
    texts.filter_map(|text| Prefix::parse(text)).collect()
}

/// Decides the next step for a range. `used` are the addresses of Services.
pub(super) fn plan_range(
    range: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    used: &[IpAddr],
    now: Timestamp,
) -> RangeStep {
    let is_protected = {
        let mut finalizers = range.metadata.finalizers.iter().flatten();
        finalizers.any(|it| it == FINALIZER)
    };
    let Some(Time(deleted)) = &range.metadata.deletion_timestamp else {
        if !is_protected {
            return RangeStep::Protect;
        }
        return report(range, "True", "", "Kubernetes Service CIDR is ready", now);
    };
    if !is_protected {
        return RangeStep::None;
    }
    if !may_go(range, all, used) {
        let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or \
                   create a new ServiceCIDR";
        return report(range, "False", "Terminating", why, now);
    }
    match remaining(*deleted, GRACE, now) {
        Duration::ZERO => RangeStep::Release,
        left => RangeStep::Wait(left),
    }
}

/// Returns whether, without this range, every Service address would still be in some range.
fn may_go(range: &ServiceCIDR, all: &[Arc<ServiceCIDR>], used: &[IpAddr]) -> bool {
    let others = all
        .iter()
        .filter(|it| it.metadata.uid != range.metadata.uid);
    let others: Vec<Prefix> = others.flat_map(|other| prefixes(other)).collect();
    let own = prefixes(range);
    let has_parent = |prefix: &Prefix| others.iter().any(|other| other.contains(*prefix));
    own.iter().all(has_parent)
        || used.iter().all(|address| {
            let holds = |prefix: &Prefix| prefix.allocates(*address);
            !own.iter().any(holds) || others.iter().any(holds)
        })
}

/// Reports whether a range is ready, unless its status already does.
fn report(
    range: &ServiceCIDR,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> RangeStep {
    let mut new = range.status.clone().unwrap_or_default();
    let conditions = new.conditions.get_or_insert_default();
    let known = conditions.iter().position(|it| it.type_ == "Ready");
    let before = known.map(|at| conditions.remove(at));
    let is_current = before.as_ref().is_some_and(|it| {
        (it.status.as_str(), it.reason.as_str(), it.message.as_str()) == (status, reason, message)
    });
    if is_current {
        return RangeStep::None;
    }
    conditions.push(Condition {
        type_: "Ready".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: meta::time(now),
        observed_generation: None,
    });
    RangeStep::Report(Box::new(new))
}

/// The next step for an address.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AddressStep {
    None,
    Create(Box<IPAddress>),
    /// No Service uses the address, or the object names another Service; then it is recreated.
    Delete,
}

/// Returns the addresses of a Service.
pub(super) fn addresses(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    if spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let addresses = spec.cluster_ips.iter().flatten();
    // `None` is not an address.
    addresses
        .filter_map(|address| address.parse().ok())
        .collect()
}

/// Returns whether an `IPAddress` was allocated for a Service.
pub(super) fn is_of_service(address: &IPAddress) -> bool {
    meta::labels(&address.metadata)
        .get(MANAGED_BY)
        .is_some_and(|it| it == ALLOCATOR)
}

/// Decides the next step for an address, given the Service that has it and the object for it.
pub(super) fn plan_address(
    address: IpAddr,
    service: Option<&Service>,
    existing: Option<&IPAddress>,
) -> AddressStep {
    let wanted = service.map(|service| build(address, service));
    match (wanted, existing) {
        (None, Some(existing)) if is_of_service(existing) => AddressStep::Delete,
        (Some(wanted), None) => AddressStep::Create(Box::new(wanted)),
        (Some(wanted), Some(existing))
            if is_of_service(existing) && existing.spec != wanted.spec =>
        {
            AddressStep::Delete
        }
        _ => AddressStep::None,
    }
}

fn build(address: IpAddr, service: &Service) -> IPAddress {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let labels = [(FAMILY, family), (MANAGED_BY, ALLOCATOR)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    IPAddress {
        metadata: ObjectMeta {
            name: Some(address.to_string()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            parent_ref: ParentReference {
                // The core group is the empty string, which a typed client leaves out.
                group: None,
                resource: "services".into(),
                namespace: service.metadata.namespace.clone(),
                name: meta::name(&service.metadata).to_owned(),
            },
        },
    }
}

#[cfg(test)]
mod tests;
