//! Resizes: changes of the CPU and memory of a Pod, through its subresource.

use serde_json::Value;

use super::qos;
use crate::{
    api::write::validate::rules,
    meta::{self, Tree},
    quota::{Amounts, amounts},
    schema::field::{FieldError, Path},
};

/// The annotation of Pods that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The resources that can be changed.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The metadata that a resize does not change.
const METADATA: [&str; 5] = [
    "annotations",
    "deletionTimestamp",
    "finalizers",
    "labels",
    "ownerReferences",
];

/// Restores everything but the resources of the Pod and its containers. If containers were added,
/// removed or renamed, they are left for validation to reject.
pub(super) fn prepare(pod: &mut Tree, stored: &Tree) {
    let (wanted, old) = (spec(pod).clone(), spec(stored));
    let count = |spec: &Value, list: &str| spec[list].as_array().map_or(0, Vec::len);
    if LISTS
        .iter()
        .any(|list| count(&wanted, list) != count(old, list))
    {
        return;
    }
    let mut metadata = std::mem::take(meta::metadata(pod));
    let before = stored.get("metadata").unwrap_or(&Value::Null);
    for field in METADATA {
        copy(&mut metadata, before, field);
    }
    stored.clone_into(pod);
    pod.insert("metadata".into(), metadata.into());
    let Some(Value::Object(spec)) = pod.get_mut("spec") else {
        return;
    };
    copy(spec, &wanted, "resources");
    for list in LISTS {
        let same_names = containers(old, list)
            .zip(containers(&wanted, list))
            .all(|(old, new)| old["name"] == new["name"]);
        if !same_names {
            copy(spec, &wanted, list);
            continue;
        }
        let merged = spec.get_mut(list).and_then(Value::as_array_mut);
        let merged = merged
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut);
        for (container, new) in merged.zip(containers(&wanted, list)) {
            copy(container, new, "resources");
            copy(container, new, "resizePolicy");
        }
    }
}

