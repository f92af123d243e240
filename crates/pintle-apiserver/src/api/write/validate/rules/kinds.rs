//! Validation of kinds with few rules.

use serde_json::{Value, json};

use super::{
    Errors, IMMUTABLE, absent, blank, entries, items, non_negative, pods, require, subdomain, text,
};
use crate::{
    quota::amounts,
    schema::field::{FieldError, Path},
};

/// The maximum size of the data in a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1024 * 1024;

pub(super) fn replication_controller(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    non_negative(spec, "replicas", at, errors);
    if require(spec, "selector", at, errors) && spec["template"].is_object() {
        pods::template(&spec["template"], &at.child("template"), errors);
    }
}

pub(super) fn lease(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
        let here = at.child("leaseDurationSeconds");
        errors.push(FieldError::invalid(here, seconds, "must be greater than 0"));
    }
    non_negative(spec, "leaseTransitions", at, errors);
}

pub(super) fn priority(object: &Value, errors: &mut Errors) {
    const SYSTEM: [(&str, i64); 2] = [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ];
    let name = text(&object["metadata"], "name");
    let value = object["value"].as_i64().unwrap_or(0);
    if name.starts_with("system-") {
        let known = SYSTEM.into_iter().find(|(known, _)| *known == name);
        let why = match known {
            None => format!("{name} is not a known system priority class"),
            Some((_, known)) if known != value => {
                format!("value of {name} PriorityClass must be {known}")
            }
            Some(_) if object["globalDefault"] == true => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => return,
        };
        let why = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: \
             {why}"
        );
        errors.push(FieldError::forbidden("metadata.name", &why));
    } else if value > 1_000_000_000 {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", why));
    }
}

/// Returns why a string is not a valid data key.
fn data_key(key: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if key.len() > 253 {
        return Some("must be no more than 253 bytes".into());
    }
    if key.is_empty() || !key.chars().all(legal) {
        return Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    match key {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        key if key.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

fn keys(map: &Value, at: &Path<'_>, errors: &mut Errors) -> usize {
    let mut size = 0;
    for (key, value) in entries(map) {
        if let Some(why) = data_key(key) {
            errors.push(FieldError::invalid(at.key(key), key.as_str(), why));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size
}

pub(super) fn config_map(object: &Value, errors: &mut Errors) {
    let at = Path::At("data");
    for (key, _) in entries(&object["data"]) {
        if !object["binaryData"][key].is_null() {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(at.key(key), key.as_str(), why));
        }
    }
    let size = keys(&object["data"], &at, errors);
    // Four base64 characters encode three bytes.
    let binary = keys(&object["binaryData"], &Path::At("binaryData"), errors) / 4 * 3;
    if size + binary > MAX_DATA {
        errors.push(FieldError::too_long(
            "[]",
            i64::try_from(MAX_DATA).unwrap_or(i64::MAX),
        ));
    }
}

pub(super) fn secret(object: &Value, errors: &mut Errors) {
    let at = Path::At("data");
    let size = keys(&object["data"], &at, errors) / 4 * 3;
    if size > MAX_DATA {
        errors.push(FieldError::too_long(
            at,
            i64::try_from(MAX_DATA).unwrap_or(i64::MAX),
        ));
    }
    let data = &object["data"];
    let missing = |key: &str| data[key].is_null();
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| missing(key)) {
            errors.push(FieldError::required(at.key(key), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockerconfigjson" => need(&[".dockerconfigjson"]),
        "kubernetes.io/dockercfg" => need(&[".dockercfg"]),
        "kubernetes.io/ssh-auth" => need(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            need(&["username", "password"]);
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if absent(&object["metadata"]["annotations"][name]) {
                let here = Path::At("metadata.annotations");
                errors.push(FieldError::required(here.key(name), ""));
            }
        }
        _ => {}
    }
}

pub(super) fn claim(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let modes = [
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOnce",
        "ReadWriteOncePod",
    ];
    if absent(&spec["accessModes"]) {
        let why = "at least 1 access mode is required";
        errors.push(FieldError::required(at.child("accessModes"), why));
    }
    for (_, mode) in items(&spec["accessModes"]) {
        let mode = mode.as_str().unwrap_or_default();
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported(
                at.child("accessModes"),
                mode,
                &modes,
            ));
        }
    }
    let here = at.child("resources");
    match text(&spec["resources"]["requests"], "storage") {
        "" => errors.push(FieldError::required(here.key("storage"), "")),
        amount if amount == "0" || amount.starts_with('-') => {
            let why = "must be greater than zero";
            errors.push(FieldError::invalid(here.key("storage"), amount, why));
        }
        _ => {}
    }
}

pub(super) fn budget(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let found = json!({ "MinAvailable": least, "Selector": spec["selector"],
            "MaxUnavailable": most, "UnhealthyPodEvictionPolicy": null });
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(at, found, why));
    }
    non_negative(spec, "minAvailable", at, errors);
    non_negative(spec, "maxUnavailable", at, errors);
}

pub(super) fn ingress(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if absent(&spec["rules"]) && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(at, Value::Null, why));
    }
    let list = at.child("rules");
    for (i, rule) in items(&spec["rules"]) {
        let here = list.index(i);
        let host = text(rule, "host");
        if !host.is_empty() && !host.starts_with("*.") {
            subdomain(host, &here.child("host"), errors);
        }
        let http = here.child("http");
        let paths = http.child("paths");
        for (j, path) in items(&rule["http"]["paths"]) {
            if absent(&path["pathType"]) {
                let why = "pathType must be specified";
                errors.push(FieldError::required(paths.index(j).child("pathType"), why));
            }
        }
    }
}

