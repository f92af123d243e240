//! Events: those of old, and those that say when they happened.

use serde_json::Value;

use super::{Faults, IMMUTABLE, absent, text};
use crate::{meta::names::qualified_name, schema::field::FieldError};

/// The most bytes of a reason, an action or an instance.
const MAX_WORD: usize = 128;
/// The most bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// An event without a time of its own stands where its object does; one without a namespace, in
/// `default`. One with a time says who reports what.
pub(super) fn event(group: &str, object: &Value, faults: &mut Faults) {
    let about = ["involvedObject", "regarding"].map(|name| &object[name]);
    let about = about.into_iter().find(|about| about.is_object());
    let namespace = text(&object["metadata"], "namespace");
    let said = about.map_or("", |about| text(about, "namespace"));
    let timed = !absent(&object["eventTime"]);
    let fits = match (timed, said) {
        (false, "") => namespace == "default",
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (false, said) => said == namespace,
        (true, _) => true,
    };
    if !fits {
        let why = "does not match event.namespace";
        faults.push(FieldError::invalid("involvedObject.namespace", said, why));
    }
    if timed {
        reporter(group, object, faults);
        for field in ["reportingInstance", "action", "reason"] {
            let word = text(object, field);
            if word.is_empty() {
                faults.push(FieldError::required(field, ""));
            }
            at_most(field, word, MAX_WORD, faults);
        }
        let message = ["message", "note"].map(|name| text(object, name));
        at_most("message", &message.concat(), MAX_MESSAGE, faults);
    }
}

/// The newer group takes new events in its own way alone. Like every event, they come in the names
/// of the core group.
pub(super) fn strict(event: &Value, faults: &mut Faults) {
    series(event, faults);
    if absent(&event["eventTime"]) {
        faults.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        let why = format!("has invalid value: {kind}");
        faults.push(FieldError::invalid("type", "", why));
    }
    let source = &event["source"];
    let sourced = !text(source, "component").is_empty() || !text(source, "host").is_empty();
    for (field, set) in [
        ("firstTimestamp", !absent(&event["firstTimestamp"])),
        ("lastTimestamp", !absent(&event["lastTimestamp"])),
        ("count", event["count"].as_i64().unwrap_or(0) != 0),
        ("source", sourced),
    ] {
        if set {
            faults.push(FieldError::invalid(field, "", "needs to be unset"));
        }
    }
}

fn series(event: &Value, faults: &mut Faults) {
    let series = &event["series"];
    if !series.is_object() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        let why = "should be at least 2";
        faults.push(FieldError::invalid("series.count", "", why));
    }
    if absent(&series["lastObservedTime"]) {
        faults.push(FieldError::required("series.lastObservedTime", ""));
    }
}

/// Through the newer group an event changes in its series alone.
pub(super) fn change(event: &Value, old: &Value, faults: &mut Faults) {
    if event["series"] != old["series"] {
        series(event, faults);
    }
    for (stored, told) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        // A changed reason is told twice.
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let (new, was) = (&event[stored], &old[stored]);
        if new != was && !(absent(new) && absent(was)) {
            faults.push(FieldError::invalid(told, new.clone(), IMMUTABLE));
        }
    }
}

/// Each group has its own name for who reports.
fn reporter(group: &str, object: &Value, faults: &mut Faults) {
    let field = match group {
        "" => "reportingComponent",
        _ => "reportingController",
    };
    let reporter = ["reportingComponent", "reportingController"].map(|name| text(object, name));
    let reporter = reporter.concat();
    if reporter.is_empty() {
        faults.push(FieldError::required(field, ""));
    }
    for problem in qualified_name(&reporter) {
        faults.push(FieldError::invalid(field, reporter.as_str(), problem));
    }
}

fn at_most(field: &str, found: &str, most: usize, faults: &mut Faults) {
    if found.len() > most {
        let why = format!("can have at most {most} characters");
        faults.push(FieldError::invalid(field, "", why));
    }
}
