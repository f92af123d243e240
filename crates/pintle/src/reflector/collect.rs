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

    /// An object that only one of the two has, or that they have in different states.
    pub(super) fn first_difference(&self, other: &Self) -> Option<ObjectKey> {
        let differs = |one: &Self, two: &Self| {
            let mut objects = one.objects.iter().flatten();
            let differing = objects.find(|object| {
                let same = two.get(object.key());
                same.is_none_or(|same| identity(same) != identity(object))
            });
            differing.map(|object| object.key().clone())
        };
        differs(self, other).or_else(|| differs(other, self))
    }

    fn get(&self, key: &ObjectKey) -> Option<&Object<K>> {
        self.objects.get(*self.places.get(key)?)?.as_ref()
    }

    /// The objects, in the order in which they first came.
    pub(super) fn finish(self) -> Vec<Object<K>> {
        self.objects.into_iter().flatten().collect()
    }
}

/// What tells one state of an object from another. Not its bytes: only a watch states the kind.
fn identity<K>(object: &Object<K>) -> (&str, &str) {
    (object.uid(), object.resource_version())
}
