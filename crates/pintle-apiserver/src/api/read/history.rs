//! Past states: they expire after five minutes, the interval at which kube-apiserver compacts etcd.
//! Continue tokens and exact reads of an expired state get 410.
//!
//! There is no background task: each write records which revision was the newest at that time, and
//! reads of past states check the clock. Watches are not affected; they need events, not states.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::api::Api;

/// How long a state stays readable after it was superseded, in seconds.
const TTL: i64 = 5 * 60;

/// The resolution of the record, in seconds.
const STEP: i64 = 10;

/// The newest revision at the end of each step of the last five minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    steps: Mutex<VecDeque<(i64, u64)>>,
}

impl History {
    /// Records that `revision` is the newest.
    fn note(&self, now: i64, revision: u64) {
        let end = now - now.rem_euclid(STEP) + STEP;
        let mut steps = self.steps.lock();
        match steps.back_mut() {
            // `last` is later than `end` if the clock was set back.
            Some((last, newest)) if *last >= end => *newest = revision.max(*newest),
            _ => steps.push_back((end, revision)),
        }
    }

    /// Returns the oldest readable revision if it has changed.
    fn expire(&self, now: i64) -> Option<u64> {
        let mut steps = self.steps.lock();
        let mut oldest = None;
        while let Some((end, revision)) = steps.front().copied()
            && end + TTL <= now
        {
            oldest = Some(revision);
            steps.pop_front();
        }
        oldest
    }
}

impl Api {
    /// Records a committed revision.
    pub(crate) fn remember_state(&self, revision: u64) {
        self.history.note(self.clock.now().as_second(), revision);
        self.forget_states();
    }

    /// Expires the states that are old enough.
    pub(crate) fn forget_states(&self) {
        if let Some(oldest) = self.history.expire(self.clock.now().as_second()) {
            self.store.forget_states(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
