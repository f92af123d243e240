//! A list of slots, linked through the slots themselves: no memory of its own, and any slot can leave
//! at once.

use super::slab::{NIL, Slab};

/// A slot is in one list at most: ready, or in process.
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
    /// The slot that came first.
    pub(super) fn first(&self) -> Option<u32> {
        some(self.head)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Puts a slot at the tail.
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, slot: u32) {
        let tail = std::mem::replace(&mut self.tail, slot);
        slab[slot].prev = tail;
        slab[slot].next = NIL;
        match tail {
            NIL => self.head = slot,
            tail => slab[tail].next = slot,
        }
    }

    /// Takes a slot out, wherever it stands.
    pub(super) fn remove<T>(&mut self, slab: &mut Slab<T>, slot: u32) {
        let (prev, next) = (slab[slot].prev, slab[slot].next);
        match prev {
            NIL => self.head = next,
            prev => slab[prev].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => slab[next].prev = prev,
        }
    }

    /// The slots in the order in which they came.
    pub(super) fn iter<'a, T>(&self, slab: &'a Slab<T>) -> impl Iterator<Item = u32> + use<'a, T> {
        std::iter::successors(self.first(), move |&slot| some(slab[slot].next))
    }
}

fn some(slot: u32) -> Option<u32> {
    (slot != NIL).then_some(slot)
}
