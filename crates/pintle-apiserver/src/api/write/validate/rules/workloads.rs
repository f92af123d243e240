//! Validation of workloads: `Deployment`, `ReplicaSet`, `StatefulSet`, `DaemonSet`, `Job` and
//! `CronJob`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Errors, NON_NEGATIVE, absent, blank, entries, items, labels, non_negative, one_of, pods,
    require, selects, text,
};
use crate::meta::names::{label_value, qualified_name};
use crate::schema::field::{FieldError, Path};

/// Validates a selector, and that it matches the labels of its own template.
fn selected(spec: &Value, kind: &str, at: &Path<'_>, errors: &mut Errors) {
    let selector = &spec["selector"];
    let here = at.child("selector");
    if selector.is_null() {
        errors.push(FieldError::required(here, ""));
    } else if absent(&selector["matchLabels"]) && absent(&selector["matchExpressions"]) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid(here, selector.clone(), why));
    } else {
        let before = errors.len();
        let list = here.child("matchLabels");
        for (name, value) in entries(&selector["matchLabels"]) {
            for why in qualified_name(name) {
                errors.push(FieldError::invalid(list, name.as_str(), why));
            }
            let value = value.as_str().unwrap_or_default();
            for why in label_value(value) {
                let here = list.key(name);
                errors.push(FieldError::invalid(here, value, why));
            }
        }
        if errors.len() > before {
            errors.push(FieldError::invalid(
                here,
                selector.clone(),
                "invalid label selector",
            ));
            // An invalid selector cannot be matched against the template.
            return template(spec, "", at, errors);
        }
    }
    let carried = &spec["template"]["metadata"]["labels"];
    let empty = absent(&selector["matchLabels"]) && absent(&selector["matchExpressions"]);
    if (selector.is_null() || !empty) && (selector.is_null() || !selects(selector, carried)) {
        let why = "`selector` does not match template `labels`";
        let metadata = at.child("template");
        let metadata = metadata.child("metadata");
        errors.push(FieldError::invalid(
            metadata.child("labels"),
            carried.clone(),
            why,
        ));
    }
}

/// Validates the template of a workload whose Pods must always restart.
fn template(spec: &Value, of: &str, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("template");
    pods::template(&spec["template"], &here, errors);
    let pod = &spec["template"]["spec"];
    let below = here.child("spec");
    let policy = text(pod, "restartPolicy");
    let known = ["OnFailure", "Never"].contains(&policy);
    if known {
        errors.push(FieldError::not_supported(
            below.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if !of.is_empty() && !pod["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {of} is not Supported");
        errors.push(FieldError::forbidden(
            below.child("activeDeadlineSeconds"),
            why,
        ));
    }
}

/// Validates a number or a percentage.
fn part(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(at, value.clone(), NON_NEGATIVE));
        }
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit())) {
                let why = "a valid percent string must be a numeric string followed by an ending \
                           '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(at, text.as_str(), why));
            }
        }
        _ => {}
    }
}

fn at_most_all(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
    // A number too large to parse is also above 100.
    let exceeds = |percent: &str| {
        let is_number = !percent.is_empty() && percent.bytes().all(|b| b.is_ascii_digit());
        is_number && percent.parse::<u64>().map_or(true, |percent| percent > 100)
    };
    if percent.is_some_and(exceeds) {
        errors.push(FieldError::invalid(
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

pub(super) fn deployment(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    non_negative(spec, "replicas", at, errors);
    selected(spec, "deployment", at, errors);
    template(spec, "ReplicaSet", at, errors);
    let here = at.child("strategy");
    let strategy = &spec["strategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(here.child("rollingUpdate"), why));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let below = here.child("rollingUpdate");
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            part(unavailable, &below.child("maxUnavailable"), errors);
            part(surge, &below.child("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                let here = below.child("maxUnavailable");
                errors.push(FieldError::invalid(here, unavailable.clone(), why));
            }
            at_most_all(unavailable, &below.child("maxUnavailable"), errors);
        }
        other => {
            let found = json!({ "Type": other, "RollingUpdate": null });
            errors.push(FieldError::not_supported(
                here,
                found,
                &["Recreate", "RollingUpdate"],
            ));
        }
    }
    non_negative(spec, "minReadySeconds", at, errors);
    non_negative(spec, "revisionHistoryLimit", at, errors);
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64() {
        let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
        if deadline <= ready {
            let why = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid(
                at.child("progressDeadlineSeconds"),
                deadline,
                why,
            ));
        }
    }
}

pub(super) fn replica_set(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    non_negative(spec, "replicas", at, errors);
    non_negative(spec, "minReadySeconds", at, errors);
    selected(spec, "replica set", at, errors);
    template(spec, "ReplicaSet", at, errors);
}

pub(super) fn stateful_set(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(
            at.child("podManagementPolicy"),
            policy,
            why,
        ));
    }
    let strategy = text(&spec["updateStrategy"], "type");
    if !["RollingUpdate", "OnDelete"].contains(&strategy) {
        let found = json!({ "Type": strategy, "RollingUpdate": null });
        let why = "must be 'RollingUpdate' or 'OnDelete'";
        errors.push(FieldError::invalid(at.child("updateStrategy"), found, why));
    }
    non_negative(spec, "replicas", at, errors);
    non_negative(spec, "minReadySeconds", at, errors);
    let spec = &with_claims(spec);
    selected(spec, "statefulset", at, errors);
    template(spec, "StatefulSet", at, errors);
}

/// Returns the spec with the template as its Pods will have it: with a volume for each claim
/// template, and without `hostname` and `subdomain`, which the controller overwrites.
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

pub(super) fn daemon_set(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    selected(spec, "daemonset", at, errors);
    template(spec, "DaemonSet", at, errors);
    non_negative(spec, "minReadySeconds", at, errors);
    let here = at.child("updateStrategy");
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let below = here.child("rollingUpdate");
            daemon_set_limits(&strategy["rollingUpdate"], &below, errors);
        }
        other => {
            let found = json!({ "Type": other, "RollingUpdate": null });
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(here, found, &known));
        }
    }
    non_negative(spec, "revisionHistoryLimit", at, errors);
}

