//! The rules for `metadata`, on create and on update.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{NameRule, Tree, finalizers, is_deleting, names};
use crate::api::{Cause, CauseKind};

/// All annotations of an object together.
const MOST_ANNOTATIONS: usize = 256 * 1024;
/// Finalizers that need no qualified name.
const PLAIN_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// What is wrong with an object's metadata.
pub(crate) fn check(object: &Tree, rule: NameRule, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let empty = Tree::new();
    let metadata = object
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let text = |field: &str| {
        metadata
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    for (field, prefix) in [("generateName", true), ("name", false)] {
        let value = text(field);
        if value.is_empty() {
            continue;
        }
        for problem in rule.problems(value, prefix) {
            causes.push(Cause::invalid(format!("metadata.{field}"), value, &problem));
        }
    }
    if text("name").is_empty() {
        causes.push(Cause::new(
            CauseKind::Required,
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if namespaced {
        let namespace = text("namespace");
        for problem in NameRule::Label.problems(namespace, false) {
            causes.push(Cause::invalid("metadata.namespace", namespace, &problem));
        }
    }
    check_labels(metadata, &mut causes);
    check_annotations(metadata, &mut causes);
    check_finalizers(metadata, &mut causes);
    check_owners(metadata, &mut causes);
    causes
}

fn check_labels(metadata: &Tree, causes: &mut Vec<Cause>) {
    let Some(Value::Object(labels)) = metadata.get("labels") else {
        return;
    };
    for (key, value) in labels {
        for problem in names::qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", key, &problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            causes.push(Cause::invalid("metadata.labels", value, &problem));
        }
    }
}

fn check_annotations(metadata: &Tree, causes: &mut Vec<Cause>) {
    let Some(Value::Object(annotations)) = metadata.get("annotations") else {
        return;
    };
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        for problem in names::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", key, &problem));
        }
    }
    if size > MOST_ANNOTATIONS {
        causes.push(Cause::new(
            CauseKind::TooLong,
            "metadata.annotations",
            format!("may not be more than {MOST_ANNOTATIONS} bytes"),
        ));
    }
}

fn check_finalizers(metadata: &Tree, causes: &mut Vec<Cause>) {
    let Some(Value::Array(list)) = metadata.get("finalizers") else {
        return;
    };
    for finalizer in list.iter().filter_map(Value::as_str) {
        for problem in names::qualified_name(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, &problem));
        }
        if !finalizer.contains('/')
            && !PLAIN_FINALIZERS.contains(&finalizer)
            && names::qualified_name(finalizer).is_empty()
        {
            // A plain name is only warned about by Kubernetes; domains are the custom.
            tracing::debug!(finalizer, "a finalizer without a domain");
        }
    }
}

fn check_owners(metadata: &Tree, causes: &mut Vec<Cause>) {
    let Some(Value::Array(owners)) = metadata.get("ownerReferences") else {
        return;
    };
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for (field, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(field).is_empty() {
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    "",
                    what,
                ));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                causes.push(Cause::invalid_value(
                    "metadata.ownerReferences",
                    &metadata["ownerReferences"],
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    ),
                ));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// What is wrong with a change of metadata from `old` to `new`.
pub(crate) fn check_update(new: &Tree, old: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_deleting(old) {
        let before: BTreeSet<&str> = finalizers(old).into_iter().collect();
        let added: Vec<&str> = finalizers(new)
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            causes.push(Cause::new(
                CauseKind::Forbidden,
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
                ),
            ));
        }
    }
    causes
}
