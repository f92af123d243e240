//! Printers of the core group: Services, Nodes, Events and others.

use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    look::{Look, first_three},
    storage,
};

pub(super) fn printer(group: &str, plural: &str) -> Option<Printer> {
    if plural == "events" {
        // Both groups print the same columns.
        return Some(Printer {
            columns: &[
                "Last Seen",
                "Type",
                "Reason",
                "Object",
                "+Subobject",
                "+Source",
                "Message",
                "+First Seen",
                "+Count",
                "+Name",
            ],
            cells: event,
        });
    }
    Some(match (group, plural) {
        ("", "services") => Printer {
            columns: &[
                "Name",
                "Type",
                "Cluster-IP",
                "External-IP",
                "Port(s)",
                "Age",
                "+Selector",
            ],
            cells: service,
        },
        ("", "endpoints") => Printer {
            columns: &["Name", "Endpoints", "Age"],
            cells: |look| vec![look.name(), endpoints(look), look.age()],
        },
        ("", "namespaces") => Printer {
            columns: &["Name", "Status", "Age"],
            cells: |look| vec![look.name(), look.text("/status/phase"), look.age()],
        },
        ("", "nodes") => Printer {
            columns: &[
                "Name",
                "Status",
                "Roles",
                "Age",
                "Version",
                "+Internal-IP",
                "+External-IP",
                "+OS-Image",
                "+Kernel-Version",
                "+Container-Runtime",
            ],
            cells: node,
        },
        ("", "configmaps") => Printer {
            columns: &["Name", "Data", "Age"],
            cells: |look| {
                let count = look.count("/data") + look.count("/binaryData");
                vec![look.name(), count.into(), look.age()]
            },
        },
        ("", "secrets") => Printer {
            columns: &["Name", "Type", "Data", "Age"],
            cells: |look| {
                let count = look.count("/data").into();
                vec![look.name(), look.text("/type"), count, look.age()]
            },
        },
        ("", "serviceaccounts") => Printer {
            columns: &["Name", "Age"],
            cells: |look| vec![look.name(), look.age()],
        },
        ("", "persistentvolumes") => Printer {
            columns: &[
                "Name",
                "Capacity",
                "Access Modes",
                "Reclaim Policy",
                "Status",
                "Claim",
                "StorageClass",
                "VolumeAttributesClass",
                "Reason",
                "Age",
                "+VolumeMode",
            ],
            cells: storage::volume,
        },
        ("", "persistentvolumeclaims") => Printer {
            columns: &[
                "Name",
                "Status",
                "Volume",
                "Capacity",
                "Access Modes",
                "StorageClass",
                "VolumeAttributesClass",
                "Age",
                "+VolumeMode",
            ],
            cells: storage::claim,
        },
        ("", "resourcequotas") => Printer {
            columns: &["Name", "Request", "Limit", "Age"],
            cells: quota,
        },
        ("", "componentstatuses") => Printer {
            columns: &["Name", "Status", "Message", "Error"],
            cells: component_status,
        },
        _ => return None,
    })
}

fn service(look: &Look<'_>) -> Vec<Value> {
    let ports: Vec<String> = look
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{}:{node}/{protocol}", port["port"]),
                _ => format!("{}/{protocol}", port["port"]),
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    vec![
        look.name(),
        look.or("/spec/type", "ClusterIP"),
        look.or("/spec/clusterIP", "<none>"),
        external_address(look).into(),
        ports.into(),
        look.age(),
        look.labels("/spec/selector"),
    ]
}

/// Returns the addresses of a Service outside the cluster.
fn external_address(look: &Look<'_>) -> String {
    let kind = look.at("/spec/type").as_str().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return look.str("/spec/externalName").to_owned();
    }
    let balanced = kind == "LoadBalancer";
    let mut addresses: Vec<&str> = Vec::new();
    if balanced {
        let given = look.list("/status/loadBalancer/ingress").iter();
        addresses
            .extend(given.filter_map(|at| at["ip"].as_str().or_else(|| at["hostname"].as_str())));
        addresses.sort_unstable();
        addresses.dedup();
    }
    let wanted = look.list("/spec/externalIPs").iter();
    addresses.extend(wanted.filter_map(Value::as_str));
    match (addresses.is_empty(), balanced) {
        (true, true) => "<pending>".to_owned(),
        (true, false) => "<none>".to_owned(),
        _ => addresses.join(","),
    }
}

