//! Printers of the core group: Services, Nodes, Events and others.

use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    fields::{Fields, first_three},
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
            cells: |fields| vec![fields.name(), endpoints(fields), fields.age()],
        },
        ("", "namespaces") => Printer {
            columns: &["Name", "Status", "Age"],
            cells: |fields| vec![fields.name(), fields.text("/status/phase"), fields.age()],
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
            cells: |fields| {
                let count = fields.count("/data") + fields.count("/binaryData");
                vec![fields.name(), count.into(), fields.age()]
            },
        },
        ("", "secrets") => Printer {
            columns: &["Name", "Type", "Data", "Age"],
            cells: |fields| {
                let count = fields.count("/data").into();
                vec![fields.name(), fields.text("/type"), count, fields.age()]
            },
        },
        ("", "serviceaccounts") => Printer {
            columns: &["Name", "Age"],
            cells: |fields| vec![fields.name(), fields.age()],
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

fn service(fields: &Fields<'_>) -> Vec<Value> {
    let ports: Vec<String> = fields
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
        fields.name(),
        fields.or("/spec/type", "ClusterIP"),
        fields.or("/spec/clusterIP", "<none>"),
        external_address(fields).into(),
        ports.into(),
        fields.age(),
        fields.labels("/spec/selector"),
    ]
}

/// Returns the addresses of a Service outside the cluster.
fn external_address(fields: &Fields<'_>) -> String {
    let kind = fields.at("/spec/type").as_str().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return fields.str("/spec/externalName").to_owned();
    }
    let balanced = kind == "LoadBalancer";
    let mut addresses: Vec<&str> = Vec::new();
    if balanced {
        let given = fields.list("/status/loadBalancer/ingress").iter();
        addresses
            .extend(given.filter_map(|at| at["ip"].as_str().or_else(|| at["hostname"].as_str())));
        addresses.sort_unstable();
        addresses.dedup();
    }
    let wanted = fields.list("/spec/externalIPs").iter();
    addresses.extend(wanted.filter_map(Value::as_str));
    match (addresses.is_empty(), balanced) {
        (true, true) => "<pending>".to_owned(),
        (true, false) => "<none>".to_owned(),
        _ => addresses.join(","),
    }
}

/// Returns the first few endpoints and the number of the others.
fn endpoints(fields: &Fields<'_>) -> Value {
    let subsets = fields.list("/subsets");
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

fn node(fields: &Fields<'_>) -> Vec<Value> {
    let ready = fields
        .list("/status/conditions")
        .iter()
        .find(|c| c["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if fields.at("/spec/unschedulable") == &Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| -> Value {
        let found = fields
            .list("/status/addresses")
            .iter()
            .find(|a| a["type"] == kind);
        found
            .and_then(|a| a["address"].as_str())
            .unwrap_or("<none>")
            .into()
    };
    let kernel = fields.or("/status/nodeInfo/kernelVersion", "<unknown>");
    let kernel = match fields.str("/status/nodeInfo/architecture") {
        "" => kernel,
        architecture => format!("{} ({architecture})", kernel.as_str().unwrap_or_default()).into(),
    };
    vec![
        fields.name(),
        status.into(),
        roles(fields).into(),
        fields.age(),
        fields.text("/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        fields.or("/status/nodeInfo/osImage", "<unknown>"),
        kernel,
        fields.or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

/// Returns the roles in the labels of a Node.
fn roles(fields: &Fields<'_>) -> String {
    let labels = fields.at("/metadata/labels").as_object();
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
fn quota(fields: &Fields<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = fields.at("/status/used");
    for (resource, hard) in fields.at("/status/hard").as_object().into_iter().flatten() {
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
        fields.name(),
        requests.join(", ").into(),
        limits.join(", ").into(),
        fields.age(),
    ]
}

fn component_status(fields: &Fields<'_>) -> Vec<Value> {
    let conditions = fields.list("/conditions").iter();
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
    vec![fields.name(), status.into(), text("message"), text("error")]
}

fn event(fields: &Fields<'_>) -> Vec<Value> {
    let first = match fields.at("/firstTimestamp") {
        Value::Null => fields.age_of("/eventTime", "<unknown>"),
        at => age::of(at, fields.now).into(),
    };
    let last = match (
        fields.at("/series/lastObservedTime"),
        fields.at("/lastTimestamp"),
    ) {
        (Value::Null, Value::Null) => first.clone(),
        (Value::Null, at) | (at, _) => age::of(at, fields.now).into(),
    };
    let kind = fields.str("/involvedObject/kind").to_lowercase();
    let object = match fields.str("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let either = |one: &str, other: &str| match fields.str(one) {
        "" => fields.str(other).to_owned(),
        text => text.to_owned(),
    };
    let mut source = vec![
        either("/source/component", "/reportingComponent"),
        either("/source/host", "/reportingInstance"),
    ];
    source.retain(|part| !part.is_empty());
    let count = match fields.at("/series/count").as_i64() {
        Some(count) => count,
        None => fields.number("/count").max(1),
    };
    vec![
        last,
        fields.text("/type"),
        fields.text("/reason"),
        object.into(),
        fields.text("/involvedObject/fieldPath"),
        source.join(", ").into(),
        fields.str("/message").trim().into(),
        first,
        count.into(),
        fields.name(),
    ]
}

#[cfg(test)]
mod tests;
