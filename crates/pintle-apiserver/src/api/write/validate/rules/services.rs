//! Validation of Services.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::{
    Errors, IMMUTABLE, absent, dns_label, items, labels, one_of, port, port_name, subdomain, text,
};
use crate::schema::field::{FieldError, Path};

const BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

pub(super) fn service(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if kind != "ExternalName" && absent(&spec["ports"]) && !headless {
        errors.push(FieldError::required(at.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let here = at.child("clusterIPs");
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(here.index(0), "None", why));
        }
        "ExternalName" => external(spec, at, errors),
        _ => {}
    }
    ports(&spec["ports"], &at.child("ports"), errors);
    labels(&spec["selector"], &at.child("selector"), errors);
    one_of(spec, "sessionAffinity", &["ClientIP", "None"], at, errors);
    if kind != "ExternalName" {
        errors.extend(addresses(spec));
    }
    let list = at.child("externalIPs");
    for (i, address) in items(&spec["externalIPs"]) {
        let address = address.as_str().unwrap_or_default();
        ip_address(address, &list.index(i), errors);
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(spec, "type", &types, at, errors);
    node_ports(spec, at, errors);
    same_ports(&spec["ports"], &at.child("ports"), errors);
    if kind != "LoadBalancer" {
        // Upstream capitalizes the first of these in its message.
        for (field, reported) in [
            ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
            (
                "allocateLoadBalancerNodePorts",
                "allocateLoadBalancerNodePorts",
            ),
            ("loadBalancerClass", "loadBalancerClass"),
        ] {
            if !absent(&spec[field]) {
                errors.push(FieldError::forbidden(at.child(reported), BALANCED));
            }
        }
    }
    traffic(spec, at, errors);
}

fn external(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !absent(&spec[field]) {
            let why = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(at.child(field), why));
        }
    }
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    let here = at.child("externalName");
    if name.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else {
        subdomain(name, &here, errors);
    }
}

