//! The store behind the cache: objects in slots, found by key and by index. It has no locks.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{
    index::{Index, Values},
    label_sets::LabelSets,
    selector::Selector,
};
use crate::object::{Object, ObjectKey};

/// One generation of the cache.
///
/// Objects are in numbered slots, and a hash table finds the slot of a key. The namespace index,
/// the user's indexes and the sets of equal labels refer to slots by number. The slot of a deleted
/// object is reused.
pub(super) struct Store<K> {
    hasher: DefaultHashBuilder,
    slots: Vec<Option<Object<K>>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    namespaces: Index,
    labels: LabelSets,
    pub(super) indices: Vec<Index>,
    pub(super) resource_version: String,
}

/// The result of [`Store::selected`].
pub(super) enum Selected<K> {
    /// The objects that match.
    Matched(Vec<Object<K>>),
    /// The candidates, which the caller still has to match.
    Candidates(Vec<Object<K>>),
}

impl<K> Selected<K> {
    /// Returns the objects that match.
    pub(super) fn resolve(self, selector: &Selector) -> Vec<Object<K>> {
        match self {
            Self::Matched(objects) => objects,
            Self::Candidates(mut objects) => {
                objects.retain(|object| selector.matches_labels(object.labels()));
                objects
            }
        }
    }
}

