//! Validation of built-in kinds beyond their schemas.
//!
//! kube-apiserver has thousands of lines of these rules. This module has those that controller
//! tests and mistyped manifests run into: required fields, names and ranges, selectors that must
//! match their own template, immutable fields. Messages are upstream's.

mod autoscalers;
mod events;
mod kinds;
mod pod_changes;
mod pods;
pub(crate) mod services;
mod workloads;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::builtin::TypeRef;
use super::field::{FieldError, Path};
use crate::meta::names::{NameRule, label_value, qualified_name};

const NON_NEGATIVE: &str = "must be greater than or equal to 0";
const PORTS: &str = "must be between 1 and 65535, inclusive";
const IMMUTABLE: &str = "field is immutable";

type Errors = Vec<FieldError>;

/// Validates a new object. It has been decoded, defaulted and prepared.
pub(crate) fn create(object: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some((group, _, kind)) = ty.get().kind else {
        return errors;
    };
    check(group, kind, object, &mut errors);
    match (group, kind) {
        ("", "Pod") => pods::fresh(&object["spec"], &mut errors),
        ("events.k8s.io", "Event") => events::strict(object, &mut errors),
        _ => {}
    }
    errors
}

/// Validates an object that replaces `old`.
pub(crate) fn update(object: &Value, old: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some((group, _, kind)) = ty.get().kind else {
        return errors;
    };
    if (group, kind) == ("", "Pod") {
        pod_changes::change(object, old, &mut errors);
    } else {
        check(group, kind, object, &mut errors);
        kinds::change(group, kind, object, old, &mut errors);
        if (group, kind) == ("events.k8s.io", "Event") {
            events::change(object, old, &mut errors);
        }
    }
    errors
}

/// Validates a status update.
pub(crate) fn status(object: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some((group, _, kind)) = ty.get().kind {
        let status = &object["status"];
        workloads::status(group, kind, status, &mut errors);
        if (group, kind) == ("autoscaling", "HorizontalPodAutoscaler") {
            for name in ["currentReplicas", "desiredReplicas"] {
                non_negative(status, name, &Path::At("status"), &mut errors);
            }
        }
    }
    errors
}

fn check(group: &str, kind: &str, object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let at = Path::At("spec");
    match (group, kind) {
        ("", "Pod") => pods::spec(spec, &at, errors),
        ("", "PodTemplate") => pods::template(&object["template"], &Path::At("template"), errors),
        ("apps", "Deployment") => workloads::deployment(spec, &at, errors),
        ("apps", "ReplicaSet") => workloads::replica_set(spec, &at, errors),
        ("apps", "StatefulSet") => workloads::stateful_set(spec, &at, errors),
        ("apps", "DaemonSet") => workloads::daemon_set(spec, &at, errors),
        ("batch", "Job") => workloads::job(spec, &at, true, errors),
        ("batch", "CronJob") => workloads::cron_job(spec, &at, errors),
        _ => kinds::check(group, kind, object, errors),
    }
}

/// Iterates over the items of a list with their indices.
fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// Iterates over the entries of a map.
fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Removes a field, to compare the rest.
fn blank(value: &mut Value, name: &str) {
    if let Value::Object(map) = value {
        map.remove(name);
    }
}

/// Reports a missing or empty field. Returns true if the field is set.
fn require(value: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) -> bool {
    let missing = absent(&value[name]);
    if missing {
        errors.push(FieldError::required(at.child(name), ""));
    }
    !missing
}

/// Reports a negative number.
fn non_negative(value: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = value[name].as_i64().filter(|n| *n < 0) {
        errors.push(FieldError::invalid(at.child(name), n, NON_NEGATIVE));
    }
}

fn one_of(value: &Value, name: &str, known: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let found = text(value, name);
    if !found.is_empty() && !known.contains(&found) {
        errors.push(FieldError::not_supported(at.child(name), found, known));
    }
}

fn port(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Number(n) if !n.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) => {
            errors.push(FieldError::invalid(at, value.clone(), PORTS));
        }
        Value::String(name) => {
            for why in port_name(name) {
                errors.push(FieldError::invalid(at, name.as_str(), why));
            }
        }
        _ => {}
    }
}

/// Returns why a string is not a port name.
fn port_name(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(legal) {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    // Report only the first problem, as upstream does.
    problems.truncate(1);
    problems
}

fn dns_label(name: &str, at: &Path<'_>, errors: &mut Errors) {
    for why in NameRule::Label.problems(name, false) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

fn subdomain(name: &str, at: &Path<'_>, errors: &mut Errors) {
    for why in NameRule::Subdomain.problems(name, false) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

/// Validates label keys and values.
fn labels(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (name, value) in entries(value) {
        for why in qualified_name(name) {
            errors.push(FieldError::invalid(at, name.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in label_value(value) {
            errors.push(FieldError::invalid(at, value, why));
        }
    }
}

/// Returns true if a selector matches the labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = entries(&selector["matchLabels"]).all(|(name, value)| &labels[name] == value);
    exact
        && items(&selector["matchExpressions"]).all(|(_, one)| {
            let value = &labels[text(one, "key")];
            let among = items(&one["values"]).any(|(_, known)| known == value);
            match text(one, "operator") {
                "In" => !value.is_null() && among,
                "NotIn" => value.is_null() || !among,
                "Exists" => !value.is_null(),
                _ => value.is_null(),
            }
        })
}
