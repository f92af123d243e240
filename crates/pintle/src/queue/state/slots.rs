//! The storage of the state machine: one slot per key, and lists linked through the slots.
//!
//! A hash table finds the slot of a key; everything else refers to keys by slot number. Lists own
//! no memory, and any slot can leave its list in constant time.

use std::{
    hash::Hash,
    iter, mem,
    ops::{Index, IndexMut},
};

use hashbrown::{HashTable, hash_table::Entry};

use super::{Cause, Tick};

/// No slot: the end of a list.
pub(in crate::queue) const NIL: u32 = u32::MAX;

/// The pending run of a key, independent of whether it is being processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing. If the key is not being processed either, its slot is freed.
    Nothing,
    /// To run now: it is in the ready list, or *dirty* while it is being processed.
    Ready,
    /// To run at `Slot::at`.
    Delayed,
}

/// Everything the queue knows about a key.
#[derive(Debug)]
pub(super) struct Slot<T> {
    /// `None` only in a free slot, so that the queue retains no finished key.
    key: Option<T>,
    /// The hash of the key: growing the table and removing the key do not compute it again.
    hash: u64,
    /// The one heap entry that is valid for this slot.
    pub(super) ticket: u64,
    /// When it became ready, or until when it is delayed.
    pub(super) at: Tick,
    /// When a worker dequeued it.
    pub(super) taken_at: Tick,
    /// Neighbours in its list. `next` also links free slots.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The priority of the pending run.
    pub(super) priority: i32,
    pub(super) pending: Pending,
    /// Whether it is being processed.
    pub(super) processing: bool,
    /// Whether its worker holds it without working on it.
    pub(super) parked: bool,
    /// Why the pending run was requested first or, without one, why the key is being processed.
    /// Occupies what would otherwise be padding.
    pub(super) cause: Cause,
}

/// The slots, and the table that finds them.
#[derive(Debug)]
pub(super) struct Slots<T> {
    table: HashTable<u32>,
    entries: Vec<Slot<T>>,
    free: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            entries: Vec::new(),
            free: NIL,
        }
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = Slot<T>;
    fn index(&self, slot: u32) -> &Slot<T> {
        &self.entries[slot as usize]
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, slot: u32) -> &mut Slot<T> {
        &mut self.entries[slot as usize]
    }
}

impl<T: Eq + Hash> Slots<T> {
    /// Returns the slot of `key`, if it has one.
    pub(super) fn find(&self, hash: u64, key: &T) -> Option<u32> {
        let entries = &self.entries;
        self.table
            .find(hash, |&slot| {
                entries[slot as usize].key.as_ref() == Some(key)
            })
            .copied()
    }

    /// Returns the slot of `key`, adding one if needed. If the key already has a slot, the given
    /// `key` is returned, so that the caller can drop it outside the lock.
    pub(super) fn enter(&mut self, hash: u64, key: T) -> (u32, Option<T>) {
        let Self {
            table,
            entries,
            free,
        } = self;
        let found = table.entry(
            hash,
            |&slot| entries[slot as usize].key.as_ref() == Some(&key),
            |&slot| entries[slot as usize].hash,
        );
        match found {
            Entry::Occupied(entry) => (*entry.get(), Some(key)),
            Entry::Vacant(entry) => {
                let slot = *free;
                if slot == NIL {
                    let slot = u32::try_from(entries.len()).unwrap_or(NIL);
                    entry.insert(slot);
                    entries.push(Slot::new(key, hash));
                    return (slot, None);
                }
                entry.insert(slot);
                let old = &mut entries[slot as usize];
                *free = old.next;
                *old = Slot::new(key, hash);
                (slot, None)
            }
        }
    }

    /// Frees a slot. Returns its key, to be dropped outside the lock.
    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let hash = self[slot].hash;
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        let free = self.free;
        let freed = &mut self[slot];
        freed.next = free;
        let key = freed.key.take();
        self.free = slot;
        key
    }

    /// Returns the key in a slot.
    pub(super) fn key(&self, slot: u32) -> Option<&T> {
        self[slot].key.as_ref()
    }

    /// Returns the number of keys.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the slots in use, in slot order.
    pub(super) fn used(&self) -> impl Iterator<Item = (&T, &Slot<T>)> {
        self.entries
            .iter()
            .filter_map(|slot| Some((slot.key.as_ref()?, slot)))
    }
}

impl<T> Slot<T> {
    fn new(key: T, hash: u64) -> Self {
        Self {
            key: Some(key),
            hash,
            ticket: 0,
            at: 0,
            taken_at: 0,
            prev: NIL,
            next: NIL,
            priority: 0,
            pending: Pending::Nothing,
            processing: false,
            parked: false,
            cause: Cause::ADDED,
        }
    }
}

/// A list of slots. A slot is in at most one list: ready, or being processed.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
        }
    }
}

impl List {
    /// Returns the first slot.
    pub(super) fn first(&self) -> Option<u32> {
        some(self.head)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a slot.
    pub(super) fn push<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let tail = mem::replace(&mut self.tail, slot);
        slots[slot].prev = tail;
        slots[slot].next = NIL;
        match tail {
            NIL => self.head = slot,
            tail => slots[tail].next = slot,
        }
    }

    /// Removes a slot from any position.
    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let (prev, next) = (slots[slot].prev, slots[slot].next);
        match prev {
            NIL => self.head = next,
            prev => slots[prev].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => slots[next].prev = prev,
        }
    }

    /// Returns the slots in order.
    pub(super) fn iter<'a, T>(
        &self,
        slots: &'a Slots<T>,
    ) -> impl Iterator<Item = u32> + use<'a, T> {
        iter::successors(self.first(), move |&slot| some(slots[slot].next))
    }
}

fn some(slot: u32) -> Option<u32> {
    (slot != NIL).then_some(slot)
}
