//! The loop that updates, patches, applies and subresources share.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Attributes, MAX_TRIES, Managers, Part, Written,
    commit::{CommitError, drop_managers_if_too_large},
    is_finished,
    managers::keep_unchanged_times,
    prepare::{AFTER_ADMISSION, dedupe_owners, prepare_update, spec_changed},
    with_value,
};
use crate::{
    api::{Api, ApiError},
    meta::{self, Tree},
    registry::Resource,
    schema::{defaults, field::FieldError},
    store::{Change, Expect, Object},
};

/// Computes the next state of an object from the stored one.
pub(crate) type NextState<'a> = &'a mut (dyn FnMut(&Tree) -> Result<Tree, ApiError> + Send);

impl Api {
    /// Changes a stored object: reads it, computes the next state, and commits if the stored object
    /// is still the same; otherwise starts over.
    ///
    /// A `resourceVersion` or UID in the next state must match the stored object.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the change may or may not have been committed.
    pub(crate) async fn change(
        &self,
        write: &Attributes<'_>,
        next_state: NextState<'_>,
    ) -> Result<Written, ApiError> {
        let Attributes {
            resource,
            part,
            options,
            ..
        } = *write;
        let collection = resource
            .collection
            .ok_or_else(|| ApiError::not_implemented(&format!("{} objects", resource.kind)))?;
        let key = write.key();
        for _ in 0..MAX_TRIES {
            let Some(current) = self.store.get(collection, &key) else {
                let (group, plural) = (&resource.group, &resource.plural);
                return Err(ApiError::not_found(group, plural, write.name));
            };
            let stored = Value::Object(self.read_tree(resource, &current).await?);
            let old = meta::tree(&stored);
            let mut new = next_state(old)?;
            check_uid(resource, &new, &current)?;
            let is_named = meta::text(&new, "name") == write.name;
            if write.managers == Managers::Record {
                self.record_write(write, Some(&stored), &mut new).await;
            }
            self.mutate(write, Some(old), &mut new).await?;
            dedupe_owners(&mut new, &options.warnings, AFTER_ADMISSION);
            self.check_permissions(write, &new, Some(old))?;
            check_version(resource, &new, &current)?;
            if is_named {
                keep_uid(&mut new, old);
                check_identity(resource, &new, old)?;
            }
            let _reservation = match part {
                Part::Main => resource.hooks.allocate(self, &mut new, Some(old))?,
                _ => None,
            };
            prepare_update(resource, part, &mut new, old, &self.clock);
            keep_unchanged_times(&stored, &mut new);
            let mut new = self.validated(write, Some(&stored), new).await?;
            if part == Part::Main {
                resource.hooks.warn(&new, Some(old), &options.warnings);
                if resource.custom.is_some() {
                    for warning in meta::finalizer_warnings(&new, Some(old)) {
                        options.warnings.add(warning);
                    }
                }
                if spec_changed(resource, &new, old) {
                    self.controllers.warn(resource, &new, &options.warnings);
                }
            }
            apply_stored_defaults(resource, &mut new);
            let finished = is_finished(resource, &new);
            let reserved = self.reserves(write, Some(old)).then(|| new.clone());
            let content = self.encode_stored(resource, new).await?;
            if let Some(reserved) = reserved {
                // Charge this late so that a write that loses a race is not charged on every try.
                let latest = self.store.get(collection, &key);
                if latest.is_none_or(|latest| latest.revision != current.revision) {
                    continue;
                }
                self.reserve(write, Some(old), &reserved).await?;
            }
            let content = Arc::new(drop_managers_if_too_large(
                resource,
                content,
                write.managers,
            ));
            if !finished && content.same_as(&current.content) {
                return Ok(Written::Stored(current));
            }
            if options.dry_run {
                return Ok(Written::Unstored(content, Some(current.revision)));
            }
            let change = if finished {
                Change::Delete(content)
            } else {
                Change::Put(content)
            };
            let expect = Expect::Revision(current.revision);
            match self.commit(resource, collection, &key, expect, change) {
                Ok(object) if finished => {
                    self.after_delete(resource, &object);
                    // Upstream returns the last readable state, at its own resourceVersion.
                    let content = Arc::clone(&object.content);
                    return Ok(Written::Unstored(content, Some(current.revision)));
                }
                Ok(object) => {
                    self.after_write(resource, &object);
                    return Ok(Written::Stored(object));
                }
                Err(CommitError::Conflict) => {}
                Err(CommitError::Refused(error)) => return Err(error),
            }
        }
        let (group, plural) = (&resource.group, &resource.plural);
        Err(ApiError::modified(group, plural, write.name))
    }

