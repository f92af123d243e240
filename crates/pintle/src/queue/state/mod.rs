//! The queue as a pure state machine: no lock, no clock, no task.
//!
//! A key's slot records two independent facts: whether the key is being processed, and which run is
//! pending (none, one now, or one at a given time). Together they give the five states of a known
//! key: ready, delayed, processing, processing and dirty, processing and delayed. The documentation
//! of [`WorkQueue`](super::WorkQueue) draws the transitions.

mod delayed;
mod ready;
mod slots;

use std::{hash::Hash, mem};

#[cfg(test)]
pub(super) use self::ready::PATIENCE;
pub(super) use self::slots::NIL;
use self::{
    delayed::{Delayed, Due},
    ready::Ready,
    slots::{List, Pending, Slots},
};
use super::metrics::Stats;

/// Nanoseconds since the queue was created.
pub(super) type Tick = u64;

/// Why a key runs: a number passed to the worker. If a run is requested several times, the request
/// that determines its time sets the cause. Controllers use numbers from
/// [`FIRST_FREE`](Self::FIRST_FREE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(u8);

impl Cause {
    /// Added by the program.
    pub(crate) const ADDED: Self = Self(0);
    /// A delay requested by the last run has expired.
    pub(crate) const REQUEUED: Self = Self(1);
    /// The last run failed.
    pub(crate) const RETRIED: Self = Self(2);
    /// The first number that has no meaning to the queue.
    pub(crate) const FIRST_FREE: u8 = 3;

    /// Returns a cause that only its user interprets.
    pub(crate) const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

/// The outcome of a processed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It runs again only if it was added while being processed.
    Done,
    /// It was put back unprocessed, and runs again behind the ready keys of its priority.
    PutBack { priority: i32 },
    /// It runs again at this time.
    RunAt {
        at: Tick,
        priority: i32,
        cause: Cause,
    },
}

/// A dequeued key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    pub(super) slot: u32,
    pub(super) key: T,
    pub(super) priority: i32,
    pub(super) cause: Cause,
}

/// Where a key is.
#[cfg(feature = "inspect")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Ready { since: Tick },
    Delayed { until: Tick },
    Processing { since: Tick, parked: bool },
}

#[cfg(feature = "inspect")]
impl Place {
    fn of<T>(slot: &slots::Slot<T>) -> Self {
        match slot.pending {
            _ if slot.processing => Self::Processing {
                since: slot.taken_at,
                parked: slot.parked,
            },
            Pending::Delayed => Self::Delayed { until: slot.at },
            Pending::Ready | Pending::Nothing => Self::Ready { since: slot.at },
        }
    }
}

/// All keys of a queue.
#[derive(Debug)]
pub(super) struct State<T> {
    slots: Slots<T>,
    ready: Ready,
    delayed: Delayed,
    /// Keys being processed, in the order in which they were dequeued.
    processing: List,
    in_process_len: usize,
    /// The number of keys being processed that run once more.
    dirty: usize,
    closed: bool,
    pub(super) stats: Stats,
}

impl<T: Eq + Hash + Clone> State<T> {
    /// Creates an empty queue. `timed` turns on the histograms of durations.
    pub(super) fn new(timed: bool) -> Self {
        Self {
            slots: Slots::default(),
            ready: Ready::default(),
            delayed: Delayed::default(),
            processing: List::default(),
            in_process_len: 0,
            dirty: 0,
            closed: false,
            stats: Stats::new(timed),
        }
    }

    /// Requests a run of `key` now. Returns `key` if the queue already has it or is closed.
    pub(super) fn add(
        &mut self,
        hash: u64,
        key: T,
        priority: i32,
        cause: Cause,
        now: Tick,
    ) -> Option<T> {
        if self.closed {
            return Some(key);
        }
        let (slot, duplicate) = self.slots.enter(hash, key);
        self.run_now(slot, priority, cause, now);
        duplicate
    }

    /// Requests a run of `key` at `at`. Returns `key` if the queue already has it or is closed.
    pub(super) fn add_at(
        &mut self,
        hash: u64,
        key: T,
        priority: i32,
        at: Tick,
        now: Tick,
    ) -> Option<T> {
        if self.closed {
            return Some(key);
        }
        self.stats.retries += 1;
        let (slot, duplicate) = self.slots.enter(hash, key);
        self.run_at(slot, priority, Cause::ADDED, at, now);
        duplicate
    }

