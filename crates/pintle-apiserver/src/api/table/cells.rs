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
        look.or("/spec/externalName", "<none>"),
        ports.into(),
        look.age(),
        look.labels("/spec/selector"),
    ]
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
}
