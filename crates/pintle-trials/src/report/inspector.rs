//! Renders the failures as a trace that the page of `pintle::inspect` opens.
//!
//! A trial sees requests and watch events, not keys, so each run is one "key" of the trace: the
//! failing run and, beside it, the reference. The format is documented in `docs/inspect.md`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Failure, Report};
use crate::trace::{Request, Trace};

/// How many failures the trace holds.
const SHOWN: usize = 20;

/// Returns the trace.
pub(super) fn trace(report: &Report) -> Value {
    let shown = report.failures.iter().take(SHOWN);
    let keys: Vec<Value> = shown.flat_map(runs).collect();
    let ended = report.failures.iter().map(|failure| failure.trace.ended);
    json!({
        "format": "pintle.trace/v1",
        "program": report.name,
        "started": "",
        "now": ended.max().unwrap_or_default().as_secs_f64(),
        "controllers": [],
        "informers": [],
        "keys": keys,
    })
}

/// Returns the failing run and, if there is one, the reference.
fn runs(failure: &Failure) -> Vec<Value> {
    let plan = failure.plan.to_string();
    let sentence = format!(
        "{} found: {}",
        failure.violation.oracle, failure.violation.text
    );
    let mut runs = vec![run("failure", &plan, &failure.trace, "failing", &sentence)];
    if let Some(reference) = &failure.reference {
        let sentence = "The same story without the fault.";
        runs.push(run("reference", &plan, reference, "fine", sentence));
    }
    runs
}

fn run(kind: &str, plan: &str, trace: &Trace, verdict: &str, sentence: &str) -> Value {
    let writes = trace
        .requests
        .iter()
        .filter(|request| request.target.verb.is_write());
    let mut entries: Vec<(Duration, Value)> = writes.map(|one| (one.at, write(one))).collect();
    entries.extend(trace.deliveries.iter().map(|delivery| {
        let mut parts = delivery.fingerprint.splitn(3, '/');
        let change = parts.next().unwrap_or_default().to_ascii_lowercase();
        let object = parts.nth(1).unwrap_or_default();
        let woke = json!({
            "type": "woke", "kind": delivery.resource.to_string(), "object": object,
            "change": if change == "modified" { "updated" } else { &*change }, "via": "own",
            "summary": delivery.fault.clone().unwrap_or_default(),
        });
        (delivery.at, woke)
    }));
    let notes = trace.marks.iter();
    entries.extend(notes.map(|mark| (mark.at, json!({"type": "note", "text": mark.text}))));
    entries.sort_by_key(|(at, _)| *at);
    let entries: Vec<Value> = entries
        .into_iter()
        .map(|(at, mut entry)| {
            entry["at"] = json!(at.as_secs_f64());
            entry
        })
        .collect();
    json!({
        "controller": kind, "kind": "run", "key": plan, "now": trace.ended.as_secs_f64(),
        "state": {"state": "idle"}, "why": {"verdict": verdict, "sentence": sentence},
        "entries": entries, "dropped": 0, "tree": [],
    })
}

fn write(request: &Request) -> Value {
    let target = &request.target;
    let object = match &target.namespace {
        Some(namespace) => format!("{namespace}/{}", target.name),
        None => target.name.clone(),
    };
    let status = request.status.unwrap_or_default();
    let refused = (status >= 400).then(|| format!("failed with {status}"));
    json!({
        "type": "write", "id": request.process, "verb": target.verb.as_str(),
        "kind": target.resource.to_string(), "object": object, "subresource": target.subresource,
        "fields": [], "seconds": 0.0, "status": status, "error": request.fault.clone().or(refused),
    })
}
