//! Admission policies and their bindings.

use pintle_cel::{Type, is_identifier};
use serde_json::Value;

use super::{
    Errors, SPEC, items, text,
    webhooks::{conditions, rule, selector},
};
use crate::{
    admission::{Compiler, Optional, apply_type, json_patch_type},
    meta::names::{NameRule, qualified_name},
    schema::field::{FieldError, Path},
};

const MAX_ANNOTATIONS: usize = 20;

/// The longest expression of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 5 * 1024;

/// Validates a policy. An update that changes neither the match conditions nor the parameter kind
/// does not revalidate the conditions.
pub(super) fn policy(object: &Value, old: Option<&Value>, mutating: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], &SPEC, errors);
    let has_params = spec["paramKind"].is_object();
    if has_params {
        param_kind(&spec["paramKind"], &SPEC.child("paramKind"), errors);
    }
    let at = SPEC.child("matchConstraints");
    let constraints = &spec["matchConstraints"];
    if constraints.is_object() {
        match_resources(constraints, &at, errors);
        if items(&constraints["resourceRules"]).next().is_none() {
            errors.push(FieldError::required(at.child("resourceRules"), ""));
        }
        if mutating {
            operations(constraints, &at, errors);
        }
    } else {
        errors.push(FieldError::required(at, ""));
    }
    let unchanged = |field: &str| old.is_some_and(|old| old["spec"][field] == spec[field]);
    if !(unchanged("paramKind") && unchanged("matchConditions")) {
        let list = &spec["matchConditions"];
        conditions(list, has_params, &SPEC.child("matchConditions"), errors);
    }
    let optional = Optional {
        params: has_params,
        authorizer: true,
        patch_types: false,
    };
    let composed = mutating || items(&spec["variables"]).next().is_some();
    let mut compiler = if composed {
        Compiler::composed()
    } else {
        Compiler::new()
    };
    for (i, found) in items(&spec["variables"]) {
        let at = SPEC.child("variables");
        variable(found, &mut compiler, optional, &at.index(i), errors);
    }
    if mutating {
        mutations(spec, &compiler, optional, errors);
    } else {
        validations(object, &compiler, optional, errors);
    }
}

/// Requires a field to have one of these values.
fn one_of(value: &Value, field: &str, known: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let at = at.child(field);
    match text(value, field) {
        "" => errors.push(FieldError::required(at, "")),
        found if !known.contains(&found) => {
            errors.push(FieldError::not_supported(at, found, known));
        }
        _ => {}
    }
}

fn param_kind(kind: &Value, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("apiVersion");
    let found = text(kind, "apiVersion");
    if found.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else if found.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {found}");
        errors.push(FieldError::invalid(here, found, why));
    } else {
        let (group, version) = found.split_once('/').unwrap_or(("", found));
        let problems = NameRule::Subdomain.problems(group, false);
        if !group.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid(here, group, problems.join(",")));
        }
        let problems = NameRule::Label1035.problems(version, false);
        if version.is_empty() {
            let why = "version must be specified";
            errors.push(FieldError::invalid(here, found, why));
        } else if !problems.is_empty() {
            errors.push(FieldError::invalid(here, version, problems.join(",")));
        }
    }
    let (here, found) = (at.child("kind"), text(kind, "kind"));
    let problems = NameRule::Label1035.problems(&found.to_lowercase(), false);
    if found.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else if !problems.is_empty() {
        let why = "may have mixed case, but should otherwise match: ";
        let why = format!("{why}{}", problems.join(","));
        errors.push(FieldError::invalid(here, found, why));
    }
}

