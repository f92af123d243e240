//! The delayed keys: a heap of due times in which only the newest entry of a key is valid.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Tick;

/// How many stale entries are tolerated, beyond the number of live ones, before the heap is swept.
const SLACK: usize = 64;

/// A due time. Entries are ordered by it, then by when they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Tick,
    pub(super) ticket: u64,
    pub(super) slot: u32,
}

/// A heap with lazy deletion: replacing a due time pushes a new entry, and the ticket distinguishes
/// the old one as stale. Whenever an entry becomes stale, the heap is swept if stale entries
/// outnumber live ones by more than [`SLACK`].
#[derive(Debug, Default)]
pub(super) struct Delayed {
    heap: BinaryHeap<Reverse<Due>>,
    live: usize,
    tickets: u64,
}

impl Delayed {
    /// Returns the number of delayed keys.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Adds a due time. Returns the ticket that marks it as valid.
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

    /// Counts an entry that became stale. `valid` recognizes the live entries.
    pub(super) fn forget(&mut self, valid: impl Fn(&Due) -> bool) {
        self.live -= 1;
        if self.heap.len() > 2 * self.live + SLACK {
            self.heap.retain(|Reverse(due)| valid(due));
        }
    }

    /// Returns the next due entry, dropping stale ones before it.
    pub(super) fn peek(&mut self, valid: impl Fn(&Due) -> bool) -> Option<Due> {
        while let Some(Reverse(due)) = self.heap.peek() {
            if valid(due) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    /// Removes the entry that [`peek`](Self::peek) returned.
    pub(super) fn pop(&mut self) {
        self.heap.pop();
        self.live -= 1;
    }

    /// Returns the number of heap entries, live and stale.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.heap.len()
    }
}
