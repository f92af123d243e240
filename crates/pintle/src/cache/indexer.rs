//! The cache: a store behind a lock.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, futures::OwnedNotified};

use super::{
    index::{Definition, Extract, Values},
    lister::Lister,
    store::Store,
};
use crate::object::{Fields, Kind, Object, ObjectKey};

/// The local copy of the objects of one kind, by key, by namespace and by user-defined indexes.
///
/// Every read sees one consistent state. There is one lock, held only briefly: for a lookup, to
/// copy handles, or to apply prepared changes. User code (index functions, decoding) never runs
/// under it: index values are computed beforehand, and a relist is built on the side and swapped
/// in. In an informer, only the informer writes; on its own, an `Indexer` is a plain store as in
/// client-go.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::cache::{Indexer, Reader};
///
/// let pods = Indexer::<Pod>::new();
/// pods.index_field("node", "/spec/nodeName").unwrap();
/// let json = br#"{"metadata":{"name":"web-0","namespace":"b"},"spec":{"nodeName":"worker-1"}}"#;
/// pods.put(Reader::new().read(json).unwrap());
/// assert_eq!(pods.lister().by_index("node", "worker-1").unwrap().len(), 1);
/// ```
pub struct Indexer<K: Kind> {
    pub(super) shared: Arc<Shared<K>>,
}

pub(super) struct Shared<K> {
    pub(super) state: RwLock<State<K>>,
    /// The caches that this one replaces once it is filled.
    predecessors: Mutex<Vec<Weak<Shared<K>>>>,
    /// The fields that the objects' reader locates; `None` without a reader.
    pub(super) fields: Option<Fields>,
    pub(super) unindexed: AtomicU64,
    /// Notified on every change.
    changed: Arc<Notify>,
}

pub(super) struct State<K> {
    pub(super) store: Store<K>,
    /// Only ever grows; `store` has an index for each.
    pub(super) definitions: Arc<Vec<Arc<Definition<K>>>>,
    /// One per definition.
    pub(super) indices: Vec<IndexState>,
    /// The cache that has replaced this one and to which reads are forwarded.
    successor: Option<Arc<Shared<K>>>,
}

#[derive(Clone, Copy)]
pub(super) struct IndexState {
    /// Whether it also covers the objects that existed before it, and has not been replaced.
    pub(super) ready: bool,
    /// Whether it was inherited from a predecessor, and can therefore be redefined.
    pub(super) inherited: bool,
}

impl<K> State<K> {
    /// Returns the readable index of this name. While a new definition of an inherited index is
    /// being filled, that is the inherited one.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        let mut known = self.definitions.iter().zip(&self.indices);
        known.rposition(|(known, index)| &*known.name == name && index.ready)
    }
}

impl<K> Shared<K> {
    pub(super) fn read<T>(&self, query: impl FnOnce(&State<K>) -> T) -> T {
        let state = self.state.read();
        let Some(next) = state.successor.clone() else {
            return query(&state);
        };
        drop(state);
        // The successor may itself have been replaced.
        next.read(query)
    }

    pub(super) fn changed(&self) -> OwnedNotified {
        // Register before checking: a successor that takes over in between notifies these waiters.
        let changed = Arc::clone(&self.changed).notified_owned();
        let successor = self.state.read().successor.clone();
        successor.map_or(changed, |next| next.changed())
    }
}

/// A change to the cache.
#[derive(Debug)]
pub(crate) enum Write<K> {
    Put(Object<K>),
    /// The object's last state.
    Remove(Object<K>),
    /// The watch has reached this `resourceVersion`.
    Reached(String),
}

/// Changes with the object that each replaced.
pub(crate) type Applied<K> = Vec<(Write<K>, Option<Object<K>>)>;

/// Changes with their index values, ready to be applied.
pub(crate) struct Prepared<K> {
    writes: Vec<Write<K>>,
    /// One per put and definition.
    values: Vec<Values>,
    definitions: usize,
}

/// The next generation, ready to be swapped in.
pub(crate) struct Generation<K> {
    items: Vec<Object<K>>,
    store: Store<K>,
    definitions: usize,
}

