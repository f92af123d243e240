//! Webhook configurations.

use serde_json::Value;

use super::{Errors, entries, items, text};
use crate::{
    admission::compile_condition,
    meta::names::{NameRule, label_value, qualified_name},
    schema::field::{FieldError, Path},
};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const MAX_CONDITIONS: usize = 64;

/// Validates the webhooks of a configuration.
pub(super) fn configuration(object: &Value, mutating: bool, errors: &mut Errors) {
    let list = Path::At("webhooks");
    let mut names: Vec<&str> = Vec::new();
    for (i, entry) in items(&object["webhooks"]) {
        let at = list.index(i);
        webhook(entry, mutating, &at, errors);
        client_config(&entry["clientConfig"], &at.child("clientConfig"), errors);
        conditions(
            &entry["matchConditions"],
            false,
            &at.child("matchConditions"),
            errors,
        );
        review_versions(
            &entry["admissionReviewVersions"],
            &at.child("admissionReviewVersions"),
            errors,
        );
        let name = text(entry, "name");
        if names.contains(&name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        } else if !name.is_empty() {
            names.push(name);
        }
    }
}

/// Validates a webhook in this process, which has no client configuration.
pub(crate) fn entry_errors(entry: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    webhook(entry, mutating, &Path::Root, &mut errors);
    conditions(
        &entry["matchConditions"],
        false,
        &Path::At("matchConditions"),
        &mut errors,
    );
    errors
}

fn webhook(entry: &Value, mutating: bool, at: &Path<'_>, errors: &mut Errors) {
    qualified(text(entry, "name"), &at.child("name"), errors);
    for (i, found) in items(&entry["rules"]) {
        rule(found, &at.child("rules").index(i), errors);
    }
    let mut known = |field: &str, known: &[&str]| {
        let found = &entry[field];
        if let Some(found) = found.as_str().filter(|found| !known.contains(found)) {
            errors.push(FieldError::not_supported(at.child(field), found, known));
        }
    };
    known("failurePolicy", &["Fail", "Ignore"]);
    known("matchPolicy", &["Equivalent", "Exact"]);
    if entry["sideEffects"].is_null() {
        let why = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(at.child("sideEffects"), why));
    } else {
        known("sideEffects", &["None", "NoneOnDryRun"]);
    }
    if let Some(seconds) = entry["timeoutSeconds"].as_i64()
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(
            at.child("timeoutSeconds"),
            seconds,
            why,
        ));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector(&entry[field], &at.child(field), errors);
    }
    if mutating {
        let found = text(entry, "reinvocationPolicy");
        let known = ["IfNeeded", "Never"];
        if !found.is_empty() && !known.contains(&found) {
            let at = at.child("reinvocationPolicy");
            errors.push(FieldError::not_supported(at, found, &known));
        }
    }
}

/// Validates a name that must be a domain of at least three segments.
fn qualified(name: &str, at: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    let problems = NameRule::Subdomain.problems(name, false);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(at, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(at, name, why));
    }
}

pub(super) fn rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    alone(rule, "operations", "operations", at, errors);
    for (i, operation) in items(&rule["operations"]) {
        let found = operation.as_str().unwrap_or_default();
        if !known.contains(&found) {
            let list = at.child("operations");
            errors.push(FieldError::not_supported(list.index(i), found, &known));
        }
    }
    alone(rule, "apiGroups", "API groups", at, errors);
    alone(rule, "apiVersions", "API versions", at, errors);
    for (i, version) in items(&rule["apiVersions"]) {
        if version == "" {
            errors.push(FieldError::required(at.child("apiVersions").index(i), ""));
        }
    }
    resources(&rule["resources"], &at.child("resources"), errors);
    let known = ["*", "Cluster", "Namespaced"];
    if let Some(scope) = rule["scope"].as_str()
        && !known.contains(&scope)
    {
        errors.push(FieldError::not_supported(at.child("scope"), scope, &known));
    }
}

/// Validates a list that must not be empty, and in which `*` must be alone.
fn alone(rule: &Value, field: &str, what: &str, at: &Path<'_>, errors: &mut Errors) {
    let list = &rule[field];
    let count = items(list).count();
    if count == 0 {
        errors.push(FieldError::required(at.child(field), ""));
    }
    if count > 1 && items(list).any(|(_, item)| item == "*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(at.child(field), list.clone(), why));
    }
}

fn resources(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    let count = items(list).count();
    if count == 0 {
        errors.push(FieldError::required(at, ""));
    }
    let (mut all_of, mut of_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let (mut everything, mut all, mut plain) = (false, false, false);
    for (i, item) in items(list) {
        let item = item.as_str().unwrap_or_default();
        if item.is_empty() {
            errors.push(FieldError::required(at.index(i), ""));
            continue;
        }
        everything |= item == "*/*";
        all |= item == "*";
        let Some((resource, sub)) = item.split_once('/') else {
            // Upstream remembers only the last one.
            plain = item != "*";
            continue;
        };
        if all_of.contains(&resource) {
            let why = format!("if '{resource}/*' is present, must not specify {item}");
            errors.push(FieldError::invalid(at.index(i), item, why));
        }
        if of_all.contains(&sub) {
            let why = format!("if '*/{sub}' is present, must not specify {item}");
            errors.push(FieldError::invalid(at.index(i), item, why));
        }
        if sub == "*" {
            all_of.push(resource);
        }
        if resource == "*" {
            of_all.push(sub);
        }
    }
    if count > 1 && everything {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(at, list.clone(), why));
    }
    if all && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(at, list.clone(), why));
    }
}