impl<K> Store<K> {
    pub(super) fn new(indices: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            namespaces: Index::default(),
            labels: LabelSets::default(),
            indices: std::iter::repeat_with(Index::default)
                .take(indices)
                .collect(),
            resource_version: String::new(),
        }
    }

    pub(super) fn reserve(&mut self, objects: usize) {
        self.slots.reserve_exact(objects);
        self.labels.reserve(objects);
        self.namespaces.reserve(objects);
        for index in &mut self.indices {
            index.reserve(objects);
        }
        let Self {
            hasher,
            slots,
            by_key,
            ..
        } = self;
        by_key.reserve(objects, |&slot| hash_of(hasher, slots, slot));
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    fn hash(&self, namespace: Option<&str>, name: &str) -> u64 {
        let mut state = self.hasher.build_hasher();
        ObjectKey::hash_parts(namespace, name, &mut state);
        state.finish()
    }

    fn find(&self, namespace: Option<&str>, name: &str) -> Option<u32> {
        self.find_hashed(self.hash(namespace, name), namespace, name)
    }

    fn find_hashed(&self, hash: u64, namespace: Option<&str>, name: &str) -> Option<u32> {
        let same = |&slot: &u32| {
            let object = self.slots[slot as usize].as_ref();
            object.is_some_and(|object| object.key().is(namespace, name))
        };
        self.by_key.find(hash, same).copied()
    }

    /// Returns the slot of a key.
    pub(super) fn slot(&self, key: &ObjectKey) -> Option<u32> {
        self.find(key.namespace(), key.name())
    }

    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<&Object<K>> {
        self.at(self.find(namespace, name)?)
    }

    pub(super) fn at(&self, slot: u32) -> Option<&Object<K>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Iterates over all objects in slot order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Object<K>> {
        self.slots.iter().flatten()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Object<K>> {
        self.objects_at(self.namespaces.get(namespace))
    }

    pub(super) fn by_index(&self, index: usize, value: &str) -> Vec<Object<K>> {
        let index = self.indices.get(index);
        self.objects_at(index.map_or(&[], |index| index.get(value)))
    }

    /// Selects objects in one namespace or in all.
    ///
    /// They are matched here only if there are fewer distinct label sets than objects. Otherwise
    /// matching is left to the caller, which can do it without holding the lock.
    pub(super) fn selected(&self, namespace: Option<&str>, selector: &Selector) -> Selected<K> {
        let slots = namespace.map(|namespace| self.namespaces.get(namespace));
        if self.labels.capacity() >= slots.map_or(self.len(), <[u32]>::len) {
            return Selected::Candidates(match slots {
                Some(slots) => self.objects_at(slots),
                None => self.iter().cloned().collect(),
            });
        }
        let mut matches = self.labels.matches(selector);
        let selected = if let Some(slots) = slots {
            let selected = slots.iter().filter(|slot| matches.slot(**slot));
            selected
                .filter_map(|&slot| self.at(slot))
                .cloned()
                .collect()
        } else {
            let numbered = (0_u32..).zip(&self.slots);
            let selected = numbered.filter(|(slot, _)| matches.slot(*slot));
            selected.filter_map(|(_, object)| object.clone()).collect()
        };
        Selected::Matched(selected)
    }

    fn objects_at(&self, slots: &[u32]) -> Vec<Object<K>> {
        let mut objects = Vec::with_capacity(slots.len());
        objects.extend(slots.iter().filter_map(|&slot| self.at(slot)).cloned());
        objects
    }

    /// Stores `object` with its values, one entry per user index. Returns the object it replaced.
    pub(super) fn put(&mut self, object: Object<K>, values: &[Values]) -> Option<Object<K>> {
        let (namespace, name) = (object.key().namespace(), object.key().name());
        let hash = self.hash(namespace, name);
        let (slot, old) = if let Some(slot) = self.find_hashed(hash, namespace, name) {
            (slot, self.slots[slot as usize].replace(object))
        } else {
            (self.insert(hash, object), None)
        };
        if let Some(object) = &self.slots[slot as usize] {
            if old.is_none() {
                let namespace = object.key().namespace();
                self.namespaces.set(slot, namespace.into_iter());
            }
            self.labels.set(slot, object.labels());
            for (index, values) in self.indices.iter_mut().zip(values) {
                index.set(slot, values.iter(object));
            }
        }
        old
    }

    /// Adds an empty index.
    pub(super) fn add_index(&mut self) {
        self.indices.push(Index::default());
    }

    /// Empties an index that is no longer used.
    pub(super) fn clear_index(&mut self, index: usize) {
        if let Some(index) = self.indices.get_mut(index) {
            *index = Index::default();
        }
    }

    /// Indexes `object` if it is still the current one; a newer one was indexed when it was stored.
    pub(super) fn index_if_current(&mut self, index: usize, object: &Object<K>, values: &Values) {
        let Some(slot) = self.slot(object.key()) else {
            return;
        };
        if self.at(slot).is_some_and(|current| current.ptr_eq(object)) {
            self.indices[index].set(slot, values.iter(object));
        }
    }

    /// Stores an object with a new key and returns its slot.
    fn insert(&mut self, hash: u64, object: Object<K>) -> u32 {
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(object);
            slot
        } else {
            self.slots.push(Some(object));
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        };
        let Self {
            hasher,
            slots,
            by_key,
            ..
        } = self;
        by_key.insert_unique(hash, slot, |&slot| hash_of(hasher, slots, slot));
        slot
    }

    /// Removes an object, if present.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Object<K>> {
        if self.by_key.is_empty() {
            return None;
        }
        let hash = self.hash(key.namespace(), key.name());
        let slot = self.find_hashed(hash, key.namespace(), key.name())?;
        if let Ok(entry) = self.by_key.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.namespaces.clear(slot);
        self.labels.clear(slot);
        for index in &mut self.indices {
            index.clear(slot);
        }
        self.free.push(slot);
        self.slots[slot as usize].take()
    }

    /// Records the `resourceVersion` that the store has reached. An empty one is ignored.
    pub(super) fn reached(&mut self, resource_version: &str) {
        if !resource_version.is_empty() && self.resource_version != resource_version {
            resource_version.clone_into(&mut self.resource_version);
        }
    }
}

fn hash_of<K>(hasher: &DefaultHashBuilder, slots: &[Option<Object<K>>], slot: u32) -> u64 {
    let mut state = hasher.build_hasher();
    if let Some(object) = &slots[slot as usize] {
        let key = object.key();
        ObjectKey::hash_parts(key.namespace(), key.name(), &mut state);
    }
    state.finish()
}
