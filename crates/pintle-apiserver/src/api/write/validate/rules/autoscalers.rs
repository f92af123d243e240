//! Validation of `HorizontalPodAutoscaler` in `autoscaling/v2`.

use serde_json::Value;

use super::{Errors, NON_NEGATIVE, dns_label, items, pods, require, text};
use crate::meta::names::NameRule;
use crate::schema::field::{FieldError, Path};

/// The maximum stabilization window, in seconds.
const MAX_WINDOW: i64 = 3600;

/// The maximum period of a scaling policy, in seconds.
const MAX_PERIOD: i64 = 1800;

/// Metric source types and the field that describes each.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The order in which sources are validated. If there are several, only the first is.
const SOURCE_ORDER: [&str; 5] = [
    "object",
    "external",
    "pods",
    "resource",
    "containerResource",
];

pub(super) fn autoscaler(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let least = spec["minReplicas"].as_i64().unwrap_or(1);
    let most = spec["maxReplicas"].as_i64().unwrap_or_default();
    let at_least_one = "must be greater than or equal to 1";
    if least < 1 {
        let here = at.child("minReplicas");
        errors.push(FieldError::invalid(here, least, at_least_one));
    }
    let here = at.child("maxReplicas");
    match most {
        0 => {
            let why = "must be set and greater than 0";
            errors.push(FieldError::required(here, why));
        }
        ..0 => errors.push(FieldError::invalid(here, most, at_least_one)),
        _ => {}
    }
    if most < least {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(here, most, why));
    }
    let target = &spec["scaleTargetRef"];
    // The only scalable kind in the core group.
    let core = text(target, "kind") == "ReplicationController";
    reference(target, core, &at.child("scaleTargetRef"), errors);
    let list = at.child("metrics");
    for (i, one) in items(&spec["metrics"]) {
        metric(one, &list.index(i), errors);
    }
    let sources = items(&spec["metrics"]).map(|(_, one)| text(one, "type"));
    if least == 0
        && !sources
            .into_iter()
            .any(|s| matches!(s, "Object" | "External"))
    {
        let why = "must specify at least one Object or External metric to support scaling to \
                   zero replicas";
        errors.push(FieldError::forbidden(list, why));
    }
    let here = at.child("behavior");
    for way in ["scaleUp", "scaleDown"] {
        rules(&spec["behavior"][way], &here.child(way), errors);
    }
}