/// Validates the `clientConfig` of an admission or conversion webhook.
pub(crate) fn client_config(config: &Value, at: &Path<'_>, errors: &mut Errors) {
    match (config["url"].as_str(), config["service"].is_object()) {
        (Some(found), false) => url(found, &at.child("url"), errors),
        (None, true) => service(&config["service"], &at.child("service"), errors),
        _ => {
            let why = "exactly one of url or service is required";
            errors.push(FieldError::required(at, why));
        }
    }
}

fn url(found: &str, at: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (found, fragment) = found.split_once('#').unwrap_or((found, ""));
    let (base, query) = found.split_once('?').unwrap_or((found, ""));
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(at, scheme, why));
    }
    let authority = match scheme {
        "" => "",
        _ => rest.split('/').next().unwrap_or_default(),
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        let why = format!("host must be specified{FORM}");
        errors.push(FieldError::invalid(at, "", why));
    } else if base.parse::<http::Uri>().is_err() {
        let why = format!("url must be a valid URL: {base:?}{FORM}");
        errors.push(FieldError::required(at, why));
    }
    for (found, why) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !found.is_empty() {
            errors.push(FieldError::invalid(at, found, why));
        }
    }
}

fn service(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    // Upstream confuses the two and reports the other one.
    for (field, reported) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(at.child(reported), ""));
        }
    }
    if let Some(port) = service["port"].as_i64()
        && !(1..=65_535).contains(&port)
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(at.child("port"), port, why));
    }
    let path = text(service, "path");
    if matches!(path, "" | "/") {
        return;
    }
    let here = at.child("path");
    if path == "//" {
        errors.push(FieldError::invalid(
            here,
            path,
            "segment[0] may not be empty",
        ));
        return;
    }
    if !path.starts_with('/') {
        errors.push(FieldError::invalid(here, path, "must start with a '/'"));
    }
    let mut rest = path.chars();
    rest.next();
    let rest = rest.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (i, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            let why = format!("segment[{i}] may not be empty");
            errors.push(FieldError::invalid(here, path, why));
            continue;
        }
        for why in NameRule::Subdomain.problems(segment, false) {
            let why = format!("segment[{i}]: {why}");
            errors.push(FieldError::invalid(here, path, why));
        }
    }
}

fn review_versions(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    if items(list).next().is_none() {
        let why = "must specify one of v1, v1beta1";
        errors.push(FieldError::required(at, why));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, version) in items(list) {
        let version = version.as_str().unwrap_or_default();
        if seen.contains(&version) {
            errors.push(FieldError::invalid(
                at.index(i),
                version,
                "duplicate version",
            ));
            continue;
        }
        seen.push(version);
        for why in NameRule::Label1035.problems(version, false) {
            errors.push(FieldError::invalid(at.index(i), version, why));
        }
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(at, list.clone(), why));
    }
}

pub(super) fn selector(selector: &Value, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("matchLabels");
    for (name, value) in entries(&selector["matchLabels"]) {
        for why in qualified_name(name) {
            errors.push(FieldError::invalid(here, name.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in label_value(value) {
            errors.push(FieldError::invalid(here, value, why));
        }
    }
    let list = at.child("matchExpressions");
    for (i, expression) in items(&selector["matchExpressions"]) {
        let here = list.index(i);
        let count = items(&expression["values"]).count();
        match text(expression, "operator") {
            "In" | "NotIn" if count == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(here.child("values"), why));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(here.child("values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(here.child("operator"), other, why));
            }
        }
        let key = text(expression, "key");
        for why in qualified_name(key) {
            errors.push(FieldError::invalid(here.child("key"), key, why));
        }
    }
}

pub(super) fn conditions(list: &Value, params: bool, at: &Path<'_>, errors: &mut Errors) {
    let count = items(list).count();
    if count > MAX_CONDITIONS {
        let (count, most) = (count.try_into().unwrap_or(i64::MAX), 64);
        errors.push(FieldError::too_many(at, count, most));
        return;
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, condition) in items(list) {
        let here = at.index(i);
        let expression = text(condition, "expression").trim();
        if expression.is_empty() {
            errors.push(FieldError::required(here.child("expression"), ""));
        } else if let Err(why) = compile_condition(expression, params) {
            errors.push(FieldError::invalid(
                here.child("expression"),
                expression,
                why,
            ));
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(here.child("name"), ""));
            continue;
        }
        for why in qualified_name(name) {
            errors.push(FieldError::invalid(here.child("name"), name, why));
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(here.child("name"), name));
        }
        names.push(name);
    }
}