/// The effect of a swap.
pub(crate) struct Replaced<K> {
    /// The objects that are not in the new list.
    pub(crate) gone: Vec<Object<K>>,
    /// The objects of the new list in their order, each with the state it replaced.
    pub(crate) items: Vec<(Option<Object<K>>, Object<K>)>,
}

impl<K: Kind> Indexer<K> {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self::build_empty(None)
    }

    /// Returns an empty cache for objects whose reader registers `fields`.
    pub(crate) fn with_fields(fields: Fields) -> Self {
        Self::build_empty(Some(fields))
    }

    fn build_empty(fields: Option<Fields>) -> Self {
        let state = State {
            store: Store::new(0),
            definitions: Arc::default(),
            indices: Vec::new(),
            successor: None,
        };
        let shared = Shared {
            state: RwLock::new(state),
            predecessors: Mutex::default(),
            fields,
            unindexed: AtomicU64::new(0),
            changed: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns a lister of this cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.shared.clone(), None)
    }

    /// Like [`lister`](Self::lister), but also keeps `keep` alive for as long as the lister exists.
    pub(crate) fn lister_keeping(&self, keep: Arc<dyn Send + Sync>) -> Lister<K> {
        Lister::new(self.shared.clone(), Some(keep))
    }

    /// Returns the object with this key.
    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Object<K>> {
        self.shared
            .read(|state| state.store.get(namespace, name).cloned())
    }

    /// Prepares to replace `before`, with the same indexes, which can be redefined.
    pub(crate) fn succeed(&self, before: &Self) {
        let mut all: Vec<_> = before.shared.predecessors.lock().clone();
        all.retain(|shared| shared.strong_count() > 0);
        all.push(Arc::downgrade(&before.shared));
        *self.shared.predecessors.lock() = all;
        let definitions = before.shared.state.read().definitions.clone();
        for definition in definitions.iter() {
            let extract = match definition.extract.clone() {
                Extract::Retired => continue,
                // The reader of these objects assigns its own field ids.
                Extract::Field(_, pointer) => self.extract_field(pointer),
                other => other,
            };
            // Inherited definitions are never duplicates.
            let _ = self.add_index(&definition.name, extract, true);
        }
    }

    /// Replaces the predecessors: their listers read from this cache from now on. Returns their
    /// contents, so that the caller can drop them without a lock.
    pub(crate) fn take_over(&self) -> impl Send + use<K> {
        let predecessors = self.shared.predecessors.lock().clone();
        let mut contents = Vec::new();
        for before in predecessors.iter().filter_map(Weak::upgrade) {
            let mut state = before.state.write();
            state.successor = Some(self.shared.clone());
            contents.push(std::mem::replace(&mut state.store, Store::new(0)));
            drop(state);
            before.changed.notify_waiters();
        }
        contents
    }

    pub(super) fn values(&self, definition: &Definition<K>, object: &Object<K>) -> Values {
        definition.values(object).unwrap_or_else(|unindexed| {
            self.shared.unindexed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                key = %object.key(), index = %unindexed.index, reason = %unindexed.reason,
                "cannot compute index values; leaving the object out of the index"
            );
            Values::None
        })
    }

    /// Adds or updates an object. Returns the object it replaced.
    pub fn put(&self, object: Object<K>) -> Option<Object<K>> {
        self.apply(vec![Write::Put(object)])
            .pop()
            .and_then(|(_, old)| old)
    }

    /// Removes an object. Returns it, if it was present.
    pub fn remove(&self, key: &ObjectKey) -> Option<Object<K>> {
        let removed = self.shared.state.write().store.remove(key);
        self.shared.changed.notify_waiters();
        removed
    }

    /// Replaces the whole contents with `items` at `resource_version`. Readers see either the old
    /// or the new contents, never a mixture.
    pub fn replace(&self, items: Vec<Object<K>>, resource_version: &str) {
        let mut next = self.build(items, resource_version);
        while let Err(again) = self.swap(next) {
            next = self.build(again, resource_version);
        }
    }

    fn apply(&self, writes: Vec<Write<K>>) -> Applied<K> {
        let mut writes = writes;
        loop {
            match self.commit(self.prepare(writes)) {
                Ok(applied) => return applied,
                Err(again) => writes = again,
            }
        }
    }

    /// Computes index values. This runs user code, so the caller must not hold a lock.
    pub(crate) fn prepare(&self, writes: Vec<Write<K>>) -> Prepared<K> {
        // This cache's own definitions, even if it has been replaced: `commit` compares with them.
        let definitions = self.shared.state.read().definitions.clone();
        let mut values = Vec::new();
        if !definitions.is_empty() {
            for write in &writes {
                if let Write::Put(object) = write {
                    values.extend(definitions.iter().map(|d| self.values(d, object)));
                }
            }
        }
        Prepared {
            writes,
            values,
            definitions: definitions.len(),
        }
    }

    /// Applies changes under one lock. Returns the object that each replaced. If an index was added
    /// since they were prepared, nothing happens and the writes are returned as the error. A cache
    /// that has been replaced drops them.
    pub(crate) fn commit(&self, prepared: Prepared<K>) -> Result<Applied<K>, Vec<Write<K>>> {
        let mut state = self.shared.state.write();
        if state.successor.is_some() {
            return Ok(Applied::new());
        }
        if state.definitions.len() != prepared.definitions {
            return Err(prepared.writes);
        }
        let store = &mut state.store;
        let mut values = prepared.values.as_slice();
        let mut applied = Vec::with_capacity(prepared.writes.len());
        for write in prepared.writes {
            let old = match &write {
                Write::Put(object) => {
                    let (own, rest) = values.split_at(prepared.definitions);
                    values = rest;
                    store.reached(object.resource_version());
                    store.put(object.clone(), own)
                }
                Write::Remove(last) => {
                    store.reached(last.resource_version());
                    store.remove(last.key())
                }
                Write::Reached(version) => {
                    store.reached(version);
                    None
                }
            };
            applied.push((write, old));
        }
        drop(state);
        self.shared.changed.notify_waiters();
        Ok(applied)
    }

    /// Builds the next generation. This runs user code, so the caller must not hold a lock.
    pub(crate) fn build(&self, mut items: Vec<Object<K>>, resource_version: &str) -> Generation<K> {
        let definitions = self.shared.state.read().definitions.clone();
        let mut store = Store::new(definitions.len());
        store.reserve(items.len());
        let mut values = Vec::with_capacity(definitions.len());
        let mut twice = false;
        for object in &items {
            values.clear();
            values.extend(definitions.iter().map(|d| self.values(d, object)));
            twice |= store.put(object.clone(), &values).is_some();
        }
        if twice {
            // If a list contains an object twice, the later state wins.
            items.retain(|object| {
                let key = object.key();
                store
                    .get(key.namespace(), key.name())
                    .is_some_and(|stored| stored.ptr_eq(object))
            });
        }
        store.reached(resource_version);
        Generation {
            items,
            store,
            definitions: definitions.len(),
        }
    }

    /// Swaps in the next generation. Returns what changed. If an index was added since it was
    /// built, nothing happens and the items are returned as the error. A cache that has been
    /// replaced drops them.
    pub(crate) fn swap(&self, next: Generation<K>) -> Result<Replaced<K>, Vec<Object<K>>> {
        let Generation {
            items,
            store,
            definitions,
        } = next;
        let old = {
            let mut state = self.shared.state.write();
            if state.successor.is_some() {
                return Ok(Replaced {
                    gone: Vec::new(),
                    items: Vec::new(),
                });
            }
            if state.definitions.len() != definitions {
                return Err(items);
            }
            std::mem::replace(&mut state.store, store)
        };
        self.shared.changed.notify_waiters();
        // No reader can reach the old generation: objects missing from the list are gone.
        let mut old = old;
        let items = items
            .into_iter()
            .map(|object| (old.remove(object.key()), object))
            .collect();
        let gone = old.iter().cloned().collect();
        Ok(Replaced { gone, items })
    }
}

impl<K: Kind> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<K: Kind> Default for Indexer<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kind> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexer")
            .field("len", &self.lister().len())
            .finish_non_exhaustive()
    }
}
