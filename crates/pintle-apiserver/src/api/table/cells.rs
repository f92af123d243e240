//! The cells of the kinds that need more than a look at one field.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, builtin::Look};

pub(super) fn pod(look: &Look<'_>) -> Vec<Value> {
    let statuses = look.list("/status/containerStatuses");
    let ready = statuses
        .iter()
        .filter(|status| status["ready"] == Value::Bool(true))
        .count();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_i64())
        .sum();
    let mut status = look.or("/status/reason", "");
    if status == "" {
        status = look.or("/status/phase", "Unknown");
    }
    for container in statuses {
        for state in ["waiting", "terminated"] {
            if let Some(reason) = container["state"][state]["reason"].as_str() {
                status = reason.into();
            }
        }
    }
    if !look.at("/metadata/deletionTimestamp").is_null() {
        status = "Terminating".into();
    }
    let total = look.count("/spec/containers");
    vec![
        format!("{ready}/{total}").into(),
        status,
        restarts.to_string().into(),
        look.age(),
        look.or("/status/podIP", "<none>"),
        look.or("/spec/nodeName", "<none>"),
        look.or("/status/nominatedNodeName", "<none>"),
        "<none>".into(),
    ]
}

pub(super) fn deployment(look: &Look<'_>) -> Vec<Value> {
    let mut cells = vec![
        look.ready(),
        look.number("/status/updatedReplicas").into(),
        look.number("/status/availableReplicas").into(),
        look.age(),
    ];
    cells.extend(look.containers());
    cells.push(look.labels("/spec/selector/matchLabels"));
    cells
}

pub(super) fn replicas(look: &Look<'_>) -> Vec<Value> {
    let mut cells = vec![
        look.at("/spec/replicas").as_i64().unwrap_or(1).into(),
        look.number("/status/replicas").into(),
        look.number("/status/readyReplicas").into(),
        look.age(),
    ];
    cells.extend(look.containers());
    cells.push(match look.at("/spec/selector/matchLabels") {
        Value::Null => look.labels("/spec/selector"),
        _ => look.labels("/spec/selector/matchLabels"),
    });
    cells
}

pub(super) fn daemon_set(look: &Look<'_>) -> Vec<Value> {
    let mut cells: Vec<Value> = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ]
    .iter()
    .map(|field| look.number(&format!("/status/{field}")).into())
    .collect();
    cells.push(look.labels("/spec/template/spec/nodeSelector"));
    cells.push(look.age());
    cells.extend(look.containers());
    cells.push(look.labels("/spec/selector/matchLabels"));
    cells
}

pub(super) fn job(look: &Look<'_>) -> Vec<Value> {
    let is = |kind: &str| {
        look.list("/status/conditions")
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if is("Suspended") {
        "Suspended"
    } else {
        "Running"
    };
    let duration = match (
        look.at("/status/startTime").as_str(),
        look.at("/status/completionTime").as_str(),
    ) {
        (Some(start), Some(end)) => match (start.parse::<Timestamp>(), end.parse::<Timestamp>()) {
            (Ok(start), Ok(end)) => age::human(end.as_second() - start.as_second()).into(),
            _ => Value::from(""),
        },
        (Some(_), None) => look.age_of("/status/startTime", ""),
        _ => "".into(),
    };
    let wanted = look.at("/spec/completions").as_i64().unwrap_or(1);
    let mut cells = vec![
        status.into(),
        format!("{}/{wanted}", look.number("/status/succeeded")).into(),
        duration,
        look.age(),
    ];
    cells.extend(look.containers());
    cells.push(look.labels("/spec/selector/matchLabels"));
    cells
}

pub(super) fn cron_job(look: &Look<'_>) -> Vec<Value> {
    let template = Look {
        object: look.at("/spec/jobTemplate"),
        now: look.now,
    };
    let mut cells = vec![
        look.text("/spec/schedule"),
        look.or("/spec/timeZone", "<none>"),
        // A word, though the column is called boolean.
        match look.at("/spec/suspend") {
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            _ => "<unset>".into(),
        },
        look.count("/status/active").into(),
        look.age_of("/status/lastScheduleTime", "<none>"),
        look.age(),
    ];
    cells.extend(template.containers());
    cells.push(template.labels("/spec/selector/matchLabels"));
    cells
}

pub(super) fn service(look: &Look<'_>) -> Vec<Value> {
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
        look.or("/spec/type", "ClusterIP"),
        look.or("/spec/clusterIP", "<none>"),
        outside(look).into(),
        ports.into(),
        look.age(),
        look.labels("/spec/selector"),
    ]
}

