//! The columns of built-in kinds. Kinds without an entry show their name and when they were made.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age};

/// The columns behind the name, as `Name:type` with a `+` in front of those shown on request.
fn extra(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
            "Ready:string",
            "Status:string",
            "Restarts:string",
            "Age:string",
            "+IP:string",
            "+Node:string",
            "+Nominated Node:string",
            "+Readiness Gates:string",
        ],
        ("apps", "deployments") => &[
            "Ready:string",
            "Up-to-date:string",
            "Available:string",
            "Age:string",
            "+Containers:string",
            "+Images:string",
            "+Selector:string",
        ],
        ("apps", "replicasets") | ("", "replicationcontrollers") => &[
            "Desired:integer",
            "Current:integer",
            "Ready:integer",
            "Age:string",
            "+Containers:string",
            "+Images:string",
            "+Selector:string",
        ],
        ("apps", "statefulsets") => &[
            "Ready:string",
            "Age:string",
            "+Containers:string",
            "+Images:string",
        ],
        ("apps", "daemonsets") => &[
            "Desired:integer",
            "Current:integer",
            "Ready:integer",
            "Up-to-date:integer",
            "Available:integer",
            "Node Selector:string",
            "Age:string",
            "+Containers:string",
            "+Images:string",
            "+Selector:string",
        ],
        ("batch", "jobs") => &[
            "Status:string",
            "Completions:string",
            "Duration:string",
            "Age:string",
            "+Containers:string",
            "+Images:string",
            "+Selector:string",
        ],
        ("batch", "cronjobs") => &[
            "Schedule:string",
            "Timezone:string",
            "Suspend:boolean",
            "Active:integer",
            "Last Schedule:string",
            "Age:string",
            "+Containers:string",
            "+Images:string",
            "+Selector:string",
        ],
        ("", "services") => &[
            "Type:string",
            "Cluster-IP:string",
            "External-IP:string",
            "Port(s):string",
            "Age:string",
            "+Selector:string",
        ],
        ("", "namespaces") => &["Status:string", "Age:string"],
        ("", "nodes") => &[
            "Status:string",
            "Roles:string",
            "Age:string",
            "Version:string",
            "+Internal-IP:string",
            "+External-IP:string",
            "+OS-Image:string",
            "+Kernel-Version:string",
            "+Container-Runtime:string",
        ],
        ("", "configmaps") => &["Data:string", "Age:string"],
        ("", "secrets") => &["Type:string", "Data:string", "Age:string"],
        ("" | "events.k8s.io", "events") => &[],
        ("coordination.k8s.io", "leases") => &["Holder:string", "Age:string"],
        ("", "serviceaccounts") => &["Age:string"],
        ("", "persistentvolumeclaims") => &[
            "Status:string",
            "Volume:string",
            "Capacity:string",
            "Access Modes:string",
            "StorageClass:string",
            "VolumeAttributesClass:string",
            "Age:string",
            "+VolumeMode:string",
        ],
        ("policy", "poddisruptionbudgets") => &[
            "Min Available:string",
            "Max Unavailable:string",
            "Allowed Disruptions:integer",
            "Age:string",
        ],
        _ => &["Created At:date"],
    }
}

const EVENT_COLUMNS: [&str; 10] = [
    "Last Seen:string",
    "Type:string",
    "Reason:string",
    "Object:string",
    "+Subobject:string",
    "+Source:string",
    "Message:string",
    "+First Seen:string",
    "+Count:string",
    "+Name:string",
];

fn column(text: &str) -> Column {
    let (text, priority) = match text.strip_prefix('+') {
        Some(rest) => (rest, 1),
        None => (text, 0),
    };
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    Column::new(name, kind, priority)
}

pub(super) fn columns(group: &str, plural: &str) -> Vec<Column> {
    if plural == "events" {
        return EVENT_COLUMNS.iter().map(|text| column(text)).collect();
    }
    let mut columns = vec![Column::new("Name", "string", 0)];
    columns.extend(extra(group, plural).iter().map(|text| column(text)));
    columns
}

