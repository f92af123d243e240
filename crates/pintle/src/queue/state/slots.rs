//! Where keys live: one slot each, found by one hash.

use std::{
    hash::Hash,
    ops::{Index, IndexMut},
};

use hashbrown::{HashTable, hash_table::Entry};

use super::state::Tick;

/// "No slot": the end of a list.
pub(super) const NIL: u32 = u32::MAX;

/// What is planned for a key besides the work in process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: if the key is not held either, its slot is freed.
    Nothing,
    /// It should run now: it stands in the ready list, or is *dirty* while it is held.
    Ready,
    /// It should run at `Slot::at`.
    Waiting,
}

/// Everything the queue knows about one key.
#[derive(Debug)]
pub(super) struct Slot<T> {
    /// `None` only in a free slot, so that a finished key is not kept alive by the queue.
    key: Option<T>,
    /// The key's hash, so that neither growing the table nor leaving it hashes again.
    hash: u64,
    /// The heap entry that is valid for this slot; all others are stale.
    pub(super) ticket: u64,
    /// Ready: since when. Waiting: until when.
    pub(super) at: Tick,
    /// When a worker took the key.
    pub(super) taken_at: Tick,
    /// Neighbours in the list the slot is in; `next` also links the free slots.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The priority of what is pending.
    pub(super) priority: i32,
    pub(super) pending: Pending,
    /// A worker has the key.
    pub(super) held: bool,
    /// That worker only holds it back.
    pub(super) parked: bool,
}

/// The slots and the table that finds them.
#[derive(Debug)]
pub(super) struct Slab<T> {
    table: HashTable<u32>,
    slots: Vec<Slot<T>>,
    free: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            free: NIL,
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = Slot<T>;
    fn index(&self, slot: u32) -> &Slot<T> {
        &self.slots[slot as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut Slot<T> {
        &mut self.slots[slot as usize]
    }
}

impl<T: Eq + Hash> Slab<T> {
    /// The slot of `key`, if the queue knows it.
    pub(super) fn find(&self, hash: u64, key: &T) -> Option<u32> {
        let slots = &self.slots;
        self.table
            .find(hash, |&slot| slots[slot as usize].key.as_ref() == Some(key))
            .copied()
    }

    /// The slot of `key`, made if need be. A key that was not needed comes back, so that the caller
    /// can drop it after the lock.
    pub(super) fn enter(&mut self, hash: u64, key: T) -> (u32, Option<T>) {
        let Self { table, slots, free } = self;
        let entry = table.entry(
            hash,
            |&slot| slots[slot as usize].key.as_ref() == Some(&key),
            |&slot| slots[slot as usize].hash,
        );
        match entry {
            Entry::Occupied(found) => (*found.get(), Some(key)),
            Entry::Vacant(room) => {
                let slot = *free;
                if slot == NIL {
                    let slot = u32::try_from(slots.len()).unwrap_or(NIL);
                    room.insert(slot);
                    slots.push(Slot::new(key, hash));
                    return (slot, None);
                }
                room.insert(slot);
                let old = &mut slots[slot as usize];
                *free = old.next;
                *old = Slot::new(key, hash);
                (slot, None)
            }
        }
    }

    /// Frees a slot and hands out its key, to be dropped after the lock.
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

    /// The key in a slot.
    pub(super) fn key(&self, slot: u32) -> Option<&T> {
        self[slot].key.as_ref()
    }

    /// How many keys the queue knows.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Every slot in use, in slot order.
    pub(super) fn used(&self) -> impl Iterator<Item = (&T, &Slot<T>)> {
        self.slots
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
            held: false,
            parked: false,
        }
    }
}
