//! Printers of Pods and the kinds that create, scale and protect them.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    fields::{Fields, selector, shortened},
};

pub(super) fn printer(group: &str, plural: &str) -> Option<Printer> {
    Some(match (group, plural) {
        ("", "pods") => Printer {
            columns: &[
                "Name",
                "Ready",
                "Status",
                "Restarts",
                "Age",
                "+IP",
                "+Node",
                "+Nominated Node",
                "+Readiness Gates",
            ],
            cells: super::pods::cells,
        },
        ("", "podtemplates") => Printer {
            columns: &["Name", "Containers", "Images", "Pod Labels"],
            cells: |fields| {
                let [names, images] = fields.containers("/template/spec/containers");
                let labels = fields.labels("/template/metadata/labels");
                vec![fields.name(), names, images, labels]
            },
        },
        ("apps", "deployments") => Printer {
            columns: &[
                "Name",
                "Ready",
                "Up-to-date",
                "Available",
                "Age",
                "+Containers",
                "+Images",
                "+Selector",
            ],
            cells: deployment,
        },
        ("apps", "replicasets") | ("", "replicationcontrollers") => Printer {
            columns: &[
                "Name",
                "Desired:integer",
                "Current:integer",
                "Ready:integer",
                "Age",
                "+Containers",
                "+Images",
                "+Selector",
            ],
            cells: replicas,
        },
        ("apps", "statefulsets") => Printer {
            columns: &["Name", "Ready", "Age", "+Containers", "+Images"],
            cells: |fields| {
                let [names, images] = fields.containers(TEMPLATE);
                vec![fields.name(), fields.ready(), fields.age(), names, images]
            },
        },
        ("apps", "daemonsets") => Printer {
            columns: &[
                "Name",
                "Desired:integer",
                "Current:integer",
                "Ready:integer",
                "Up-to-date:integer",
                "Available:integer",
                "Node Selector",
                "Age",
                "+Containers",
                "+Images",
                "+Selector",
            ],
            cells: daemon_set,
        },
        ("apps", "controllerrevisions") => Printer {
            columns: &["Name", "Controller", "Revision", "Age"],
            cells: |fields| {
                let revision = fields.number("/revision").into();
                vec![fields.name(), controller(fields), revision, fields.age()]
            },
        },
        ("batch", "jobs") => Printer {
            columns: &[
                "Name",
                "Status",
                "Completions",
                "Duration",
                "Age",
                "+Containers",
                "+Images",
                "+Selector",
            ],
            cells: job,
        },
        ("batch", "cronjobs") => Printer {
            columns: &[
                "Name",
                "Schedule",
                "Timezone",
                "Suspend:boolean",
                "Active:integer",
                "Last Schedule",
                "Age",
                "+Containers",
                "+Images",
                "+Selector",
            ],
            cells: cron_job,
        },
        ("autoscaling", "horizontalpodautoscalers") => Printer {
            columns: &[
                "Name",
                "Reference",
                "Targets",
                "MinPods",
                "MaxPods",
                "Replicas",
                "Age",
            ],
            cells: autoscaler,
        },
        ("policy", "poddisruptionbudgets") => Printer {
            columns: &[
                "Name",
                "Min Available",
                "Max Unavailable",
                "Allowed Disruptions:integer",
                "Age",
            ],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.or("/spec/minAvailable", "N/A"),
                    fields.or("/spec/maxUnavailable", "N/A"),
                    fields.number("/status/disruptionsAllowed").into(),
                    fields.age(),
                ]
            },
        },
        _ => return None,
    })
}

/// The containers in the Pod template of a workload.
const TEMPLATE: &str = "/spec/template/spec/containers";

fn deployment(fields: &Fields<'_>) -> Vec<Value> {
    let [names, images] = fields.containers(TEMPLATE);
    vec![
        fields.name(),
        fields.ready(),
        fields.number("/status/updatedReplicas").into(),
        fields.number("/status/availableReplicas").into(),
        fields.age(),
        names,
        images,
        selector(fields.at("/spec/selector")).into(),
    ]
}

fn replicas(fields: &Fields<'_>) -> Vec<Value> {
    let [names, images] = fields.containers(TEMPLATE);
    let selector = fields.at("/spec/selector");
    // The selector of a ReplicationController is a plain map.
    let plain = selector.as_object().is_some_and(|map| {
        let mut keys = map.keys();
        keys.all(|key| key != "matchLabels" && key != "matchExpressions")
    });
    vec![
        fields.name(),
        fields.at("/spec/replicas").as_i64().unwrap_or(1).into(),
        fields.number("/status/replicas").into(),
        fields.number("/status/readyReplicas").into(),
        fields.age(),
        names,
        images,
        if plain {
            fields.labels("/spec/selector")
        } else {
            fields.selector("/spec/selector")
        },
    ]
}

