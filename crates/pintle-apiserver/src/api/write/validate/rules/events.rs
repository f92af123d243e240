//! Validation of events, with and without an `eventTime`.

use serde_json::Value;

use super::{Errors, IMMUTABLE, absent, text};
use crate::{meta::names::qualified_name, schema::field::FieldError};

/// The maximum length of a reason, action or instance, in bytes.
const MAX_WORD: usize = 128;
/// The maximum length of a message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Validates an event. A legacy event, without `eventTime`, must be in the namespace of its object,
/// or in `default` for cluster-scoped objects. An event with `eventTime` must name its reporter.
pub(super) fn event(group: &str, object: &Value, errors: &mut Errors) {
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
        errors.push(FieldError::invalid("involvedObject.namespace", said, why));
    }
    if timed {
        reporter(group, object, errors);
        for field in ["reportingInstance", "action", "reason"] {
            let word = text(object, field);
            if word.is_empty() {
                errors.push(FieldError::required(field, ""));
            }
            at_most(field, word, MAX_WORD, errors);
        }
        let message = ["message", "note"].map(|name| text(object, name));
        at_most("message", &message.concat(), MAX_MESSAGE, errors);
    }
}

/// Validates an event created through `events.k8s.io`, which rejects legacy fields. The event has
/// been converted to core `v1` field names.
pub(super) fn strict(event: &Value, errors: &mut Errors) {
    series(event, errors);
    if absent(&event["eventTime"]) {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        let why = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid("type", "", why));
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
            errors.push(FieldError::invalid(field, "", "needs to be unset"));
        }
    }
}

fn series(event: &Value, errors: &mut Errors) {
    let series = &event["series"];
    if !series.is_object() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        let why = "should be at least 2";
        errors.push(FieldError::invalid("series.count", "", why));
    }
    if absent(&series["lastObservedTime"]) {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

/// Validates an update through `events.k8s.io`, which may only change the series.
pub(super) fn change(event: &Value, old: &Value, errors: &mut Errors) {
    if event["series"] != old["series"] {
        series(event, errors);
    }
    for (stored, field) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        // Upstream reports a changed reason twice.
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
            errors.push(FieldError::invalid(field, new.clone(), IMMUTABLE));
        }
    }
}

/// Validates the reporter, whose field name depends on the group.
fn reporter(group: &str, object: &Value, errors: &mut Errors) {
    let field = match group {
        "" => "reportingComponent",
        _ => "reportingController",
    };
    let reporter = ["reportingComponent", "reportingController"].map(|name| text(object, name));
    let reporter = reporter.concat();
    if reporter.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    for problem in qualified_name(&reporter) {
        errors.push(FieldError::invalid(field, reporter.as_str(), problem));
    }
}

fn at_most(field: &str, found: &str, most: usize, errors: &mut Errors) {
    if found.len() > most {
        let why = format!("can have at most {most} characters");
        errors.push(FieldError::invalid(field, "", why));
    }
}
