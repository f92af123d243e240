//! The store behind its lock.

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
    define::{Definition, Extract, Values},
    lister::Lister,
    store::Store,
};
use crate::object::{Fields, InvalidPointer, Kind, Object, ObjectKey, Pointer};

/// Why an index cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is an index of that name; it stays as it is.
    #[error("there is already an index {name:?}")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The path to the field is not one.
    #[error(transparent)]
    InvalidPointer(#[from] InvalidPointer),
    /// The informer has stopped; its cache changes no more.
    #[error("the informer has stopped, so it takes no index {name:?}")]
    Stopped {
        /// The name.
        name: String,
    },
}

/// How many objects a new index takes in per lock.
const BACKFILL: usize = 1024;

/// The local copy of one kind's objects: by key, by namespace, by the users' indices.
///
/// Every answer comes from one state of the cache. There is one lock and it is held shortly: for a
/// look-up, to copy handles out, or to apply prepared changes. What users wrote (index functions,
/// decoding) never runs under it: values are computed before, and a relist is built aside and
/// swapped in. An informer is the only writer of its cache; standing alone, an `Indexer` is the
/// plain store that client-go's is.
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
    shared: Arc<Shared<K>>,
}

pub(super) struct Shared<K> {
    state: RwLock<State<K>>,
    /// The caches whose place this one takes once it is filled.
    predecessors: Mutex<Vec<Weak<Shared<K>>>>,
    /// What the reader of the objects looks for; none if objects come from anywhere.
    fields: Option<Fields>,
    unindexed: AtomicU64,
    /// Wakes whoever waits for the cache to move on.
    changed: Arc<Notify>,
}

pub(super) struct State<K> {
    pub(super) store: Store<K>,
    /// Only ever grows, and `store` has an index for each.
    definitions: Arc<Vec<Arc<Definition<K>>>>,
    /// One for each definition.
    indices: Vec<IndexState>,
    /// The cache that has taken this one's place: readers are sent on to it.
    successor: Option<Arc<Shared<K>>>,
}

#[derive(Clone, Copy)]
struct IndexState {
    /// It has taken in the objects that were there before it.
    ready: bool,
    /// It comes from a predecessor, so its name can be defined anew.
    inherited: bool,
}

impl<K> State<K> {
    /// The index of this name that can be read. While a new definition of an inherited one is being
    /// filled, that is the inherited one.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        let mut known = self.definitions.iter().zip(&self.indices);
        known.rposition(|(known, index)| &*known.name == name && index.ready)
    }
}

impl<K> Shared<K> {
    pub(super) fn read<T>(&self, ask: impl FnOnce(&State<K>) -> T) -> T {
        let state = self.state.read();
        let Some(next) = state.successor.clone() else {
            return ask(&state);
        };
        drop(state);
        // A successor has been filled, and may have been succeeded since.
        next.read(ask)
    }

    pub(super) fn changed(&self) -> OwnedNotified {
        // Listened to before the look: a successor that comes in between wakes these waiters.
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
    /// Nothing changed up to this version.
    Reached(String),
}

/// Changes with what each replaced.
pub(crate) type Applied<K> = Vec<(Write<K>, Option<Object<K>>)>;

/// Changes with their index values, ready to be applied.
pub(crate) struct Prepared<K> {
    writes: Vec<Write<K>>,
    /// One for each put and definition.
    values: Vec<Values>,
    definitions: usize,
}

/// The next generation, ready to be swapped in.
pub(crate) struct Generation<K> {
    items: Vec<Object<K>>,
    store: Store<K>,
    definitions: usize,
}

/// What a swap changed.
pub(crate) struct Replaced<K> {
    /// What was there and is no more.
    pub(crate) gone: Vec<Object<K>>,
    /// What is there now, each with the state it replaced, in the order of the list.
    pub(crate) items: Vec<(Option<Object<K>>, Object<K>)>,
}

impl<K: Kind> Indexer<K> {
    /// An empty cache.
    pub fn new() -> Self {
        Self::make(None)
    }

