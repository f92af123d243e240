//! What makes Pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Faults, NON_NEGATIVE, absent, blank, entries, items, labels, non_negative, one_of, pods,
    require, selects, text,
};
use crate::meta::names::{label_value, qualified_name};
use crate::schema::field::{FieldError, Path};

/// A selector that selects its own template, and the template.
fn selected(spec: &Value, kind: &str, at: &Path<'_>, faults: &mut Faults) {
    let selector = &spec["selector"];
    let here = at.child("selector");
    if selector.is_null() {
        faults.push(FieldError::required(here, ""));
    } else if absent(&selector["matchLabels"]) && absent(&selector["matchExpressions"]) {
        let why = format!("empty selector is invalid for {kind}");
        faults.push(FieldError::invalid(here, selector.clone(), why));
    } else {
        let before = faults.len();
        let list = here.child("matchLabels");
        for (name, value) in entries(&selector["matchLabels"]) {
            for why in qualified_name(name) {
                faults.push(FieldError::invalid(list, name.as_str(), why));
            }
            let value = value.as_str().unwrap_or_default();
            for why in label_value(value) {
                let here = list.key(name);
                faults.push(FieldError::invalid(here, value, why));
            }
        }
        if faults.len() > before {
            faults.push(FieldError::invalid(
                here,
                selector.clone(),
                "invalid label selector",
            ));
            // Who cannot select cannot miss either.
            return template(spec, "", at, faults);
        }
    }
    let carried = &spec["template"]["metadata"]["labels"];
    let empty = absent(&selector["matchLabels"]) && absent(&selector["matchExpressions"]);
    if (selector.is_null() || !empty) && (selector.is_null() || !selects(selector, carried)) {
        let why = "`selector` does not match template `labels`";
        let metadata = at.child("template");
        let metadata = metadata.child("metadata");
        faults.push(FieldError::invalid(
            metadata.child("labels"),
            carried.clone(),
            why,
        ));
    }
}

/// A template whose Pods never end.
fn template(spec: &Value, of: &str, at: &Path<'_>, faults: &mut Faults) {
    let here = at.child("template");
    pods::template(&spec["template"], &here, faults);
    let pod = &spec["template"]["spec"];
    let below = here.child("spec");
    let policy = text(pod, "restartPolicy");
    let known = ["OnFailure", "Never"].contains(&policy);
    if known {
        faults.push(FieldError::not_supported(
            below.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if !of.is_empty() && !pod["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {of} is not Supported");
        faults.push(FieldError::forbidden(
            below.child("activeDeadlineSeconds"),
            why,
        ));
    }
}

/// A count, or a part of all.
fn part(value: &Value, at: &Path<'_>, faults: &mut Faults) {
    match value {
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            faults.push(FieldError::invalid(at, value.clone(), NON_NEGATIVE));
        }
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit())) {
                let why = "a valid percent string must be a numeric string followed by an ending \
                           '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                faults.push(FieldError::invalid(at, text.as_str(), why));
            }
        }
        _ => {}
    }
}

fn at_most_all(value: &Value, at: &Path<'_>, faults: &mut Faults) {
    let percent = value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        faults.push(FieldError::invalid(
            at,
            value.clone(),
            "must not be greater than 100%",
        ));
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0)
        || value
            .as_str()
            .is_some_and(|text| text.trim_matches('0') == "%")
}

