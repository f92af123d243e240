//! The state of the log, without locks or tasks.

use std::collections::VecDeque;

use super::{Closed, Delta, Deltas};

/// The largest batch.
const BATCH: usize = 1000;

pub(super) struct State<K> {
    entries: VecDeque<Delta<K>>,
    bound: usize,
    closed: bool,
    /// Whether any object or list was ever appended.
    populated: bool,
    /// How many entries, up to and including the first list, are not processed yet.
    initial_left: usize,
}

impl<K> State<K> {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bound,
            closed: false,
            populated: false,
            initial_left: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.closed || self.entries.len() < self.bound
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Appends an entry, even when closed, because closing cannot interrupt a reflector in the middle
    /// of a call.
    pub(super) fn push(&mut self, delta: Delta<K>) {
        let counts = !matches!(delta, Delta::Sync | Delta::Bookmark(_));
        let first_list = matches!(delta, Delta::Replaced { .. }) && !self.populated;
        self.entries.push_back(delta);
        self.populated |= counts;
        if first_list {
            self.initial_left = self.entries.len();
        }
    }

    fn synced(&self) -> bool {
        self.populated && self.initial_left == 0
    }

    /// Removes the next batch. Returns `None` if no entry is pending, an error if none will ever be.
    pub(super) fn take(&mut self) -> Result<Option<Deltas<K>>, Closed> {
        if self.entries.is_empty() {
            return if self.closed { Err(Closed) } else { Ok(None) };
        }
        let initial = !self.synced();
        // A list is never batched, so no batch spans the end of the first list.
        let batch = self
            .entries
            .iter()
            .take(BATCH)
            .take_while(|delta| delta.is_batchable())
            .count();
        let entries = self.entries.drain(..batch.max(1)).collect();
        if self.entries.is_empty() && self.entries.capacity() > 4 * BATCH {
            self.entries.shrink_to(BATCH);
        }
        Ok(Some(Deltas { entries, initial }))
    }

    /// Records that `count` entries were processed. Returns whether the log has synced.
    pub(super) fn processed(&mut self, count: usize) -> bool {
        self.initial_left = self.initial_left.saturating_sub(count);
        self.synced()
    }

    /// Returns the allocated capacity.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }
}
