//! Which resources the server serves: the built-in kinds and what custom resource definitions add.
//!
//! The [`Registry`] publishes an immutable [`Catalog`]; a request takes the current one and is done
//! with locks. Whenever a definition changes, the next catalog is built aside and swapped in.

mod convert;
pub(crate) mod crd;
mod fields;
pub(crate) mod kind;
mod resource;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};

use self::crd::Definition;
pub(crate) use self::resource::Resource;
use crate::{
    schema::builtin::{self, group_versions},
    store::{Object, Store, TableId},
};

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

fn builtin_kinds() -> impl Iterator<Item = &'static builtin::Resource> {
    group_versions()
        .iter()
        .flat_map(|version| &version.resources)
}

/// Where the objects of a kind are kept: by `group/plural`, whatever the version. Events have two
/// groups and one home.
fn home(kind: &builtin::Resource) -> String {
    let group = if kind.plural == "events" {
        ""
    } else {
        kind.group
    };
    format!("{group}/{}", kind.plural)
}

/// One group as discovery lists it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Preferred first.
    pub(crate) versions: Vec<String>,
    /// Served without a definition.
    pub(crate) builtin: bool,
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

    fn insert(&mut self, resource: Arc<Resource>) {
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
                builtin: resource.custom.is_none(),
            }),
        }
        self.resources.insert(key, resource);
    }
}

/// What definitions add.
#[derive(Debug, Default)]
struct Custom {
    /// The tables of custom resources by `group/plural`.
    tables: BTreeMap<String, TableId>,
    /// The resources of each definition, made anew when its revision changes.
    resources: BTreeMap<String, (u64, Vec<Arc<Resource>>)>,
}

/// The published catalog and how to make the next.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    catalog: RwLock<Arc<Catalog>>,
    /// What definitions add; held while a catalog is being made, so that catalogs are published in
    /// the order of the states they were made from.
    custom: Mutex<Custom>,
    /// The tables of built-in kinds by `group/plural`.
    builtin_tables: BTreeMap<String, TableId>,
    builtin: Vec<Arc<Resource>>,
}

impl Registry {
    pub(crate) fn new(store: &Store) -> Self {
        let mut builtin_tables = BTreeMap::new();
        let mut builtin = Vec::new();
        for kind in builtin_kinds() {
            let table = kind.stored().then(|| {
                *builtin_tables
                    .entry(home(kind))
                    .or_insert_with(|| store.open_table())
            });
            if !is_left_out(kind.group, kind.version, kind.plural) {
                builtin.push(Arc::new(Resource::builtin(kind, table)));
            }
        }
        let registry = Self {
            store: store.clone(),
            catalog: RwLock::default(),
            custom: Mutex::default(),
            builtin_tables,
            builtin,
        };
        *registry.catalog.write() = Arc::new(registry.builtin_catalog());
        registry
    }

    fn builtin_catalog(&self) -> Catalog {
        let mut catalog = Catalog::default();
        for resource in &self.builtin {
            catalog.insert(Arc::clone(resource));
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
        let mut custom = self.custom.lock();
        let Some(Ok(snapshot)) = self.definitions().map(|table| self.store.snapshot(table)) else {
            return;
        };
        let mut catalog = self.builtin_catalog();
        let mut next = Custom::default();
        for object in snapshot.objects.values() {
            let made = match custom.resources.remove(&*object.key) {
                Some(made) if made.0 == object.revision => made,
                _ => (
                    object.revision,
                    self.custom_resources(object, &custom.tables),
                ),
            };
            for resource in &made.1 {
                if let Some(table) = resource.table {
                    next.tables
                        .insert(format!("{}/{}", resource.group, resource.plural), table);
                }
                catalog.insert(Arc::clone(resource));
            }
            next.resources.insert(object.key.to_string(), made);
        }
        *self.catalog.write() = Arc::new(catalog);
        for (name, table) in std::mem::replace(&mut *custom, next).tables {
            if !custom.tables.contains_key(&name) {
                self.store.close_table(table);
            }
        }
    }

    /// What one definition adds, with the table it had before or a new one.
    fn custom_resources(
        &self,
        object: &Object,
        tables: &BTreeMap<String, TableId>,
    ) -> Vec<Arc<Resource>> {
        let definition = Definition::read(&object.decode());
        if !definition.is_established() {
            return Vec::new();
        }
        let name = format!("{}/{}", definition.group, definition.plural);
        let table = tables
            .get(&name)
            .copied()
            .unwrap_or_else(|| self.store.open_table());
        definition
            .resources(table)
            .into_iter()
            .map(Arc::new)
            .collect()
    }
}