    /// Validates a new state and returns it.
    pub(super) async fn validated(
        &self,
        write: &Attributes<'_>,
        stored: Option<&Value>,
        new: Tree,
    ) -> Result<Tree, ApiError> {
        let new = Value::Object(new);
        self.validate(write, stored, &new).await?;
        Ok(match new {
            Value::Object(new) => new,
            _ => Tree::new(),
        })
    }
}

/// Applies the defaults of the stored version to an object that was written in another version, as
/// a typed server does when it reads back a stored object.
fn apply_stored_defaults(resource: &Resource, object: &mut Tree) {
    if let (Some(_), Some(ty)) = (resource.conversion, resource.stored_ty) {
        with_value(object, |value| defaults::apply(value, ty));
    }
}

pub(super) fn version_required(resource: &Resource, name: &str) -> ApiError {
    let why = "must be specified for an update";
    let errors = vec![FieldError::invalid("metadata.resourceVersion", 0, why)];
    ApiError::invalid(&resource.group, &resource.plural, name, errors)
}

/// Checks the `resourceVersion` of a new state against the stored object. Upstream does so after
/// admission, which may deny the write first.
fn check_version(resource: &Resource, object: &Tree, current: &Object) -> Result<(), ApiError> {
    let version = meta::text(object, "resourceVersion");
    if !version.is_empty() {
        let name = current.name();
        match version.parse::<u64>() {
            Err(_) => {
                let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
                return Err(ApiError::new(500, "", why));
            }
            Ok(0) if !resource.unconditional_update => {
                return Err(version_required(resource, name));
            }
            Ok(revision) if revision != 0 && revision != current.revision => {
                return Err(ApiError::modified(&resource.group, &resource.plural, name));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Restores the UID of a new state that has none.
fn keep_uid(new: &mut Tree, old: &Tree) {
    let uid = meta::text(old, "uid");
    if meta::text(new, "uid").is_empty() && !uid.is_empty() {
        meta::metadata(new).insert("uid".into(), uid.into());
    }
}

/// Checks that neither the client nor admission changed the name or the UID of an object.
pub(super) fn check_identity(resource: &Resource, new: &Tree, old: &Tree) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    for field in ["name", "uid"] {
        let found = meta::text(new, field);
        if found != meta::text(old, field) {
            let path = format!("metadata.{field}");
            errors.push(FieldError::invalid(path, found, "field is immutable"));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream reports these twice: from generic validation and from the kind's own.
    errors.extend(errors.clone());
    let (group, kind, name) = (&resource.group, &resource.kind, meta::text(old, "name"));
    Err(ApiError::invalid(group, kind, name, errors))
}

/// Checks the UID a client sends against the stored object.
fn check_uid(resource: &Resource, object: &Tree, current: &Object) -> Result<(), ApiError> {
    let (uid, stored) = (meta::text(object, "uid"), &current.header().uid);
    if !uid.is_empty() && uid != stored {
        let (key, name) = (&current.key, current.name());
        return Err(uid_mismatch(resource, key, name, uid, stored));
    }
    Ok(())
}

pub(super) fn uid_mismatch(
    resource: &Resource,
    key: &str,
    name: &str,
    sent: &str,
    stored: &str,
) -> ApiError {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}",
        resource.storage_path(key)
    );
    ApiError::conflict(&resource.group, &resource.plural, name, &why)
}
