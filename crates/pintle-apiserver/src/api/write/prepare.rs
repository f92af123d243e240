//! What a write does to an object before it is stored: what the server sets, what it takes from the
//! stored object, and the rules it checks.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::{
    Api, ApiError, kinds::api_services, kinds::namespaces, kinds::services,
    kinds::signing_requests, request::options::Warnings,
};
use crate::{
    meta::{self, NameRule, Tree},
    registry::{EXTENSIONS, Resource, crd, kind::Generation},
    schema::{defaults, prepare, rules},
};

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object itself.
    Main,
    /// `/status`
    Status,
    /// `/approval` of a certificate signing request.
    Approval,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/ephemeralcontainers` of a pod.
    EphemeralContainers,
    /// `/resize` of a pod.
    Resize,
    /// The object and its status at once: the server's own changes.
    Everything,
}

impl Part {
    pub(crate) fn of(sub: &str) -> Self {
        match sub {
            "status" => Self::Status,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            "finalize" => Self::Finalize,
            _ => Self::Main,
        }
    }
}

impl Api {
    /// Readies a new object: what only the server sets is set, what does not belong is dropped.
    pub(crate) fn prepare_create(
        &self,
        resource: &Resource,
        object: &mut Tree,
        warnings: &Warnings,
    ) {
        if resource.custom.is_some() && resource.has_status() {
            object.remove("status");
        }
        let stamp = self.clock.stamp();
        let uid = self.rng.uuid();
        let metadata = meta::metadata(object);
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), stamp.clone().into());
        drop_nulls(metadata);
        dedupe_owners(metadata, warnings);
        match resource.generation {
            Generation::Fixed | Generation::Counted(_) => meta::set_generation(object, 1),
            Generation::None | Generation::CountedLater => {}
        }
        if resource.is("", "namespaces") {
            namespaces::label(object);
        }
        match resource.stored_ty {
            Some(ty) => on_value(object, |value| {
                prepare::create(value, ty, &stamp);
                // What was set may imply more, as when a typed server reads back what it stored.
                defaults::apply(value, ty);
            }),
            None => default(resource, object),
        }
        if api_services::is_one(resource) {
            api_services::prepare(object, &stamp);
        }
    }
}

/// Readies a changed object: what this path may not change is taken from the stored one.
pub(crate) fn prepare_update(
    resource: &Resource,
    part: Part,
    object: &mut Tree,
    stored: &Tree,
    warnings: &Warnings,
) {
    match part {
        Part::Main => {
            if resource.has_status() {
                take(object, stored, "status");
            }
            if resource.is("", "namespaces") {
                namespaces::keep_finalizers(object, stored);
            } else if resource.is("", "services") {
                services::drop_former(object, stored);
            } else if resource.is(EXTENSIONS, "customresourcedefinitions") {
                crd::remember_storage(object);
            } else if resource.is("", "pods") {
                prepare::update_pod(object, stored);
            }
        }
        // An approval is a condition; conditions are status.
        Part::Status | Part::Approval => keep_all_but_status(resource, object, stored),
        Part::Finalize => keep_all_but_finalizers(object, stored),
        Part::EphemeralContainers => keep_all_but(object, stored, "ephemeralContainers"),
        Part::Resize => keep_all_but_sizes(object, stored),
        Part::Everything => {}
    }
    keep_system_metadata(object, stored, warnings);
    default(resource, object);
    let also = match resource.generation {
        Generation::Counted(also) => also,
        Generation::CountedLater => None,
        Generation::Fixed | Generation::None => return,
    };
    let changed = !matches!(part, Part::Status | Part::Everything)
        && (spec_changed(resource, object, stored)
            || also.is_some_and(|field| metadata_changed(field, object, stored)));
    if changed {
        meta::set_generation(object, meta::generation(stored) + 1);
    }
}

/// Checks an object that is about to be stored, against the stored one if there is one.
pub(crate) fn check(
    resource: &Resource,
    part: Part,
    object: &Value,
    stored: Option<&Value>,
) -> Result<(), ApiError> {
    let tree = meta::tree(object);
    let rule = match stored {
        // The event may have been created through core/v1, whose names are not checked.
        Some(_) if resource.is("events.k8s.io", "events") => NameRule::PathSegment,
        _ => resource.name_rule,
    };
    let mut errors = meta::check(tree, rule, resource.namespaced, resource.custom.is_none());
    if resource.is("", "replicationcontrollers") {
        // Of these the name alone is judged that was made of the prefix.
        errors.retain(|error| error.field != "metadata.generateName");
    }
    if let Some(stored) = stored {
        errors.extend(meta::check_update(tree, meta::tree(stored)));
    }
    if resource.is(EXTENSIONS, "customresourcedefinitions") && part == Part::Main {
        errors.extend(match stored {
            Some(stored) => crd::check_update(tree, meta::tree(stored)),
            None => crd::check(tree),
        });
    }
    if let Some(custom) = &resource.custom {
        let old = stored.map(|stored| with_type(resource, meta::tree(stored)));
        let new = with_type(resource, tree);
        errors.extend(match part {
            Part::Status => custom.schema.validate_status(&new, old.as_ref()),
            _ => custom.schema.validate(&new, old.as_ref()),
        });
    }
    if let (None, Some(ty), Part::Status) = (&resource.custom, resource.ty, part) {
        errors.extend(rules::status(object, ty));
    }
    if let (None, Some(ty), Part::Main) = (&resource.custom, resource.ty, part) {
        errors.extend(match stored {
            Some(stored) => rules::update(object, stored, ty),
            None => rules::create(object, ty),
        });
    }
    if api_services::is_one(resource) && part == Part::Main {
        errors.extend(api_services::check(tree)?);
    }
    if let Some(stored) = stored
        && signing_requests::is_one(resource)
    {
        errors.extend(signing_requests::check(part, tree, meta::tree(stored)));
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Events are checked in the form they are kept in.
    let group = match resource.group.as_str() {
        "events.k8s.io" => "",
        group => group,
    };
    let name = meta::text(tree, "name");
    Err(ApiError::invalid(group, &resource.kind, name, errors))
}

/// The object with its type, as the schemas of definitions describe it.
fn with_type(resource: &Resource, object: &Tree) -> Value {
    let mut object = object.clone();
    object.insert("apiVersion".into(), resource.api_version().into());
    object.insert("kind".into(), resource.kind.clone().into());
    Value::Object(object)
}

/// Fills in what the schema says is meant when nothing is said.
fn default(resource: &Resource, object: &mut Tree) {
    match (&resource.custom, resource.ty) {
        (Some(custom), _) => on_value(object, |value| custom.schema.default(value)),
        // Which versions of a definition are stored follows from the definition.
        (None, Some(ty)) if resource.is(EXTENSIONS, "customresourcedefinitions") => {
            on_value(object, |value| defaults::apply(value, ty));
        }
        _ => {}
    }
}

/// Lends an object as a value.
pub(crate) fn on_value<T>(object: &mut Tree, with: impl FnOnce(&mut Value) -> T) -> T {
    let mut value = Value::Object(std::mem::take(object));
    let outcome = with(&mut value);
    if let Value::Object(changed) = value {
        *object = changed;
    }
    outcome
}

/// Metadata fields that are null are as good as absent.
fn drop_nulls(metadata: &mut Tree) {
    metadata.retain(|_, value| {
        !value.is_null()
            && !matches!(value, Value::Array(list) if list.is_empty())
            && !matches!(value, Value::Object(map) if map.is_empty())
            && value.as_str() != Some("")
    });
}

/// An owner counts once.
fn dedupe_owners(metadata: &mut Tree, warnings: &Warnings) {
    let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") else {
        return;
    };
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut told: BTreeSet<String> = BTreeSet::new();
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        if seen.contains(&uid) {
            if told.insert(uid.clone()) {
                repeated.push(uid);
            }
            return false;
        }
        seen.insert(uid)
    });
    if !repeated.is_empty() {
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}

fn take(object: &mut Tree, from: &Tree, field: &str) {
    match from.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

fn keep_all_but_status(resource: &Resource, object: &mut Tree, stored: &Tree) {
    let status = object.remove("status");
    let metadata = object.remove("metadata");
    stored.clone_into(object);
    match status {
        Some(Value::Null) | None => object.remove("status"),
        Some(status) => object.insert("status".into(), status),
    };
    // Built-in kinds take metadata along with the status; custom resources keep theirs, but for
    // who manages which field.
    match metadata {
        Some(mut metadata) if resource.custom.is_none() => {
            if resource.is("apps", "deployments") {
                let labels = stored
                    .get("metadata")
                    .and_then(|m| m.get("labels"))
                    .cloned();
                metadata["labels"] = labels.unwrap_or_default();
            }
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

fn keep_all_but_finalizers(object: &mut Tree, stored: &Tree) {
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

/// Takes one field of the spec from `object` and everything else from `stored`.
fn keep_all_but(object: &mut Tree, stored: &Tree, field: &str) {
    let value = object.get("spec").and_then(|spec| spec.get(field)).cloned();
    let metadata = object.remove("metadata");
    stored.clone_into(object);
    object.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    if let (Some(Value::Object(spec)), Some(value)) = (object.get_mut("spec"), value) {
        spec.insert(field.to_owned(), value);
    }
}

/// Takes the resources of containers from `object` and everything else from `stored`.
fn keep_all_but_sizes(object: &mut Tree, stored: &Tree) {
    let wanted = object.get("spec").cloned().unwrap_or_default();
    let metadata = object.remove("metadata");
    stored.clone_into(object);
    object.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let same = wanted[list].as_array().into_iter().flatten();
            let mut same = same.filter(|other| other["name"] == container["name"]);
            if let Some(resources) = same.next().and_then(|other| other.get("resources")) {
                container["resources"] = resources.clone();
            }
        }
    }
}

/// What no client can change.
fn keep_system_metadata(object: &mut Tree, stored: &Tree, warnings: &Warnings) {
    let empty = Tree::new();
    let kept = stored
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
        // The prefix of a generated name may be left out but stays.
        take(metadata, kept, field);
    }
    // Nobody moves the time of a deletion under way; one that was not asked for is refused.
    let deleting = kept.get("deletionTimestamp").is_some_and(|t| !t.is_null());
    if deleting || metadata.get("deletionTimestamp").is_none_or(Value::is_null) {
        take(metadata, kept, "deletionTimestamp");
    }
    // Left out, it stays; changed, it is refused.
    if metadata
        .get("deletionGracePeriodSeconds")
        .is_none_or(Value::is_null)
    {
        take(metadata, kept, "deletionGracePeriodSeconds");
    }
    drop_nulls(metadata);
    dedupe_owners(metadata, warnings);
}

fn metadata_changed(field: &str, object: &Tree, stored: &Tree) -> bool {
    let value = |tree: &Tree| tree.get("metadata").and_then(|m| m.get(field)).cloned();
    value(object) != value(stored)
}

/// Whether anything but metadata and status differs.
pub(crate) fn spec_changed(resource: &Resource, object: &Tree, stored: &Tree) -> bool {
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