/// Where a service can be reached from outside.
fn outside(look: &Look<'_>) -> String {
    let kind = look.at("/spec/type").as_str().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        let name = look.at("/spec/externalName").as_str();
        return name.unwrap_or_default().to_owned();
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

/// How many endpoints are shown.
const SHOWN_ENDPOINTS: usize = 3;

/// The first few endpoints, and how many more there are.
pub(super) fn endpoints(look: &Look<'_>) -> Value {
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
    let more = all.len().saturating_sub(SHOWN_ENDPOINTS);
    all.truncate(SHOWN_ENDPOINTS);
    let shown = all.join(",");
    if more > 0 {
        return format!("{shown} + {more} more...").into();
    }
    shown.into()
}

pub(super) fn node(look: &Look<'_>) -> Vec<Value> {
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
    let roles: Vec<&str> = look
        .at("/metadata/labels")
        .as_object()
        .into_iter()
        .flat_map(|labels| labels.keys())
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let roles = if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    };
    vec![
        status.into(),
        roles.into(),
        look.age(),
        look.text("/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        look.or("/status/nodeInfo/osImage", "<unknown>"),
        look.or("/status/nodeInfo/kernelVersion", "<unknown>"),
        look.or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

pub(super) fn claim(look: &Look<'_>) -> Vec<Value> {
    let modes: Vec<&str> = look
        .list("/status/accessModes")
        .iter()
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    vec![
        look.text("/status/phase"),
        look.text("/spec/volumeName"),
        look.text("/status/capacity/storage"),
        modes.join(",").into(),
        look.text("/spec/storageClassName"),
        look.or("/spec/volumeAttributesClassName", "<unset>"),
        look.age(),
        look.or("/spec/volumeMode", "<unset>"),
    ]
}

pub(super) fn event(look: &Look<'_>) -> Vec<Value> {
    let last = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]
        .iter()
        .map(|path| look.age_of(path, ""))
        .find(|age| age != "")
        .unwrap_or_else(|| "<unknown>".into());
    let first = match look.at("/firstTimestamp") {
        Value::Null => look.age_of("/eventTime", "<unknown>"),
        at => age::of(at, look.now).into(),
    };
    let kind = look
        .at("/involvedObject/kind")
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    let name = look.at("/involvedObject/name").as_str().unwrap_or_default();
    let source = [look.at("/source/component"), look.at("/source/host")];
    let source: Vec<&str> = source.iter().filter_map(|part| part.as_str()).collect();
    let count = match look.at("/series/count").as_i64() {
        Some(count) => count,
        None => look.at("/count").as_i64().unwrap_or(1),
    };
    vec![
        last,
        look.text("/type"),
        look.text("/reason"),
        format!("{kind}/{name}").into(),
        look.text("/involvedObject/fieldPath"),
        source.join(", ").into(),
        look.at("/message")
            .as_str()
            .unwrap_or_default()
            .trim()
            .into(),
        first,
        count.into(),
        look.text("/metadata/name"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cron_job_says_in_a_word_whether_it_is_suspended() {
        for (spec, word) in [
            (json!({ "suspend": true }), "True"),
            (json!({ "suspend": false }), "False"),
            (json!({}), "<unset>"),
        ] {
            let object = &json!({ "spec": spec });
            let now = Timestamp::UNIX_EPOCH;
            assert_eq!(cron_job(&Look { object, now })[2], word);
        }
    }

    /// One of the cells behind the name.
    fn shown(cells: fn(&Look<'_>) -> Vec<Value>, object: &Value, at: usize) -> Value {
        let now = Timestamp::UNIX_EPOCH;
        cells(&Look { object, now })[at].clone()
    }

    /// Proves W26.
    #[test]
    fn a_service_shows_where_it_is_reached_from_outside() {
        let balanced = json!([{"ip": "10.0.0.2"}, {"hostname": "b"}, {"ip": "10.0.0.2"}]);
        for (kind, outside, ingress, word) in [
            ("ClusterIP", json!([]), json!(null), "<none>"),
            ("NodePort", json!(["10.0.0.1"]), json!(null), "10.0.0.1"),
            ("LoadBalancer", json!([]), json!(null), "<pending>"),
            (
                "LoadBalancer",
                json!(["10.0.0.1"]),
                balanced,
                "10.0.0.2,b,10.0.0.1",
            ),
        ] {
            let object = json!({"spec": {"type": kind, "externalIPs": outside},
                "status": {"loadBalancer": {"ingress": ingress}}});
            assert_eq!(shown(service, &object, 2), word);
        }
        let named = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
        assert_eq!(shown(service, &named, 2), "example.com");
    }

    /// Proves W26.
    #[test]
    fn endpoints_show_the_first_three() {
        let cell = |look: &Look<'_>| vec![endpoints(look)];
        assert_eq!(shown(cell, &json!({}), 0), "<none>");
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "::1"}]);
        let bare = json!({"subsets": [{"addresses": addresses}]});
        assert_eq!(shown(cell, &bare, 0), "10.0.0.1,::1");
        let ports = json!([{"port": 1}, {"port": 2}]);
        let many = json!({"subsets": [{"addresses": addresses, "ports": ports}]});
        assert_eq!(
            shown(cell, &many, 0),
            "10.0.0.1:1,[::1]:1,10.0.0.1:2 + 1 more..."
        );
    }
}
