//! Deletes: finalizers, grace periods, propagation, collections.
//!
//! A delete marks the object with a deletion timestamp. If neither finalizers, a grace period nor
//! the kind itself hold it, the same commit removes it; otherwise the write that clears the last
//! hold does.

use std::sync::Arc;

use jiff::Timestamp;
use pintle_clock::format_seconds;
use serde_json::{Value, json};

use super::{
    Attributes, MAX_TRIES, Managers, Operation, Part,
    commit::CommitError,
    delete_options::{DeleteOptions, Propagation, check_preconditions, delete_options},
    is_finished,
};
use crate::{
    api::{
        Answer, Api, ApiError, Call,
        read::list::list_answer,
        request::options::{FieldValidation, Sent, WriteOptions},
        response::{
            self,
            status::{Details, Status},
        },
    },
    meta::{self, Tree},
    registry::Resource,
    server::PodDeletion,
    store::{Change, Expect, Object},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The result of a delete.
pub(crate) enum Deleted {
    /// The object is gone.
    Gone(Arc<Object>),
    /// The object is marked for deletion and stays until nothing holds it.
    Marked(Arc<Object>),
}

impl Api {
    /// Handles DELETE of an object.
    pub(crate) async fn delete(self: &Arc<Self>, call: &Call) -> Answer {
        let options = delete_options(call)?;
        let resource = &call.target.resource;
        if options.propagation.is_none()
            && let Some(warning) = resource.hooks.delete_warning()
        {
            call.warnings.add(warning.to_owned());
        }
        Ok(
            match self.delete_object(call, &call.key(), &options).await? {
                Deleted::Gone(object) if !resource.returns_deleted => {
                    response::document(200, &success(resource, &object))
                }
                Deleted::Gone(object) | Deleted::Marked(object) => {
                    let object = self.shown(resource, object).await?;
                    response::object(200, &call.view(&self.clock), &object)
                }
            },
        )
    }

    /// Handles DELETE of a collection.
    pub(crate) async fn delete_collection(self: &Arc<Self>, call: &Call) -> Answer {
        let options = delete_options(call)?;
        let found = self.find(call).await?;
        let metadata = found.metadata(&call.target.resource);
        let mut items = Vec::new();
        for object in found.items {
            match self.delete_object(call, &object.key, &options).await {
                // The response shows the objects as they were listed.
                Ok(_) => items.push(object),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(list_answer(call.view(&self.clock), &metadata, items))
    }

    /// Deletes an object for a request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the object may or may not have been deleted.
    pub(crate) async fn delete_object(
        self: &Arc<Self>,
        call: &Call,
        key: &Arc<str>,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let resource = &call.target.resource;
        for _ in 0..MAX_TRIES {
            let current = self.current(resource, key)?;
            check_preconditions(resource, &current, options)?;
            let old = self.read_tree(resource, &current).await?;
            let grace = grace_of(resource, &old, options);
            if grace == Grace::Pending {
                return Ok(Deleted::Marked(current));
            }
            self.admit_graceful(call, key, &old, options, grace).await?;
            let old = if resource.is_converted() {
                resource.stored_tree(&current)
            } else {
                old
            };
            if let Some(deleted) = self.try_delete(resource, &current, old, options)? {
                return Ok(deleted);
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, key))
    }

    /// Runs admission on a delete: once, or twice if upstream marks the object and then removes it.
    async fn admit_graceful(
        &self,
        call: &Call,
        key: &str,
        old: &Tree,
        options: &DeleteOptions,
        grace: Grace,
    ) -> Result<(), ApiError> {
        let resource = &call.target.resource;
        let write_options = WriteOptions {
            dry_run: options.dry_run,
            manager: String::new(),
            field_validation: FieldValidation::default(),
            warnings: call.warnings.clone(),
            audit: call.audit.clone(),
            sent: Sent::deletion(&options.reviewed(grace)),
            deadline: options.deadline,
        };
        let write = Attributes {
            operation: Operation::Delete,
            name: name_of(key),
            user: (!options.admitted).then_some(&call.user),
            ..call.update_of(Part::Everything, &write_options, Managers::Keep)
        };
        // The review of a whole collection names no object.
        let name = call.target.name.as_deref().unwrap_or_default();
        self.admit_delete(&write, name, old).await?;
        if grace != Grace::Period(0) || options.dry_run {
            return Ok(());
        }
        let mut marked = old.clone();
        self.mark(resource, &mut marked, options);
        if meta::finalizers(&marked).is_empty() {
            self.admit_delete(&write, name, &marked).await?;
        }
        Ok(())
    }

    /// Deletes an object on the server's own behalf.
    pub(crate) fn delete_unasked(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        key: &Arc<str>,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        for _ in 0..MAX_TRIES {
            let current = self.current(resource, key)?;
            check_preconditions(resource, &current, options)?;
            let old = resource.stored_tree(&current);
            if let Some(deleted) = self.try_delete(resource, &current, old, options)? {
                return Ok(deleted);
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, key))
    }

    fn current(&self, resource: &Resource, key: &str) -> Result<Arc<Object>, ApiError> {
        let collection = resource.collection.ok_or_else(ApiError::unknown_resource)?;
        self.store
            .get(collection, key)
            .ok_or_else(|| ApiError::not_found(&resource.group, &resource.plural, name_of(key)))
    }

    /// Deletes or marks an object. Returns `None` if it changed since it was read.
    fn try_delete(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        current: &Arc<Object>,
        old: Tree,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, ApiError> {
        let collection = resource.collection.ok_or_else(ApiError::unknown_resource)?;
        let key = &current.key;
        let mut object = old.clone();
        self.mark(resource, &mut object, options);
        let gone = is_finished(resource, &object);
        let without_mark = gone && !resource.hooks.keeps_deletion_mark();
        if options.dry_run {
            return Ok(Some(if without_mark {
                Deleted::Gone(Arc::clone(current))
            } else {
                Deleted::Marked(Arc::new(Object {
                    key: Arc::clone(key),
                    revision: current.revision,
                    content: Arc::new(resource.encode_again(object, &current.content)),
                }))
            }));
        }
        let last = if without_mark { old } else { object };
        let content = Arc::new(resource.encode_again(last, &current.content));
        if !gone && content.same_as(&current.content) {
            return Ok(Some(Deleted::Marked(Arc::clone(current))));
        }
        let change = if gone {
            Change::Delete(content)
        } else {
            Change::Put(content)
        };
        let expect = Expect::Revision(current.revision);
        let committed = if options.unobserved {
            let committed = self.store.commit(collection, key, expect, change);
            committed.map_err(CommitError::from)
        } else {
            self.commit(resource, collection, key, expect, change)
        };
        match committed {
            Ok(object) if gone => {
                self.after_delete(resource, &object);
                Ok(Some(Deleted::Gone(object)))
            }
            Ok(object) => {
                resource.hooks.after_mark(self, &object);
                Ok(Some(Deleted::Marked(object)))
            }
            Err(CommitError::Conflict) => Ok(None),
            Err(CommitError::Refused(error)) => Err(error),
        }
    }

    /// Marks an object as being deleted.
    fn mark(&self, resource: &Resource, object: &mut Tree, options: &DeleteOptions) {
        set_propagation(resource, object, options.propagation);
        resource.hooks.prepare_delete(object, &self.clock);
        let now = self.clock.now();
        if meta::is_deleting(object) {
            if let Some(grace) = options.grace {
                shorten_grace(object, grace, now);
            }
            return;
        }
        let grace = match self.pod_deletion {
            PodDeletion::AtOnce => 0,
            _ => resource.hooks.grace(object, options.grace),
        };
        let metadata = meta::metadata(object);
        let at = add_seconds(now, grace);
        metadata.insert("deletionTimestamp".into(), format_seconds(at).into());
        if resource.hooks.has_own_lifecycle() {
            return;
        }
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if meta::generation(object) > 0 {
            let next = meta::generation(object) + 1;
            meta::set_generation(object, next);
        }
    }
}

/// How a delete treats the grace period of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// The kind has no grace period, or it has expired.
    None,
    /// The object is removed after this many seconds.
    Period(i64),
    /// An earlier delete marked the object, and this one does not shorten its period.
    Pending,
}

/// Returns how Kubernetes treats the grace period, regardless of what simulates the kubelet here.
fn grace_of(resource: &Resource, object: &Tree, options: &DeleteOptions) -> Grace {
    if !resource.hooks.keeps_deletion_mark() {
        return Grace::None;
    }
    if !meta::is_deleting(object) {
        return Grace::Period(resource.hooks.grace(object, options.grace));
    }
    let running = object
        .get("metadata")
        .and_then(|metadata| metadata.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64);
    match (running.unwrap_or(0), options.grace.map(shortest)) {
        (0, _) => Grace::None,
        (running, Some(grace)) if grace < running => Grace::Period(grace),
        _ => Grace::Pending,
    }
}

/// Returns a grace period; a negative one counts as the shortest graceful period.
fn shortest(grace: i64) -> i64 {
    if grace < 0 { 1 } else { grace }
}

fn name_of(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// Shortens the grace period of a terminating Pod. The new period counts from the first deletion;
/// an equal or longer one is ignored.
fn shorten_grace(object: &mut Tree, grace: i64, now: Timestamp) {
    let at = meta::text(object, "deletionTimestamp").parse::<Timestamp>();
    let metadata = meta::metadata(object);
    let running = metadata.get("deletionGracePeriodSeconds");
    let running = running.and_then(Value::as_i64).unwrap_or(0);
    let mut grace = shortest(grace);
    if grace >= running {
        return;
    }
    let mut at = add_seconds(at.unwrap_or(now), grace - running);
    if at < now {
        // The shorter period is already over. Unless it was zero, the kubelet still does the final
        // delete, so keep the shortest graceful period there is.
        at = now;
        grace = grace.min(1);
    }
    metadata.insert("deletionTimestamp".into(), format_seconds(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// Adds seconds, which may be negative, to a time.
fn add_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    let sum = time.saturating_add(jiff::SignedDuration::from_secs(seconds));
    sum.unwrap_or(Timestamp::MAX)
}

/// Returns the Status for an object that is gone.
fn success<'a>(resource: &'a Resource, object: &'a Object) -> Status<'a> {
    Status::success().details(Details {
        name: object.name(),
        group: &resource.group,
        kind: &resource.plural,
        uid: &object.header().uid,
        ..Details::default()
    })
}

/// Adds a finalizer unless the object has it.
pub(crate) fn add_finalizer(object: &mut Tree, finalizer: &str) {
    let list = meta::metadata(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

/// Sets the finalizers that make the garbage collector propagate the delete.
fn set_propagation(resource: &Resource, object: &mut Tree, wanted: Option<Propagation>) {
    let (orphan, foreground) = match wanted {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None => {
            let has = |f: &str| meta::finalizers(object).contains(&f);
            let (orphan, foreground) = (has(ORPHAN), has(FOREGROUND));
            let default = resource.hooks.orphans_by_default() && !foreground;
            (orphan || default, foreground)
        }
    };
    let metadata = meta::metadata(object);
    if let Some(Value::Array(list)) = metadata.get_mut("finalizers") {
        list.retain(|f| (orphan || f != ORPHAN) && (foreground || f != FOREGROUND));
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
    for (wanted, finalizer) in [(orphan, ORPHAN), (foreground, FOREGROUND)] {
        if wanted {
            add_finalizer(object, finalizer);
        }
    }
}

impl DeleteOptions {
    /// Returns the options as admission reviews show them, with the period that applies.
    fn reviewed(&self, grace: Grace) -> Arc<Value> {
        let period = match grace {
            Grace::Period(period) => Some(period),
            _ => self.grace.map(shortest),
        };
        let Some(period) = period.filter(|period| self.sent["gracePeriodSeconds"] != *period)
        else {
            return Arc::clone(&self.sent);
        };
        let mut shown = Value::clone(&self.sent);
        shown["gracePeriodSeconds"] = period.into();
        Arc::new(shown)
    }
}