fn match_resources(resources: &Value, at: &Path<'_>, errors: &mut Errors) {
    one_of(
        resources,
        "matchPolicy",
        &["Equivalent", "Exact"],
        at,
        errors,
    );
    for field in ["namespaceSelector", "objectSelector"] {
        if resources[field].is_null() {
            errors.push(FieldError::required(at.child(field), ""));
        } else {
            selector(&resources[field], &at.child(field), errors);
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list = at.child(field);
        for (i, found) in items(&resources[field]) {
            let at = list.index(i);
            let names = at.child("resourceNames");
            let mut seen: Vec<&Value> = Vec::new();
            for (i, name) in items(&found["resourceNames"]) {
                let text = name.as_str().unwrap_or_default();
                for why in NameRule::PathSegment.problems(text, false) {
                    errors.push(FieldError::invalid(names.index(i), text, why));
                }
                if seen.contains(&name) {
                    errors.push(FieldError::duplicate(names.index(i), text));
                }
                seen.push(name);
            }
            rule(found, &at, errors);
        }
    }
}

/// Rejects operations that have no object to change.
fn operations(resources: &Value, at: &Path<'_>, errors: &mut Errors) {
    let known = ["*", "CONNECT", "CREATE", "UPDATE"];
    for (_, rule) in items(&resources["resourceRules"]) {
        for (_, operation) in items(&rule["operations"]) {
            let found = operation.as_str().unwrap_or_default();
            if !known.contains(&found) {
                let at = at.child("resourceRules");
                let at = at.child("operations");
                errors.push(FieldError::not_supported(at, found, &known));
            }
        }
    }
}

fn variable(
    variable: &Value,
    compiler: &mut Compiler,
    optional: Optional,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, source) = (text(variable, "name"), text(variable, "expression"));
    if name.trim().is_empty() {
        let why = "name is not specified";
        errors.push(FieldError::required(at.child("name"), why));
    } else if !is_identifier(name) {
        let why = "must be a valid CEL identifier";
        errors.push(FieldError::invalid(at.child("name"), name, why));
    }
    let here = at.child("expression");
    if source.trim().is_empty() {
        errors.push(FieldError::required(here, "expression is not specified"));
    } else if let Err(why) = compiler.variable(name, source, optional) {
        errors.push(FieldError::invalid(here, source, why));
    }
}

fn validations(object: &Value, compiler: &Compiler, optional: Optional, errors: &mut Errors) {
    let spec = &object["spec"];
    let (list, annotations) = (&spec["validations"], &spec["auditAnnotations"]);
    let count = items(annotations).count();
    if items(list).next().is_none() && count == 0 {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(SPEC.child("validations"), why));
        errors.push(FieldError::required(SPEC.child("auditAnnotations"), why));
        return;
    }
    for (i, found) in items(list) {
        let at = SPEC.child("validations");
        validation(found, compiler, optional, &at.index(i), errors);
    }
    let at = SPEC.child("auditAnnotations");
    if count > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(at, annotations.clone(), why));
    }
    let name = text(&object["metadata"], "name");
    let mut keys: Vec<&str> = Vec::new();
    for (i, found) in items(annotations) {
        let at = at.index(i);
        annotation(name, found, compiler, optional, &at, errors);
        let key = text(found, "key");
        if keys.contains(&key) {
            errors.push(FieldError::duplicate(at.child("key"), key));
        }
        keys.push(key);
    }
}

fn validation(
    found: &Value,
    compiler: &Compiler,
    optional: Optional,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let compile = |field: &str, optional: Optional, returns: Type, errors: &mut Errors| {
        let source = text(found, field);
        if let Err(why) = compiler.compile(source, optional, &[returns]) {
            errors.push(FieldError::invalid(at.child(field), source, why));
        }
    };
    let blank = |field: &str, errors: &mut Errors| {
        let value = text(found, field);
        if !value.is_empty() && value.trim().is_empty() {
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(at.child(field), value, why));
        }
        value.trim().is_empty()
    };
    if text(found, "expression").trim().is_empty() {
        let why = "expression is not specified";
        errors.push(FieldError::required(at.child("expression"), why));
    } else {
        compile("expression", optional, Type::Bool, errors);
    }
    if !blank("messageExpression", errors) {
        let optional = Optional {
            authorizer: false,
            ..optional
        };
        compile("messageExpression", optional, Type::String, errors);
    }
    blank("message", errors);
    let message = text(found, "message");
    if message.trim().contains(['\n', '\r']) {
        let why = "must not contain line breaks";
        errors.push(FieldError::invalid(at.child("message"), message, why));
    }
    let known = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if let Some(reason) = found["reason"].as_str().filter(|r| !known.contains(r)) {
        let at = at.child("reason");
        errors.push(FieldError::not_supported(at, reason, &known));
    }
}

fn annotation(
    policy: &str,
    found: &Value,
    compiler: &Compiler,
    optional: Optional,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let key = text(found, "key");
    let here = at.child("key");
    if policy.is_empty() {
        let why = "requires metadata.name be non-empty";
        errors.push(FieldError::invalid(here, key, why));
    } else {
        let name = format!("{policy}/{key}");
        for why in qualified_name(&name) {
            errors.push(FieldError::invalid(here, name.as_str(), why));
        }
    }
    let here = at.child("valueExpression");
    let source = text(found, "valueExpression");
    let trimmed = source.trim();
    if trimmed.is_empty() {
        let why = "valueExpression is not specified";
        errors.push(FieldError::required(here, why));
    } else if trimmed.len() > MAX_ANNOTATION {
        let why = format!("must not exceed {MAX_ANNOTATION} bytes in length");
        errors.push(FieldError::required(here, why));
    } else if let Err(why) = compiler.compile(trimmed, optional, &[Type::String, Type::Null]) {
        errors.push(FieldError::invalid(here, source, why));
    }
}

