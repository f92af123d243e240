//! Validation of quotas and limit ranges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Errors, IMMUTABLE, NON_NEGATIVE, absent, entries, items, text};
use crate::schema::{
    field::{FieldError, Path},
    typed::quantity::Amount,
};

/// The limits that a quota may set without naming a group.
const LIMITS: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// The limits that count objects, which have no fractions.
const COUNTS: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// The scopes of Pods, for which only `Exists` makes sense.
const PLAIN_SCOPES: [&str; 5] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "Terminating",
];

/// The limits that a scope of Pods can be combined with, besides `pods`.
const COMPUTE: [&str; 9] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

fn is_standard(name: &str) -> bool {
    LIMITS.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Validates a map of limits or of usage.
pub(super) fn amounts(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (name, amount) in entries(list) {
        let here = at.key(name);
        let amount = amount.as_str().unwrap_or_default();
        if !name.contains('/') && !is_standard(name) {
            let why = "must be a standard resource for quota";
            errors.push(FieldError::invalid(here, name.as_str(), why));
            let why = "must be a standard resource type or fully qualified";
            errors.push(FieldError::invalid(here, name.as_str(), why));
        }
        if amount.starts_with('-') {
            errors.push(FieldError::invalid(here, amount, NON_NEGATIVE));
        }
        let whole = Amount::parse(amount).is_none_or(|amount| amount == amount.rounded_up());
        if COUNTS.contains(&name.as_str()) && !whole {
            errors.push(FieldError::invalid(here, amount, "must be an integer"));
        }
    }
}

pub(super) fn quota(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    amounts(&spec["hard"], &at.child("hard"), errors);
    let scopes: Vec<&str> = items(&spec["scopes"])
        .filter_map(|(_, scope)| scope.as_str())
        .collect();
    let here = at.child("scopes");
    let mut refuse = |why: &str| {
        errors.push(FieldError::invalid(here, spec["scopes"].clone(), why));
    };
    for scope in &scopes {
        if !is_scope(scope) {
            refuse("unsupported scope");
        }
        for (name, _) in entries(&spec["hard"]) {
            if is_standard(name) && !combines(scope, name) {
                refuse("unsupported scope applied to resource");
            }
        }
    }
    let all: BTreeSet<&str> = scopes.into_iter().collect();
    for pair in CONFLICTS {
        if pair.iter().all(|scope| all.contains(scope)) {
            refuse("conflicting scopes");
        }
    }
    selector(spec, at, errors);
}

fn selector(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("scopeSelector");
    let here = here.child("matchExpressions");
    for (_, one) in items(&spec["scopeSelector"]["matchExpressions"]) {
        let (scope, operator) = (text(one, "scopeName"), text(one, "operator"));
        if !is_scope(scope) {
            let name = here.child("scopeName");
            errors.push(FieldError::invalid(name, scope, "unsupported scope"));
        }
        for (name, _) in entries(&spec["hard"]) {
            if is_standard(name) && !combines(scope, name) {
                let why = "unsupported scope applied to resource";
                errors.push(FieldError::invalid(
                    here,
                    spec["scopeSelector"].clone(),
                    why,
                ));
            }
        }
        if PLAIN_SCOPES.contains(&scope) && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                       ResourceQuotaScopeNotBestEffort or \
                       ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(here.child("operator"), operator, why));
        }
        let values = here.child("values");
        match operator {
            "In" | "NotIn" if absent(&one["values"]) => errors.push(FieldError::required(
                values,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !absent(&one["values"]) => {
                errors.push(FieldError::invalid(
                    values,
                    one["values"].clone(),
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                ));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                here.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
    }
}

fn is_scope(scope: &str) -> bool {
    PLAIN_SCOPES.contains(&scope) || matches!(scope, "PriorityClass" | "VolumeAttributesClass")
}

/// Returns true if a scope can be combined with a limit.
fn combines(scope: &str, limit: &str) -> bool {
    match scope {
        "BestEffort" => limit == "pods",
        "VolumeAttributesClass" => matches!(limit, "persistentvolumeclaims" | "requests.storage"),
        _ => limit == "pods" || COMPUTE.contains(&limit),
    }
}

pub(super) fn quota_change(new: &Value, old: &Value, errors: &mut Errors) {
    let scopes = |quota: &Value| -> BTreeSet<String> {
        let scopes = items(&quota["spec"]["scopes"]);
        scopes.map(|(_, scope)| scope.to_string()).collect()
    };
    if scopes(new) != scopes(old) {
        let found = new["spec"]["scopes"].clone();
        errors.push(FieldError::invalid("spec.scopes", found, IMMUTABLE));
    }
}

pub(super) fn limit_range(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child("limits");
    let mut seen = BTreeSet::new();
    for (i, limit) in items(&spec["limits"]) {
        let here = list.index(i);
        let kind = text(limit, "type");
        if !kind.contains('/') && !matches!(kind, "Container" | "PersistentVolumeClaim" | "Pod") {
            let why = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(here.child("type"), kind, why));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(here.child("type"), kind));
        }
        if kind == "Pod" {
            for name in ["default", "defaultRequest"] {
                if !absent(&limit[name]) {
                    let why = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(here.child(name), why));
                }
            }
        }
        let storage = |name: &str| !limit[name]["storage"].is_null();
        if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
            let why =
                "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(here.child("limits"), why));
        }
        order(limit, &here, errors);
    }
}

/// Checks that minimum, default request, default and maximum are in this order.
fn order(limit: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = |name: &str| -> BTreeMap<&str, Amount> {
        let amounts = entries(&limit[name]);
        let amounts = amounts
            .filter_map(|(name, amount)| Some((name.as_str(), Amount::parse(amount.as_str()?)?)));
        amounts.collect()
    };
    let names = [
        "min",
        "max",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ];
    let [min, max, default, request, ratio] = names.map(list);
    let all = [&min, &max, &default, &request, &ratio];
    let keys: BTreeSet<&str> = all.iter().flat_map(|list| list.keys().copied()).collect();
    let one = Amount::of(1);
    for key in keys {
        let mut check = |less: Option<&Amount>,
                         more: Option<&Amount>,
                         field: &str,
                         shown: usize,
                         words: [&str; 2]| {
            if let (Some(less), Some(more)) = (less, more)
                && less > more
            {
                let [first, second] = words;
                let why = format!("{first} value {less} is greater than {second} value {more}");
                let shown = [less, more][shown].to_string();
                errors.push(FieldError::invalid(at.child(field).key(key), shown, why));
            }
        };
        let (low, high) = (min.get(key), max.get(key));
        let (usual, asked) = (default.get(key), request.get(key));
        check(low, high, "min", 0, ["min", "max"]);
        check(low, asked, "defaultRequest", 1, ["min", "default request"]);
        check(asked, high, "defaultRequest", 0, ["default request", "max"]);
        check(
            asked,
            usual,
            "defaultRequest",
            0,
            ["default request", "default limit"],
        );
        check(low, usual, "default", 0, ["min", "default"]);
        check(usual, high, "default", 1, ["default", "max"]);
        if let Some(ratio) = ratio.get(key).filter(|ratio| **ratio < one) {
            let here = at.child("maxLimitRequestRatio");
            let why = format!("ratio {ratio} is less than 1");
            errors.push(FieldError::invalid(here.key(key), ratio.to_string(), why));
        }
    }
}
