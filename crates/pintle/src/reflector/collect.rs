//! The next generation of objects, while a list is being read.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::sink::Unread;
use crate::object::{Object, ObjectKey};

/// Collects the objects of a list. A later state of an object takes the place of an earlier one,
/// unless it cannot be read and may be of the same object.
pub(super) struct Collection<K> {
    objects: Vec<Option<Object<K>>>,
    places: HashMap<ObjectKey, usize>,
    /// What is there and of which no state was read.
    unread: BTreeMap<ObjectKey, Unread>,
}

impl<K> Collection<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            places: HashMap::new(),
            unread: BTreeMap::new(),
        }
    }

    pub(super) fn put(&mut self, object: Object<K>) {
        self.unread.remove(object.key());
        let place = *self
            .places
            .entry(object.key().clone())
            .or_insert(self.objects.len());
        match self.objects.get_mut(place) {
            Some(earlier) => *earlier = Some(object),
            None => self.objects.push(Some(object)),
        }
    }

    pub(super) fn put_unread(&mut self, unread: Unread) {
        if self
            .get(&unread.key)
            .is_some_and(|held| unread.may_be(held))
        {
            return;
        }
        self.remove(&unread.key);
        self.unread.insert(unread.key.clone(), unread);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.places.clear();
        self.unread.clear();
    }

    /// An object that only one of the two has, or that they have in different states. What one of
    /// them could not read cannot be compared.
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
        self.objects.get(*self.places.get(key)?)?.as_ref()
    }

    /// The objects, in the order in which they first came, and those that could not be read.
    pub(super) fn finish(self) -> (Vec<Object<K>>, Vec<Unread>) {
        (
            self.objects.into_iter().flatten().collect(),
            self.unread.into_values().collect(),
        )
    }
}

/// What tells one state of an object from another. Not its bytes: only a watch states the kind.
fn identity<K>(object: &Object<K>) -> (&str, &str) {
    (object.uid(), object.resource_version())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Thing, object};

    fn unread(key: &str, uid: Option<&str>) -> Unread {
        Unread {
            key: key.parse().unwrap(),
            uid: uid.map(str::to_owned),
        }
    }

    /// Proves informer/unreadable-in-relist.
    #[test]
    fn an_unread_state_takes_the_place_of_a_read_one_only_if_it_is_of_another_object() {
        let mut found = Collection::<Thing>::new();
        for key in ["n/same", "n/unknown", "n/other"] {
            found.put(object(key, "u1", 2, "x"));
        }
        found.put_unread(unread("n/same", Some("u1")));
        found.put_unread(unread("n/unknown", None));
        for key in ["n/other", "n/later", "n/gone"] {
            found.put_unread(unread(key, Some("u2")));
        }
        found.put(object("n/later", "u2", 3, "x"));
        found.remove(&"n/gone".parse().unwrap());

        let mut listed = Collection::new();
        for key in ["n/same", "n/unknown", "n/other"] {
            listed.put_unread(unread(key, None));
        }
        listed.put(object("n/later", "u2", 3, "x"));
        assert_eq!(found.first_difference(&listed), None, "as far as was read");

        let (items, unread_left) = found.finish();
        let items: Vec<_> = items.iter().map(|item| item.key().to_string()).collect();
        assert_eq!(items, ["n/same", "n/unknown", "n/later"]);
        assert_eq!(unread_left, [unread("n/other", Some("u2"))]);
    }
}
