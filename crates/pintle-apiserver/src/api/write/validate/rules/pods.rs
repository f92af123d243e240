//! Validation of Pods and Pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Errors, absent, dns_label, entries, items, labels, one_of, port, port_name, require, subdomain,
    text,
};
use crate::meta::names::qualified_name;
use crate::schema::field::{FieldError, Path};
use crate::schema::typed::quantity;

/// Validates a Pod template.
pub(super) fn template(template: &Value, at: &Path<'_>, errors: &mut Errors) {
    let metadata = at.child("metadata");
    labels(
        &template["metadata"]["labels"],
        &metadata.child("labels"),
        errors,
    );
    spec(&template["spec"], &at.child("spec"), errors);
}

/// Validates a Pod spec.
pub(super) fn spec(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let volumes = volumes(&spec["volumes"], &at.child("volumes"), errors);
    require(spec, "containers", at, errors);
    let mut names = BTreeSet::new();
    let host_users = uses_host_users(spec);
    for list in ["containers", "initContainers"] {
        let here = at.child(list);
        for (i, one) in items(&spec[list]) {
            container(one, &volumes, host_users, &here.index(i), errors);
            let name = text(one, "name");
            if !name.is_empty() && !names.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(here.index(i).child("name"), name));
            }
        }
    }
    one_of(
        spec,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        at,
        errors,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec, "dnsPolicy", &policies, at, errors);
    if text(spec, "dnsPolicy") == "None" && !spec["dnsConfig"].is_object() {
        let why = "must provide `dnsConfig` when `dnsPolicy` is None";
        errors.push(FieldError::required(at.child("dnsConfig"), why));
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64().filter(|s| *s < 1) {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            at.child("activeDeadlineSeconds"),
            seconds,
            why,
        ));
    }
    for name in ["nodeName", "serviceAccountName"] {
        let found = text(spec, name);
        if !found.is_empty() {
            subdomain(found, &at.child(name), errors);
        }
    }
    for name in ["hostname", "subdomain"] {
        let found = text(spec, name);
        if found.contains('.') {
            errors.push(FieldError::invalid(
                at.child(name),
                found,
                "must not contain dots",
            ));
        } else if !found.is_empty() {
            dns_label(found, &at.child(name), errors);
        }
    }
    gates(
        &spec["schedulingGates"],
        &at.child("schedulingGates"),
        errors,
    );
    let security = at.child("securityContext");
    sysctls(
        &spec["securityContext"]["sysctls"],
        &security.child("sysctls"),
        errors,
    );
    labels(&spec["nodeSelector"], &at.child("nodeSelector"), errors);
    for (i, toleration) in items(&spec["tolerations"]) {
        let here = at.child("tolerations");
        let value = text(toleration, "value");
        if text(toleration, "operator") == "Exists" && !value.is_empty() {
            let why = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(
                here.index(i).child("operator"),
                value,
                why,
            ));
        }
    }
}

fn gates(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, gate) in items(list) {
        let name = text(gate, "name");
        for why in qualified_name(name) {
            errors.push(FieldError::invalid(at.index(i), name, why));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(at.index(i), name));
        }
    }
}

/// Validates fields that are only checked on create.
pub(super) fn fresh(spec: &Value, errors: &mut Errors) {
    if !absent(&spec["ephemeralContainers"]) {
        let why = "cannot be set on create";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", why));
    }
    if !absent(&spec["nodeName"]) && !absent(&spec["schedulingGates"]) {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
}

fn sysctls(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, one) in items(list) {
        let (here, name) = (at.index(i), text(one, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(here.child("name"), ""));
        } else if !is_sysctl(name) {
            let why = "must have at most 253 characters and match regex \
                       ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(FieldError::invalid(here.child("name"), name, why));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(here.child("name"), name));
        }
    }
}

/// Returns true if `name` is a sysctl name: segments separated by dots or slashes.
fn is_sysctl(name: &str) -> bool {
    let end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let segment = |segment: &str| {
        segment.starts_with(end)
            && segment.ends_with(end)
            && segment.chars().all(|c| end(c) || matches!(c, '-' | '_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// Validates volumes and returns their names.
fn volumes(volumes: &Value, at: &Path<'_>, errors: &mut Errors) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (i, volume) in items(volumes) {
        let here = at.index(i);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(here.child("name"), ""));
        } else {
            dns_label(name, &here.child("name"), errors);
            if !names.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(here.child("name"), name));
            }
        }
        let mut sources = entries(volume).filter(|(field, _)| *field != "name");
        if sources.next().is_some() {
            for (source, _) in sources {
                let why = "may not specify more than 1 volume type";
                errors.push(FieldError::forbidden(here.child(source), why));
            }
        }
    }
    names
}

