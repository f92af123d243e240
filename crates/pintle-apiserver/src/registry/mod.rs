//! Which resources the server serves: the built-in kinds and what custom resource definitions add.
//!
//! The [`Registry`] publishes an immutable [`Catalog`]; a request takes the current one and is done
//! with locks. Whenever a definition changes, the next catalog is built aside and swapped in.

pub(crate) mod crd;
mod fields;
pub(crate) mod kind;
mod kinds;
mod resource;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};

pub(crate) use self::resource::{Resource, Sub};
use self::{crd::Definition, kinds::KINDS};
use crate::store::{Store, TableId};

/// The group of custom resource definitions.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Built-in resources that are not served: they stand for a form or a machinery this server does
/// not have, and an answer would be a pretence.
fn is_left_out(group: &str, version: &str, plural: &str) -> bool {
    match (group, plural) {
        // API aggregation, and the health of components that are not there.
        ("apiregistration.k8s.io", _) | ("", "componentstatuses") => true,
        // The older of two forms of one kind.
        ("autoscaling", "horizontalpodautoscalers") => version == "v1",
        _ => false,
    }
}

/// One group as discovery lists it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Preferred first.
    pub(crate) versions: Vec<String>,
}

/// Everything served at one moment.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// By `group/version/plural`.
    resources: BTreeMap<String, Arc<Resource>>,
    /// In discovery order: built-in groups first, then those of definitions by name.
    pub(crate) groups: Vec<Group>,
}

impl Catalog {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&format!("{group}/{version}/{plural}"))
    }

    /// The resources of one group and version, by plural.
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

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn insert(&mut self, resource: Resource) {
        let key = format!(
            "{}/{}/{}",
            resource.group, resource.version, resource.plural
        );
        match self
            .groups
            .iter_mut()
            .find(|group| group.name == resource.group)
        {
            Some(group) => {
                if !group.versions.contains(&resource.version) {
                    group.versions.push(resource.version.clone());
                }
            }
            None => self.groups.push(Group {
                name: resource.group.clone(),
                versions: vec![resource.version.clone()],
            }),
        }
        self.resources.insert(key, Arc::new(resource));
    }
}

/// The published catalog and how to make the next.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    catalog: RwLock<Arc<Catalog>>,
    /// The tables of custom resources by `group/plural`; held while a catalog is being made, so
    /// that catalogs are published in the order of the states they were made from.
    custom_tables: Mutex<BTreeMap<String, TableId>>,
    builtin_tables: BTreeMap<String, TableId>,
}

impl Registry {
    pub(crate) fn new(store: &Store) -> Self {
        let mut builtin_tables = BTreeMap::new();
        for kind in KINDS.iter().filter(|kind| kind.is_stored()) {
            // Events have two groups and one home.
            let group = if kind.plural == "events" {
                ""
            } else {
                kind.group
            };
            builtin_tables
                .entry(format!("{group}/{}", kind.plural))
                .or_insert_with(|| store.open_table());
        }
        let registry = Self {
            store: store.clone(),
            catalog: RwLock::default(),
            custom_tables: Mutex::default(),
            builtin_tables,
        };
        *registry.catalog.write() = Arc::new(registry.builtin_catalog());
        registry
    }

    fn builtin_catalog(&self) -> Catalog {
        let mut catalog = Catalog::default();
        for kind in KINDS
            .iter()
            .filter(|k| !is_left_out(k.group, k.version, k.plural))
        {
            let home = if kind.plural == "events" {
                ""
            } else {
                kind.group
            };
            let table = self
                .builtin_tables
                .get(&format!("{home}/{}", kind.plural))
                .copied();
            catalog.insert(Resource::builtin(kind, table));
        }
        catalog
    }

    /// What is served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// The table of definitions.
    pub(crate) fn definitions(&self) -> Option<TableId> {
        self.builtin_tables
            .get("apiextensions.k8s.io/customresourcedefinitions")
            .copied()
    }

    /// The table of a built-in kind.
    pub(crate) fn builtin_table(&self, group: &str, plural: &str) -> Option<TableId> {
        self.builtin_tables
            .get(&format!("{group}/{plural}"))
            .copied()
    }

    /// Publishes a catalog that agrees with the stored definitions; tables of definitions that are
    /// gone are closed.
    pub(crate) fn refresh(&self) {
        let mut tables = self.custom_tables.lock();
        let Some(Ok(snapshot)) = self.definitions().map(|table| self.store.snapshot(table)) else {
            return;
        };
        let mut catalog = self.builtin_catalog();
        let mut kept = BTreeMap::new();
        for object in snapshot.objects.values() {
            let definition = Definition::read(&object.decode());
            if !definition.is_established() {
                continue;
            }
            let name = format!("{}/{}", definition.group, definition.plural);
            let table = tables
                .get(&name)
                .copied()
                .unwrap_or_else(|| self.store.open_table());
            kept.insert(name, table);
            for resource in definition.resources(table) {
                catalog.insert(resource);
            }
        }
        *self.catalog.write() = Arc::new(catalog);
        for (name, table) in std::mem::replace(&mut *tables, kept) {
            if !tables.contains_key(&name) {
                self.store.close_table(table);
            }
        }
    }
}
