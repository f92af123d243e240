//! The queue as a pure state machine: no lock, no clock, no task.

use std::{hash::Hash, mem};

use super::{
    list::List,
    metrics::Stats,
    ready::Ready,
    slab::{Pending, Slab},
    waiting::{Due, Waiting},
};

/// Nanoseconds since the queue was made.
pub(super) type Tick = u64;

/// Which of two due times of one key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The earlier one.
    Earlier,
    /// The new one.
    Replace,
}

/// What a worker says about a key it hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing more to do unless somebody added it meanwhile.
    Done,
    /// Not worked on: run again as soon as those before it have run, with this priority.
    Back {
        /// How important.
        priority: i32,
    },
    /// Run again at this time, with this priority.
    Again {
        /// When.
        at: Tick,
        /// How important.
        priority: i32,
    },
}

/// A key handed to a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    pub(super) slot: u32,
    pub(super) key: T,
    pub(super) priority: i32,
}

/// The moves of a key: see the documentation of [`WorkQueue`](super::WorkQueue).
///
/// A key's slot says two things: whether a worker holds it, and what is pending for it (nothing, to
/// run now, to run at a time). Both are independent, which gives the five states of a known key:
/// ready, waiting, in process, in process and dirty, in process and waiting.
#[derive(Debug)]
pub(super) struct State<T> {
    slab: Slab<T>,
    ready: Ready,
    waiting: Waiting,
    /// Keys in process, in the order in which they were taken.
    in_process: List,
    held: usize,
    /// Keys in process that must run once more.
    dirty: usize,
    closed: bool,
    pub(super) stats: Stats,
}

impl<T: Eq + Hash + Clone> State<T> {
    /// An empty queue. `timed`: keep durations.
    pub(super) fn new(timed: bool) -> Self {
        Self {
            slab: Slab::default(),
            ready: Ready::default(),
            waiting: Waiting::default(),
            in_process: List::default(),
            held: 0,
            dirty: 0,
            closed: false,
            stats: Stats::new(timed),
        }
    }

    /// Asks for `key` to run now. Gives the key back if it was not needed.
    pub(super) fn add(&mut self, hash: u64, key: T, priority: i32, now: Tick) -> Option<T> {
        if self.closed {
            return Some(key);
        }
        let (slot, spare) = self.slab.enter(hash, key);
        self.run_now(slot, priority, now);
        spare
    }

    /// Asks for `key` to run at `at`. Gives the key back if it was not needed.
    pub(super) fn add_at(
        &mut self,
        hash: u64,
        key: T,
        priority: i32,
        at: Tick,
        merge: Merge,
        now: Tick,
    ) -> Option<T> {
        if self.closed {
            return Some(key);
        }
        self.stats.retries += 1;
        let (slot, spare) = self.slab.enter(hash, key);
        self.run_at(slot, priority, at, merge, now);
        spare
    }

    /// Drops the pending delay of `key`: whether there was one, and the key if nothing is left of it.
    pub(super) fn cancel(&mut self, hash: u64, key: &T) -> (bool, Option<T>) {
        let Some(slot) = self.slab.find(hash, key) else {
            return (false, None);
        };
        if self.slab[slot].pending != Pending::Waiting {
            return (false, None);
        }
        self.stop_waiting(slot);
        self.slab[slot].pending = Pending::Nothing;
        (true, self.free_if_unused(slot))
    }

    /// Makes ready what is due, in the order of the due times. A closed queue makes nothing ready.
    pub(super) fn promote(&mut self, now: Tick) {
        while let Some(due) = self.next_due() {
            if due.at > now {
                return;
            }
            self.waiting.pop();
            self.slab[due.slot].at = due.at;
            self.enter_ready(due.slot);
        }
    }

    /// The next time at which a key becomes due.
    pub(super) fn next_due(&mut self) -> Option<Due> {
        if self.closed || self.waiting.len() == 0 {
            return None;
        }
        let slab = &self.slab;
        self.waiting.peek(|due| valid(slab, due))
    }

    /// Hands out the next key.
    pub(super) fn take(&mut self, now: Tick) -> Option<Taken<T>> {
        let slot = self.ready.first()?;
        // Cloned before anything moves: a clone that panics loses no key.
        let key = self.slab.key(slot)?.clone();
        self.ready.take(&mut self.slab, slot);
        self.in_process.push(&mut self.slab, slot);
        let taken = &mut self.slab[slot];
        taken.pending = Pending::Nothing;
        taken.held = true;
        taken.taken_at = now;
        self.held += 1;
        let (since, priority) = (taken.at, taken.priority);
        self.stats.taken(since, now);
        Some(Taken {
            slot,
            key,
            priority,
        })
    }

    /// Takes a key back from its worker. Gives out the key if nothing is left of it.
    pub(super) fn done(&mut self, slot: u32, verdict: Verdict, now: Tick) -> Option<T> {
        self.in_process.remove(&mut self.slab, slot);
        let back = &mut self.slab[slot];
        let since = back.taken_at;
        let parked = mem::take(&mut back.parked);
        back.held = false;
        self.held -= 1;
        if back.pending == Pending::Ready {
            self.dirty -= 1;
            self.ready.push(&mut self.slab, slot);
        }
        if !parked && !matches!(verdict, Verdict::Back { .. }) {
            self.stats.finished(since, now);
        }
        match verdict {
            Verdict::Done => {}
            Verdict::Back { priority } => {
                self.run_at(slot, priority, now, Merge::Earlier, now);
            }
            Verdict::Again { at, priority } => {
                self.stats.retries += 1;
                self.run_at(slot, priority, at, Merge::Earlier, now);
            }
        }
        self.free_if_unused(slot)
    }

