//! Validation of `metadata` on create and update.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{NameRule, Tree, finalizers, is_deleting, names};
use crate::schema::field::{FieldError, quote};

/// The maximum size of all annotations of an object, in bytes.
const MOST_ANNOTATIONS: i64 = 256 * 1024;
/// Finalizers that may be unqualified.
const PLAIN_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// Validates an object's metadata. In the core kinds of Kubernetes, finalizers without a path must
/// be known.
pub(crate) fn check(
    object: &Tree,
    rule: NameRule,
    namespaced: bool,
    core: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
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
    let name = text("name");
    let prefix = text("generateName");
    if !prefix.is_empty() {
        for problem in rule.problems(prefix, true) {
            errors.push(FieldError::invalid(
                "metadata.generateName",
                prefix,
                problem,
            ));
        }
    }
    for problem in rule.problems(name, false) {
        if !name.is_empty() {
            errors.push(FieldError::invalid("metadata.name", name, problem));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if namespaced {
        let namespace = text("namespace");
        for problem in NameRule::Label.problems(namespace, false) {
            errors.push(FieldError::invalid(
                "metadata.namespace",
                namespace,
                problem,
            ));
        }
    }
    if let Some(Value::Object(labels)) = metadata.get("labels") {
        errors.extend(check_labels(labels, "metadata.labels"));
    }
    if let Some(Value::Object(annotations)) = metadata.get("annotations") {
        errors.extend(check_annotations(annotations, "metadata.annotations"));
    }
    check_finalizers(metadata, core, &mut errors);
    check_owners(metadata, &mut errors);
    errors
}

/// Validates labels. `field` is the path in errors.
pub(crate) fn check_labels(labels: &Tree, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(field, key.as_str(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(field, value, problem));
        }
    }
    errors
}

/// Validates annotations. `field` is the path in errors.
pub(crate) fn check_annotations(annotations: &Tree, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        // The prefix of an annotation may have upper case letters.
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(field, key.as_str(), problem));
        }
    }
    if i64::try_from(size).unwrap_or(i64::MAX) > MOST_ANNOTATIONS {
        errors.push(FieldError::too_long(field, MOST_ANNOTATIONS));
    }
    errors
}

/// Returns warnings about new finalizers of a custom object whose names may conflict with other
/// writers' finalizers.
pub(crate) fn finalizer_warnings(object: &Tree, stored: Option<&Tree>) -> Vec<String> {
    let before: BTreeSet<&str> = stored.into_iter().flat_map(finalizers).collect();
    let mut new: BTreeSet<&str> = finalizers(object).into_iter().collect();
    new.retain(|name| !before.contains(name));
    let mut warnings = Vec::new();
    for name in new {
        let place = format!("metadata.finalizers: {}", quote(name));
        let problems = names::qualified_name(name);
        warnings.extend(problems.into_iter().map(|why| format!("{place}: {why}")));
        if !name.contains('/') && !PLAIN_FINALIZERS.contains(&name) {
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warnings.push(format!(
                "{place}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}

fn check_finalizers(metadata: &Tree, core: bool, errors: &mut Vec<FieldError>) {
    let Some(Value::Array(list)) = metadata.get("finalizers") else {
        return;
    };
    let finalizers = || list.iter().filter_map(Value::as_str);
    for finalizer in finalizers() {
        for problem in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                finalizer,
                problem,
            ));
        }
    }
    for (index, finalizer) in finalizers().enumerate() {
        if core && !finalizer.contains('/') && !PLAIN_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                why,
            ));
        }
    }
}

fn check_owners(metadata: &Tree, errors: &mut Vec<FieldError>) {
    let Some(Value::Array(owners)) = metadata.get("ownerReferences") else {
        return;
    };
    let mut controller: Option<String> = None;
    for owner in owners {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for (field, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(field).is_empty() {
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    "",
                    what,
                ));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            errors.push(FieldError::invalid(
                "metadata.ownerReferences",
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                errors.push(FieldError::invalid(
                    "metadata.ownerReferences",
                    metadata["ownerReferences"].clone(),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    ),
                ));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// Validates a metadata update from `old` to `new`.
pub(crate) fn check_update(new: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = |tree: &Tree, field: &str| tree.get("metadata").and_then(|m| m.get(field)).cloned();
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (field(new, name), field(old, name));
        if new != old {
            errors.push(FieldError::invalid(
                format!("metadata.{name}"),
                new.unwrap_or_default(),
                "field is immutable",
            ));
        }
    }
    // Upstream reports these twice: from generic validation and from the kind's own.
    errors.extend(errors.clone());
    if is_deleting(old) {
        let before: BTreeSet<&str> = finalizers(old).into_iter().collect();
        let added: Vec<&str> = finalizers(new)
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            let error = FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added
                        .iter()
                        .map(|f| format!("{f:?}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            );
            // Reported twice, as above.
            errors.extend([error.clone(), error]);
        }
    }
    errors
}
