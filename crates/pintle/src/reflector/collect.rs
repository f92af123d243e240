//! The next generation of objects, while a list is being read.

use hashbrown::HashMap;

use crate::object::{Object, ObjectKey};

/// Collects the objects of a list. A later state of an object takes the place of an earlier one.
pub(super) struct Collection<K> {
    objects: Vec<Option<Object<K>>>,
    places: HashMap<ObjectKey, usize>,
}

impl<K> Collection<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            places: HashMap::new(),
        }
    }

    pub(super) fn put(&mut self, object: Object<K>) {
        let place = *self
            .places
            .entry(object.key().clone())
            .or_insert(self.objects.len());
        match self.objects.get_mut(place) {
            Some(earlier) => *earlier = Some(object),
            None => self.objects.push(Some(object)),
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.places.clear();
    }

    /// The objects, in the order in which they first came.
    pub(super) fn finish(self) -> Vec<Object<K>> {
        self.objects.into_iter().flatten().collect()
    }
}
