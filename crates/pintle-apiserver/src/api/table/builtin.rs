//! The columns of built-in kinds. Kinds without an entry show their name and when they were made.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Column, age,
    cells::{
        claim, cron_job, daemon_set, deployment, endpoints, event, job, node, pod, replicas,
        service,
    },
};

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
        ("", "endpoints") => &["Endpoints:string", "Age:string"],
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
        ("", "endpoints") => vec![endpoints(&look), look.age()],
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
pub(super) struct Look<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl Look<'_> {
    pub(super) fn at(&self, path: &str) -> &Value {
        self.object.pointer(path).unwrap_or(&Value::Null)
    }

    pub(super) fn text(&self, path: &str) -> Value {
        self.at(path).as_str().unwrap_or_default().into()
    }

    /// A text or number, or what stands for nothing.
    pub(super) fn or(&self, path: &str, nothing: &str) -> Value {
        match self.at(path) {
            Value::Null => nothing.into(),
            Value::String(text) if text.is_empty() => nothing.into(),
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        }
    }

    pub(super) fn number(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or(0)
    }

    pub(super) fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        }
    }

    pub(super) fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    pub(super) fn age(&self) -> Value {
        age::of(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    pub(super) fn age_of(&self, path: &str, nothing: &str) -> Value {
        match self.at(path) {
            Value::Null => nothing.into(),
            at => age::of(at, self.now).into(),
        }
    }

    pub(super) fn ready(&self) -> Value {
        let wanted = self.at("/spec/replicas").as_i64().unwrap_or(1);
        format!("{}/{wanted}", self.number("/status/readyReplicas")).into()
    }

    /// Names and images of the template's containers.
    pub(super) fn containers(&self) -> [Value; 2] {
        let all = self.list("/spec/template/spec/containers");
        let join = |field: &str| {
            let texts: Vec<&str> = all.iter().filter_map(|c| c[field].as_str()).collect();
            texts.join(",").into()
        };
        [join("name"), join("image")]
    }

    pub(super) fn labels(&self, path: &str) -> Value {
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