pub(super) fn deployment(spec: &Value, at: &Path<'_>, faults: &mut Faults) {
    non_negative(spec, "replicas", at, faults);
    selected(spec, "deployment", at, faults);
    template(spec, "ReplicaSet", at, faults);
    let here = at.child("strategy");
    let strategy = &spec["strategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            faults.push(FieldError::forbidden(here.child("rollingUpdate"), why));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let below = here.child("rollingUpdate");
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            part(unavailable, &below.child("maxUnavailable"), faults);
            part(surge, &below.child("maxSurge"), faults);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                let here = below.child("maxUnavailable");
                faults.push(FieldError::invalid(here, unavailable.clone(), why));
            }
            at_most_all(unavailable, &below.child("maxUnavailable"), faults);
        }
        other => {
            let found = json!({ "Type": other, "RollingUpdate": null });
            faults.push(FieldError::not_supported(
                here,
                found,
                &["Recreate", "RollingUpdate"],
            ));
        }
    }
    non_negative(spec, "minReadySeconds", at, faults);
    non_negative(spec, "revisionHistoryLimit", at, faults);
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64() {
        let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
        if deadline <= ready {
            let why = "must be greater than minReadySeconds";
            faults.push(FieldError::invalid(
                at.child("progressDeadlineSeconds"),
                deadline,
                why,
            ));
        }
    }
}

pub(super) fn replica_set(spec: &Value, at: &Path<'_>, faults: &mut Faults) {
    non_negative(spec, "replicas", at, faults);
    non_negative(spec, "minReadySeconds", at, faults);
    selected(spec, "replica set", at, faults);
    template(spec, "ReplicaSet", at, faults);
}

pub(super) fn stateful_set(spec: &Value, at: &Path<'_>, faults: &mut Faults) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let why = "must be 'OrderedReady' or 'Parallel'";
        faults.push(FieldError::invalid(
            at.child("podManagementPolicy"),
            policy,
            why,
        ));
    }
    let strategy = text(&spec["updateStrategy"], "type");
    if !["RollingUpdate", "OnDelete"].contains(&strategy) {
        let found = json!({ "Type": strategy, "RollingUpdate": null });
        let why = "must be 'RollingUpdate' or 'OnDelete'";
        faults.push(FieldError::invalid(at.child("updateStrategy"), found, why));
    }
    non_negative(spec, "replicas", at, faults);
    non_negative(spec, "minReadySeconds", at, faults);
    let spec = &with_claims(spec);
    selected(spec, "statefulset", at, faults);
    template(spec, "StatefulSet", at, faults);
}

/// The spec with the template as its Pods will have it: a volume for each claim template, and no
/// `hostname` or `subdomain`, which the controller overwrites.
fn with_claims(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<Value> = items(&spec["volumeClaimTemplates"])
        .map(|(_, claim)| claim["metadata"]["name"].clone())
        .collect();
    let Some(pod) = spec.pointer_mut("/template/spec") else {
        return spec;
    };
    blank(pod, "hostname");
    blank(pod, "subdomain");
    if claims.is_empty() {
        return spec;
    }
    let names: BTreeSet<&str> = claims
        .iter()
        .map(|name| name.as_str().unwrap_or_default())
        .collect();
    let own = items(&pod["volumes"]).map(|(_, volume)| volume);
    let own = own.filter(|volume| !names.contains(text(volume, "name")));
    let claimed = claims.iter().map(|name| {
        json!({"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": false}})
    });
    let volumes: Vec<Value> = claimed.chain(own.cloned()).collect();
    pod["volumes"] = volumes.into();
    spec
}

pub(super) fn daemon_set(spec: &Value, at: &Path<'_>, faults: &mut Faults) {
    selected(spec, "daemonset", at, faults);
    template(spec, "DaemonSet", at, faults);
    non_negative(spec, "minReadySeconds", at, faults);
    let strategy = text(&spec["updateStrategy"], "type");
    let known = ["RollingUpdate", "OnDelete"];
    if !known.contains(&strategy) {
        let found = json!({ "Type": strategy, "RollingUpdate": null });
        faults.push(FieldError::not_supported(
            at.child("updateStrategy"),
            found,
            &known,
        ));
    }
    non_negative(spec, "revisionHistoryLimit", at, faults);
}