fn daemon_set(fields: &Fields<'_>) -> Vec<Value> {
    let mut cells = vec![fields.name()];
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    cells.extend(counts.map(|field| fields.number(&format!("/status/{field}")).into()));
    cells.push(fields.labels("/spec/template/spec/nodeSelector"));
    cells.push(fields.age());
    cells.extend(fields.containers(TEMPLATE));
    cells.push(fields.selector("/spec/selector"));
    cells
}

/// Returns the controller that owns the object, as `deployment.apps/web`.
fn controller(fields: &Fields<'_>) -> Value {
    let owners = fields.list("/metadata/ownerReferences").iter();
    let Some(owner) = owners.clone().find(|owner| owner["controller"] == true) else {
        return "<none>".into();
    };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = match text("apiVersion").split_once('/') {
        Some((group, _)) => format!(".{group}"),
        None => String::new(),
    };
    let kind = format!("{}{group}", text("kind")).to_lowercase();
    format!("{kind}/{}", text("name")).into()
}

fn job(fields: &Fields<'_>) -> Vec<Value> {
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| fields.condition(kind));
    let status = first(&["Complete", "Failed"])
        .or_else(|| fields.deleting().then_some("Terminating"))
        .or_else(|| first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]))
        .unwrap_or("Running");
    let time = |path: &str| fields.str(path).parse::<Timestamp>().ok();
    let (start, end) = (time("/status/startTime"), time("/status/completionTime"));
    let duration = match (start, end) {
        (Some(start), end) => {
            let end = end.unwrap_or(fields.now);
            age::human(end.as_second() - start.as_second())
        }
        (None, _) => String::new(),
    };
    let succeeded = fields.number("/status/succeeded");
    let completions = match (
        fields.at("/spec/completions").as_i64(),
        fields.number("/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let [names, images] = fields.containers(TEMPLATE);
    vec![
        fields.name(),
        status.into(),
        completions.into(),
        duration.into(),
        fields.age(),
        names,
        images,
        fields.selector("/spec/selector"),
    ]
}

fn cron_job(fields: &Fields<'_>) -> Vec<Value> {
    let [names, images] = fields.containers("/spec/jobTemplate/spec/template/spec/containers");
    vec![
        fields.name(),
        fields.text("/spec/schedule"),
        fields.or("/spec/timeZone", "<none>"),
        // Upstream prints a word although the column type is boolean.
        match fields.at("/spec/suspend") {
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            _ => "<unset>".into(),
        },
        fields.count("/status/active").into(),
        fields.age_of("/status/lastScheduleTime", "<none>"),
        fields.age(),
        names,
        images,
        fields.selector("/spec/jobTemplate/spec/selector"),
    ]
}

fn autoscaler(fields: &Fields<'_>) -> Vec<Value> {
    let target = fields.at("/spec/scaleTargetRef");
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    vec![
        fields.name(),
        format!("{}/{}", text("kind"), text("name")).into(),
        metrics(fields).into(),
        fields.or("/spec/minReplicas", "<unset>"),
        fields.number("/spec/maxReplicas").into(),
        fields.number("/status/currentReplicas").into(),
        fields.age(),
    ]
}

/// The maximum number of metrics in a cell.
const SHOWN_METRICS: usize = 2;

/// Returns current and target values of the metrics: `cpu: 40%/80%`.
fn metrics(fields: &Fields<'_>) -> String {
    let (specs, statuses) = (
        fields.list("/spec/metrics"),
        fields.list("/status/currentMetrics"),
    );
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let mut all: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(i, spec)| metric(spec, statuses.get(i).unwrap_or(&Value::Null)))
        .collect();
    shortened(&mut all, SHOWN_METRICS, ", ")
}

fn metric(spec: &Value, status: &Value) -> String {
    let kind = spec["type"].as_str().unwrap_or_default();
    let (field, named) = match kind {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[field]["target"], &status[field]["current"]);
    let show = |value: &Value| value.as_str().map(str::to_owned);
    let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
    let average = !target["averageValue"].is_null();
    let (now, wanted, suffix) = match (average, named) {
        (true, _) => {
            let suffix = if matches!(kind, "External" | "Object") {
                " (avg)"
            } else {
                ""
            };
            let wanted = show(&target["averageValue"]);
            (show(&current["averageValue"]), wanted, suffix)
        }
        (false, true) => {
            let wanted = percent(&target["averageUtilization"]);
            let wanted = wanted.or_else(|| Some("<auto>".to_owned()));
            (percent(&current["averageUtilization"]), wanted, "")
        }
        (false, false) => (show(&current["value"]), show(&target["value"]), ""),
    };
    let name = match spec[field]["name"].as_str() {
        Some(name) if named => format!("{name}: "),
        _ => String::new(),
    };
    let now = now.unwrap_or_else(|| "<unknown>".to_owned());
    format!("{name}{now}/{}{suffix}", wanted.unwrap_or_default())
}

#[cfg(test)]
mod tests;
