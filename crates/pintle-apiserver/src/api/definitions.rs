//! The life of a custom resource definition: accepted and served at once, and when deleted kept
//! until its last instance is gone.

use std::sync::Arc;

use serde_json::Value;

use super::{Api, options::WriteOptions, update::is_finished};
use crate::{
    meta::{self, Tree},
    registry::{Resource, crd},
    store::{Change, Expect, Refused, key_of},
};

impl Api {
    fn definition_resource(&self) -> Option<Arc<Resource>> {
        let catalog = self.registry.catalog();
        catalog
            .find(
                crate::registry::EXTENSIONS,
                "v1",
                "customresourcedefinitions",
            )
            .cloned()
    }

    /// Changes a definition until nobody comes between; `false` if it is gone.
    fn change_definition(&self, name: &str, change: &dyn Fn(&mut Tree)) -> bool {
        let Some(resource) = self.definition_resource() else {
            return false;
        };
        let Some(table) = resource.table else {
            return false;
        };
        let key = key_of(None, name);
        loop {
            let Some(current) = self.store.get(table, &key) else {
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
                self.mark_managers(&resource, "status", &options, Some(&stored), &mut tree);
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
            match self
                .store
                .commit(table, &key, Expect::Revision(current.revision), what)
            {
                Ok(_) => return !gone,
                Err(Refused::Mismatch) => {}
                Err(Refused::NoTable) => return false,
            }
        }
    }

    /// Decides on a new or changed definition and serves what it defines.
    pub(crate) fn settle_definition(&self, name: &str) {
        let others = self.other_definitions();
        let now = self.clock.stamp();
        self.change_definition(name, &|tree| {
            if !meta::is_deleting(tree) {
                crd::establish(tree, &others, &now);
            }
        });
        self.registry.refresh();
        self.finish_definition(name);
    }

    fn other_definitions(&self) -> Vec<crd::Definition> {
        let Some(Ok(snapshot)) = self.registry.definitions().map(|t| self.store.snapshot(t)) else {
            return Vec::new();
        };
        snapshot
            .objects
            .values()
            .map(|object| crd::Definition::read(&object.decode()))
            .filter(crd::Definition::is_established)
            .collect()
    }

    /// Deletes the instances of a definition that is going away.
    pub(crate) fn empty_definition(self: &Arc<Self>, name: &str) {
        // From here on nothing new is created.
        self.registry.refresh();
        if let Some(resource) = self.instances_of(name)
            && let Some(Ok(snapshot)) = resource.table.map(|table| self.store.snapshot(table))
        {
            for object in snapshot.objects.values() {
                self.delete_instance(&resource, &object.key);
            }
        }
        self.finish_definition(name);
    }

    /// One resource of a definition; all its versions share their objects.
    fn instances_of(&self, definition: &str) -> Option<Arc<Resource>> {
        let catalog = self.registry.catalog();
        let of = |r: &&Arc<Resource>| {
            r.custom
                .as_ref()
                .is_some_and(|custom| custom.definition == definition)
        };
        catalog.all().find(of).cloned()
    }

    /// Lets go of a definition that is being deleted and has no instances left.
    pub(crate) fn finish_definition(&self, name: &str) {
        let terminating = self
            .registry
            .definitions()
            .and_then(|t| self.store.get(t, name));
        if !terminating.is_some_and(|object| object.header().deleting) {
            return;
        }
        let empty = self
            .instances_of(name)
            .and_then(|resource| resource.table)
            .and_then(|table| self.store.snapshot(table).ok())
            .is_none_or(|snapshot| snapshot.objects.is_empty());
        if !empty {
            return;
        }
        self.change_definition(name, &|tree| {
            let metadata = meta::metadata(tree);
            if let Some(Value::Array(list)) = metadata.get_mut("finalizers") {
                list.retain(|finalizer| finalizer != crd::CLEANUP_FINALIZER);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
        });
        self.registry.refresh();
    }
}
