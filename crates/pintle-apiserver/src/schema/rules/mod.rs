//! Rules of built-in kinds that no schema tells: a short list of those people meet.
//!
//! A kube-apiserver has thousands of lines of them. Here are the ones a controller's tests or a
//! mistyped manifest run into: what is required, which names and numbers are legal, that a
//! selector selects its own pods, what may not change. They are told in the words of the original.

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

type Faults = Vec<FieldError>;

/// What is wrong with an object that is to be created. It has been read, defaulted and prepared.
pub(crate) fn create(object: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let Some((group, _, kind)) = ty.get().kind else {
        return faults;
    };
    check(group, kind, object, &mut faults);
    match (group, kind) {
        ("", "Pod") => pods::fresh(&object["spec"], &mut faults),
        ("events.k8s.io", "Event") => events::strict(object, &mut faults),
        _ => {}
    }
    faults
}

/// What is wrong with an object that is to replace `old`.
pub(crate) fn update(object: &Value, old: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let Some((group, _, kind)) = ty.get().kind else {
        return faults;
    };
    if (group, kind) == ("", "Pod") {
        pod_changes::change(object, old, &mut faults);
    } else {
        check(group, kind, object, &mut faults);
        kinds::change(group, kind, object, old, &mut faults);
        if (group, kind) == ("events.k8s.io", "Event") {
            events::change(object, old, &mut faults);
        }
    }
    faults
}

/// What is wrong with a status that is to be stored.
pub(crate) fn status(object: &Value, ty: TypeRef) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if let Some((group, _, kind)) = ty.get().kind {
        let status = &object["status"];
        workloads::status(group, kind, status, &mut faults);
        if (group, kind) == ("autoscaling", "HorizontalPodAutoscaler") {
            for name in ["currentReplicas", "desiredReplicas"] {
                non_negative(status, name, &Path::At("status"), &mut faults);
            }
        }
    }
    faults
}

fn check(group: &str, kind: &str, object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    let at = Path::At("spec");
    match (group, kind) {
        ("", "Pod") => pods::spec(spec, &at, faults),
        ("", "PodTemplate") => pods::template(&object["template"], &Path::At("template"), faults),
        ("apps", "Deployment") => workloads::deployment(spec, &at, faults),
        ("apps", "ReplicaSet") => workloads::replica_set(spec, &at, faults),
        ("apps", "StatefulSet") => workloads::stateful_set(spec, &at, faults),
        ("apps", "DaemonSet") => workloads::daemon_set(spec, &at, faults),
        ("batch", "Job") => workloads::job(spec, &at, true, faults),
        ("batch", "CronJob") => workloads::cron_job(spec, &at, faults),
        _ => kinds::check(group, kind, object, faults),
    }
}

/// The items of a list, with their places.
fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// The entries of a map.
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

/// Takes a field out, to compare what is left.
fn blank(value: &mut Value, name: &str) {
    if let Value::Object(map) = value {
        map.remove(name);
    }
}

/// A field that must hold something.
fn require(value: &Value, name: &str, at: &Path<'_>, faults: &mut Faults) -> bool {
    let missing = absent(&value[name]);
    if missing {
        faults.push(FieldError::required(at.child(name), ""));
    }
    !missing
}

/// A number that may not be negative, if it is there.
fn non_negative(value: &Value, name: &str, at: &Path<'_>, faults: &mut Faults) {
    if let Some(n) = value[name].as_i64().filter(|n| *n < 0) {
        faults.push(FieldError::invalid(at.child(name), n, NON_NEGATIVE));
    }
}

fn one_of(value: &Value, name: &str, known: &[&str], at: &Path<'_>, faults: &mut Faults) {
    let found = text(value, name);
    if !found.is_empty() && !known.contains(&found) {
        faults.push(FieldError::not_supported(at.child(name), found, known));
    }
}

fn port(value: &Value, at: &Path<'_>, faults: &mut Faults) {
    match value {
        Value::Number(n) if !n.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) => {
            faults.push(FieldError::invalid(at, value.clone(), PORTS));
        }
        Value::String(name) => {
            for why in port_name(name) {
                faults.push(FieldError::invalid(at, name.as_str(), why));
            }
        }
        _ => {}
    }
}

/// What keeps a text from naming a port.
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
    // The first is the one that says it all for a name in capitals.
    problems.truncate(1);
    problems
}

fn dns_label(name: &str, at: &Path<'_>, faults: &mut Faults) {
    for why in NameRule::Label.problems(name, false) {
        faults.push(FieldError::invalid(at, name, why));
    }
}

fn subdomain(name: &str, at: &Path<'_>, faults: &mut Faults) {
    for why in NameRule::Subdomain.problems(name, false) {
        faults.push(FieldError::invalid(at, name, why));
    }
}

/// Labels, as objects carry and selectors name them.
fn labels(value: &Value, at: &Path<'_>, faults: &mut Faults) {
    for (name, value) in entries(value) {
        for why in qualified_name(name) {
            faults.push(FieldError::invalid(at, name.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in label_value(value) {
            faults.push(FieldError::invalid(at, value, why));
        }
    }
}

/// True if labels are what a selector selects.
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
