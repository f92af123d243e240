//! Preparation: sets server-managed fields, restores fields that a write may not change, and
//! applies defaults.

use std::collections::BTreeSet;

use pintle_clock::Clock;
use serde_json::Value;

use super::{Part, with_value};
use crate::{
    api::{Api, kinds::properties::Generation, request::options::Warnings},
    meta::{self, Tree},
    registry::Resource,
    schema::{builtin::TypeRef, defaults, typed},
};

impl Api {
    /// Prepares a new object for the store.
    pub(crate) fn prepare_create(&self, resource: &Resource, object: &mut Tree) {
        if resource.custom.is_some() && resource.has_status() {
            object.remove("status");
        }
        let now = self.clock.stamp();
        let uid = self.rng.uuid();
        let metadata = meta::metadata(object);
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), now.clone().into());
        drop_empty(metadata);
        match resource.generation {
            Generation::Fixed | Generation::Counted(_) => meta::set_generation(object, 1),
            Generation::None | Generation::CountedLater => {}
        }
        match (&resource.custom, resource.stored_ty) {
            // Objects are given defaults when they are decoded, from a request or from the store.
            // What is removed or restored here is not defaulted again.
            (Some(_), _) => {}
            (None, Some(ty)) => prepare_builtin(resource, object, ty, &now),
            (None, None) => resource.hooks.prepare_create(object, &now),
        }
    }
}

/// Prepares a new object of a built-in kind: resets its status and runs the hook of the kind.
pub(super) fn prepare_builtin(resource: &Resource, object: &mut Tree, ty: TypeRef, now: &str) {
    if resource.has_status()
        && resource.hooks.resets_status()
        && let Some(status) = ty.field("status").and_then(|field| field.ty.named())
    {
        let mut fresh = typed::zero(status);
        defaults::apply(&mut fresh, status);
        object.insert("status".into(), fresh);
    }
    resource.hooks.prepare_create(object, now);
    // The fields set above may imply other defaults, as when a typed server reads back a stored
    // object.
    with_value(object, |value| defaults::apply(value, ty));
}

/// Prepares the next state of a stored object: everything outside `part` is restored.
pub(super) fn prepare_update(
    resource: &Resource,
    part: Part,
    object: &mut Tree,
    stored: &Tree,
    clock: &Clock,
) {
    match part {
        Part::Main if resource.has_status() => restore(object, stored, "status"),
        // An approval is a condition, which is part of the status.
        Part::Status | Part::Approval => restore_all_but_status(resource, object, stored),
        Part::Finalize => restore_all_but_finalizers(object, stored),
        Part::EphemeralContainers => restore_all_but(object, stored, "ephemeralContainers"),
        // The hook of Pods restores what a resize does not change.
        Part::Main | Part::Resize | Part::Everything => {}
    }
    resource.hooks.prepare_update(part, object, stored, clock);
    restore_system_metadata(object, stored);
    let metadata_field = match resource.generation {
        Generation::Counted(field) => field,
        Generation::CountedLater => None,
        Generation::Fixed | Generation::None => return,
    };
    let changed = !matches!(part, Part::Status | Part::Everything)
        && (spec_changed(resource, object, stored)
            || metadata_field.is_some_and(|field| metadata_changed(field, object, stored)));
    if changed {
        meta::set_generation(object, meta::generation(stored) + 1);
    }
}

/// Drops metadata fields that are null or empty.
fn drop_empty(metadata: &mut Tree) {
    metadata.retain(|_, value| {
        !value.is_null()
            && !matches!(value, Value::Array(list) if list.is_empty())
            && !matches!(value, Value::Object(map) if map.is_empty())
            && value.as_str() != Some("")
    });
}

