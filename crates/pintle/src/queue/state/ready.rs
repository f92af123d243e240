//! The ready keys: one first-in, first-out list per priority, with ageing.

use super::slots::{List, Slots};

/// A level that was passed over this many times in a row is served next.
pub(in crate::queue) const PATIENCE: u32 = 15;

/// How many levels stay allocated when they are empty.
const SPARE_LEVELS: usize = 4;

/// The keys of one priority, in the order in which they became ready.
#[derive(Debug)]
struct Level {
    priority: i32,
    keys: List,
    /// How many keys of other levels were dequeued while this one had a key.
    passed_over: u32,
}

/// The ready keys.
///
/// The highest level that has a key is served. So that a steady stream of urgent keys cannot starve
/// the others, every level counts how many times it was passed over while it had a key; one that
/// reaches [`PATIENCE`] is served next, the longest passed over first. With `n` levels in use, each
/// gets at least one of every `PATIENCE + n` dequeues.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Highest priority first.
    levels: Vec<Level>,
    len: usize,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a slot to the level of its priority.
    pub(super) fn push<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let level = self.level_of(slots[slot].priority);
        let level = &mut self.levels[level];
        if level.keys.is_empty() {
            level.passed_over = 0;
        }
        level.keys.push(slots, slot);
        self.len += 1;
    }

    /// Removes a slot from the level of its priority.
    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let level = self.level_of(slots[slot].priority);
        self.levels[level].keys.remove(slots, slot);
        self.len -= 1;
        if self.levels.len() > SPARE_LEVELS && self.levels[level].keys.is_empty() {
            self.levels.remove(level);
        }
    }

    /// Returns the slot to serve next.
    pub(super) fn first(&self) -> Option<u32> {
        let mut first = None;
        let mut longest = PATIENCE;
        for level in &self.levels {
            let Some(slot) = level.keys.first() else {
                continue;
            };
            if first.is_none() || level.passed_over >= longest {
                // With more levels than `PATIENCE`, even the highest one has to wait for its turn.
                longest = longest.max(level.passed_over + 1);
                first = Some(slot);
            }
        }
        first
    }

    /// Removes `slot`, which [`first`](Self::first) returned, and counts the levels passed over.
    pub(super) fn take<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let served = slots[slot].priority;
        if self.levels.len() > 1 {
            for level in &mut self.levels {
                let passed_over = level.priority != served && !level.keys.is_empty();
                level.passed_over = if passed_over {
                    level.passed_over + 1
                } else {
                    0
                };
            }
        }
        self.remove(slots, slot);
    }

    /// Returns the ready slots, level by level.
    pub(super) fn iter<'a, T>(&'a self, slots: &'a Slots<T>) -> impl Iterator<Item = u32> + 'a {
        self.levels.iter().flat_map(|level| level.keys.iter(slots))
    }

    /// Returns the number of levels, including empty ones.
    #[cfg(test)]
    pub(super) fn levels(&self) -> usize {
        self.levels.len()
    }

    fn level_of(&mut self, priority: i32) -> usize {
        match self
            .levels
            .iter()
            .position(|level| level.priority <= priority)
        {
            Some(at) if self.levels[at].priority == priority => at,
            at => {
                let at = at.unwrap_or(self.levels.len());
                self.levels.insert(
                    at,
                    Level {
                        priority,
                        keys: List::default(),
                        passed_over: 0,
                    },
                );
                at
            }
        }
    }
}
