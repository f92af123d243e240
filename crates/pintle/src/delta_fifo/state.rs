//! The log as plain data.

use std::collections::VecDeque;

use super::{Closed, Delta, Deltas};

/// How many entries are handed over at once.
const BATCH: usize = 1000;

pub(super) struct State<K> {
    entries: VecDeque<Delta<K>>,
    bound: usize,
    closed: bool,
    /// Whether anything was ever entered that makes a cache.
    populated: bool,
    /// How many of the entries present right after the first list are not processed yet.
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

    /// Takes an entry in; also when closed, for whoever closes cannot stop a reflector in mid-call.
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

    /// The next entries; none while there are none, an error when there will be no more.
    pub(super) fn take(&mut self) -> Result<Option<Deltas<K>>, Closed> {
        if self.entries.is_empty() {
            return if self.closed { Err(Closed) } else { Ok(None) };
        }
        let initial = !self.synced();
        // The first list stands alone, so no batch reaches from before it to behind it.
        let joining = self
            .entries
            .iter()
            .take(BATCH)
            .take_while(|delta| delta.joins())
            .count();
        let entries = self.entries.drain(..joining.max(1)).collect();
        if self.entries.is_empty() && self.entries.capacity() > 4 * BATCH {
            self.entries.shrink_to(BATCH);
        }
        Ok(Some(Deltas { entries, initial }))
    }

    /// Notes that `count` entries were processed; whether the log has synced.
    pub(super) fn processed(&mut self, count: usize) -> bool {
        self.initial_left = self.initial_left.saturating_sub(count);
        self.synced()
    }
    /// Entries for which there is memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }
}