/// Reports a field that changed although it is immutable.
pub(super) fn immutable(path: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let pointer = format!("/{}", path.replace('.', "/"));
    let at = |object: &Value| object.pointer(&pointer).cloned().unwrap_or_default();
    if at(new) != at(old) {
        errors.push(FieldError::invalid(path, at(new), IMMUTABLE));
    }
}

pub(super) fn job_change(new: &Value, old: &Value, errors: &mut Errors) {
    if !suspended(old) {
        immutable("spec.template", new, old, errors);
    }
    let (spec, before) = (&new["spec"], &old["spec"]);
    if spec["completionMode"] != "Indexed" {
        immutable("spec.completions", new, old, errors);
    } else if spec["completions"] != before["completions"]
        && !spec["completions"].is_null()
        && spec["completions"] != spec["parallelism"]
    {
        let why = "can only be modified in tandem with spec.parallelism";
        let found = spec["completions"].clone();
        errors.push(FieldError::invalid("spec.completions", found, why));
    }
    for path in ["spec.selector", "spec.completionMode"] {
        immutable(path, new, old, errors);
    }
}

pub(super) fn priority_change(new: &Value, old: &Value, errors: &mut Errors) {
    if new["value"] != old["value"] {
        let why = "may not be changed in an update.";
        errors.push(FieldError::forbidden("value", why));
    }
}

pub(super) fn storage_class_change(new: &Value, old: &Value, errors: &mut Errors) {
    for path in [
        "provisioner",
        "parameters",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        immutable(path, new, old, errors);
    }
}

fn suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true && job["status"]["startTime"].is_null()
}

pub(super) fn stateful_set_change(new: &Value, old: &Value, errors: &mut Errors) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let frozen = |object: &Value| {
        let mut spec = object["spec"].clone();
        for name in FREE {
            blank(&mut spec, name);
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                   'template', 'updateStrategy', 'revisionHistoryLimit', \
                   'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// Validates an update of an object with `immutable: true`.
pub(super) fn immutable_data(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for name in fields {
        if new[*name] != old[*name] {
            errors.push(FieldError::forbidden(*name, why));
        }
    }
}

pub(super) fn claim_change(new: &Value, old: &Value, errors: &mut Errors) {
    const LEGACY: &str = "volume.beta.kubernetes.io/storage-class";
    let class = |claim: &Value| {
        claim["spec"]["storageClassName"]
            .as_str()
            .map(str::to_owned)
    };
    let legacy = |claim: &Value| {
        let annotation = claim["metadata"]["annotations"][LEGACY].as_str();
        annotation.map(str::to_owned)
    };
    // A claim without a class may get one, for example when a default class appears, but only the
    // class in its annotation if it has one. The annotation may be removed once the field has the
    // same value.
    let gets_class = class(old).is_none()
        && class(new).is_some()
        && (legacy(old).is_none() || legacy(old) == class(new));
    let replaced = gets_class && legacy(new).is_none();
    if legacy(new) != legacy(old) && !replaced {
        let field = format!("metadata.annotations.{LEGACY}");
        let value = legacy(new).unwrap_or_default();
        errors.push(FieldError::invalid(field, value, IMMUTABLE));
    }
    let bound = new["status"]["phase"] == "Bound";
    let frozen = |object: &Value| {
        let mut spec = object["spec"].clone();
        if bound {
            if let Some(requests) = spec.pointer_mut("/resources/requests") {
                blank(requests, "storage");
            }
            blank(&mut spec, "volumeAttributesClassName");
        }
        if gets_class {
            blank(&mut spec, "storageClassName");
        }
        // The volume name may be set once, when the claim is bound.
        if absent(&old["spec"]["volumeName"]) {
            blank(&mut spec, "volumeName");
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why = "spec is immutable after creation except resources.requests and \
                   volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    let storage = |list: &Value| amounts(list).get("storage").cloned();
    let requested = |claim: &Value| storage(&claim["spec"]["resources"]["requests"]);
    // After a failed expansion, a request may shrink again, but not below the actual capacity.
    if requested(new) < requested(old) && requested(new) <= storage(&old["status"]["capacity"]) {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            why,
        ));
    }
    let mode = |claim: &Value| claim["spec"]["volumeMode"].clone();
    if mode(new) != mode(old) {
        errors.push(FieldError::invalid("volumeMode", mode(new), IMMUTABLE));
    }
}
