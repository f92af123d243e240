//! Names and addresses in a listener's certificate.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    str::FromStr,
};

use super::ServeError;
use crate::meta::NameRule;

/// Names in every certificate, as used inside and outside of a cluster.
const NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    Address(IpAddr),
    Dns(String),
}

impl FromStr for Name {
    type Err = ServeError;

    fn from_str(text: &str) -> Result<Self, ServeError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let name = text.to_ascii_lowercase();
        let host = name.strip_prefix("*.").unwrap_or(&name);
        if NameRule::Subdomain.problems(host, false).is_empty() {
            Ok(Self::Dns(name))
        } else {
            Err(ServeError::InvalidName(text.to_owned()))
        }
    }
}

/// Returns the names in the certificate of a listener on `address`: the well-known names, loopback,
/// the address itself, and `more`. For a wildcard address, also the host name and the addresses
/// that outgoing traffic uses.
pub(super) fn all(address: IpAddr, more: &[String]) -> Result<Vec<Name>, ServeError> {
    let mut names: Vec<Name> = NAMES.map(|name| Name::Dns(name.to_owned())).to_vec();
    let mut add = |name: Name| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for address in [
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
        address,
    ] {
        add(Name::Address(address));
    }
    if address.is_unspecified() {
        // Skip a host name that is not a valid certificate name.
        if let Some(Ok(name)) = host_name().map(|name| name.parse()) {
            add(name);
        }
        for address in outgoing_addresses() {
            add(Name::Address(address));
        }
    }
    for name in more {
        add(name.parse()?);
    }
    Ok(names)
}

/// Returns an address at which clients on this machine can reach the listener.
pub(super) fn dialable(listening: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    let system = rustix::system::uname();
    system.nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Returns the addresses of this machine that others see. Connecting a UDP socket selects a local
/// address without sending anything; the peers are reserved for documentation.
fn outgoing_addresses() -> Vec<IpAddr> {
    let peers: [(IpAddr, IpAddr); 2] = [
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        ),
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    let local = peers.into_iter().filter_map(|(any, peer)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((peer, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    local.filter(|ip| !ip.is_unspecified()).collect()
}

#[cfg(test)]
mod tests;