    /// Cancels the pending delay of `key`. Returns whether there was one, and the key if it is
    /// freed.
    pub(super) fn cancel(&mut self, hash: u64, key: &T) -> (bool, Option<T>) {
        let Some(slot) = self.slots.find(hash, key) else {
            return (false, None);
        };
        if self.slots[slot].pending != Pending::Delayed {
            return (false, None);
        }
        self.cancel_delay(slot);
        self.slots[slot].pending = Pending::Nothing;
        (true, self.free_if_unused(slot))
    }

    /// Makes due keys ready, sorted by due time. Does nothing in a closed queue.
    pub(super) fn promote(&mut self, now: Tick) {
        while let Some(due) = self.next_entry() {
            if due.at > now {
                return;
            }
            self.delayed.pop();
            self.slots[due.slot].at = due.at;
            self.make_ready(due.slot);
        }
    }

    /// Returns the next due time.
    pub(super) fn next_due(&mut self) -> Option<Tick> {
        self.next_entry().map(|due| due.at)
    }

    fn next_entry(&mut self) -> Option<Due> {
        if self.closed || self.delayed.len() == 0 {
            return None;
        }
        let slots = &self.slots;
        self.delayed.peek(|due| valid(slots, due))
    }

    /// Dequeues the next key.
    pub(super) fn take(&mut self, now: Tick) -> Option<Taken<T>> {
        let slot = self.ready.first()?;
        // Cloned before anything changes: if the clone panics, the key stays ready.
        let key = self.slots.key(slot)?.clone();
        self.ready.take(&mut self.slots, slot);
        self.processing.push(&mut self.slots, slot);
        let taken = &mut self.slots[slot];
        taken.pending = Pending::Nothing;
        taken.processing = true;
        taken.taken_at = now;
        self.in_process_len += 1;
        let (since, priority, cause) = (taken.at, taken.priority, taken.cause);
        self.stats.taken(since, now);
        Some(Taken {
            slot,
            key,
            priority,
            cause,
        })
    }

    /// Ends the processing of a key. Returns the key if it is freed.
    pub(super) fn done(&mut self, slot: u32, verdict: Verdict, now: Tick) -> Option<T> {
        self.processing.remove(&mut self.slots, slot);
        let back = &mut self.slots[slot];
        let since = back.taken_at;
        let parked = mem::take(&mut back.parked);
        back.processing = false;
        self.in_process_len -= 1;
        if back.pending == Pending::Ready {
            self.dirty -= 1;
            self.ready.push(&mut self.slots, slot);
        }
        if !parked && !matches!(verdict, Verdict::PutBack { .. }) {
            self.stats.finished(since, now);
        }
        match verdict {
            Verdict::Done => {}
            Verdict::PutBack { priority } => {
                // A run requested in the meantime has its own cause.
                let cause = self.slots[slot].cause;
                self.run_at(slot, priority, cause, now, now);
            }
            Verdict::RunAt {
                at,
                priority,
                cause,
            } => {
                self.stats.retries += 1;
                self.run_at(slot, priority, cause, at, now);
            }
        }
        self.free_if_unused(slot)
    }

    /// Marks a key being processed as parked: its worker holds it without working on it.
    pub(super) fn park(&mut self, slot: u32) {
        self.slots[slot].parked = true;
    }

    /// Closes the queue: it accepts no adds, but still returns ready keys.
    pub(super) fn close(&mut self, now: Tick) {
        self.promote(now);
        self.closed = true;
    }

    /// Returns the number of ready keys.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of keys being processed.
    pub(super) fn processing(&self) -> usize {
        self.in_process_len
    }

    /// Returns the number of delayed keys, whether being processed or not.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Returns the number of keys to run now: ready, or processing and dirty.
    pub(super) fn depth(&self) -> usize {
        self.ready.len() + self.dirty
    }