/// Drops owner references that equal an earlier one, and warns about them. `when` is part of the
/// warning: updates and creates are checked before and after mutating admission, patches only
/// after.
pub(super) fn dedupe_owners(object: &mut Tree, warnings: &Warnings, when: &str) {
    let owners = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(Value::Array(owners)) = owners else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let mut seen = BTreeSet::new();
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new {
            repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    if !repeated.is_empty() {
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}

/// The `when` of owner references that are repeated after mutating admission.
pub(super) const AFTER_ADMISSION: &str = " after mutating admission happens";

fn restore(object: &mut Tree, stored: &Tree, field: &str) {
    match stored.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

fn restore_all_but_status(resource: &Resource, object: &mut Tree, stored: &Tree) {
    let status = object.remove("status");
    let metadata = object.remove("metadata");
    stored.clone_into(object);
    match status {
        Some(Value::Null) | None => object.remove("status"),
        Some(status) => object.insert("status".into(), status),
    };
    // A status update of a built-in kind also changes metadata. A status update of a custom
    // resource changes only the managed fields.
    match metadata {
        Some(metadata) if resource.custom.is_none() => {
            object.insert("metadata".into(), metadata);
        }
        Some(Value::Object(mut metadata)) => {
            match metadata.remove("managedFields") {
                Some(managers) => meta::metadata(object).insert("managedFields".into(), managers),
                None => meta::metadata(object).remove("managedFields"),
            };
        }
        _ => {}
    }
}

fn restore_all_but_finalizers(object: &mut Tree, stored: &Tree) {
    let finalizers = object
        .get("spec")
        .and_then(|spec| spec.get("finalizers"))
        .cloned();
    let managers = meta::metadata(object).remove("managedFields");
    stored.clone_into(object);
    match managers {
        Some(managers) => meta::metadata(object).insert("managedFields".into(), managers),
        None => meta::metadata(object).remove("managedFields"),
    };
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        match finalizers {
            Some(finalizers) => spec.insert("finalizers".into(), finalizers),
            None => spec.remove("finalizers"),
        };
    }
}

/// Restores everything but metadata and one field of the spec.
fn restore_all_but(object: &mut Tree, stored: &Tree, field: &str) {
    let value = object.get("spec").and_then(|spec| spec.get(field)).cloned();
    let metadata = object.remove("metadata");
    stored.clone_into(object);
    object.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        match value {
            Some(value) => spec.insert(field.to_owned(), value),
            None => spec.remove(field),
        };
    }
}

/// Restores the metadata that no client can change.
fn restore_system_metadata(object: &mut Tree, stored: &Tree) {
    let empty = Tree::new();
    let old = stored
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let metadata = meta::metadata(object);
    metadata.remove("selfLink");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "generateName",
    ] {
        restore(metadata, old, field);
    }
    // The time of a deletion never changes. Validation rejects one on an object that is not being
    // deleted.
    let deleting = old.get("deletionTimestamp").is_some_and(|t| !t.is_null());
    if deleting || metadata.get("deletionTimestamp").is_none_or(Value::is_null) {
        restore(metadata, old, "deletionTimestamp");
    }
    // If the client sends a different value, validation rejects it.
    if metadata
        .get("deletionGracePeriodSeconds")
        .is_none_or(Value::is_null)
    {
        restore(metadata, old, "deletionGracePeriodSeconds");
    }
    drop_empty(metadata);
}

fn metadata_changed(field: &str, object: &Tree, stored: &Tree) -> bool {
    let value = |tree: &Tree| tree.get("metadata").and_then(|m| m.get(field)).cloned();
    value(object) != value(stored)
}

/// Returns true if anything but metadata and status differs.
pub(super) fn spec_changed(resource: &Resource, object: &Tree, stored: &Tree) -> bool {
    let counts = |field: &&String| {
        let field = field.as_str();
        !matches!(field, "metadata" | "apiVersion" | "kind")
            && !(field == "status" && (resource.has_status() || resource.custom.is_none()))
    };
    let keys = |tree: &Tree| tree.keys().filter(counts).cloned().collect::<Vec<_>>();
    let (new, old) = (keys(object), keys(stored));
    new != old
        || new
            .iter()
            .any(|field| object.get(field) != stored.get(field))
}

#[cfg(test)]
pub(super) mod tests;