    /// An empty cache for objects whose reader looks for `fields`.
    pub(crate) fn with_fields(fields: Fields) -> Self {
        Self::make(Some(fields))
    }

    fn make(fields: Option<Fields>) -> Self {
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

    /// A view for readers.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.shared.clone(), None)
    }

    /// As [`lister`](Self::lister), holding on to `keep` for as long as the view lives.
    pub(crate) fn lister_keeping(&self, keep: Arc<dyn Send + Sync>) -> Lister<K> {
        Lister::new(self.shared.clone(), Some(keep))
    }

    /// The object of a key given by its parts.
    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Object<K>> {
        self.shared
            .read(|state| state.store.get(namespace, name).cloned())
    }

    /// Indexes objects by the field at `path`, a JSON pointer such as `/spec/nodeName`.
    ///
    /// The field is read while skimming, so nothing is decoded. A number or boolean is indexed as
    /// it is written; of an array, each scalar is a value; objects without the field are not in the
    /// index. Objects already there are taken in before this returns.
    pub fn index_field(&self, name: &str, path: &str) -> Result<(), IndexError> {
        let extract = self.extract_field(path.parse()?);
        self.add_index(name, extract, false)
    }

    fn extract_field(&self, pointer: Pointer) -> Extract<K> {
        let fields = self.shared.fields.as_ref();
        let id = fields.map(|fields| fields.add(pointer.clone()));
        Extract::Field(id, pointer)
    }

    /// Indexes objects by what `values` says of the header of each, such as its controlling owner or
    /// a label: none, one or many values.
    ///
    /// Nothing is decoded. An object on which `values` panics is left out of the index, counted in
    /// [`unindexed`](Self::unindexed) and logged.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pintle::cache::{Indexer, Object};
    ///
    /// let pods = Indexer::<Pod>::new();
    /// let owner = |pod: &Object<Pod>| {
    ///     pod.controller_owner().map(|owner| owner.uid().to_owned()).into_iter().collect()
    /// };
    /// pods.index_header("owner", owner).unwrap();
    /// assert!(pods.lister().by_index("owner", "some-uid").unwrap().is_empty());
    /// ```
    pub fn index_header<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    {
        self.add_index(name, Extract::Header(Arc::new(values)), false)
    }

    /// Indexes objects by what `values` says of each: none, one or many values.
    ///
    /// Every object is decoded once on its way in to be asked; a field path costs less. An object
    /// that does not decode, or on which `values` panics, is left out of the index, counted in
    /// [`unindexed`](Self::unindexed) and logged.
    pub fn index_by<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.add_index(name, Extract::By(Arc::new(values)), false)
    }

    /// How often an object was left out of an index because its values could not be had.
    pub fn unindexed(&self) -> u64 {
        self.shared.unindexed.load(Ordering::Relaxed)
    }

    /// First the definition goes in, so that every later write is indexed; then, in steps, what
    /// was there before it and has not been written since.
    fn add_index(
        &self,
        name: &str,
        extract: Extract<K>,
        inherited: bool,
    ) -> Result<(), IndexError> {
        let definition = Arc::new(Definition {
            name: name.into(),
            extract,
        });
        let (number, present) = {
            let mut state = self.shared.state.write();
            let mut known = state.definitions.iter().zip(&state.indices);
            if known.any(|(known, index)| &*known.name == name && !index.inherited) {
                return Err(IndexError::Duplicate {
                    name: name.to_owned(),
                });
            }
            Arc::make_mut(&mut state.definitions).push(definition.clone());
            state.indices.push(IndexState {
                ready: false,
                inherited,
            });
            state.store.add_index();
            let present: Vec<Object<K>> = state.store.iter().cloned().collect();
            (state.indices.len() - 1, present)
        };
        for objects in present.chunks(BACKFILL) {
            let values: Vec<_> = objects
                .iter()
                .map(|o| self.values(&definition, o))
                .collect();
            let mut state = self.shared.state.write();
            for (object, values) in objects.iter().zip(&values) {
                state.store.index_if_current(number, object, values);
            }
        }
        let mut state = self.shared.state.write();
        let replaced = state.index(name);
        state.indices[number].ready = true;
        if let Some(replaced) = replaced {
            state.indices[replaced].ready = false;
            Arc::make_mut(&mut state.definitions)[replaced] = Arc::new(Definition {
                name: name.into(),
                extract: Extract::Retired,
            });
            state.store.clear_index(replaced);
        }
        Ok(())
    }

