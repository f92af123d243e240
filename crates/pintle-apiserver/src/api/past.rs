//! Past states can be read for five minutes, as long as etcd keeps them under a Kubernetes API
//! server. Then pages of a list that began in one expire.
//!
//! The server has no task that would watch the clock: which state was the newest at which time is
//! noted with each write, and looked up when a past state is asked for.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Api;

/// How long a state can be read after another took its place, in seconds.
const LIFE: i64 = 5 * 60;

/// Writes of this many seconds are noted together.
const STEP: i64 = 10;

/// The newest revision at the end of each step of the last minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Past {
    steps: Mutex<VecDeque<(i64, u64)>>,
}

impl Past {
    /// Notes that `revision` is the newest.
    fn note(&self, now: i64, revision: u64) {
        let end = now - now.rem_euclid(STEP) + STEP;
        let mut steps = self.steps.lock();
        match steps.back_mut() {
            // Also when the clock was set back.
            Some((last, newest)) if *last >= end => *newest = revision.max(*newest),
            _ => steps.push_back((end, revision)),
        }
    }

    /// The oldest revision that can be read, if that is known to have changed.
    fn expire(&self, now: i64) -> Option<u64> {
        let mut steps = self.steps.lock();
        let mut oldest = None;
        while let Some((end, revision)) = steps.front().copied()
            && end + LIFE <= now
        {
            oldest = Some(revision);
            steps.pop_front();
        }
        oldest
    }
}

impl Api {
    /// Notes that a state was written.
    pub(crate) fn remember_state(&self, revision: u64) {
        self.past.note(self.clock.now().as_second(), revision);
        self.forget_states();
    }

    /// Forgets the states whose time has come.
    pub(crate) fn forget_states(&self) {
        if let Some(oldest) = self.past.expire(self.clock.now().as_second()) {
            self.store.forget_states(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves W113.
    #[test]
    fn states_expire_by_steps_and_never_early() {
        let past = Past::default();
        past.note(1000, 5);
        past.note(1009, 6);
        past.note(1010, 7);
        assert_eq!(past.expire(1309), None);
        assert_eq!(past.expire(1310), Some(6));
        assert_eq!(past.expire(1319), None);
        assert_eq!(past.expire(1320), Some(7));
        // However long nobody asks, there are only so many steps.
        for second in 0..10_000 {
            past.note(second, 8);
            past.expire(second);
        }
        assert!(past.steps.lock().len() <= 32);
    }
}
