//! Indexes: how the values of an object are computed, and which slots of the store have a value.

use std::{
    borrow::Cow,
    hash::BuildHasher,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::object::{FieldId, Kind, Object, Pointer, panic_message};

type ValuesOf<T> = dyn Fn(&T) -> Vec<String> + Send + Sync;

/// The definition of one index.
pub(super) struct Definition<K> {
    pub(super) name: Box<str>,
    pub(super) extract: Extract<K>,
}

pub(super) enum Extract<K> {
    /// A field path, with its id if the reader of the objects has registered it.
    Field(Option<FieldId>, Pointer),
    Header(Arc<ValuesOf<Object<K>>>),
    By(Arc<ValuesOf<K>>),
    /// Replaced by another definition of the same name.
    Retired,
}

impl<K> Clone for Extract<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Field(id, pointer) => Self::Field(*id, pointer.clone()),
            Self::Header(values_of) => Self::Header(values_of.clone()),
            Self::By(values_of) => Self::By(values_of.clone()),
            Self::Retired => Self::Retired,
        }
    }
}

/// The values of one object in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    #[default]
    None,
    /// A field without escapes, read in place from the object.
    Field(FieldId),
    Owned(Vec<String>),
}

impl Values {
    /// Returns the values, given the object they were taken from.
    pub(super) fn iter<'a, K>(
        &'a self,
        object: &'a Object<K>,
    ) -> impl Iterator<Item = &'a str> + Clone {
        let field = match self {
            Self::Field(id) => object.field_text(*id),
            _ => None,
        };
        let owned = match self {
            Self::Owned(values) => values.as_slice(),
            _ => &[],
        };
        field.into_iter().chain(owned.iter().map(String::as_str))
    }
}

/// Why an object is not in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unindexed {
    pub(super) index: Box<str>,
    pub(super) reason: String,
}

impl<K: Kind> Definition<K> {
    /// Computes the values of an object. This runs user code and must not be called under a lock.
    pub(super) fn values(&self, object: &Object<K>) -> Result<Values, Unindexed> {
        let unindexed = |reason| Unindexed {
            index: self.name.clone(),
            reason,
        };
        match &self.extract {
            Extract::Field(Some(id), _) if object.field_text(*id).is_some() => {
                Ok(Values::Field(*id))
            }
            Extract::Field(id, pointer) => Ok(owned(object.field(*id, pointer))),
            Extract::Retired => Ok(Values::None),
            Extract::Header(values_of) => call(values_of, object).map_err(unindexed),
            Extract::By(values_of) => {
                let view = object.get().map_err(|error| unindexed(error.to_string()))?;
                call(values_of, &view).map_err(unindexed)
            }
        }
    }
}

/// Calls a user function. Returns its values or the message of its panic.
fn call<T>(values_of: &Arc<ValuesOf<T>>, of: &T) -> Result<Values, String> {
    // Unwind safe: the argument is immutable.
    catch_unwind(AssertUnwindSafe(|| values_of(of)))
        .map(|values| owned(values.into_iter().map(Cow::Owned).collect()))
        .map_err(|panic| panic_message(panic.as_ref()))
}

fn owned(values: Vec<Cow<'_, str>>) -> Values {
    if values.is_empty() {
        return Values::None;
    }
    Values::Owned(values.into_iter().map(Cow::into_owned).collect())
}

/// Sets of slots by value.
///
/// The slots of a value are a dense list. Each slot records its position in every list it is in, so
/// that removing it from a list of any length costs one swap. A value without slots is removed.
#[derive(Default)]
pub(super) struct Index {
    hasher: DefaultHashBuilder,
    sets: Vec<Set>,
    free: Vec<u32>,
    by_value: HashTable<u32>,
    places: Vec<Places>,
}