/// Returns true if a Pod runs in the user namespace of its host.
pub(super) fn uses_host_users(spec: &Value) -> bool {
    spec["hostUsers"] != false
}

/// Validates what containers of all kinds have in common.
pub(super) fn container(
    one: &Value,
    volumes: &BTreeSet<String>,
    host_users: bool,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if require(one, "name", at, errors) {
        dns_label(text(one, "name"), &at.child("name"), errors);
    }
    let image = text(one, "image");
    if image.is_empty() {
        errors.push(FieldError::required(at.child("image"), ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(at.child("image"), image, why));
    }
    one_of(
        one,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        at,
        errors,
    );
    ports(&one["ports"], &at.child("ports"), errors);
    for (i, variable) in items(&one["env"]) {
        require(variable, "name", &at.child("env").index(i), errors);
    }
    for (i, mount) in items(&one["volumeMounts"]) {
        let list = at.child("volumeMounts");
        let here = list.index(i);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(here.child("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(here.child("name"), name));
        }
        require(mount, "mountPath", &here, errors);
    }
    resources(&one["resources"], &at.child("resources"), errors);
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if one[name].is_object() {
            probe(&one[name], &at.child(name), errors);
        }
    }
    proc_mount(one, host_users, &at.child("securityContext"), errors);
}

/// Validates how much of `/proc` a container sees.
fn proc_mount(container: &Value, host_users: bool, at: &Path<'_>, errors: &mut Errors) {
    let Some(found) = container["securityContext"]["procMount"].as_str() else {
        return;
    };
    let supported = ["Default", "Unmasked"];
    if !supported.contains(&found) {
        errors.push(FieldError::not_supported(
            at.child("procMount"),
            found,
            &supported,
        ));
    }
    if host_users && found == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(at.child("procMount"), found, why));
    }
}

fn ports(ports: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, one) in items(ports) {
        let here = at.index(i);
        let name = text(one, "name");
        if !name.is_empty() {
            for why in port_name(name) {
                errors.push(FieldError::invalid(here.child("name"), name, why));
            }
            if !names.insert(name) {
                errors.push(FieldError::duplicate(here.child("name"), name));
            }
        }
        match one["containerPort"].as_i64() {
            None | Some(0) => {
                errors.push(FieldError::required(here.child("containerPort"), ""));
            }
            Some(_) => port(&one["containerPort"], &here.child("containerPort"), errors),
        }
        if one["hostPort"].as_i64().is_some_and(|n| n != 0) {
            port(&one["hostPort"], &here.child("hostPort"), errors);
        }
        one_of(one, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
    }
}

fn resources(resources: &Value, at: &Path<'_>, errors: &mut Errors) {
    for which in ["limits", "requests"] {
        let list = at.child(which);
        for (name, amount) in entries(&resources[which]) {
            let amount = amount.as_str().unwrap_or_default();
            let here = list.key(name);
            if amount.starts_with('-') {
                errors.push(FieldError::invalid(here, amount, super::NON_NEGATIVE));
            }
            resource_name(name, &here, errors);
        }
    }
    for (name, request) in entries(&resources["requests"]) {
        let limit = resources["limits"][name].as_str().unwrap_or_default();
        let request = request.as_str().unwrap_or_default();
        if quantity::less(limit, request) == Some(true) {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(at.child("requests"), request, why));
        }
    }
}

/// Validates the name of a container resource.
pub(super) fn resource_name(name: &str, at: &Path<'_>, errors: &mut Errors) {
    let standard =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if !standard && !name.contains('/') {
        let why = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(at, name, why));
        let why = "must be a standard resource for containers";
        errors.push(FieldError::invalid(at, name, why));
    }
}

fn probe(probe: &Value, at: &Path<'_>, errors: &mut Errors) {
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    if handlers.iter().all(|name| probe[*name].is_null()) {
        errors.push(FieldError::required(at, "must specify a handler type"));
    }
    if probe["exec"].is_object() {
        require(&probe["exec"], "command", &at.child("exec"), errors);
    }
    for name in ["httpGet", "tcpSocket"] {
        if probe[name].is_object() {
            port(&probe[name]["port"], &at.child(name).child("port"), errors);
        }
    }
}
