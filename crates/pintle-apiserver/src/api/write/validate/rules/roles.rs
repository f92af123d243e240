//! Validation of roles and bindings.

use serde_json::{Value, json};

use super::{Errors, absent, items, require, text, webhooks::selector as label_selector};
use crate::{
    meta::names::NameRule,
    schema::field::{FieldError, Path},
};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn role(rules: &Value, namespaced: bool, errors: &mut Errors) {
    let list = Path::At("rules");
    for (i, rule) in items(rules) {
        let at = list.index(i);
        let mut need = |name: &str, why: &str| {
            if absent(&rule[name]) {
                errors.push(FieldError::required(at.child(name), why));
            }
        };
        need("verbs", "verbs must contain at least one value");
        let urls = &rule["nonResourceURLs"];
        if absent(urls) {
            need(
                "apiGroups",
                "resource rules must supply at least one api group",
            );
            need(
                "resources",
                "resource rules must supply at least one resource",
            );
            continue;
        }
        let mut refuse = |why: &str| {
            let here = at.child("nonResourceURLs");
            errors.push(FieldError::invalid(here, urls.clone(), why));
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        let others = ["apiGroups", "resources", "resourceNames"];
        if others.iter().any(|name| !absent(&rule[*name])) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
    }
}

pub(super) fn cluster_role(object: &Value, errors: &mut Errors) {
    role(&object["rules"], false, errors);
    let aggregation = &object["aggregationRule"];
    if !aggregation.is_null() && absent(&aggregation["clusterRoleSelectors"]) {
        errors.push(FieldError::required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    let here = Path::At("aggregationRule");
    let here = here.child("clusterRoleSelectors");
    let selectors = aggregation["clusterRoleSelectors"].as_array();
    for (i, selector) in selectors.into_iter().flatten().enumerate() {
        label_selector(selector, &here.index(i), errors);
    }
}

pub(super) fn binding(object: &Value, namespaced: bool, errors: &mut Errors) {
    let here = Path::At("roleRef");
    let role = &object["roleRef"];
    supported(role, "apiGroup", &[GROUP], &here, errors);
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    supported(role, "kind", kinds, &here, errors);
    if require(role, "name", &here, errors) {
        name(role, NameRule::PathSegment, &here, errors);
    }
    let list = Path::At("subjects");
    for (i, one) in items(&object["subjects"]) {
        subject(one, namespaced, &list.index(i), errors);
    }
}

fn subject(subject: &Value, namespaced: bool, at: &Path<'_>, errors: &mut Errors) {
    let named = require(subject, "name", at, errors);
    match text(subject, "kind") {
        "ServiceAccount" => {
            if named {
                name(subject, NameRule::Subdomain, at, errors);
            }
            if !absent(&subject["apiGroup"]) {
                supported(subject, "apiGroup", &[""], at, errors);
            }
            if !namespaced && absent(&subject["namespace"]) {
                errors.push(FieldError::required(at.child("namespace"), ""));
            }
        }
        "User" | "Group" => supported(subject, "apiGroup", &[GROUP], at, errors),
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            supported(subject, "kind", &kinds, at, errors);
        }
    }
}

/// Reports a value that is not supported, including an empty one.
fn supported(value: &Value, name: &str, known: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let found = text(value, name);
    if !known.contains(&found) {
        errors.push(FieldError::not_supported(at.child(name), found, known));
    }
}

fn name(value: &Value, rule: NameRule, at: &Path<'_>, errors: &mut Errors) {
    let found = text(value, "name");
    for why in rule.problems(found, false) {
        errors.push(FieldError::invalid(at.child("name"), found, why));
    }
}

pub(super) fn binding_change(new: &Value, old: &Value, errors: &mut Errors) {
    let reference = &new["roleRef"];
    if *reference != old["roleRef"] {
        let found = json!({ "APIGroup": reference["apiGroup"], "Kind": reference["kind"],
            "Name": reference["name"] });
        let why = "cannot change roleRef";
        errors.push(FieldError::invalid("roleRef", found, why));
    }
}