/// Validates the limits of a rolling update: exactly one of them must be non-zero.
fn daemon_set_limits(rolling: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let (unavailable_at, surge_at) = (at.child("maxUnavailable"), at.child("maxSurge"));
    part(unavailable, &unavailable_at, errors);
    part(surge, &surge_at, errors);
    at_most_all(unavailable, &unavailable_at, errors);
    at_most_all(surge, &surge_at, errors);
    match (is_zero(unavailable), is_zero(surge)) {
        (false, false) => {
            let why = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(surge_at, surge.clone(), why));
        }
        (true, true) => {
            let why = "cannot be 0 when maxSurge is 0";
            errors.push(FieldError::required(unavailable_at, why));
        }
        _ => {}
    }
}

pub(super) fn job(spec: &Value, at: &Path<'_>, own: bool, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        non_negative(spec, name, at, errors);
    }
    one_of(
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
        at,
        errors,
    );
    let here = at.child("template");
    let below = here.child("spec");
    let carried = &spec["template"]["metadata"]["labels"];
    if own && spec["selector"].is_object() && !selects(&spec["selector"], carried) {
        let why = "`selector` does not match template `labels`";
        let metadata = here.child("metadata");
        errors.push(FieldError::invalid(
            metadata.child("labels"),
            carried.clone(),
            why,
        ));
    }
    pods::template(&spec["template"], &here, errors);
    match text(&spec["template"]["spec"], "restartPolicy") {
        "" | "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(below.child("restartPolicy"), why));
        }
        _ => {}
    }
}

pub(super) fn cron_job(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if require(spec, "schedule", at, errors)
        && let Some(why) = schedule_error(text(spec, "schedule"))
    {
        let schedule = text(spec, "schedule");
        errors.push(FieldError::invalid(at.child("schedule"), schedule, why));
    }
    non_negative(spec, "startingDeadlineSeconds", at, errors);
    one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        at,
        errors,
    );
    non_negative(spec, "successfulJobsHistoryLimit", at, errors);
    non_negative(spec, "failedJobsHistoryLimit", at, errors);
    let here = at.child("jobTemplate");
    let metadata = here.child("metadata");
    labels(
        &spec["jobTemplate"]["metadata"]["labels"],
        &metadata.child("labels"),
        errors,
    );
    job(
        &spec["jobTemplate"]["spec"],
        &here.child("spec"),
        false,
        errors,
    );
}

/// Returns why a string is not a cron schedule.
fn schedule_error(schedule: &str) -> Option<String> {
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
        .find_map(|(field, (low, high))| schedule_field_error(field, low, high))
}

/// Returns why a string is not a valid field of a schedule.
fn schedule_field_error(field: &str, low: u32, high: u32) -> Option<String> {
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
            // Names of months and weekdays.
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

/// The replica counts in the status of a Deployment, besides `replicas`.
pub(super) const DEPLOYMENT: &[&str] = &["updatedReplicas", "readyReplicas", "availableReplicas"];
/// The replica counts of a `ReplicaSet` or `ReplicationController`.
pub(super) const REPLICA_SET: &[&str] =
    &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
/// The replica counts of a StatefulSet.
pub(super) const STATEFUL_SET: &[&str] = &[
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
];

/// Validates the replica counts in a status.
pub(super) fn status(counts: &[&str], object: &Value, errors: &mut Errors) {
    let status = &object["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let mut error = |field: &str, why: &str| {
        errors.push(FieldError::invalid(
            format!("status.{field}"),
            number(field),
            why,
        ));
    };
    for field in std::iter::once(&"replicas").chain(counts) {
        if number(field) < 0 {
            error(field, NON_NEGATIVE);
        }
    }
    for field in counts {
        if number(field) > number("replicas") {
            error(field, "cannot be greater than status.replicas");
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        error("availableReplicas", "cannot be greater than readyReplicas");
    }
}
