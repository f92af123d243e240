//! IP addresses and networks.

use std::net::{IpAddr, Ipv6Addr};

use super::Native;
use crate::eval::Context;
use crate::go;
use crate::value::{EvalError, Evaluated, Library, Value, fail, no_such_overload};

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "ip" => |_, args| match args {
            [Value::String(text)] => Ok(ip_value(parse_ip(text).map_err(fail)?)),
            [Value::Library(Library::Cidr(ip, _))] => Ok(ip_value(*ip)),
            _ => Err(no_such_overload()),
        },
        "isIP" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
            _ => Err(no_such_overload()),
        },
        "ip.isCanonical" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(
                parse_ip(text).map_err(fail)?.to_string() == **text,
            )),
            _ => Err(no_such_overload()),
        },
        "family" => |_, args| Ok(Value::Int(if ip(args)?.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |_, args| Ok(Value::Bool(ip(args)?.is_unspecified())),
        "isLoopback" => |_, args| Ok(Value::Bool(ip(args)?.is_loopback())),
        "isLinkLocalMulticast" => |_, args| Ok(Value::Bool(link_local_multicast(ip(args)?))),
        "isLinkLocalUnicast" => |_, args| Ok(Value::Bool(link_local_unicast(ip(args)?))),
        "isGlobalUnicast" => |_, args| {
            let ip = ip(args)?;
            let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            let special = ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || broadcast
                || link_local_unicast(ip);
            Ok(Value::Bool(!special))
        },
        "cidr" => |_, args| match args {
            [Value::String(text)] => {
                let (ip, bits) = parse_cidr(text).map_err(|why| fail(wrapped(&why)))?;
                Ok(Value::Library(Library::Cidr(ip, bits)))
            }
            _ => Err(no_such_overload()),
        },
        "isCIDR" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
            _ => Err(no_such_overload()),
        },
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "masked" => |_, args| {
            let (ip, bits) = cidr(args)?;
            Ok(Value::Library(Library::Cidr(masked(ip, bits), bits)))
        },
        "prefixLength" => |_, args| Ok(Value::Int(cidr(args)?.1.into())),
        _ => return None,
    })
}

fn ip_value(ip: IpAddr) -> Value {
    Value::Library(Library::Ip(ip))
}

fn ip(args: &[Value]) -> Result<IpAddr, EvalError> {
    match args {
        [Value::Library(Library::Ip(ip))] => Ok(*ip),
        _ => Err(no_such_overload()),
    }
}

fn cidr(args: &[Value]) -> Result<(IpAddr, u8), EvalError> {
    match args {
        [Value::Library(Library::Cidr(ip, bits)), ..] => Ok((*ip, *bits)),
        _ => Err(no_such_overload()),
    }
}

fn wrapped(why: &str) -> String {
    format!("network address parse error during conversion from string: {why}")
}

/// Parses an address. Zones and IPv4-mapped IPv6 addresses are rejected.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!(
            "IP address {} with zone value is not allowed",
            go::quote(text)
        ));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        let quoted = go::quote(text);
        format!(
            "IP Address {quoted} parse error during conversion from string: \
             ParseAddr({quoted}): {}",
            reason(text)
        )
    })?;
    if matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return Err(format!(
            "IPv4-mapped IPv6 address {} is not allowed",
            go::quote(text)
        ));
    }
    Ok(ip)
}

/// Checks the address between the brackets of a URL.
pub(super) fn check_ipv6(text: &str) -> Result<(), String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) if zone != Some("") => Ok(()),
        Ok(IpAddr::V4(_)) if zone.is_none() => Err("invalid IP-literal".into()),
        parsed => {
            let why = match parsed {
                Ok(IpAddr::V6(_)) => "zone must be a non-empty string".to_owned(),
                Ok(IpAddr::V4(_)) => "unexpected character".to_owned(),
                Err(_) => reason(address),
            };
            Err(format!(
                "invalid host: ParseAddr({}): {why}",
                go::quote(text)
            ))
        }
    }
}

/// Returns why an address is not valid, in Go's words.
fn reason(text: &str) -> String {
    if text.contains(':') {
        return "unexpected character".into();
    }
    if !text.contains('.') {
        return "unable to parse IP".into();
    }
    let fields: Vec<&str> = text.split('.').collect();
    for field in &fields {
        if field.is_empty() {
            return "IPv4 field must have at least one digit".into();
        }
        if let Some(at) = field.find(|c: char| !c.is_ascii_digit()) {
            let rest = &field[at..];
            return format!("unexpected character (at {})", go::quote(rest));
        }
        if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero".into();
        }
        if field.parse::<u8>().is_err() {
            return "IPv4 field has value >255".into();
        }
    }
    if fields.len() > 4 {
        "IPv4 address too long".into()
    } else {
        "IPv4 address too short".into()
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let refuse = |why: &str| {
        let quoted = go::quote(text);
        wrapped(&format!("netip.ParsePrefix({quoted}): {why}"))
    };
    let Some((address, bits)) = text.rsplit_once('/') else {
        return Err(refuse("no '/'"));
    };
    let ip: IpAddr = address.parse().map_err(|_| {
        let quoted = go::quote(address);
        refuse(&format!("ParseAddr({quoted}): {}", reason(address)))
    })?;
    let plain = bits == "0" || (!bits.starts_with('0') && bits.bytes().all(|c| c.is_ascii_digit()));
    let max = if ip.is_ipv4() { 32 } else { 128 };
    let number = bits.parse::<u8>().ok().filter(|_| plain);
    let Some(number) = number else {
        return Err(refuse(&format!(
            "bad bits after slash: {}",
            go::quote(bits)
        )));
    };
    if number > max {
        return Err(refuse("prefix length out of range"));
    }
    if matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return Err(format!(
            "IPv4-mapped IPv6 address {} is not allowed",
            go::quote(text)
        ));
    }
    Ok((ip, number))
}

fn bits_of(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    }
}

/// Returns the leading bits of an address.
fn prefix(ip: IpAddr, length: u8) -> u128 {
    let (bits, width) = bits_of(ip);
    let drop = width - u32::from(length).min(width);
    if drop == 128 { 0 } else { bits >> drop }
}

fn masked(ip: IpAddr, length: u8) -> IpAddr {
    let (_, width) = bits_of(ip);
    let drop = width - u32::from(length).min(width);
    let bits = if drop == 128 {
        0
    } else {
        prefix(ip, length) << drop
    };
    match ip {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(bits).unwrap_or_default().into()),
        IpAddr::V6(_) => IpAddr::V6(bits.into()),
    }
}

fn inside(network: (IpAddr, u8), ip: IpAddr) -> bool {
    network.0.is_ipv4() == ip.is_ipv4() && prefix(network.0, network.1) == prefix(ip, network.1)
}

fn contains_ip(_: &mut Context, args: &[Value]) -> Evaluated {
    let network = cidr(args)?;
    let ip = match args {
        [_, Value::Library(Library::Ip(ip))] => *ip,
        // Upstream loses the reason why the text is not an address.
        [_, Value::String(text)] => parse_ip(text).map_err(|_| no_such_overload())?,
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Bool(inside(network, ip)))
}

fn contains_cidr(_: &mut Context, args: &[Value]) -> Evaluated {
    let network = cidr(args)?;
    let (ip, bits) = match args {
        [_, Value::Library(Library::Cidr(ip, bits))] => (*ip, *bits),
        [_, Value::String(text)] => parse_cidr(text).map_err(|why| fail(wrapped(&why)))?,
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Bool(network.1 <= bits && inside(network, ip)))
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}
