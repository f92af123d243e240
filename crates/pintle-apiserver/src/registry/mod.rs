//! The resources that are served: built-in kinds and those that CRDs define.
//!
//! [`Registry`] publishes an immutable [`Catalog`]. A request clones the current one and needs no
//! further locking. When a definition changes, the next catalog is derived from the current one and
//! swapped in. Catalogs share structure, so the cost of a change does not depend on the number of
//! definitions.

pub(crate) mod crd;
mod resource;
mod selectable_fields;
pub(crate) mod served_versions;
pub(crate) mod verbs;

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};
use rpds::RedBlackTreeMapSync;
use tokio_util::sync::CancellationToken;

use self::crd::{Definition, Entry, Names, version_order};
pub(crate) use self::{
    crd::{Claim, Conflict},
    resource::{Resource, Sub, api_version},
};
use crate::{
    schema::builtin::{self, group_versions},
    store::{CollectionId, Object, Store},
};

/// The API group of CRDs.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Returns a built-in kind that is not stored and has no path of its own: it is used only in
/// subresources.
pub(crate) fn unstored(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::builtin(
        &builtin::Resource {
            group,
            version,
            plural,
            singular: "",
            kind,
            namespaced: true,
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            storage_version_hash: None,
            subresources: Vec::new(),
        },
        None,
    )
}

fn builtin_kinds() -> impl Iterator<Item = &'static builtin::Resource> {
    group_versions()
        .iter()
        .flat_map(|version| &version.resources)
}

/// Returns the group and plural of the collection that a kind is stored in. All versions share one,
/// and so do core and `events.k8s.io` events.
fn collection_key(kind: &builtin::Resource) -> (&str, &str) {
    let group = if kind.plural == "events" {
        ""
    } else {
        kind.group
    };
    (group, kind.plural)
}

/// An API group as discovery lists it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// The preferred version first.
    pub(crate) versions: Vec<String>,
    /// Served without a CRD.
    pub(crate) builtin: bool,
    /// The position of a built-in group in discovery.
    position: usize,
}

/// A snapshot of everything that is served. Clones share structure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    /// By `group/version/plural`.
    resources: RedBlackTreeMapSync<String, Arc<Resource>>,
    /// By name.
    groups: RedBlackTreeMapSync<String, Group>,
}

fn catalog_key(resource: &Resource) -> String {
    let (group, version) = (&resource.group, &resource.version);
    format!("{group}/{version}/{}", resource.plural)
}

impl Catalog {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&format!("{group}/{version}/{plural}"))
    }

    /// Returns the resources of one group version, ordered by plural.
    pub(crate) fn of_version<'a>(
        &'a self,
        group: &str,
        version: &str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> + use<'a> {
        let start = format!("{group}/{version}/");
        let end = format!("{group}/{version}0");
        self.resources
            .range(start..end)
            .map(|(_, resource)| resource)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Returns the other served versions of a resource: those with the same objects.
    pub(crate) fn equivalents(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let same = |other: &&Arc<Resource>| {
            other.plural == resource.plural
                && other.collection == resource.collection
                && (&other.group, &other.version) != (&resource.group, &resource.version)
        };
        if resource.collection.is_none() {
            return Vec::new();
        }
        self.resources.values().filter(same).cloned().collect()
    }

    /// Returns groups in discovery order: built-in groups first, then CRD groups by name.
    pub(crate) fn groups(&self) -> Vec<&Group> {
        let mut groups: Vec<&Group> = self.groups.values().collect();
        groups.sort_by_key(|group| (!group.builtin, group.position));
        groups
    }

    fn insert(&mut self, resource: Arc<Resource>) {
        let group = match self.groups.get(&resource.group) {
            Some(group) if group.versions.contains(&resource.version) => None,
            Some(group) => {
                let mut group = group.clone();
                group.versions.push(resource.version.clone());
                if !group.builtin {
                    // CRDs arrive in any order, so sort the versions by priority.
                    let order = |version: &String| Reverse(version_order(version));
                    group.versions.sort_by_cached_key(order);
                }
                Some(group)
            }
            None => Some(Group {
                name: resource.group.clone(),
                versions: vec![resource.version.clone()],
                builtin: resource.custom.is_none(),
                position: self.groups.size(),
            }),
        };
        if let Some(mut group) = group {
            if !group.builtin {
                group.position = 0;
            }
            self.groups.insert_mut(resource.group.clone(), group);
        }
        self.resources.insert_mut(catalog_key(&resource), resource);
    }

    fn remove(&mut self, resource: &Resource) {
        self.resources.remove_mut(&catalog_key(resource));
        let (name, version) = (&resource.group, &resource.version);
        if self.of_version(name, version).next().is_some() {
            return;
        }
        let Some(mut group) = self.groups.get(name).cloned() else {
            return;
        };
        group.versions.retain(|served| served != version);
        if group.versions.is_empty() {
            self.groups.remove_mut(name);
        } else {
            self.groups.insert_mut(name.clone(), group);
        }
    }
}

