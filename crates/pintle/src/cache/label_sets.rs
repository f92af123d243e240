//! Groups objects with equal labels.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hash, Hasher},
};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::selector::Selector;
use crate::object::Labels;

/// The labels of each slot, with equal label sets stored once.
///
/// Objects of one owner usually have equal labels. A selector is therefore matched once per label
/// set, and the result for an object is found by the number of its set, without touching the
/// object. This pays off if there are fewer sets than objects. A set without slots is removed.
#[derive(Default)]
pub(super) struct LabelSets {
    hasher: DefaultHashBuilder,
    sets: Vec<LabelSet>,
    /// Unused positions in `sets`; never the last one.
    free: BTreeSet<u32>,
    by_labels: HashTable<u32>,
    of_slot: Vec<u32>,
}

/// A label set. The same labels in another order are another set.
#[derive(Default)]
struct LabelSet {
    text: Box<str>,
    /// Where each key and each value ends in the text, alternating.
    ends: Box<[u32]>,
    slots: u32,
}

impl LabelSet {
    fn new(labels: Labels<'_>) -> Self {
        let mut text = String::with_capacity(labels.iter().map(|(k, v)| k.len() + v.len()).sum());
        let mut ends = Vec::with_capacity(2 * labels.len());
        for part in labels.iter().flat_map(|(key, value)| [key, value]) {
            text.push_str(part);
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self {
            text: text.into(),
            ends: ends.into(),
            slots: 0,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut start = 0;
        let mut next = move |end: u32| {
            let part = self.text.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            part
        };
        let (pairs, _) = self.ends.as_chunks::<2>();
        pairs
            .iter()
            .map(move |[key, value]| (next(*key), next(*value)))
    }
}

/// The results of a selector by label set, computed on demand.
pub(super) struct Matches<'a> {
    sets: &'a LabelSets,
    selector: &'a Selector,
    known: Vec<Option<bool>>,
}

impl Matches<'_> {
    pub(super) fn slot(&mut self, slot: u32) -> bool {
        let Some(&set) = self.sets.of_slot.get(slot as usize) else {
            return false;
        };
        let (sets, selector) = (self.sets, self.selector);
        let Some(known) = self.known.get_mut(set as usize) else {
            return false;
        };
        *known.get_or_insert_with(|| selector.matches(sets.sets[set as usize].iter()))
    }
}

/// The set of a slot without an object.
const NONE: u32 = u32::MAX;

impl LabelSets {
    /// Reserves memory for this many slots.
    pub(super) fn reserve(&mut self, slots: usize) {
        self.of_slot.reserve_exact(slots);
    }

    /// Sets the labels of `slot`.
    pub(super) fn set(&mut self, slot: u32, labels: Labels<'_>) {
        let at = slot as usize;
        let before = self.of_slot.get(at).copied().unwrap_or(NONE);
        if let Some(set) = self.sets.get(before as usize)
            && set.iter().eq(labels.iter())
        {
            return;
        }
        let set = self.find(labels).unwrap_or_else(|| self.insert(labels));
        self.sets[set as usize].slots += 1;
        self.clear(slot);
        if self.of_slot.len() <= at {
            self.of_slot.resize(at + 1, NONE);
        }
        self.of_slot[at] = set;
    }

    /// Removes the labels of `slot`.
    pub(super) fn clear(&mut self, slot: u32) {
        let Some(set) = self.of_slot.get_mut(slot as usize) else {
            return;
        };
        let number = std::mem::replace(set, NONE);
        let Some(set) = self.sets.get_mut(number as usize) else {
            return;
        };
        set.slots -= 1;
        if set.slots == 0 {
            self.remove_set(number);
        }
    }

    /// Returns the number of positions for sets: the size of the buffer that
    /// [`matches`](Self::matches) allocates.
    pub(super) fn capacity(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn matches<'a>(&'a self, selector: &'a Selector) -> Matches<'a> {
        Matches {
            sets: self,
            selector,
            known: vec![None; self.sets.len()],
        }
    }

    fn hash<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
        hash(&self.hasher, labels)
    }

    fn find(&self, labels: Labels<'_>) -> Option<u32> {
        let same = |&set: &u32| self.sets[set as usize].iter().eq(labels.iter());
        self.by_labels.find(self.hash(labels.iter()), same).copied()
    }

    fn insert(&mut self, labels: Labels<'_>) -> u32 {
        let entry = LabelSet::new(labels);
        let set = if let Some(set) = self.free.pop_first() {
            self.sets[set as usize] = entry;
            set
        } else {
            self.sets.push(entry);
            u32::try_from(self.sets.len() - 1).unwrap_or(NONE)
        };
        let Self {
            hasher,
            sets,
            by_labels,
            ..
        } = self;
        let hash = |&set: &u32| hash(hasher, sets[set as usize].iter());
        by_labels.insert_unique(hash(&set), set, hash);
        set
    }

    fn remove_set(&mut self, set: u32) {
        let hash = self.hash(self.sets[set as usize].iter());
        if let Ok(entry) = self.by_labels.find_entry(hash, |&other| other == set) {
            entry.remove();
        }
        self.sets[set as usize] = LabelSet::default();
        self.free.insert(set);
        while let Some(&last) = self.free.last()
            && last as usize + 1 == self.sets.len()
        {
            self.free.pop_last();
            self.sets.pop();
        }
        if self.sets.capacity() > 4 * self.sets.len() {
            self.sets.shrink_to(2 * self.sets.len());
        }
    }
}

fn hash<'a>(hasher: &DefaultHashBuilder, labels: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut state = hasher.build_hasher();
    for label in labels {
        label.hash(&mut state);
    }
    state.finish()
}

#[cfg(test)]
mod tests;