/// Returns the first few endpoints and the number of the others.
fn endpoints(look: &Look<'_>) -> Value {
    let subsets = look.list("/subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(|at| at["ip"].as_str()).collect();
        let ports = subset["ports"].as_array().map_or(&[][..], Vec::as_slice);
        if ports.is_empty() {
            all.extend(addresses.iter().map(|&address| address.to_owned()));
        }
        for port in ports {
            let port = &port["port"];
            all.extend(addresses.iter().map(|address| {
                if address.contains(':') {
                    format!("[{address}]:{port}")
                } else {
                    format!("{address}:{port}")
                }
            }));
        }
    }
    first_three(all, ",").into()
}

fn node(look: &Look<'_>) -> Vec<Value> {
    let ready = look
        .list("/status/conditions")
        .iter()
        .find(|c| c["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if look.at("/spec/unschedulable") == &Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| -> Value {
        let found = look
            .list("/status/addresses")
            .iter()
            .find(|a| a["type"] == kind);
        found
            .and_then(|a| a["address"].as_str())
            .unwrap_or("<none>")
            .into()
    };
    let kernel = look.or("/status/nodeInfo/kernelVersion", "<unknown>");
    let kernel = match look.str("/status/nodeInfo/architecture") {
        "" => kernel,
        architecture => format!("{} ({architecture})", kernel.as_str().unwrap_or_default()).into(),
    };
    vec![
        look.name(),
        status.into(),
        roles(look).into(),
        look.age(),
        look.text("/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        look.or("/status/nodeInfo/osImage", "<unknown>"),
        kernel,
        look.or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

/// Returns the roles in the labels of a Node.
fn roles(look: &Look<'_>) -> String {
    let labels = look.at("/metadata/labels").as_object();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.join(",")
}

/// Returns used and hard amounts of a quota, requests and limits separately.
fn quota(look: &Look<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = look.at("/status/used");
    for (resource, hard) in look.at("/status/hard").as_object().into_iter().flatten() {
        let hard = hard.as_str().unwrap_or_default();
        let used = used[resource].as_str().unwrap_or("0");
        let text = format!("{resource}: {used}/{hard}");
        if resource.starts_with("limits.") {
            limits.push(text);
        } else {
            requests.push(text);
        }
    }
    vec![
        look.name(),
        requests.join(", ").into(),
        limits.join(", ").into(),
        look.age(),
    ]
}

fn component_status(look: &Look<'_>) -> Vec<Value> {
    let conditions = look.list("/conditions").iter();
    let healthy = conditions.clone().find(|c| c["type"] == "Healthy");
    let status = match healthy.map(|condition| condition["status"] == "True") {
        Some(true) => "Healthy",
        Some(false) => "Unhealthy",
        None => "Unknown",
    };
    let text = |field: &str| -> Value {
        let text = healthy.and_then(|condition| condition[field].as_str());
        text.unwrap_or_default().into()
    };
    vec![look.name(), status.into(), text("message"), text("error")]
}

fn event(look: &Look<'_>) -> Vec<Value> {
    let first = match look.at("/firstTimestamp") {
        Value::Null => look.age_of("/eventTime", "<unknown>"),
        at => age::of(at, look.now).into(),
    };
    let last = match (
        look.at("/series/lastObservedTime"),
        look.at("/lastTimestamp"),
    ) {
        (Value::Null, Value::Null) => first.clone(),
        (Value::Null, at) | (at, _) => age::of(at, look.now).into(),
    };
    let kind = look.str("/involvedObject/kind").to_lowercase();
    let object = match look.str("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let either = |one: &str, other: &str| match look.str(one) {
        "" => look.str(other).to_owned(),
        text => text.to_owned(),
    };
    let mut source = vec![
        either("/source/component", "/reportingComponent"),
        either("/source/host", "/reportingInstance"),
    ];
    source.retain(|part| !part.is_empty());
    let count = match look.at("/series/count").as_i64() {
        Some(count) => count,
        None => look.number("/count").max(1),
    };
    vec![
        last,
        look.text("/type"),
        look.text("/reason"),
        object.into(),
        look.text("/involvedObject/fieldPath"),
        source.join(", ").into(),
        look.str("/message").trim().into(),
        first,
        count.into(),
        look.name(),
    ]
}

#[cfg(test)]
mod tests;