/// The part of the catalog that one CRD adds.
///
/// A collection is opened when the CRD is first established and closed when the CRD is gone. It
/// outlives changes to the served resources.
#[derive(Debug)]
struct Defined {
    uid: String,
    /// The revision of the CRD that this was built from.
    revision: u64,
    /// Identifies the served resources; see [`Definition::fingerprint`].
    fingerprint: u64,
    /// Ends watches that were opened before the CRD changed.
    superseded: CancellationToken,
    names: Entry,
    /// The resource of the storage version, served or not.
    instances: Option<Arc<Resource>>,
    /// Served resources, preferred version first.
    served: Vec<Arc<Resource>>,
}

impl Defined {
    fn collection(&self) -> Option<CollectionId> {
        self.instances.as_ref()?.collection
    }

    /// Returns the same resources with their own watches, for another server.
    fn fork(&self) -> Self {
        let superseded = CancellationToken::new();
        let renewed = |resource: &Arc<Resource>| Arc::new(resource.with_watches_of(&superseded));
        Self {
            uid: self.uid.clone(),
            revision: self.revision,
            fingerprint: self.fingerprint,
            names: self.names.clone(),
            instances: self.instances.as_ref().map(renewed),
            served: self.served.iter().map(renewed).collect(),
            superseded,
        }
    }
}

/// The part of the catalog that all CRDs add.
#[derive(Debug, Default)]
struct Custom {
    /// By CRD name; rebuilt when the CRD's revision changes.
    definitions: BTreeMap<String, Defined>,
    names: Names,
    /// Collections of removed CRDs that still hold an object, because a create raced with the
    /// removal. That request is about to delete the object again.
    leaving: Vec<CollectionId>,
}

/// Publishes the current catalog and derives the next one.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    catalog: RwLock<Arc<Catalog>>,
    /// Held while a catalog is built, so that catalogs are published in the order of the states
    /// they were built from.
    custom: Mutex<Custom>,
    /// The collections of built-in kinds by group and plural.
    builtin_collections: BTreeMap<(&'static str, &'static str), CollectionId>,
}

impl Registry {
    pub(crate) fn new(store: &Store) -> Self {
        let mut builtin_collections = BTreeMap::new();
        let mut catalog = Catalog::default();
        for kind in builtin_kinds() {
            let collection = kind.stored().then(|| {
                *builtin_collections
                    .entry(collection_key(kind))
                    .or_insert_with(|| store.open_collection())
            });
            catalog.insert(Arc::new(Resource::builtin(kind, collection)));
        }
        let registry = Self {
            store: store.clone(),
            catalog: RwLock::default(),
            custom: Mutex::default(),
            builtin_collections,
        };
        *registry.catalog.write() = Arc::new(catalog);
        registry
    }