/// Sets a field to what it is in `from`.
fn copy(to: &mut Tree, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

/// Validates a prepared resize. `errors` holds the errors in the metadata.
pub(super) fn validate(pod: &Tree, stored: &Tree, errors: &mut Vec<FieldError>) {
    let (new, old) = (spec(pod), spec(stored));
    errors.extend(rules::pod_spec(new));
    let annotations = stored.get("metadata").map(|data| &data["annotations"]);
    let unsupported = if annotations.is_some_and(|all| all.get(MIRROR).is_some()) {
        Some("static pods cannot be resized")
    } else if old["os"]["name"] == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(why) = unsupported {
        errors.clear();
        // Upstream's path without a name.
        errors.push(FieldError::forbidden("[]", why));
        return;
    }
    let (status, before) = (status(pod), status(stored));
    let class = before["qosClass"]
        .as_str()
        .filter(|class| !class.is_empty());
    if class.unwrap_or_else(|| qos::class(old)) != qos::class(new) {
        let found = status["qosClass"].as_str().unwrap_or_default();
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", found, why));
    }
    if !is_supported(before) {
        let why = "Pod running on node without support for resize";
        errors.push(FieldError::forbidden("spec", why));
    }
    pod_level(&new["resources"], &old["resources"], errors);
    let claims = before["nodeAllocatableResourceClaimStatuses"].as_array();
    if claims.is_some_and(|claims| !claims.is_empty()) {
        let why = "pods with node allocatable resource claims cannot be resized";
        errors.push(FieldError::forbidden("spec", why));
    }
    if !same_containers(new, old, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (i, (new, old)) in pairs(new, old, list) {
            nothing_removed(&new["resources"], &old["resources"], list, i, errors);
        }
    }
    for (_, (new, old)) in pairs(new, old, "containers") {
        if !changes_only_resizable(new, old) {
            let why = "only cpu and memory resources are mutable";
            errors.push(FieldError::forbidden("spec", why));
        }
    }
    let at = Path::At("spec.initContainers");
    for (i, (new, old)) in pairs(new, old, "initContainers") {
        init_container(new, old, &at.index(i), errors);
    }
    let (new, old) = (&new["resources"], &old["resources"]);
    if errors.is_empty() && !is_set(new) && new.is_object() != old.is_object() {
        let why = "only cpu and memory resources are mutable";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn spec(pod: &Tree) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

fn status(pod: &Tree) -> &Value {
    pod.get("status").unwrap_or(&Value::Null)
}

fn containers<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    spec[list].as_array().into_iter().flatten()
}

/// Iterates over the containers of two specs, with their index.
fn pairs<'a>(
    new: &'a Value,
    old: &'a Value,
    list: &str,
) -> impl Iterator<Item = (usize, (&'a Value, &'a Value))> {
    containers(new, list).zip(containers(old, list)).enumerate()
}

/// Returns false if the node is too old to resize Pods: it does not report the resources of a
/// running container.
fn is_supported(status: &Value) -> bool {
    let mut running = containers(status, "containerStatuses")
        .filter(|container| container["state"]["running"].is_object());
    running
        .next()
        .is_none_or(|container| container["resources"].is_object())
}

fn is_set(resources: &Value) -> bool {
    ["requests", "limits"]
        .iter()
        .any(|which| !amounts(&resources[*which]).is_empty())
}

/// Validates a change of the resources of the Pod as a whole.
fn pod_level(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !is_set(new) && !is_set(old) {
        return;
    }
    if old.is_object() && !new.is_object() {
        let why = "pod-level resources cannot be removed";
        errors.push(FieldError::forbidden("spec.resources", why));
        return;
    }
    for which in ["requests", "limits"] {
        if is_removed(&new[which], &old[which]) {
            let why = format!("pod-level resource {which} cannot be removed");
            errors.push(FieldError::forbidden(
                format!("spec.resources.{which}"),
                why,
            ));
        }
    }
    if fixed(new) != fixed(old) || list(&new["claims"]) != list(&old["claims"]) {
        let why = "only cpu and memory resources are mutable at pod-level";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// Rejects added, removed and renamed containers. Returns true if there are none.
fn same_containers(new: &Value, old: &Value, errors: &mut Vec<FieldError>) -> bool {
    let before = errors.len();
    for list in LISTS {
        if containers(new, list).count() != containers(old, list).count() {
            let why = format!("{list} may not be added or removed on resize");
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
            continue;
        }
        for (i, (new, old)) in pairs(new, old, list) {
            if new["name"] != old["name"] {
                let why = format!("{list} may not be renamed or reordered on resize");
                errors.push(FieldError::forbidden(format!("spec.{list}[{i}].name"), why));
            }
        }
    }
    errors.len() == before
}

fn nothing_removed(
    new: &Value,
    old: &Value,
    list: &str,
    index: usize,
    errors: &mut Vec<FieldError>,
) {
    for which in ["requests", "limits"] {
        if is_removed(&new[which], &old[which]) {
            let at = format!("spec.{list}[{index}].resources.{which}");
            let why = format!("resource {which} cannot be removed");
            errors.push(FieldError::forbidden(at, why));
        }
    }
}

fn is_removed(new: &Value, old: &Value) -> bool {
    let new = amounts(new);
    amounts(old).keys().any(|name| !new.contains_key(name))
}

/// Returns the requests and limits that cannot be changed.
fn fixed(resources: &Value) -> [Amounts; 2] {
    ["requests", "limits"].map(|which| {
        let mut amounts = amounts(&resources[which]);
        amounts.retain(|name, _| !RESIZABLE.contains(&name.as_str()));
        amounts
    })
}

/// Returns true if two containers have the same policy and differ in CPU and memory at most. As
/// upstream, a container with claims cannot be resized.
fn changes_only_resizable(new: &Value, old: &Value) -> bool {
    fixed(&new["resources"]) == fixed(&old["resources"])
        && list(&old["resources"]["claims"]).is_empty()
        && has_same_policy(new, old)
}

fn has_same_policy(new: &Value, old: &Value) -> bool {
    list(&new["resizePolicy"]) == list(&old["resizePolicy"])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn init_container(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !changes_only_resizable(new, old) {
        let why = "only cpu and memory resources for init or sidecar containers are mutable";
        errors.push(FieldError::forbidden(at, why));
    }
    let (wanted, before) = (&new["resources"], &old["resources"]);
    let is_same = ["requests", "limits"]
        .iter()
        .all(|which| amounts(&wanted[*which]) == amounts(&before[*which]))
        && list(&wanted["claims"]) == list(&before["claims"])
        && has_same_policy(new, old);
    if is_same || new["restartPolicy"] == "Always" {
        return;
    }
    for policy in list(&new["resizePolicy"]) {
        if policy["restartPolicy"] == "RestartContainer" {
            let why = "non-sidecar init containers with a resize policy of RestartContainer \
                       cannot be resized";
            errors.push(FieldError::forbidden(at, why));
        }
    }
}