fn mutations(spec: &Value, compiler: &Compiler, optional: Optional, errors: &mut Errors) {
    let optional = Optional {
        patch_types: true,
        ..optional
    };
    let list = SPEC.child("mutations");
    if items(&spec["mutations"]).next().is_none() {
        let why = "mutations must contain at least one item";
        errors.push(FieldError::required(list, why));
    }
    for (i, mutation) in items(&spec["mutations"]) {
        let at = list.index(i);
        let (own, other, ty) = match text(mutation, "patchType") {
            "JSONPatch" => ("jsonPatch", "applyConfiguration", json_patch_type()),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", apply_type()),
            "" => {
                errors.push(FieldError::required(at.child("patchType"), ""));
                continue;
            }
            found => {
                let known = ["ApplyConfiguration", "JSONPatch"];
                let at = at.child("patchType");
                errors.push(FieldError::not_supported(at, found, &known));
                continue;
            }
        };
        let patch_type = text(mutation, "patchType");
        if mutation[own].is_null() {
            let why = format!("must be specified when patchType is {patch_type}");
            errors.push(FieldError::required(at.child(own), why));
        } else {
            let source = text(&mutation[own], "expression").trim();
            let at = at.child(own);
            let here = at.child("expression");
            if source.is_empty() {
                errors.push(FieldError::required(here, ""));
            } else if let Err(why) = compiler.compile(source, optional, &[ty]) {
                errors.push(FieldError::invalid(here, source, why));
            }
        }
        if !mutation[other].is_null() {
            let why = format!("must not be specified when patchType is {patch_type}");
            let shown = format!("{{{other}}}");
            errors.push(FieldError::invalid(at.child(other), shown, why));
        }
    }
    one_of(
        spec,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        &SPEC,
        errors,
    );
}

/// Validates a binding.
pub(super) fn binding(object: &Value, mutating: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    let (at, name) = (SPEC.child("policyName"), text(spec, "policyName"));
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        for why in NameRule::Subdomain.problems(name, false) {
            errors.push(FieldError::invalid(at, name, why));
        }
    }
    if !spec["paramRef"].is_null() {
        param_ref(&spec["paramRef"], &SPEC.child("paramRef"), errors);
    }
    let at = SPEC.child("matchResources");
    if !spec["matchResources"].is_null() {
        match_resources(&spec["matchResources"], &at, errors);
        if mutating {
            operations(&spec["matchResources"], &at, errors);
        }
    }
    if !mutating {
        actions(&spec["validationActions"], errors);
    }
}

fn param_ref(found: &Value, at: &Path<'_>, errors: &mut Errors) {
    let name = text(found, "name");
    let exclusive = "name and selector are mutually exclusive";
    let selects = !found["selector"].is_null();
    if !name.is_empty() {
        for why in NameRule::PathSegment.problems(name, false) {
            errors.push(FieldError::invalid(at.child("name"), name, why));
        }
        if selects {
            errors.push(FieldError::forbidden(at.child("name"), exclusive));
        }
    }
    if selects {
        selector(&found["selector"], &at.child("selector"), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(at.child("selector"), exclusive));
        }
    }
    if name.is_empty() && !selects {
        let why = "one of name or selector must be specified";
        errors.push(FieldError::required(at, why));
    }
    one_of(
        found,
        "parameterNotFoundAction",
        &["Deny", "Allow"],
        at,
        errors,
    );
}

fn actions(list: &Value, errors: &mut Errors) {
    let at = SPEC.child("validationActions");
    let known = ["Audit", "Deny", "Warn"];
    let mut seen: Vec<&str> = Vec::new();
    for (i, action) in items(list) {
        let action = action.as_str().unwrap_or_default();
        if !known.contains(&action) {
            errors.push(FieldError::not_supported(at.index(i), action, &known));
        }
        if seen.contains(&action) {
            errors.push(FieldError::duplicate(at.index(i), action));
        }
        seen.push(action);
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure \
                   information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(at, list.clone(), why));
    }
    if seen.is_empty() {
        let why = "at least one validation action is required";
        errors.push(FieldError::required(at, why));
    }
}