    /// Prepares to take the place of `before`, with the same indices. They can be defined anew.
    pub(crate) fn succeed(&self, before: &Self) {
        let mut all: Vec<_> = before.shared.predecessors.lock().clone();
        all.retain(|shared| shared.strong_count() > 0);
        all.push(Arc::downgrade(&before.shared));
        *self.shared.predecessors.lock() = all;
        let definitions = before.shared.state.read().definitions.clone();
        for definition in definitions.iter() {
            let extract = match definition.extract.clone() {
                Extract::Retired => continue,
                // The reader of these objects numbers its fields itself.
                Extract::Field(_, pointer) => self.extract_field(pointer),
                other => other,
            };
            // Inherited definitions are never refused.
            let _ = self.add_index(&definition.name, extract, true);
        }
    }

    /// Takes the place of its predecessors: their listers read from here now. Returns what they
    /// held, to be dropped without a lock.
    pub(crate) fn take_over(&self) -> impl Send + use<K> {
        let predecessors = self.shared.predecessors.lock().clone();
        let mut held = Vec::new();
        for before in predecessors.iter().filter_map(Weak::upgrade) {
            let mut state = before.state.write();
            state.successor = Some(self.shared.clone());
            held.push(std::mem::replace(&mut state.store, Store::new(0)));
            drop(state);
            before.changed.notify_waiters();
        }
        held
    }

    fn values(&self, definition: &Definition<K>, object: &Object<K>) -> Values {
        definition.values(object).unwrap_or_else(|unindexed| {
            self.shared.unindexed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                key = %object.key(), index = %unindexed.index, reason = %unindexed.reason,
                "an object is left out of an index"
            );
            Values::None
        })
    }

    /// Adds or updates one object, and gives back what it replaced.
    pub fn put(&self, object: Object<K>) -> Option<Object<K>> {
        self.apply(vec![Write::Put(object)])
            .pop()
            .and_then(|(_, old)| old)
    }

    /// Takes one object out; nothing happens if it is not there.
    pub fn remove(&self, key: &ObjectKey) -> Option<Object<K>> {
        let removed = self.shared.state.write().store.remove(key);
        self.shared.changed.notify_waiters();
        removed
    }

    /// Makes `items` the whole contents, at `resource_version`. Readers see all of the old or all
    /// of the new.
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

    /// Computes index values: runs user code, so no lock may be held.
    pub(crate) fn prepare(&self, writes: Vec<Write<K>>) -> Prepared<K> {
        // Its own definitions, also once superseded: those are what a write is checked against.
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

    /// Applies changes under one lock, and says what each replaced. If an index was added since
    /// they were prepared, nothing happens and they come back. A superseded cache drops them.
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

    /// Builds the next generation aside: runs user code, so no lock may be held.
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
            // A list that names an object twice means the later state.
            items.retain(|object| {
                let key = object.key();
                store
                    .get(key.namespace(), key.name())
                    .is_some_and(|kept| kept.same(object))
            });
        }
        store.reached(resource_version);
        Generation {
            items,
            store,
            definitions: definitions.len(),
        }
    }

    /// Swaps the next generation in, and says what changed. If an index was added since it was
    /// built, nothing happens and the items come back. A superseded cache drops them.
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
        // The old generation is ours alone now: what is left of it after the list is gone.
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
