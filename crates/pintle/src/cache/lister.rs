//! Reading from the cache.

use std::{fmt, sync::Arc};

use super::{indexer::Shared, selector::Selector};
use crate::object::{Kind, Object, ObjectKey};

/// An index that nobody defined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {name:?}")]
pub struct UnknownIndex {
    name: String,
}

/// Reads the cache of an informer. Cloning is cheap.
///
/// Each answer is from one state of the cache, and the objects in it are shared and cannot be
/// changed. That an object is not there is an answer, not an error. Lists come in no order.
///
/// A lister keeps its informer running for as long as it lives. If the informer of a
/// [factory](crate::informer::InformerFactory) has stopped and another takes its place, as when a
/// leader regains its lease, the lister follows: it shows the last state of the old informer until
/// the new one has synced, and reads from that from then on.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use pintle::cache::{Indexer, Reader};
/// # let indexer = Indexer::<Pod>::new();
/// # indexer.put(Reader::new().read(br#"{"metadata":{"name":"web-0","namespace":"default"}}"#).unwrap());
/// # let pods = indexer.lister();
/// assert!(pods.namespace("default").get("web-0").is_some());
/// assert!(pods.get(&"default/gone".parse().unwrap()).is_none());
/// assert_eq!(pods.list().len(), 1);
/// ```
pub struct Lister<K: Kind> {
    shared: Arc<Shared<K>>,
    keep: Option<Arc<dyn Send + Sync>>,
}

impl<K: Kind> Lister<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, keep: Option<Arc<dyn Send + Sync>>) -> Self {
        Self { shared, keep }
    }

    /// The object of `key`, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        self.shared
            .read(|state| state.store.get(key.namespace(), key.name()).cloned())
    }

    /// All objects.
    pub fn list(&self) -> Vec<Object<K>> {
        self.shared.read(|state| {
            let mut objects = Vec::with_capacity(state.store.len());
            objects.extend(state.store.iter().cloned());
            objects
        })
    }

    /// The objects whose labels `selector` selects. It is asked once for all objects with the same
    /// labels, where that saves anything.
    pub fn list_matching(&self, selector: &Selector) -> Vec<Object<K>> {
        if selector.is_nothing() {
            return Vec::new();
        }
        if selector.is_everything() {
            return self.list();
        }
        let selected = self
            .shared
            .read(|state| state.store.selected(None, selector));
        selected.ask(selector)
    }

    /// The objects of one namespace. The empty name means all namespaces.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<K> {
        NamespaceLister {
            lister: self.clone(),
            namespace: namespace.into(),
        }
    }

    /// The objects that have `value` in the index `name`; none for a value that no object has.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Object<K>>, UnknownIndex> {
        self.shared.read(|state| {
            let index = state.index(name).ok_or_else(|| unknown(name))?;
            Ok(state.store.by_index(index, value))
        })
    }

    /// The keys of [`by_index`](Self::by_index), sorted.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, UnknownIndex> {
        let mut keys: Vec<_> = self
            .by_index(name, value)?
            .iter()
            .map(|object| object.key().clone())
            .collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The values that some object has in the index `name`, sorted; none for an unknown index.
    pub fn index_values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<String> = self.shared.read(|state| {
            let index = state
                .index(name)
                .and_then(|index| state.store.indices.get(index));
            index
                .into_iter()
                .flat_map(|index| index.values().map(str::to_owned))
                .collect()
        });
        values.sort_unstable();
        values
    }

    /// The objects that share at least one value of the index `name` with the object of `key`,
    /// each once, itself included; none if there is no such object.
    pub fn sharing(&self, name: &str, key: &ObjectKey) -> Result<Vec<Object<K>>, UnknownIndex> {
        self.shared.read(|state| {
            let index = state.index(name).ok_or_else(|| unknown(name))?;
            let Some(slot) = state.store.slot(key) else {
                return Ok(Vec::new());
            };
            let index = &state.store.indices[index];
            let mut slots: Vec<u32> = index
                .of(slot)
                .flat_map(|value| index.get(value))
                .copied()
                .collect();
            slots.sort_unstable();
            slots.dedup();
            Ok(slots
                .into_iter()
                .filter_map(|slot| state.store.at(slot).cloned())
                .collect())
        })
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.read(|state| state.store.len())
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the server's state that the cache shows; empty before the first list.
    ///
    /// The cache never shows a mixture: every change up to this version is in it, and none after.
    pub fn resource_version(&self) -> String {
        self.shared
            .read(|state| state.store.resource_version.clone())
    }

    /// Resolves when the cache has moved on since this was called: its contents or its version.
    ///
    /// Look at the cache after the call and before waiting, and no change is missed. Cancel safe.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<K> {
        self.shared.changed()
    }
}

fn unknown(name: &str) -> UnknownIndex {
    UnknownIndex {
        name: name.to_owned(),
    }
}

/// Reads the objects of one namespace.
pub struct NamespaceLister<K: Kind> {
    lister: Lister<K>,
    namespace: String,
}

impl<K: Kind> NamespaceLister<K> {
    /// The object `name` of this namespace, if there is one.
    ///
    /// In the empty namespace this finds the objects of kinds that live in none.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        self.lister
            .shared
            .read(|state| state.store.get(namespace, name).cloned())
    }

    /// All objects of this namespace.
    pub fn list(&self) -> Vec<Object<K>> {
        if self.namespace.is_empty() {
            return self.lister.list();
        }
        self.lister
            .shared
            .read(|state| state.store.in_namespace(&self.namespace))
    }

    /// The objects of this namespace whose labels `selector` selects.
    pub fn list_matching(&self, selector: &Selector) -> Vec<Object<K>> {
        if selector.is_nothing() {
            return Vec::new();
        }
        if selector.is_everything() {
            return self.list();
        }
        if self.namespace.is_empty() {
            return self.lister.list_matching(selector);
        }
        let shared = &self.lister.shared;
        let namespace = Some(self.namespace.as_str());
        let selected = shared.read(|state| state.store.selected(namespace, selector));
        selected.ask(selector)
    }
}

impl<K: Kind> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            keep: self.keep.clone(),
        }
    }
}

impl<K: Kind> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self {
            lister: self.lister.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

impl<K: Kind> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
