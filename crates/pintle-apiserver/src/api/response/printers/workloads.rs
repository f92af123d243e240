//! Printers of Pods and the kinds that create, scale and protect them.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    look::{Look, selector, shortened},
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
            cells: |look| {
                let [names, images] = look.containers("/template/spec/containers");
                let labels = look.labels("/template/metadata/labels");
                vec![look.name(), names, images, labels]
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
            cells: |look| {
                let [names, images] = look.containers(TEMPLATE);
                vec![look.name(), look.ready(), look.age(), names, images]
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
            cells: |look| {
                let revision = look.number("/revision").into();
                vec![look.name(), controller(look), revision, look.age()]
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
            cells: |look| {
                vec![
                    look.name(),
                    look.or("/spec/minAvailable", "N/A"),
                    look.or("/spec/maxUnavailable", "N/A"),
                    look.number("/status/disruptionsAllowed").into(),
                    look.age(),
                ]
            },
        },
        _ => return None,
    })
}

/// The containers in the Pod template of a workload.
const TEMPLATE: &str = "/spec/template/spec/containers";

fn deployment(look: &Look<'_>) -> Vec<Value> {
    let [names, images] = look.containers(TEMPLATE);
    vec![
        look.name(),
        look.ready(),
        look.number("/status/updatedReplicas").into(),
        look.number("/status/availableReplicas").into(),
        look.age(),
        names,
        images,
        selector(look.at("/spec/selector")).into(),
    ]
}

fn replicas(look: &Look<'_>) -> Vec<Value> {
    let [names, images] = look.containers(TEMPLATE);
    let selector = look.at("/spec/selector");
    // The selector of a ReplicationController is a plain map.
    let plain = selector.as_object().is_some_and(|map| {
        let mut keys = map.keys();
        keys.all(|key| key != "matchLabels" && key != "matchExpressions")
    });
    vec![
        look.name(),
        look.at("/spec/replicas").as_i64().unwrap_or(1).into(),
        look.number("/status/replicas").into(),
        look.number("/status/readyReplicas").into(),
        look.age(),
        names,
        images,
        if plain {
            look.labels("/spec/selector")
        } else {
            look.selector("/spec/selector")
        },
    ]
}

fn daemon_set(look: &Look<'_>) -> Vec<Value> {
    let mut cells = vec![look.name()];
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    cells.extend(counts.map(|field| look.number(&format!("/status/{field}")).into()));
    cells.push(look.labels("/spec/template/spec/nodeSelector"));
    cells.push(look.age());
    cells.extend(look.containers(TEMPLATE));
    cells.push(look.selector("/spec/selector"));
    cells
}

/// Returns the controller that owns the object, as `deployment.apps/web`.
fn controller(look: &Look<'_>) -> Value {
    let owners = look.list("/metadata/ownerReferences").iter();
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

fn job(look: &Look<'_>) -> Vec<Value> {
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| look.condition(kind));
    let status = first(&["Complete", "Failed"])
        .or_else(|| look.deleting().then_some("Terminating"))
        .or_else(|| first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]))
        .unwrap_or("Running");
    let time = |path: &str| look.str(path).parse::<Timestamp>().ok();
    let (start, end) = (time("/status/startTime"), time("/status/completionTime"));
    let duration = match (start, end) {
        (Some(start), end) => {
            let end = end.unwrap_or(look.now);
            age::human(end.as_second() - start.as_second())
        }
        (None, _) => String::new(),
    };
    let succeeded = look.number("/status/succeeded");
    let completions = match (
        look.at("/spec/completions").as_i64(),
        look.number("/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let [names, images] = look.containers(TEMPLATE);
    vec![
        look.name(),
        status.into(),
        completions.into(),
        duration.into(),
        look.age(),
        names,
        images,
        look.selector("/spec/selector"),
    ]
}

fn cron_job(look: &Look<'_>) -> Vec<Value> {
    let [names, images] = look.containers("/spec/jobTemplate/spec/template/spec/containers");
    vec![
        look.name(),
        look.text("/spec/schedule"),
        look.or("/spec/timeZone", "<none>"),
        // Upstream prints a word although the column type is boolean.
        match look.at("/spec/suspend") {
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            _ => "<unset>".into(),
        },
        look.count("/status/active").into(),
        look.age_of("/status/lastScheduleTime", "<none>"),
        look.age(),
        names,
        images,
        look.selector("/spec/jobTemplate/spec/selector"),
    ]
}

fn autoscaler(look: &Look<'_>) -> Vec<Value> {
    let target = look.at("/spec/scaleTargetRef");
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    vec![
        look.name(),
        format!("{}/{}", text("kind"), text("name")).into(),
        metrics(look).into(),
        look.or("/spec/minReplicas", "<unset>"),
        look.number("/spec/maxReplicas").into(),
        look.number("/status/currentReplicas").into(),
        look.age(),
    ]
}

/// The maximum number of metrics in a cell.
const SHOWN_METRICS: usize = 2;

/// Returns current and target values of the metrics: `cpu: 40%/80%`.
fn metrics(look: &Look<'_>) -> String {
    let (specs, statuses) = (
        look.list("/spec/metrics"),
        look.list("/status/currentMetrics"),
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
