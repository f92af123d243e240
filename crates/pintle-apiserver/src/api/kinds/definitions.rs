//! `CustomResourceDefinitions`: established and served with the write that creates them, and kept
//! until their last instance is gone when they are deleted.

use std::{collections::VecDeque, sync::Arc};

use pintle_clock::Clock;
use serde_json::Value;

use super::Kind;
use crate::{
    api::{
        Api, ApiError, Warnings,
        request::options::WriteOptions,
        write::{
            Part, commit::CommitError, delete::add_finalizer, delete_options::DeleteOptions,
            is_finished, with_value,
        },
    },
    meta::{self, Tree},
    registry::{Claim, Conflict, EXTENSIONS, Resource, crd},
    schema::{
        builtin, defaults,
        field::{FieldError, quote},
    },
    store::{Change, Expect, Object, key_of},
};

/// Names that are stored but not published yet.
#[derive(Default)]
struct StoredNames<'a> {
    group: String,
    /// Holds the names until they are published.
    claim: Option<Claim<'a>>,
    /// The stored definition and the conflict, if it did not get all its names.
    refused: Option<(crd::Definition, Conflict)>,
    /// Whether an earlier claim was released because of a concurrent write.
    lost: bool,
    /// Whether the definition still exists and was updated.
    exists: bool,
}

/// `apiextensions.k8s.io/customresourcedefinitions`.
#[derive(Debug)]
pub(super) struct Definitions;

impl Kind for Definitions {
    /// Keeps the record of stored versions up to date.
    fn prepare_update(&self, part: Part, object: &mut Tree, _stored: &Tree, _clock: &Clock) {
        if part == Part::Main {
            crd::remember_storage(object);
        }
        if let Some(ty) = builtin::kind(EXTENSIONS, "v1", "CustomResourceDefinition") {
            with_value(object, |value| defaults::apply(value, ty));
        }
    }

    fn validate(
        &self,
        part: Part,
        object: &Tree,
        stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        errors.extend(match (part, stored) {
            (Part::Main, Some(stored)) => crd::check_update(object, stored),
            (Part::Main, None) => crd::check(object),
            _ => crd::check_status(object),
        });
        Ok(())
    }

    fn compiles(&self) -> bool {
        true
    }

    fn knows_plain_finalizers(&self) -> bool {
        false
    }

    /// Warns about formats that are not validated, when they first appear.
    fn warn(&self, object: &Tree, stored: Option<&Tree>, warnings: &Warnings) {
        let before = stored.map(crd::unrecognized_formats).unwrap_or_default();
        for format in crd::unrecognized_formats(object).difference(&before) {
            warnings.add(format!("unrecognized format {}", quote(format)));
        }
    }

    fn after_write(&self, api: &Api, object: &Object) {
        api.settle_definition(object.name());
    }

    fn prepare_delete(&self, object: &mut Tree, clock: &Clock) {
        add_finalizer(object, crd::CLEANUP_FINALIZER);
        crd::set_condition(
            object,
            "Terminating",
            true,
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            &clock.stamp(),
        );
    }

    fn has_own_lifecycle(&self) -> bool {
        true
    }

    fn after_mark(&self, api: &Arc<Api>, object: &Object) {
        api.empty_definition(object.name());
    }

    fn after_delete(&self, api: &Api, object: &Object) {
        api.refresh_definition(object.name());
    }
}

impl Api {
    fn definition_resource(&self) -> Option<Arc<Resource>> {
        let catalog = self.registry.catalog();
        let found = catalog.find(EXTENSIONS, "v1", "customresourcedefinitions");
        found.cloned()
    }

    /// Changes a definition, retrying after conflicts. Returns false if it is gone or the change
    /// was rejected.
    fn change_definition(&self, name: &str, change: &mut dyn FnMut(&mut Tree)) -> bool {
        let Some(resource) = self.definition_resource() else {
            return false;
        };
        let Some(collection) = resource.collection else {
            return false;
        };
        let key = key_of(None, name);
        loop {
            let Some(current) = self.store.get(collection, &key) else {
                return false;
            };
            let stored = current.decode();
            let mut tree = stored.clone();
            change(&mut tree);
            if tree != stored {
                let options = WriteOptions {
                    manager: "kube-apiserver".to_owned(),
                    ..WriteOptions::default()
                };
                let stored = Value::Object(stored);
                self.record_manager(&resource, "status", &options, Some(&stored), &mut tree);
            }
            let gone = is_finished(&resource, &tree);
            let content = Arc::new(resource.encode(tree));
            if !gone && content.same_as(&current.content) {
                return true;
            }
            let what = if gone {
                Change::Delete(content)
            } else {
                Change::Put(content)
            };
            let expect = Expect::Revision(current.revision);
            match self.commit(&resource, collection, &key, expect, what) {
                Ok(_) => return !gone,
                Err(CommitError::Conflict) => {}
                Err(CommitError::Refused(error)) => {
                    let why = error.message();
                    tracing::warn!(
                        name,
                        why,
                        "failed to update the status of a CRD; leaving it unchanged"
                    );
                    return false;
                }
            }
        }
    }

    /// Assigns names to a new or changed definition and serves its resources.
    pub(crate) fn settle_definition(&self, name: &str) {
        self.settle_names([name.to_owned()].into());
        self.finish_definition(name);
    }

    /// Updates the served resources of a definition, and assigns the names it released to the
    /// definitions waiting for them.
    pub(crate) fn refresh_definition(&self, name: &str) {
        self.settle_names(self.refresh(name).into());
    }

