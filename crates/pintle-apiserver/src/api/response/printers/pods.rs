//! The printer of Pods, whose status column sums up their containers in one word.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, fields::Fields};

/// The state of the Pod's containers examined so far.
struct Progress {
    ready: usize,
    restarts: i64,
    /// When a container last terminated before a restart.
    last_restart: Option<Timestamp>,
    reason: String,
}

pub(super) fn cells(fields: &Fields<'_>) -> Vec<Value> {
    let progress = progress(fields);
    let sidecars = fields.list("/spec/initContainers").iter();
    let sidecars = sidecars.filter(|container| is_sidecar(container)).count();
    let total = fields.count("/spec/containers") + sidecars;
    let restarts = match progress.last_restart {
        Some(at) if progress.restarts != 0 => {
            let ago = age::human(fields.now.as_second() - at.as_second());
            format!("{} ({ago} ago)", progress.restarts)
        }
        _ => progress.restarts.to_string(),
    };
    vec![
        fields.name(),
        format!("{}/{total}", progress.ready).into(),
        progress.reason.into(),
        restarts.into(),
        fields.age(),
        match fields.or("/status/podIPs/0/ip", "") {
            Value::String(ip) if !ip.is_empty() => ip.into(),
            _ => fields.or("/status/podIP", "<none>"),
        },
        fields.or("/spec/nodeName", "<none>"),
        fields.or("/status/nominatedNodeName", "<none>"),
        readiness_gates(fields),
    ]
}

fn progress(fields: &Fields<'_>) -> Progress {
    let phase = fields.str("/status/phase");
    let said = fields.str("/status/reason");
    let mut progress = Progress {
        ready: 0,
        restarts: 0,
        last_restart: None,
        reason: if said.is_empty() { phase } else { said }.to_owned(),
    };
    let gated = fields.list("/status/conditions").iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if gated {
        "SchedulingGated".clone_into(&mut progress.reason);
    }
    let sidecars = init_containers(fields, &mut progress);
    if let Some((restarts, last_restart)) = sidecars {
        progress.restarts = restarts;
        progress.last_restart = last_restart;
        containers(fields, &mut progress);
    }
    if fields.deleting() && said == "NodeLost" {
        "Unknown".clone_into(&mut progress.reason);
    } else if fields.deleting() && !matches!(phase, "Succeeded" | "Failed") {
        "Terminating".clone_into(&mut progress.reason);
    }
    progress
}

/// Examines the init containers. Returns the restarts of sidecars if initialization is complete.
fn init_containers(
    fields: &Fields<'_>,
    progress: &mut Progress,
) -> Option<(i64, Option<Timestamp>)> {
    let specs = fields.list("/spec/initContainers");
    let (mut restarts, mut last_restart) = (0, None);
    let mut initializing = false;
    for (i, status) in fields
        .list("/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        let sidecar = specs
            .iter()
            .find(|spec| spec["name"] == status["name"])
            .is_some_and(is_sidecar);
        progress.count_restarts(status);
        if sidecar {
            restarts += status["restartCount"].as_i64().unwrap_or(0);
            last_restart = last_restart.max(ended(status));
        }
        let (waiting, terminated) = (&status["state"]["waiting"], &status["state"]["terminated"]);
        if terminated["exitCode"] == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            progress.ready += usize::from(status["ready"] == true);
            continue;
        }
        initializing = true;
        progress.reason = match waiting["reason"].as_str() {
            _ if !terminated.is_null() => format!("Init:{}", exit(terminated)),
            Some(reason) if !reason.is_empty() && reason != "PodInitializing" => {
                format!("Init:{reason}")
            }
            _ => format!("Init:{i}/{}", specs.len()),
        };
        break;
    }
    (!initializing || fields.condition("Initialized")).then_some((restarts, last_restart))
}

fn containers(fields: &Fields<'_>, progress: &mut Progress) {
    let mut running = false;
    let mut failure = None;
    for status in fields.list("/status/containerStatuses").iter().rev() {
        progress.count_restarts(status);
        let state = &status["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        let terminated = &state["terminated"];
        if !waiting.is_empty() {
            waiting.clone_into(&mut progress.reason);
        } else if !terminated.is_null() {
            progress.reason = exit(terminated);
            if terminated["exitCode"] != 0 {
                failure = Some(progress.reason.clone());
            }
        } else if status["ready"] == true && !state["running"].is_null() {
            running = true;
            progress.ready += 1;
        }
    }
    // A Pod with a completed container is not complete while another one runs.
    if progress.reason == "Completed" {
        if running && fields.condition("Ready") {
            "Running".clone_into(&mut progress.reason);
        } else if let Some(failure) = failure {
            progress.reason = failure;
        } else if running {
            "NotReady".clone_into(&mut progress.reason);
        }
    }
}

impl Progress {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or(0);
        self.last_restart = self.last_restart.max(ended(status));
    }
}

/// Returns true for a sidecar: an init container that keeps running.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Returns when a container terminated before its last restart.
fn ended(status: &Value) -> Option<Timestamp> {
    let at = &status["lastState"]["terminated"]["finishedAt"];
    at.as_str()?.parse().ok()
}

/// Returns why a container terminated: its reason, else its signal, else its exit code.
fn exit(terminated: &Value) -> String {
    match (terminated["reason"].as_str(), terminated["signal"].as_i64()) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn readiness_gates(fields: &Fields<'_>) -> Value {
    let gates = fields.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .iter()
        .filter_map(|gate| gate["conditionType"].as_str())
        .filter(|gate| fields.condition(gate))
        .count();
    format!("{open}/{}", gates.len()).into()
}

#[cfg(test)]
mod tests;
