//! Reads from the cache.

use std::{fmt, sync::Arc};

use super::{indexer::Shared, selector::Selector};
use crate::object::{Kind, Object, ObjectKey};

/// A lookup in an index that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown index {name:?}: add it to the informer first")]
pub struct UnknownIndex {
    name: String,
}

/// Reads the cache of an informer. Cloning is cheap.
///
/// Each call sees one consistent state of the cache. Objects are shared and immutable, and lists
/// have no particular order. A missing object is a normal result, not an error.
///
/// A lister keeps its informer running for as long as it exists. If the informer of a
/// [factory](crate::informer::InformerFactory) has stopped and another one replaces it, for example
/// when a leader regains its lease, the lister switches over: it shows the last state of the old
/// informer until the new one has synced.
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

    /// Returns the object with this key, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        self.shared
            .read(|state| state.store.get(key.namespace(), key.name()).cloned())
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Object<K>> {
        self.shared.read(|state| {
            let mut objects = Vec::with_capacity(state.store.len());
            objects.extend(state.store.iter().cloned());
            objects
        })
    }

    /// Returns the objects whose labels match `selector`. Objects with equal labels are matched
    /// only once where that pays off.
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
        selected.resolve(selector)
    }

    /// Returns a lister for one namespace. The empty string means all namespaces.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<K> {
        NamespaceLister {
            lister: self.clone(),
            namespace: namespace.into(),
        }
    }

    /// Returns the objects that have `value` in the index `name`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Object<K>>, UnknownIndex> {
        self.shared.read(|state| {
            let index = state.index(name).ok_or_else(|| unknown(name))?;
            Ok(state.store.by_index(index, value))
        })
    }

    /// Returns the keys of [`by_index`](Self::by_index), sorted. Use it to enqueue all objects with
    /// a value, as with client-go's `IndexKeys`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such index.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, UnknownIndex> {
        let mut keys: Vec<_> = self
            .by_index(name, value)?
            .iter()
            .map(|object| object.key().clone())
            .collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns all values in the index `name`, sorted, or none if there is no such index. Use it to
    /// iterate over groups, as with client-go's `ListIndexFuncValues`.
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

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.shared.read(|state| state.store.len())
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the `resourceVersion` of the cache, or an empty string before the first list.
    ///
    /// The cache contains every change up to this `resourceVersion` and none after it. If it holds
    /// several namespaces with a watch each, this is the one that was reached last in any of them.
    pub fn resource_version(&self) -> String {
        self.shared
            .read(|state| state.store.resource_version.clone())
    }

    /// Resolves when the contents or the `resourceVersion` of the cache have changed since this
    /// call.
    ///
    /// To miss no change, call this first, then read the cache, then await.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
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
    /// Returns the object with this name in the namespace, if there is one.
    ///
    /// In the empty namespace this finds cluster-scoped objects.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        self.lister
            .shared
            .read(|state| state.store.get(namespace, name).cloned())
    }

    /// Returns all objects in the namespace.
    pub fn list(&self) -> Vec<Object<K>> {
        if self.namespace.is_empty() {
            return self.lister.list();
        }
        self.lister
            .shared
            .read(|state| state.store.in_namespace(&self.namespace))
    }

    /// Returns the objects in the namespace whose labels match `selector`.
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
        selected.resolve(selector)
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