    /// Returns a registry of the same resources, with the collections of a fork of the store.
    pub(crate) fn fork(&self, store: &Store) -> Self {
        let custom = self.custom.lock();
        let mut catalog = Catalog::clone(&self.catalog.read());
        let mut definitions = BTreeMap::new();
        for (name, defined) in &custom.definitions {
            let defined = defined.fork();
            for resource in &defined.served {
                catalog.insert(Arc::clone(resource));
            }
            definitions.insert(name.clone(), defined);
        }
        Self {
            store: store.clone(),
            catalog: RwLock::new(Arc::new(catalog)),
            custom: Mutex::new(Custom {
                definitions,
                names: custom.names.clone(),
                leaving: custom.leaving.clone(),
            }),
            builtin_collections: self.builtin_collections.clone(),
        }
    }

    /// Returns the current catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Returns the collection of CRDs.
    pub(crate) fn definitions(&self) -> Option<CollectionId> {
        self.builtin_collection("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Returns the collection of a built-in kind.
    pub(crate) fn builtin_collection(&self, group: &str, plural: &str) -> Option<CollectionId> {
        self.builtin_collections.get(&(group, plural)).copied()
    }

    /// Returns the resource of a CRD's storage version.
    pub(crate) fn instances_of(&self, definition: &str) -> Option<Arc<Resource>> {
        let custom = self.custom.lock();
        custom.definitions.get(definition)?.instances.clone()
    }

    /// Updates the catalog after a CRD changed or was removed. If it released a name, returns the
    /// CRDs of its group that wait for one, so that the caller can reconsider them.
    pub(crate) fn refresh(&self, name: &str) -> Vec<String> {
        let mut custom = self.custom.lock();
        let stored = self
            .definitions()
            .and_then(|collection| self.store.get(collection, name));
        let before = custom.definitions.remove(name);
        let waiting = match (stored, before) {
            (Some(stored), Some(before)) if before.revision == stored.revision => {
                custom.definitions.insert(name.to_owned(), before);
                Vec::new()
            }
            (stored, before) => {
                let mut catalog = Catalog::clone(&self.catalog.read());
                for resource in before.iter().flat_map(|before| &before.served) {
                    catalog.remove(resource);
                }
                // A CRD recreated under the same name does not inherit the old one's objects.
                let same = stored.as_ref().zip(before.as_ref());
                let same = same.is_some_and(|(stored, before)| stored.header().uid == before.uid);
                if !same {
                    custom
                        .leaving
                        .extend(before.as_ref().and_then(Defined::collection));
                }
                let defined =
                    stored.map(|stored| self.define(&stored, before.as_ref().filter(|_| same)));
                for resource in defined.iter().flat_map(|defined| &defined.served) {
                    catalog.insert(Arc::clone(resource));
                }
                *self.catalog.write() = Arc::new(catalog);
                if let Some(before) = &before
                    && defined
                        .as_ref()
                        .is_some_and(|defined| defined.fingerprint != before.fingerprint)
                {
                    before.superseded.cancel();
                }
                let (old, new) = (before.map(|b| b.names), defined.as_ref().map(|d| &d.names));
                let waiting = custom.names.replace(name, old.as_ref(), new);
                if let Some(defined) = defined {
                    custom.definitions.insert(name.to_owned(), defined);
                }
                waiting
            }
        };
        custom
            .leaving
            .retain(|collection| !self.store.close_collection(*collection));
        waiting
    }

    /// Builds the part that a CRD adds, reusing the collection it had `before`.
    fn define(&self, object: &Object, before: Option<&Defined>) -> Defined {
        let definition = Definition::read(&object.decode());
        let established = definition.is_established();
        let fingerprint = definition.fingerprint();
        let superseded = before
            .filter(|before| before.fingerprint == fingerprint)
            .map_or_else(CancellationToken::new, |before| before.superseded.clone());
        let collection = match before.and_then(Defined::collection) {
            None if established => Some(self.store.open_collection()),
            collection => collection,
        };
        let (mut served, mut instances) = (Vec::new(), None);
        if let Some(collection) = collection {
            (served, instances) = definition.resources(collection, &superseded);
        }
        if !established {
            served.clear();
        }
        Defined {
            uid: object.header().uid.clone(),
            revision: object.revision,
            fingerprint,
            superseded,
            names: Entry::of(&definition),
            instances: instances.map(Arc::new),
            served: served.into_iter().map(Arc::new).collect(),
        }
    }
}
