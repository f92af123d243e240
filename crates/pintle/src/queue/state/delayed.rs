//! Who waits for a time: a heap in which only the newest entry of a slot counts.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::state::Tick;

/// Stale entries that are tolerated beside as many live ones before the heap is swept.
const SLACK: usize = 64;

/// One due time. Ordered by it, then by the order of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Tick,
    pub(super) ticket: u64,
    pub(super) slot: u32,
}

/// A heap with lazy deletion: replacing a due time pushes a new entry and leaves the old one behind,
/// recognised by its ticket. Stale entries never outnumber the live ones by more than a constant.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    heap: BinaryHeap<Reverse<Due>>,
    live: usize,
    tickets: u64,
}

impl Waiting {
    /// How many keys wait.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Notes a due time; gives the ticket that makes it the valid one.
    pub(super) fn push(&mut self, slot: u32, at: Tick) -> u64 {
        self.tickets += 1;
        self.live += 1;
        self.heap.push(Reverse(Due {
            at,
            ticket: self.tickets,
            slot,
        }));
        self.tickets
    }

    /// Says that one entry became stale. `valid` tells the live entries from the others.
    pub(super) fn forget(&mut self, valid: impl Fn(&Due) -> bool) {
        self.live -= 1;
        if self.heap.len() > 2 * self.live + SLACK {
            self.heap.retain(|Reverse(due)| valid(due));
        }
    }

    /// The next due entry, stale ones swept away.
    pub(super) fn peek(&mut self, valid: impl Fn(&Due) -> bool) -> Option<Due> {
        while let Some(Reverse(due)) = self.heap.peek() {
            if valid(due) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the entry that [`peek`](Self::peek) showed.
    pub(super) fn pop(&mut self) {
        self.heap.pop();
        self.live -= 1;
    }

    /// Heap entries, live and stale.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.heap.len()
    }
}
