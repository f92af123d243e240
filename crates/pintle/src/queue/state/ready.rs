//! Who is next: one fair list per priority, the highest first, and a share for those below.

use super::{list::List, slab::Slab};

/// A level that was passed over this many times in a row is served next.
pub(super) const PATIENCE: u32 = 15;

/// Empty levels kept for their next key; more than these are dropped.
const SPARE_LEVELS: usize = 4;

/// The keys of one priority, in the order in which they became ready.
#[derive(Debug)]
struct Level {
    priority: i32,
    keys: List,
    /// Takes that went to other levels while a key stood here.
    passed_over: u32,
}

/// The ready keys.
///
/// `take` serves the highest level that has a key. So that a steady stream of important keys cannot
/// starve the others, every level counts how often it was passed over while a key stood in it; one
/// that reaches [`PATIENCE`] is served next, the longest passed over first. With `n` levels in use
/// each gets at least one of every `PATIENCE + n` takes.
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

    /// Puts a slot at the tail of the level of its priority.
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, slot: u32) {
        let level = self.level_of(slab[slot].priority);
        let level = &mut self.levels[level];
        if level.keys.is_empty() {
            level.passed_over = 0;
        }
        level.keys.push(slab, slot);
        self.len += 1;
    }

    /// Takes a slot out of the level of its priority, wherever it stands.
    pub(super) fn remove<T>(&mut self, slab: &mut Slab<T>, slot: u32) {
        let level = self.level_of(slab[slot].priority);
        self.levels[level].keys.remove(slab, slot);
        self.len -= 1;
        if self.levels.len() > SPARE_LEVELS && self.levels[level].keys.is_empty() {
            self.levels.remove(level);
        }
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<u32> {
        let mut first = None;
        let mut longest = PATIENCE;
        for level in &self.levels {
            let Some(slot) = level.keys.first() else {
                continue;
            };
            if first.is_none() || level.passed_over >= longest {
                // The highest level waits its turn too once there are more levels than patience.
                longest = longest.max(level.passed_over + 1);
                first = Some(slot);
            }
        }
        first
    }

    /// Takes out `slot`, which [`first`](Self::first) chose, and counts the levels passed over.
    pub(super) fn take<T>(&mut self, slab: &mut Slab<T>, slot: u32) {
        let served = slab[slot].priority;
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
        self.remove(slab, slot);
    }

    /// Every ready slot, level by level.
    pub(super) fn iter<'a, T>(&'a self, slab: &'a Slab<T>) -> impl Iterator<Item = u32> + 'a {
        self.levels.iter().flat_map(|level| level.keys.iter(slab))
    }

    /// Levels, empty ones too.
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
