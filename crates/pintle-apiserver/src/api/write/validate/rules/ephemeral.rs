//! Validation of the ephemeral containers of a Pod, which only their subresource can add.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, absent, items, pods, text};
use crate::schema::field::{FieldError, Path};

/// The annotation of Pods that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Fields of containers that ephemeral containers cannot have.
const FORBIDDEN: [&str; 6] = [
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Validates an update of the ephemeral containers: all of them, and that none is changed or
/// removed.
pub(super) fn change(pod: &Value, old: &Value, errors: &mut Errors) {
    if !old["metadata"]["annotations"][MIRROR].is_null() {
        let why = "static pods do not support ephemeral containers";
        // Upstream's path without a name.
        errors.push(FieldError::forbidden("[]", why));
        return;
    }
    let at = Path::At("spec.ephemeralContainers");
    let (spec, before) = (&pod["spec"], &old["spec"]);
    containers(spec, &at, errors);
    for (_, old) in items(&before["ephemeralContainers"]) {
        let name = text(old, "name");
        let mut new = items(&spec["ephemeralContainers"]).map(|(_, new)| new);
        let what = match new.find(|new| text(new, "name") == name) {
            Some(new) if new == old => continue,
            Some(_) => "changed",
            None => "removed",
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.push(FieldError::forbidden(at, why));
    }
}

fn containers(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let names = |list: &str| -> BTreeSet<&str> {
        items(&spec[list])
            .map(|(_, one)| text(one, "name"))
            .collect()
    };
    let others = &names("containers") | &names("initContainers");
    let mut taken = others.clone();
    let volumes = names("volumes").into_iter().map(str::to_owned).collect();
    let host_users = pods::uses_host_users(spec);
    let only = "cannot be set for an Ephemeral Container";
    for (i, one) in items(&spec["ephemeralContainers"]) {
        let here = at.index(i);
        pods::container(one, &volumes, host_users, &here, errors);
        let name = text(one, "name");
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(here.child("name"), name));
        }
        let target = text(one, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(
                here.child("targetContainerName"),
                target,
            ));
        }
        for field in FORBIDDEN.into_iter().filter(|field| !absent(&one[*field])) {
            errors.push(FieldError::forbidden(here.child(field), only));
        }
        for (i, mount) in items(&one["volumeMounts"]) {
            let mounts = here.child("volumeMounts");
            for field in ["subPath", "subPathExpr"] {
                if !absent(&mount[field]) {
                    errors.push(FieldError::forbidden(mounts.index(i).child(field), only));
                }
            }
        }
    }
}
