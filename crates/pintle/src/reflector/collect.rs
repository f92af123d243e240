//! The objects of a list while it is being read.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::Unread;
use crate::object::{Object, ObjectKey};

/// Collects the objects of a list. A later state of an object replaces an earlier one, unless the
/// later state is unreadable and may be of the same object.
pub(super) struct Collection<K> {
    objects: Vec<Option<Object<K>>>,
    positions: HashMap<ObjectKey, usize>,
    /// Objects that exist but could not be read.
    unread: BTreeMap<ObjectKey, Unread>,
}

impl<K> Collection<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            positions: HashMap::new(),
            unread: BTreeMap::new(),
        }
    }

    pub(super) fn put(&mut self, object: Object<K>) {
        self.unread.remove(object.key());
        let position = *self
            .positions
            .entry(object.key().clone())
            .or_insert(self.objects.len());
        match self.objects.get_mut(position) {
            Some(earlier) => *earlier = Some(object),
            None => self.objects.push(Some(object)),
        }
    }

    pub(super) fn put_unread(&mut self, unread: Unread) {
        if self
            .get(&unread.key)
            .is_some_and(|earlier| unread.may_be(earlier))
        {
            return;
        }
        self.remove(&unread.key);
        self.unread.insert(unread.key.clone(), unread);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(position) = self.positions.remove(key) {
            self.objects[position] = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.positions.clear();
        self.unread.clear();
    }

    /// Returns an object that only one of the two has, or that they have in different states.
    /// Objects that either of them could not read are not compared.
    pub(super) fn first_difference(&self, other: &Self) -> Option<ObjectKey> {
        let differs = |one: &Self, two: &Self| {
            let mut objects = one.objects.iter().flatten();
            let differing = objects.find(|object| {
                let same = two.get(object.key());
                !two.unread.contains_key(object.key())
                    && same.is_none_or(|same| identity(same) != identity(object))
            });
            differing.map(|object| object.key().clone())
        };
        differs(self, other).or_else(|| differs(other, self))
    }

    fn get(&self, key: &ObjectKey) -> Option<&Object<K>> {
        self.objects.get(*self.positions.get(key)?)?.as_ref()
    }

    /// Returns the objects in order of first appearance, and those that could not be read.
    pub(super) fn finish(self) -> (Vec<Object<K>>, Vec<Unread>) {
        (
            self.objects.into_iter().flatten().collect(),
            self.unread.into_values().collect(),
        )
    }
}

/// Identifies a state of an object. Bytes cannot be compared: only watch events state the kind.
fn identity<K>(object: &Object<K>) -> (&str, &str) {
    (object.uid(), object.resource_version())
}

#[cfg(test)]
mod tests;