/// Validates a cross-version object reference. The core group is allowed only if `core` is set.
fn reference(target: &Value, core: bool, at: &Path<'_>, errors: &mut Errors) {
    for name in ["kind", "name"] {
        if require(target, name, at, errors) {
            segment(text(target, name), &at.child(name), errors);
        }
    }
    let version = text(target, "apiVersion");
    let why = match version.matches('/').count() {
        0 if core => return,
        1 if core || !version.starts_with('/') => return,
        0 | 1 => "apiVersion must specify API group".to_owned(),
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.push(FieldError::invalid(at.child("apiVersion"), version, why));
}

/// Validates a name that is used as a path segment.
fn segment(name: &str, at: &Path<'_>, errors: &mut Errors) {
    for why in NameRule::PathSegment.problems(name, false) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

/// Validates the scaling rules of one direction. They have been defaulted, so a missing field was
/// removed explicitly.
fn rules(rules: &Value, at: &Path<'_>, errors: &mut Errors) {
    if rules.is_null() {
        return;
    }
    if let Some(seconds) = rules["stabilizationWindowSeconds"].as_i64() {
        let here = at.child("stabilizationWindowSeconds");
        between(
            seconds,
            seconds < 0,
            "or equal to zero",
            MAX_WINDOW,
            &here,
            errors,
        );
    }
    if let Some(choice) = rules["selectPolicy"].as_str() {
        known(
            choice,
            &["Disabled", "Max", "Min"],
            &at.child("selectPolicy"),
            errors,
        );
    }
    let list = at.child("policies");
    if items(&rules["policies"]).next().is_none() {
        let why = "must specify at least one Policy";
        errors.push(FieldError::required(list, why));
    }
    for (i, policy) in items(&rules["policies"]) {
        let here = list.index(i);
        known(
            text(policy, "type"),
            &["Percent", "Pods"],
            &here.child("type"),
            errors,
        );
        let value = policy["value"].as_i64().unwrap_or_default();
        between(
            value,
            value <= 0,
            "zero",
            i64::MAX,
            &here.child("value"),
            errors,
        );
        let period = policy["periodSeconds"].as_i64().unwrap_or_default();
        let here = here.child("periodSeconds");
        between(period, period <= 0, "zero", MAX_PERIOD, &here, errors);
    }
    let tolerance = text(rules, "tolerance");
    if tolerance.starts_with('-') {
        errors.push(FieldError::invalid(
            at.child("tolerance"),
            tolerance,
            NON_NEGATIVE,
        ));
    }
}

/// Reports a number that is too small (`least` words the bound) or greater than `most`.
fn between(n: i64, small: bool, least: &str, most: i64, at: &Path<'_>, errors: &mut Errors) {
    if small {
        let why = format!("must be greater than {least}");
        errors.push(FieldError::invalid(at, n, why));
    }
    if n > most {
        let why = format!("must be less than or equal to {most}");
        errors.push(FieldError::invalid(at, n, why));
    }
}

/// Validates an enum. Unlike [`super::one_of`], the empty string is invalid.
fn known(word: &str, words: &[&str], at: &Path<'_>, errors: &mut Errors) {
    if !words.contains(&word) {
        errors.push(FieldError::not_supported(at, word, words));
    }
}

fn metric(metric: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    let here = at.child("type");
    if kind.is_empty() {
        let why = "must specify a metric source type";
        errors.push(FieldError::required(here, why));
    }
    let types = SOURCES.map(|(kind, _)| kind);
    known(kind, &types, &here, errors);
    let is_there = |name: &&&str| metric[**name].is_object();
    if let Some(first) = SOURCE_ORDER.iter().find(is_there) {
        source(first, &metric[*first], &at.child(first), errors);
    }
    let expected = SOURCES.iter().find(|(known, _)| *known == kind);
    match expected {
        Some((_, name)) if metric[*name].is_null() => {
            let why = "must populate information for the given metric source";
            errors.push(FieldError::required(at.child(name), why));
        }
        Some(_) => {}
        // Upstream reports this twice.
        None => known(kind, &types, &here, errors),
    }
    if SOURCE_ORDER.iter().filter(is_there).count() > 1 {
        let others = SOURCE_ORDER.iter().filter(is_there);
        for name in others.filter(|name| expected.is_none_or(|(_, own)| *name != own)) {
            let why = "must populate the given metric source only";
            errors.push(FieldError::forbidden(at.child(name), why));
        }
    }
}

/// Validates a metric source and its target.
fn source(name: &str, source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let aim = &source["target"];
    let has = |name: &str| !aim[name].is_null();
    match name {
        "object" => {
            let here = at.child("describedObject");
            reference(&source["describedObject"], true, &here, errors);
        }
        "containerResource" | "resource" => {
            resource(name, source, at, errors);
        }
        _ => {}
    }
    if matches!(name, "object" | "external" | "pods") {
        let here = at.child("metric");
        let metric = text(&source["metric"], "name");
        if metric.is_empty() {
            let why = "must specify a metric name";
            errors.push(FieldError::required(here.child("name"), why));
        } else {
            segment(metric, &here.child("name"), errors);
        }
    }
    let here = at.child("target");
    target(aim, &here, errors);
    let (field, why) = match name {
        "object" => ("value", "must set either a target value or averageValue"),
        "external" => (
            "value",
            "must set either a target value for metric or a per-pod target",
        ),
        "pods" => (
            "averageValue",
            "must specify a positive target averageValue",
        ),
        _ => (
            "averageUtilization",
            "must set either a target raw value or a target utilization",
        ),
    };
    if !has(field) && !has("averageValue") {
        let missing = if field == "value" {
            "averageValue"
        } else {
            field
        };
        errors.push(FieldError::required(here.child(missing), why));
    }
    let (field, why) = match name {
        "external" if has("value") => (
            "value",
            "may not set both a target value for metric and a per-pod target",
        ),
        "resource" | "containerResource" if has("averageUtilization") => (
            "averageValue",
            "may not set both a target raw value and a target utilization",
        ),
        _ => return,
    };
    if has("averageValue") {
        errors.push(FieldError::forbidden(here.child(field), why));
    }
}

fn resource(kind: &str, source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let name = text(source, "name");
    let of_container = kind == "containerResource";
    if name.is_empty() {
        let why = "must specify a resource name";
        errors.push(FieldError::required(at.child("name"), why));
    } else if of_container {
        pods::resource_name(name, &at.child("name"), errors);
    }
    let container = text(source, "container");
    if of_container && container.is_empty() {
        let why = "must specify a container";
        errors.push(FieldError::required(at.child("container"), why));
    } else if of_container {
        dns_label(container, &at.child("container"), errors);
    }
}

fn target(target: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kind = text(target, "type");
    if kind.is_empty() {
        let why = "must specify a metric target type";
        errors.push(FieldError::required(at.child("type"), why));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(at.child("type"), kind, why));
    }
    for name in ["value", "averageValue"] {
        let amount = text(target, name);
        if amount == "0" || amount.starts_with('-') {
            errors.push(FieldError::invalid(
                at.child(name),
                amount,
                "must be positive",
            ));
        }
    }
    if let Some(percent) = target["averageUtilization"].as_i64().filter(|n| *n < 1) {
        let here = at.child("averageUtilization");
        errors.push(FieldError::invalid(here, percent, "must be greater than 0"));
    }
}