#[derive(Default)]
struct Set {
    value: Box<str>,
    slots: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Place {
    set: u32,
    position: u32,
}

/// The positions of a slot. Most slots have one value, which needs no allocation.
#[derive(Default)]
enum Places {
    #[default]
    None,
    One(Place),
    Many(Vec<Place>),
}

impl Places {
    fn as_slice(&self) -> &[Place] {
        match self {
            Self::None => &[],
            Self::One(place) => std::slice::from_ref(place),
            Self::Many(places) => places,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Place] {
        match self {
            Self::None => &mut [],
            Self::One(place) => std::slice::from_mut(place),
            Self::Many(places) => places,
        }
    }

    fn push(&mut self, place: Place) {
        match self {
            Self::None => *self = Self::One(place),
            Self::One(first) => *self = Self::Many(vec![*first, place]),
            Self::Many(places) => places.push(place),
        }
    }
}

impl Index {
    /// Reserves memory for this many slots.
    pub(super) fn reserve(&mut self, slots: usize) {
        self.places.reserve_exact(slots);
    }

    /// Returns the slots with `value`.
    pub(super) fn get(&self, value: &str) -> &[u32] {
        self.find(value)
            .map_or(&[], |set| &self.sets[set as usize].slots)
    }

    /// Returns the values of a slot.
    pub(super) fn of(&self, slot: u32) -> impl Iterator<Item = &str> {
        let places = self
            .places
            .get(slot as usize)
            .map_or(&[] as &[Place], Places::as_slice);
        places
            .iter()
            .map(|place| &*self.sets[place.set as usize].value)
    }

    /// Returns all values, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.sets
            .iter()
            .filter(|set| !set.slots.is_empty())
            .map(|set| &*set.value)
    }

    /// Sets the values of `slot`. Unchanged values cost only a comparison.
    pub(super) fn set<'v>(&mut self, slot: u32, values: impl Iterator<Item = &'v str> + Clone) {
        if self.of(slot).eq(values.clone()) {
            return;
        }
        self.clear(slot);
        if self.places.len() <= slot as usize {
            self.places.resize_with(slot as usize + 1, Places::default);
        }
        for value in values {
            let set = self.find(value).unwrap_or_else(|| self.insert(value));
            if self.places[slot as usize]
                .as_slice()
                .iter()
                .any(|place| place.set == set)
            {
                continue;
            }
            let slots = &mut self.sets[set as usize].slots;
            let position = u32::try_from(slots.len()).unwrap_or(u32::MAX);
            slots.push(slot);
            self.places[slot as usize].push(Place { set, position });
        }
    }

    /// Removes all values of `slot`.
    pub(super) fn clear(&mut self, slot: u32) {
        let Some(places) = self.places.get_mut(slot as usize).map(std::mem::take) else {
            return;
        };
        for place in places.as_slice() {
            let set = &mut self.sets[place.set as usize];
            set.slots.swap_remove(place.position as usize);
            if let Some(&moved) = set.slots.get(place.position as usize) {
                let moved = self.places[moved as usize].as_mut_slice();
                if let Some(moved) = moved.iter_mut().find(|moved| moved.set == place.set) {
                    moved.position = place.position;
                }
            }
            if self.sets[place.set as usize].slots.is_empty() {
                self.remove_set(place.set);
            }
        }
    }

    fn find(&self, value: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(value);
        let same = |&set: &u32| &*self.sets[set as usize].value == value;
        self.by_value.find(hash, same).copied()
    }

    fn insert(&mut self, value: &str) -> u32 {
        let entry = Set {
            value: value.into(),
            slots: Vec::new(),
        };
        let set = if let Some(set) = self.free.pop() {
            self.sets[set as usize] = entry;
            set
        } else {
            self.sets.push(entry);
            u32::try_from(self.sets.len() - 1).unwrap_or(u32::MAX)
        };
        let Self {
            hasher,
            sets,
            by_value,
            ..
        } = self;
        let hash = |&set: &u32| hasher.hash_one(&*sets[set as usize].value);
        by_value.insert_unique(hash(&set), set, hash);
        set
    }

    fn remove_set(&mut self, set: u32) {
        let hash = self.hasher.hash_one(&*self.sets[set as usize].value);
        if let Ok(entry) = self.by_value.find_entry(hash, |&other| other == set) {
            entry.remove();
        }
        self.sets[set as usize] = Set::default();
        self.free.push(set);
    }

    /// Returns the number of values, by hash table and by sets in use.
    #[cfg(test)]
    pub(super) fn sets(&self) -> (usize, usize) {
        (self.by_value.len(), self.sets.len() - self.free.len())
    }
}

#[cfg(test)]
mod tests;