    /// Returns the number of keys in any state.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the queue is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the queue is closed and has no key left to return.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.depth() == 0
    }

    /// Returns whether no key is ready or being processed.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.len() == 0 && self.in_process_len == 0
    }

    /// Returns the ready keys by priority, those being processed in dequeue order, and the delayed
    /// ones by due time.
    pub(super) fn snapshot(&self) -> (Vec<T>, Vec<T>, Vec<T>) {
        let ready = self
            .ready
            .iter(&self.slots)
            .filter_map(|slot| self.slots.key(slot).cloned());
        let processing = self
            .processing
            .iter(&self.slots)
            .filter_map(|slot| self.slots.key(slot).cloned());
        let mut delayed: Vec<_> = self
            .slots
            .used()
            .filter(|(_, slot)| slot.pending == Pending::Delayed)
            .map(|(key, slot)| (slot.at, slot.ticket, key))
            .collect();
        delayed.sort_unstable_by_key(|&(at, ticket, _)| (at, ticket));
        let delayed = delayed.into_iter().map(|(.., key)| key.clone());
        (ready.collect(), processing.collect(), delayed.collect())
    }

    /// Returns where a key is, or `None` if it is not in the queue.
    #[cfg(feature = "inspect")]
    pub(super) fn place(&self, hash: u64, key: &T) -> Option<Place> {
        let slot = self.slots.find(hash, key)?;
        Some(Place::of(&self.slots[slot]))
    }

    /// Returns all keys and where they are, in slot order.
    #[cfg(feature = "inspect")]
    pub(super) fn places(&self) -> impl Iterator<Item = (&T, Place)> {
        self.slots.used().map(|(key, slot)| (key, Place::of(slot)))
    }

    /// Returns how long each key that is not parked has been processed so far, longest first.
    pub(super) fn running_for(&self, now: Tick) -> impl Iterator<Item = Tick> {
        let processing = self.processing.iter(&self.slots);
        let worked_on = processing.filter(|slot| !self.slots[*slot].parked);
        let since = worked_on.map(|slot| self.slots[slot].taken_at);
        since.map(move |since| now.saturating_sub(since))
    }

    fn run_now(&mut self, slot: u32, priority: i32, cause: Cause, now: Tick) {
        match self.slots[slot].pending {
            Pending::Ready => self.raise(slot, priority),
            Pending::Delayed => {
                self.cancel_delay(slot);
                let found = &mut self.slots[slot];
                found.priority = found.priority.max(priority);
                found.cause = cause;
                found.at = now;
                self.make_ready(slot);
            }
            Pending::Nothing => {
                let found = &mut self.slots[slot];
                found.priority = priority;
                found.cause = cause;
                found.at = now;
                self.make_ready(slot);
            }
        }
    }

    fn run_at(&mut self, slot: u32, priority: i32, cause: Cause, at: Tick, now: Tick) {
        // In a closed queue, only keys that are already dirty become ready: this one is delayed,
        // even if it is due.
        if at <= now && !self.closed {
            return self.run_now(slot, priority, cause, now);
        }
        match self.slots[slot].pending {
            Pending::Ready => self.raise(slot, priority),
            Pending::Delayed => {
                let found = &mut self.slots[slot];
                found.priority = found.priority.max(priority);
                if at < found.at {
                    found.cause = cause;
                    self.cancel_delay(slot);
                    self.delay(slot, at);
                }
            }
            Pending::Nothing => {
                let found = &mut self.slots[slot];
                found.priority = priority;
                found.cause = cause;
                self.delay(slot, at);
            }
        }
    }

    /// Raises the priority of a ready key, which goes to the tail of its new level.
    fn raise(&mut self, slot: u32, priority: i32) {
        if priority <= self.slots[slot].priority {
            return;
        }
        if self.slots[slot].processing {
            self.slots[slot].priority = priority;
            return;
        }
        self.ready.remove(&mut self.slots, slot);
        self.slots[slot].priority = priority;
        self.ready.push(&mut self.slots, slot);
    }

    fn make_ready(&mut self, slot: u32) {
        self.stats.adds += 1;
        self.slots[slot].pending = Pending::Ready;
        if self.slots[slot].processing {
            self.dirty += 1;
        } else {
            self.ready.push(&mut self.slots, slot);
        }
    }

    fn delay(&mut self, slot: u32, at: Tick) {
        let ticket = self.delayed.push(slot, at);
        let found = &mut self.slots[slot];
        found.pending = Pending::Delayed;
        found.at = at;
        found.ticket = ticket;
    }

    /// Invalidates the due time of a slot. The caller sets the new pending state.
    fn cancel_delay(&mut self, slot: u32) {
        self.slots[slot].ticket = 0;
        let slots = &self.slots;
        self.delayed.forget(|due| valid(slots, due));
    }

    fn free_if_unused(&mut self, slot: u32) -> Option<T> {
        let found = &self.slots[slot];
        if found.processing || found.pending != Pending::Nothing {
            return None;
        }
        self.slots.remove(slot)
    }

    /// Returns the number of priorities that take up memory.
    #[cfg(test)]
    pub(super) fn levels(&self) -> usize {
        self.ready.levels()
    }

    /// Returns the number of heap entries, live and stale.
    #[cfg(test)]
    pub(super) fn heap_entries(&self) -> usize {
        self.delayed.entries()
    }
}

/// Every due time has a unique ticket, so a reused slot cannot revive a stale entry.
fn valid<T>(slots: &Slots<T>, due: &Due) -> bool {
    slots[due.slot].ticket == due.ticket
}