    /// Notes that the worker which has a key does not work on it.
    pub(super) fn park(&mut self, slot: u32) {
        self.slab[slot].parked = true;
    }

    /// Ends the queue: nothing comes in any more, what is ready still goes out.
    pub(super) fn close(&mut self, now: Tick) {
        self.promote(now);
        self.closed = true;
    }

    /// Ready keys.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Keys in process.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Keys that wait for a time, in process or not.
    pub(super) fn delayed(&self) -> usize {
        self.waiting.len()
    }

    /// Keys that should run now: ready, or in process and dirty.
    pub(super) fn depth(&self) -> usize {
        self.ready.len() + self.dirty
    }

    /// Keys the queue knows, in whatever state.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.slab.len()
    }

    /// No more adds.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closed, and no key will ever be handed out again.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.depth() == 0
    }

    /// Nothing ready and nothing in process.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.len() == 0 && self.held == 0
    }

    /// Ready keys by level; keys in process by when they were taken; waiting keys by due time.
    pub(super) fn snapshot(&self) -> (Vec<T>, Vec<T>, Vec<T>) {
        let ready = self
            .ready
            .iter(&self.slab)
            .filter_map(|slot| self.slab.key(slot).cloned());
        let held = self
            .in_process
            .iter(&self.slab)
            .filter_map(|slot| self.slab.key(slot).cloned());
        let mut waiting: Vec<_> = self
            .slab
            .used()
            .filter(|(_, slot)| slot.pending == Pending::Waiting)
            .map(|(key, slot)| (slot.at, slot.ticket, key))
            .collect();
        waiting.sort_unstable_by_key(|&(at, ticket, _)| (at, ticket));
        let waiting = waiting.into_iter().map(|(.., key)| key.clone());
        (ready.collect(), held.collect(), waiting.collect())
    }

    /// For how long each key that is worked on has been so, the longest first.
    pub(super) fn running_for(&self, now: Tick) -> impl Iterator<Item = Tick> {
        let held = self.in_process.iter(&self.slab);
        let worked_on = held.filter(|slot| !self.slab[*slot].parked);
        let since = worked_on.map(|slot| self.slab[slot].taken_at);
        since.map(move |since| now.saturating_sub(since))
    }

    fn run_now(&mut self, slot: u32, priority: i32, now: Tick) {
        match self.slab[slot].pending {
            Pending::Ready => self.raise(slot, priority),
            Pending::Waiting => {
                self.stop_waiting(slot);
                let found = &mut self.slab[slot];
                found.priority = found.priority.max(priority);
                found.at = now;
                self.enter_ready(slot);
            }
            Pending::Nothing => {
                let found = &mut self.slab[slot];
                found.priority = priority;
                found.at = now;
                self.enter_ready(slot);
            }
        }
    }

    fn run_at(&mut self, slot: u32, priority: i32, at: Tick, merge: Merge, now: Tick) {
        // A closed queue makes nothing ready any more: what is due then stays behind as delayed.
        if at <= now && !self.closed {
            return self.run_now(slot, priority, now);
        }
        match self.slab[slot].pending {
            Pending::Ready => self.raise(slot, priority),
            Pending::Waiting => {
                let found = &mut self.slab[slot];
                found.priority = found.priority.max(priority);
                if merge == Merge::Replace || at < found.at {
                    self.stop_waiting(slot);
                    self.wait(slot, at);
                }
            }
            Pending::Nothing => {
                self.slab[slot].priority = priority;
                self.wait(slot, at);
            }
        }
    }

    /// A ready key that becomes more important goes to the tail of its new level.
    fn raise(&mut self, slot: u32, priority: i32) {
        if priority <= self.slab[slot].priority {
            return;
        }
        if self.slab[slot].held {
            self.slab[slot].priority = priority;
            return;
        }
        self.ready.remove(&mut self.slab, slot);
        self.slab[slot].priority = priority;
        self.ready.push(&mut self.slab, slot);
    }

    fn enter_ready(&mut self, slot: u32) {
        self.stats.adds += 1;
        self.slab[slot].pending = Pending::Ready;
        if self.slab[slot].held {
            self.dirty += 1;
        } else {
            self.ready.push(&mut self.slab, slot);
        }
    }

    fn wait(&mut self, slot: u32, at: Tick) {
        let ticket = self.waiting.push(slot, at);
        let found = &mut self.slab[slot];
        found.pending = Pending::Waiting;
        found.at = at;
        found.ticket = ticket;
    }

    /// The heap entry of a waiting slot becomes stale; the caller says what is pending instead.
    fn stop_waiting(&mut self, slot: u32) {
        self.slab[slot].ticket = 0;
        let slab = &self.slab;
        self.waiting.forget(|due| valid(slab, due));
    }

    fn free_if_unused(&mut self, slot: u32) -> Option<T> {
        let found = &self.slab[slot];
        if found.held || found.pending != Pending::Nothing {
            return None;
        }
        self.slab.remove(slot)
    }

    /// Priorities that take up memory.
    #[cfg(test)]
    pub(super) fn levels(&self) -> usize {
        self.ready.levels()
    }

    /// Heap entries, live and stale.
    #[cfg(test)]
    pub(super) fn heap_entries(&self) -> usize {
        self.waiting.entries()
    }
}

/// Tickets are unique and given anew with every due time, so a reused slot revives no old entry.
fn valid<T>(slab: &Slab<T>, due: &Due) -> bool {
    slab[due.slot].ticket == due.ticket
}