/// The cells of an object in its stored form.
pub(super) fn cells(group: &str, plural: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let look = Look { object, now };
    if plural == "events" {
        return event(&look);
    }
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(match (group, plural) {
        ("", "pods") => pod(&look),
        ("apps", "deployments") => deployment(&look),
        ("apps", "replicasets") | ("", "replicationcontrollers") => replicas(&look),
        ("apps", "statefulsets") => {
            let mut cells = vec![look.ready(), look.age()];
            cells.extend(look.containers());
            cells
        }
        ("apps", "daemonsets") => daemon_set(&look),
        ("batch", "jobs") => job(&look),
        ("batch", "cronjobs") => cron_job(&look),
        ("", "services") => service(&look),
        ("", "namespaces") => vec![look.text("/status/phase"), look.age()],
        ("", "nodes") => node(&look),
        ("", "configmaps") => {
            let count = look.count("/data") + look.count("/binaryData");
            vec![count.into(), look.age()]
        }
        ("", "secrets") => vec![look.text("/type"), look.count("/data").into(), look.age()],
        ("coordination.k8s.io", "leases") => vec![look.text("/spec/holderIdentity"), look.age()],
        ("", "serviceaccounts") => vec![look.age()],
        ("", "persistentvolumeclaims") => claim(&look),
        ("policy", "poddisruptionbudgets") => vec![
            look.or("/spec/minAvailable", "N/A"),
            look.or("/spec/maxUnavailable", "N/A"),
            look.number("/status/disruptionsAllowed").into(),
            look.age(),
        ],
        _ => vec![object["metadata"]["creationTimestamp"].clone()],
    });
    cells
}

/// An object, looked at.
struct Look<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Look<'_> {
    fn at(&self, path: &str) -> &Value {
        self.object.pointer(path).unwrap_or(&Value::Null)
    }

    fn text(&self, path: &str) -> Value {
        self.at(path).as_str().unwrap_or_default().into()
    }

    /// A text or number, or what stands for nothing.
    fn or(&self, path: &str, nothing: &str) -> Value {
        match self.at(path) {
            Value::Null => nothing.into(),
            Value::String(text) if text.is_empty() => nothing.into(),
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        }
    }

    fn number(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or(0)
    }

    fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        }
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    fn age(&self) -> Value {
        age::of(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    fn age_of(&self, path: &str, nothing: &str) -> Value {
        match self.at(path) {
            Value::Null => nothing.into(),
            at => age::of(at, self.now).into(),
        }
    }

    fn ready(&self) -> Value {
        let wanted = self.at("/spec/replicas").as_i64().unwrap_or(1);
        format!("{}/{wanted}", self.number("/status/readyReplicas")).into()
    }

    /// Names and images of the template's containers.
    fn containers(&self) -> [Value; 2] {
        let all = self.list("/spec/template/spec/containers");
        let join = |field: &str| {
            let texts: Vec<&str> = all.iter().filter_map(|c| c[field].as_str()).collect();
            texts.join(",").into()
        };
        [join("name"), join("image")]
    }

    fn labels(&self, path: &str) -> Value {
        match self.at(path).as_object() {
            Some(map) if !map.is_empty() => {
                let pairs: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                    .collect();
                pairs.join(",").into()
            }
            _ => "<none>".into(),
        }
    }
}

fn pod(look: &Look<'_>) -> Vec<Value> {
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

fn deployment(look: &Look<'_>) -> Vec<Value> {
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

fn replicas(look: &Look<'_>) -> Vec<Value> {
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

fn daemon_set(look: &Look<'_>) -> Vec<Value> {
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

fn job(look: &Look<'_>) -> Vec<Value> {
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

fn cron_job(look: &Look<'_>) -> Vec<Value> {
    let template = Look {
        object: look.at("/spec/jobTemplate"),
        now: look.now,
    };
    let mut cells = vec![
        look.text("/spec/schedule"),
        look.or("/spec/timeZone", "<none>"),
        json!(look.at("/spec/suspend") == &Value::Bool(true)),
        look.count("/status/active").into(),
        look.age_of("/status/lastScheduleTime", "<none>"),
        look.age(),
    ];
    cells.extend(template.containers());
    cells.push(template.labels("/spec/selector/matchLabels"));
    cells
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
        look.or("/spec/type", "ClusterIP"),
        look.or("/spec/clusterIP", "<none>"),
        look.or("/spec/externalName", "<none>"),
        ports.into(),
        look.age(),
        look.labels("/spec/selector"),
    ]
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

fn claim(look: &Look<'_>) -> Vec<Value> {
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

fn event(look: &Look<'_>) -> Vec<Value> {
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
