//! Changing objects: PUT, and the loop that patches share.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{
    Answer, Api, ApiError, Call,
    kinds::services,
    kinds::signing_requests,
    request::options::WriteOptions,
    write::commit::{Unwritten, lighten},
    write::create::{Written, settle_namespace},
    write::managers::{Mark, keep_times},
    write::prepare::{Part, check, on_value, prepare_update, spec_changed},
};
use crate::{
    meta::{self, Tree},
    registry::Resource,
    schema::{defaults, field::FieldError},
    store::{Change, Expect, Object},
};

/// How often a write that does not insist on a version is tried again after losing a race.
pub(crate) const TRIES: usize = 64;

/// What a change does to the stored object.
pub(crate) type Changing<'a> = &'a mut dyn FnMut(&Tree) -> Result<Tree, ApiError>;

impl Api {
    /// Answers PUT of an object or one of its subresources.
    pub(crate) fn update(&self, call: &Call, sub: &str) -> Answer {
        let options = call.write_options("UpdateOptions")?;
        let resource = &call.target.resource;
        let mut object = call.object(&options)?;
        settle_namespace(resource, call.target.namespace.as_deref(), &mut object)?;
        let name = call.target.name.as_deref().unwrap_or_default();
        let said = meta::text(&object, "name");
        if said.is_empty() && sub.is_empty() {
            return Err(ApiError::bad_request("name must be provided"));
        }
        if !said.is_empty() && said != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({said}) does not match the name on the URL ({name})"
            )));
        }
        meta::metadata(&mut object).insert("name".into(), name.into());
        let collection = call.collection()?;
        if self.store.get(collection, &call.key()).is_none() {
            if !(resource.create_on_update && sub.is_empty()) {
                return Err(call.missing());
            }
            let uid = meta::text(&object, "uid");
            if uid.is_empty() {
                // What is not there has no version to insist on.
                let mut new = object.clone();
                meta::metadata(&mut new).remove("resourceVersion");
                let namespace = call.target.namespace.as_deref();
                match self.create_object(resource, namespace, new, &options, Mark::Update) {
                    // Somebody came between: this is then a change of theirs.
                    Err(error) if error.is_taken() => {}
                    made => return Ok(made?.answer(201, &call.view(&self.clock), &options)),
                }
            } else {
                return Err(other_uid(resource, &call.key(), name, uid, ""));
            }
        }
        let part = Part::of(sub);
        if names_no_version(&object) && !resource.unconditional_update {
            return Err(version_required(resource, name));
        }
        let mut change = |_stored: &Tree| Ok(object.clone());
        let written = self.change(call, part, &options, Mark::Update, &mut change)?;
        Ok(written.answer(200, &call.view(&self.clock), &options))
    }

    /// Changes a stored object: reads it, lets `change` make the next state from it, checks, and
    /// commits if nobody came between; otherwise starts again. A resource version in the next state
    /// must be the stored one.
    pub(crate) fn change(
        &self,
        call: &Call,
        part: Part,
        options: &WriteOptions,
        mark: Mark,
        change: Changing<'_>,
    ) -> Result<Written, ApiError> {
        let resource = &call.target.resource;
        let collection = call.collection()?;
        let key = call.key();
        for _ in 0..TRIES {
            let Some(current) = self.store.get(collection, &key) else {
                return Err(call.missing());
            };
            let stored = Value::Object(resource.tree(&current.content, Some(current.revision)));
            let tree = meta::tree(&stored);
            let mut object = change(tree)?;
            check_versions(resource, &object, &current)?;
            if mark == Mark::Update {
                let sub = call.target.sub.as_deref().unwrap_or_default();
                self.mark_managers(resource, sub, options, Some(&stored), &mut object);
            }
            let _promise = match part {
                Part::Main => self.give_service(resource, &mut object, Some(tree))?,
                _ => None,
            };
            prepare_update(resource, part, &mut object, tree, &options.warnings);
            if signing_requests::is_one(resource) {
                let now = self.clock.stamp();
                signing_requests::prepare_update(part, &mut object, tree, &now);
            }
            keep_times(&stored, &mut object);
            on_value(&mut object, |object| {
                check(resource, part, object, Some(&stored))
            })?;
            if part == Part::Main {
                services::warn(resource, &object, &options.warnings);
                if spec_changed(resource, &object, tree) {
                    self.controllers.warn(resource, &options.warnings);
                }
            }
            complete_converted(resource, &mut object);
            let gone = is_finished(resource, &object);
            let content = Arc::new(lighten(resource, resource.encode(object), mark));
            if !gone && content.same_as(&current.content) {
                return Ok(Written::Stored(current));
            }
            if options.dry_run {
                return Ok(Written::Tried(content, Some(current.revision)));
            }
            let what = if gone {
                Change::Delete(content)
            } else {
                Change::Put(content)
            };
            let expect = Expect::Revision(current.revision);
            match self.commit(resource, collection, &key, expect, what) {
                Ok(object) => {
                    if gone {
                        self.after_delete(resource, &object);
                        // The last state anybody could have read, at its own version.
                        let content = Arc::clone(&object.content);
                        return Ok(Written::Tried(content, Some(current.revision)));
                    }
                    self.after_write(resource, &object);
                    return Ok(Written::Stored(object));
                }
                Err(Unwritten::Mismatch) => {}
                Err(Unwritten::Refused(error)) => return Err(error),
            }
        }
        Err(ApiError::modified(
            &resource.group,
            &resource.plural,
            call.target.name.as_deref().unwrap_or_default(),
        ))
    }
}

/// What was written in another form has the defaults of that one: it gets those of the stored form,
/// too, as when a typed server reads back what it stored.
fn complete_converted(resource: &Resource, object: &mut Tree) {
    if let (Some(_), Some(ty)) = (resource.conversion, resource.stored_ty) {
        on_value(object, |value| defaults::apply(value, ty));
    }
}

/// Whether an object to be written does not say which state it replaces: version 0 is none.
fn names_no_version(object: &Tree) -> bool {
    let version = meta::text(object, "resourceVersion");
    version.is_empty() || version.parse() == Ok(0_u64)
}

fn version_required(resource: &Resource, name: &str) -> ApiError {
    ApiError::invalid(
        &resource.group,
        &resource.plural,
        name,
        vec![FieldError::invalid(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        )],
    )
}

/// The version and uid a client sends must be those of the stored object.
fn check_versions(resource: &Resource, object: &Tree, current: &Object) -> Result<(), ApiError> {
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
    let uid = meta::text(object, "uid");
    let stored = &current.header().uid;
    if !uid.is_empty() && uid != stored {
        return Err(other_uid(
            resource,
            &current.key,
            current.name(),
            uid,
            stored,
        ));
    }
    Ok(())
}

fn other_uid(resource: &Resource, key: &str, name: &str, said: &str, stored: &str) -> ApiError {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {said}, UID in object meta: {stored}",
        resource.storage_path(key)
    );
    ApiError::conflict(&resource.group, &resource.plural, name, &why)
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(crate) fn is_finished(resource: &Resource, object: &Tree) -> bool {
    if !meta::is_deleting(object) || !meta::finalizers(object).is_empty() {
        return false;
    }
    let grace = object
        .get("metadata")
        .and_then(|m| m.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if resource.is("", "namespaces") && crate::api::kinds::namespaces::has_finalizers(object) {
        return false;
    }
    grace == 0
}
