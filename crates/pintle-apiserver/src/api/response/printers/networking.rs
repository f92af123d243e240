//! Printers of Ingresses, `NetworkPolicies`, `EndpointSlices` and `IPAddresses`.

use serde_json::Value;

use super::{
    builtin::Printer,
    fields::{Fields, first_three},
};

pub(super) fn printer(group: &str, plural: &str) -> Option<Printer> {
    Some(match (group, plural) {
        ("networking.k8s.io", "ingresses") => Printer {
            columns: &["Name", "Class", "Hosts", "Address", "Ports", "Age"],
            cells: ingress,
        },
        ("networking.k8s.io", "ingressclasses") => Printer {
            columns: &["Name", "Controller", "Parameters", "Age"],
            cells: ingress_class,
        },
        ("networking.k8s.io", "networkpolicies") => Printer {
            columns: &["Name", "Pod-Selector", "Age"],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.selector("/spec/podSelector"),
                    fields.age(),
                ]
            },
        },
        ("networking.k8s.io", "servicecidrs") => Printer {
            columns: &["Name", "CIDRs", "Age"],
            cells: |fields| {
                let cidrs = fields.joined("/spec/cidrs", ",").into();
                vec![fields.name(), cidrs, fields.age()]
            },
        },
        ("networking.k8s.io", "ipaddresses") => Printer {
            columns: &["Name", "ParentRef"],
            cells: |fields| vec![fields.name(), parent(fields)],
        },
        ("discovery.k8s.io", "endpointslices") => Printer {
            columns: &["Name", "AddressType", "Ports", "Endpoints", "Age"],
            cells: endpoint_slice,
        },
        _ => return None,
    })
}

fn ingress(fields: &Fields<'_>) -> Vec<Value> {
    let given = fields.list("/status/loadBalancer/ingress").iter();
    let mut addresses: Vec<&str> = given
        .filter_map(|at| at["ip"].as_str().or_else(|| at["hostname"].as_str()))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let ports = if fields.list("/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        fields.name(),
        fields.or("/spec/ingressClassName", "<none>"),
        hosts(fields.list("/spec/rules")).into(),
        addresses.join(",").into(),
        ports.into(),
        fields.age(),
    ]
}

/// The maximum number of hosts in a cell.
const SHOWN_HOSTS: usize = 3;

/// Returns the hosts of the rules. Rules after the third host are only counted, even those without
/// a host.
fn hosts(rules: &[Value]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN_HOSTS;
        let host = rule["host"].as_str().filter(|host| !host.is_empty());
        shown.extend(host.filter(|_| !more));
    }
    if shown.is_empty() {
        return "*".to_owned();
    }
    let text = shown.join(",");
    if more {
        return format!("{text} + {} more...", rules.len() - SHOWN_HOSTS);
    }
    text
}

fn ingress_class(fields: &Fields<'_>) -> Vec<Value> {
    let parameters = fields.at("/spec/parameters");
    let text = |field: &str| parameters[field].as_str();
    let parameters = match text("kind") {
        None => "<none>".to_owned(),
        Some(kind) => {
            let group = text("apiGroup").map(|group| format!(".{group}"));
            let name = text("name").unwrap_or_default();
            format!("{kind}{}/{name}", group.unwrap_or_default())
        }
    };
    vec![
        fields.name_or_default("ingressclass.kubernetes.io/is-default-class"),
        fields.text("/spec/controller"),
        parameters.into(),
        fields.age(),
    ]
}

/// Returns the owner of an address, as `services/default/kubernetes`.
fn parent(fields: &Fields<'_>) -> Value {
    let parent = fields.at("/spec/parentRef");
    if parent.is_null() {
        return "<none>".into();
    }
    let text = |field: &str| parent[field].as_str().filter(|text| !text.is_empty());
    let mut resource = text("resource").unwrap_or_default().to_lowercase();
    if let Some(group) = text("group") {
        resource = format!("{resource}.{}", group.to_lowercase());
    }
    let parts = [Some(resource.as_str()), text("namespace"), text("name")];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join("/").into()
}

fn endpoint_slice(fields: &Fields<'_>) -> Vec<Value> {
    let ports = fields.list("/ports").iter().map(|port| {
        let number = port["port"].as_i64().map(|port| port.to_string());
        let name = port["name"].as_str().map(str::to_owned);
        number.or(name).unwrap_or_else(|| "*".to_owned())
    });
    let endpoints = fields.list("/endpoints").iter();
    let addresses = endpoints
        .filter_map(|endpoint| endpoint["addresses"].as_array())
        .flatten()
        .filter_map(|address| address.as_str().map(str::to_owned));
    let short = |all: Vec<String>| match first_three(all, ",") {
        text if text.is_empty() => Value::from("<unset>"),
        text => text.into(),
    };
    vec![
        fields.name(),
        fields.text("/addressType"),
        short(ports.collect()),
        short(addresses.collect()),
        fields.age(),
    ]
}

#[cfg(test)]
mod tests;