fn ports(ports: &Value, at: &Path<'_>, errors: &mut Errors) {
    let several = ports.as_array().is_some_and(|ports| ports.len() > 1);
    let mut names = BTreeSet::new();
    for (i, one) in items(ports) {
        let here = at.index(i);
        let name = text(one, "name");
        if name.is_empty() {
            if several {
                errors.push(FieldError::required(here.child("name"), ""));
            }
        } else {
            dns_label(name, &here.child("name"), errors);
            if !names.insert(name) {
                errors.push(FieldError::duplicate(here.child("name"), name));
            }
        }
        port(&one["port"], &here.child("port"), errors);
        one_of(one, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
        match &one["targetPort"] {
            Value::String(name) => {
                for why in port_name(name) {
                    errors.push(FieldError::invalid(
                        here.child("targetPort"),
                        name.as_str(),
                        why,
                    ));
                }
            }
            number => port(number, &here.child("targetPort"), errors),
        }
    }
}

/// Checks that `clusterIP`, `clusterIPs` and `ipFamilies` are consistent.
pub(crate) fn addresses(spec: &Value) -> Errors {
    let at = Path::At("spec");
    let mut errors = Errors::new();
    let address = text(spec, "clusterIP");
    let alone = json!([address]);
    let list = match &spec["clusterIPs"] {
        list if absent(list) && !address.is_empty() => &alone,
        list => list,
    };
    let here = at.child("clusterIPs");
    let apart = if address.is_empty() {
        (!absent(list)).then_some("must be empty when `clusterIP` is not specified")
    } else {
        (list[0] != address).then_some("first value must match `clusterIP`")
    };
    if let Some(why) = apart {
        errors.push(FieldError::invalid(String::from(&here), list.clone(), why));
    }
    let families = at.child("ipFamilies");
    let mut seen = BTreeSet::new();
    for (i, family) in items(&spec["ipFamilies"]) {
        let family = family.as_str().unwrap_or_default();
        if !matches!(family, "IPv4" | "IPv6") {
            let known = ["IPv4", "IPv6"];
            errors.push(FieldError::not_supported(families.index(i), family, &known));
        }
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(families.index(i), family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(spec, "ipFamilyPolicy", &policies, &at, &mut errors);
    let before = errors.len();
    let wrong = |why: &str| FieldError::invalid(String::from(&here), list.clone(), why);
    let addresses: Vec<&str> = items(list).filter_map(|(_, item)| item.as_str()).collect();
    if let ["None", _, ..] = addresses.as_slice() {
        errors.push(wrong("'None' must be the first and only value"));
    }
    for (i, address) in addresses.iter().enumerate() {
        if i > 0 || *address != "None" {
            ip_address(address, &here.index(i), &mut errors);
        }
    }
    let valid = errors.len() == before;
    if addresses.len() > 2 {
        errors.push(wrong("may only hold up to 2 values"));
    }
    if !valid {
        return errors;
    }
    let version = |address: &&str| match address.parse() {
        Ok(IpAddr::V4(_)) => "IPv4",
        _ => "IPv6",
    };
    let versions: Vec<&str> = addresses.iter().map(version).collect();
    if versions.len() > 1
        && versions
            .iter()
            .all(|version| Some(version) == versions.first())
    {
        errors.push(wrong("may specify no more than one IP for each IP family"));
    }
    if address == "None" {
        return errors;
    }
    let families = items(&spec["ipFamilies"]).filter_map(|(_, family)| family.as_str());
    for (i, (version, family)) in versions.into_iter().zip(families).enumerate() {
        if matches!(family, "IPv4" | "IPv6") && family != version {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            let found = addresses.get(i).copied().unwrap_or_default();
            errors.push(FieldError::invalid(here.index(i), found, why));
        }
    }
    errors
}

fn ip_address(address: &str, at: &Path<'_>, errors: &mut Errors) {
    if address.parse::<IpAddr>().is_err() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(at, address, why));
    }
}

fn node_ports(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child("ports");
    let set = || items(&spec["ports"]).filter(|(_, port)| is_set(&port["nodePort"]));
    if text(spec, "type") == "ClusterIP" {
        for (i, _) in set() {
            let why = "may not be used when `type` is 'ClusterIP'";
            let here = list.index(i);
            errors.push(FieldError::forbidden(here.child("nodePort"), why));
        }
    }
    let mut places = BTreeSet::new();
    for (i, port) in set() {
        let number = &port["nodePort"];
        if !places.insert((text(port, "protocol"), number.as_i64())) {
            let here = list.index(i);
            errors.push(FieldError::duplicate(
                here.child("nodePort"),
                number.clone(),
            ));
        }
    }
}

fn same_ports(ports: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut places = BTreeSet::new();
    for (i, one) in items(ports) {
        let (protocol, number) = (text(one, "protocol"), &one["port"]);
        if !places.insert((protocol, number.as_i64())) {
            let found = json!({ "Name": "", "Protocol": protocol, "AppProtocol": null,
                "Port": number, "TargetPort": 0, "NodePort": 0 });
            errors.push(FieldError::duplicate(at.index(i), found));
        }
    }
}

fn traffic(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kind = text(spec, "type");
    let balanced = kind == "LoadBalancer";
    let reached = balanced || kind == "NodePort" || !absent(&spec["externalIPs"]);
    let policy = text(spec, "externalTrafficPolicy");
    let policies = ["Cluster", "Local"];
    if reached && kind != "ExternalName" {
        one_of(spec, "externalTrafficPolicy", &policies, at, errors);
    } else if !policy.is_empty() {
        let here = at.child("externalTrafficPolicy");
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(here, policy, why));
    }
    let health = &spec["healthCheckNodePort"];
    let here = at.child("healthCheckNodePort");
    if balanced && policy == "Local" {
        port(health, &here, errors);
    } else if is_set(health) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is \
                   'Local'";
        errors.push(FieldError::invalid(here, health.clone(), why));
    }
    one_of(spec, "internalTrafficPolicy", &policies, at, errors);
}

/// Returns true if a number is set and not zero.
fn is_set(number: &Value) -> bool {
    number.as_i64().is_some_and(|number| number != 0)
}

pub(super) fn change(spec: &Value, before: &Value, errors: &mut Errors) {
    let outside = |spec: &Value| text(spec, "type") == "ExternalName";
    let (first, now) = (text(before, "clusterIP"), text(spec, "clusterIP"));
    if !outside(spec) && !outside(before) && !first.is_empty() && first != now {
        let found = json!([now]);
        let why = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", found, why));
    }
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if !balanced(spec) || !balanced(before) {
        return;
    }
    let class = "loadBalancerClass";
    if spec[class] != before[class] {
        let why = "may not change once set";
        let found = spec[class].clone();
        errors.push(FieldError::invalid("spec.loadBalancerClass", found, why));
    }
    let local = |spec: &Value| text(spec, "externalTrafficPolicy") == "Local";
    let health = "healthCheckNodePort";
    if local(spec) && local(before) && spec[health] != before[health] {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", IMMUTABLE));
    }
}