pub(super) fn job(spec: &Value, at: &Path<'_>, own: bool, faults: &mut Faults) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        non_negative(spec, name, at, faults);
    }
    one_of(
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
        at,
        faults,
    );
    let here = at.child("template");
    let below = here.child("spec");
    let carried = &spec["template"]["metadata"]["labels"];
    if own && spec["selector"].is_object() && !selects(&spec["selector"], carried) {
        let why = "`selector` does not match template `labels`";
        let metadata = here.child("metadata");
        faults.push(FieldError::invalid(
            metadata.child("labels"),
            carried.clone(),
            why,
        ));
    }
    pods::template(&spec["template"], &here, faults);
    match text(&spec["template"]["spec"], "restartPolicy") {
        "" | "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            faults.push(FieldError::required(below.child("restartPolicy"), why));
        }
        _ => {}
    }
}

pub(super) fn cron_job(spec: &Value, at: &Path<'_>, faults: &mut Faults) {
    if require(spec, "schedule", at, faults)
        && let Some(why) = unscheduled(text(spec, "schedule"))
    {
        let schedule = text(spec, "schedule");
        faults.push(FieldError::invalid(at.child("schedule"), schedule, why));
    }
    non_negative(spec, "startingDeadlineSeconds", at, faults);
    one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        at,
        faults,
    );
    non_negative(spec, "successfulJobsHistoryLimit", at, faults);
    non_negative(spec, "failedJobsHistoryLimit", at, faults);
    let here = at.child("jobTemplate");
    let metadata = here.child("metadata");
    labels(
        &spec["jobTemplate"]["metadata"]["labels"],
        &metadata.child("labels"),
        faults,
    );
    job(
        &spec["jobTemplate"]["spec"],
        &here.child("spec"),
        false,
        faults,
    );
}

/// What keeps a text from being a schedule.
fn unscheduled(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".into());
    }
    if let Some(word) = schedule.strip_prefix('@') {
        let known = [
            "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
        ];
        let fine = known.contains(&word) || word.starts_with("every ");
        return (!fine).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let shown = fields.join(" ");
        return Some(format!(
            "expected exactly 5 fields, found {}: [{shown}]",
            fields.len()
        ));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    fields
        .iter()
        .zip(bounds)
        .find_map(|(field, (low, high))| out_of(field, low, high))
}

/// What is wrong with one field of a schedule.
fn out_of(field: &str, low: u32, high: u32) -> Option<String> {
    for part in field.split(',') {
        let (range, step) = part
            .split_once('/')
            .map_or((part, None), |(r, s)| (r, Some(s)));
        if let Some(step) = step {
            match step.parse::<u32>() {
                Ok(0) => return Some(format!("step of range should be a positive number: {part}")),
                Ok(_) => {}
                Err(_) => return Some(format!("failed to parse int from {step}")),
            }
        }
        if range == "*" || range == "?" {
            continue;
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for bound in [first, last] {
            // Months and days have names.
            if bound.len() == 3 && bound.chars().all(|c| c.is_ascii_alphabetic()) {
                continue;
            }
            match bound.parse::<u32>() {
                Err(_) => return Some(format!("failed to parse int from {bound}")),
                Ok(n) if n < low => {
                    return Some(format!(
                        "beginning of range ({n}) below minimum ({low}): {part}"
                    ));
                }
                Ok(n) if n > high => {
                    return Some(format!("end of range ({n}) above maximum ({high}): {part}"));
                }
                Ok(_) => {}
            }
        }
    }
    None
}

/// The counts of a workload's status.
pub(super) fn status(group: &str, kind: &str, status: &Value, faults: &mut Faults) {
    let counts: &[&str] = match (group, kind) {
        ("apps", "Deployment") => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        }
        ("apps", "StatefulSet") => &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        _ => return,
    };
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let mut fault = |field: &str, why: &str| {
        faults.push(FieldError::invalid(
            format!("status.{field}"),
            number(field),
            why,
        ));
    };
    for field in std::iter::once(&"replicas").chain(counts) {
        if number(field) < 0 {
            fault(field, NON_NEGATIVE);
        }
    }
    for field in counts {
        if number(field) > number("replicas") {
            fault(field, "cannot be greater than status.replicas");
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        fault("availableReplicas", "cannot be greater than readyReplicas");
    }
}
