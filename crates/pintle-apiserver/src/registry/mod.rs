//! Which resources the server serves: the built-in kinds and what custom resource definitions add.
//!
//! The [`Registry`] publishes an immutable [`Catalog`]; a request takes the current one and is done
//! with locks. Whenever a definition changes, the next catalog is built aside and swapped in.

mod convert;
pub(crate) mod crd;
mod fields;
mod kept;
pub(crate) mod kind;
mod resource;

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};

use self::crd::{Definition, version_order};
pub(crate) use self::resource::Resource;
use crate::{
    schema::builtin::{self, group_versions},
    store::{Object, Store, TableId},
};

/// The group of custom resource definitions.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Built-in resources that are not served: they stand for a machinery this server does not
/// have, and an answer would be a pretence.
fn is_left_out(group: &str) -> bool {
    // API aggregation.
    group == "apiregistration.k8s.io"
}

/// A built-in kind that is exchanged below an object or not at all, and has no path of its own.
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
                    if !group.builtin {
                        // Which definition comes first says nothing about its versions.
                        let order = |version: &String| Reverse(version_order(version));
                        group.versions.sort_by_cached_key(order);
                    }
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

/// What one definition adds.
///
/// Its objects are kept as long as the definition is, whatever it serves: a table is opened when the
/// definition is first established and leaves with it.
#[derive(Debug)]
struct Defined {
    uid: String,
    /// The state of the definition this was made from.
    revision: u64,
    /// Its objects in the version they are stored in, served or not.
    instances: Option<Arc<Resource>>,
    /// Preferred version first.
    served: Vec<Arc<Resource>>,
}

impl Defined {
    fn table(&self) -> Option<TableId> {
        self.instances.as_ref()?.table
    }
}

/// What definitions add.
#[derive(Debug, Default)]
struct Custom {
    /// By the name of the definition; made anew when its revision changes.
    definitions: BTreeMap<String, Defined>,
    /// Tables whose definition is gone and that still hold an object: whoever put it there while
    /// the definition went is about to take it back.
    leaving: Vec<TableId>,
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
            if !is_left_out(kind.group) {
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

    /// The objects of a definition, in the version they are stored in.
    pub(crate) fn instances_of(&self, definition: &str) -> Option<Arc<Resource>> {
        let custom = self.custom.lock();
        custom.definitions.get(definition)?.instances.clone()
    }

    /// Publishes a catalog that agrees with the stored definitions; tables of definitions that are
    /// gone are closed.
    pub(crate) fn refresh(&self) {
        let mut custom = self.custom.lock();
        let Some(Ok(snapshot)) = self.definitions().map(|table| self.store.snapshot(table)) else {
            return;
        };
        let mut catalog = self.builtin_catalog();
        let mut before = std::mem::take(&mut custom.definitions);
        for object in snapshot.objects.values() {
            let known = match before.remove(&*object.key) {
                // Another definition of that name has nothing to do with the old one's objects.
                Some(other) if other.uid != object.header().uid => {
                    custom.leaving.extend(other.table());
                    None
                }
                known => known,
            };
            let defined = match known {
                Some(known) if known.revision == object.revision => known,
                known => self.define(object, known.and_then(|known| known.table())),
            };
            for resource in &defined.served {
                catalog.insert(Arc::clone(resource));
            }
            custom.definitions.insert(object.key.to_string(), defined);
        }
        *self.catalog.write() = Arc::new(catalog);
        let gone = before.values().filter_map(Defined::table);
        custom.leaving.extend(gone);
        custom
            .leaving
            .retain(|table| !self.store.close_table(*table));
    }

    /// What one definition adds, with the table it had before or a new one.
    fn define(&self, object: &Object, table: Option<TableId>) -> Defined {
        let definition = Definition::read(&object.decode());
        let established = definition.is_established();
        let table = match table {
            None if established => Some(self.store.open_table()),
            table => table,
        };
        let mut served = Vec::new();
        let mut instances = None;
        if let Some(table) = table {
            if established {
                served.extend(definition.resources(table).into_iter().map(Arc::new));
            }
            instances = definition.stored(table).map(Arc::new);
        }
        Defined {
            uid: object.header().uid.clone(),
            revision: object.revision,
            instances,
            served,
        }
    }
}