    /// Publishes the stored state of a definition in discovery and as `APIServices`. Returns the
    /// definitions that may now get a name that became free.
    fn refresh(&self, name: &str) -> Vec<String> {
        let waiting = self.registry.refresh(name);
        self.register_group(crd::group_of(name));
        waiting
    }

    /// Assigns names to the queued definitions, and to those that wait for a name released on the
    /// way. Terminates because each name of a definition changes at most once.
    fn settle_names(&self, mut queue: VecDeque<String>) {
        while let Some(name) = queue.pop_front() {
            let stored = self.store_names(&name);
            queue.extend(self.publish_names(&name, stored));
        }
    }

    /// Decides which names a definition gets and stores that in its status.
    fn store_names(&self, name: &str) -> StoredNames<'_> {
        let mut stored = StoredNames::default();
        stored.exists = self.change_definition(name, &mut |tree| {
            let definition = crd::Definition::read(tree);
            stored.group.clone_from(&definition.group);
            // Release the claim of a lost race before deciding again.
            stored.lost |= stored.claim.take().is_some();
            stored.refused = None;
            if let Some((decision, claim)) = self.registry.claim_names(&definition) {
                crd::establish(tree, &decision, &self.clock.stamp());
                stored.claim = Some(claim);
                let conflict = decision.conflict;
                stored.refused = conflict.map(|conflict| (crd::Definition::read(tree), conflict));
            } else {
                crd::finish_establishing(tree, &self.clock.stamp());
            }
        });
        stored
    }

    /// Publishes the names of a definition. Returns the definitions to reconsider.
    fn publish_names(&self, name: &str, stored: StoredNames<'_>) -> Vec<String> {
        let mut again = self.refresh(name);
        let claimed = stored.claim.is_some();
        drop(stored.claim);
        if stored.lost || (claimed && !stored.exists) {
            // The claimed names were not stored, because of a concurrent write or a deletion. Other
            // definitions may have been denied those names.
            again.extend(self.registry.waiting_for_names(&stored.group));
        }
        // Until now the definition was not registered as waiting, so names released since the
        // decision were not offered to it. Names released from here on are.
        if let Some((definition, conflict)) = stored.refused
            && stored.exists
            && self.registry.name_conflict(&definition) != Some(conflict)
        {
            again.push(name.to_owned());
        }
        again
    }

    /// Deletes the instances of a definition that is being deleted.
    pub(crate) fn empty_definition(self: &Arc<Self>, name: &str) {
        // From here on, creates are rejected. Creates in progress see the mark and undo their work.
        self.refresh_definition(name);
        if let Some(resource) = self.registry.instances_of(name)
            && let Some(Ok(snapshot)) = resource
                .collection
                .map(|collection| self.store.snapshot(collection))
        {
            for object in snapshot.objects.values() {
                // The instance may already be gone.
                let _ = self.delete_unasked(&resource, &object.key, &DeleteOptions::background());
            }
        }
        self.finish_definition(name);
    }

    /// Returns true if a new instance may stay. If its definition was deleted in the meantime, the
    /// instance is removed before its creator gets a response.
    ///
    /// A delete first marks the definition and then looks for instances. A create first stores the
    /// instance and then looks at the definition. So one of the two always sees the other.
    pub(crate) fn keep_instance(&self, resource: &Resource, instance: &Object) -> bool {
        let Some(custom) = &resource.custom else {
            return true;
        };
        let definition = self
            .registry
            .definitions()
            .and_then(|collection| self.store.get(collection, &custom.definition));
        if definition.is_some_and(|d| d.header().uid == custom.uid && !d.header().deleting) {
            return true;
        }
        self.undo_create(resource, instance);
        // The definition may have waited for this instance, or be gone and have left its collection
        // behind.
        self.finish_definition(&custom.definition);
        self.refresh_definition(&custom.definition);
        false
    }

    /// Removes an instance, even if it changed since.
    fn undo_create(&self, resource: &Resource, instance: &Object) {
        let Some(collection) = resource.collection else {
            return;
        };
        while let Some(current) = self.store.get(collection, &instance.key)
            && current.header().uid == instance.header().uid
        {
            let expect = Expect::Revision(current.revision);
            let gone = Change::Delete(Arc::clone(&current.content));
            match self.commit(resource, collection, &instance.key, expect, gone) {
                Ok(_) | Err(CommitError::Refused(_)) => return,
                Err(CommitError::Conflict) => {}
            }
        }
    }

    /// Removes the finalizer of a definition that is being deleted and has no instances left.
    pub(crate) fn finish_definition(&self, name: &str) {
        let terminating = self
            .registry
            .definitions()
            .and_then(|t| self.store.get(t, name));
        if !terminating.is_some_and(|object| object.header().deleting) {
            return;
        }
        let empty = self
            .registry
            .instances_of(name)
            .and_then(|resource| resource.collection)
            .and_then(|collection| self.store.snapshot(collection).ok())
            .is_none_or(|snapshot| snapshot.objects.is_empty());
        if !empty {
            return;
        }
        self.change_definition(name, &mut |tree| {
            let metadata = meta::metadata(tree);
            if let Some(Value::Array(list)) = metadata.get_mut("finalizers") {
                list.retain(|finalizer| finalizer != crd::CLEANUP_FINALIZER);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
        });
        self.refresh_definition(name);
    }
}

#[cfg(test)]
mod tests;
