//! Keeps repeated failures from flooding the log.
//!
//! A failing key is retried after milliseconds at first, and a server that is down fails every
//! reflector again and again. The first failure matters, and so does the fact that it persists, but
//! not each retry. [`Repeats`] admits the first failure of a key immediately, and the same failure
//! again after 10 seconds, 20, 40 and so on up to ten minutes.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The shortest time between two lines about the same failure.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The longest time between two lines about the same failure.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// The shortest time between two lines about different failures of one key, because messages may
/// differ only in a number.
const CHANGED: Duration = Duration::from_secs(1);

/// Decides which failures of each key to log. See the [module](self).
///
/// It holds a few bytes for each failing key until the key is [forgotten](Self::forget).
///
/// # Examples
///
/// ```
/// use pintle::repeats::Repeats;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let repeats = Repeats::new();
/// for _ in 0..3 {
///     if let Some(unlogged) = repeats.admit(&"default/a", "409 Conflict") {
///         println!("default/a failed: 409 Conflict ({unlogged} failures not logged)");
///     }
/// }
/// repeats.forget(&"default/a"); // It succeeded: log the next failure.
/// # }
/// ```
#[derive(Debug)]
pub struct Repeats<K> {
    keys: Mutex<BTreeMap<K, Repeat>>,
    /// The number of keys, so that a success takes no lock.
    count: AtomicUsize,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }
}

impl<K: Ord + Clone> Repeats<K> {
    /// Returns an instance without failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `key` failed. If this failure should be logged, returns how many failures were
    /// suppressed since the last line.
    pub fn admit(&self, key: &K, message: &str) -> Option<u64> {
        let mut keys = self.keys.lock();
        let repeat = keys.entry(key.clone()).or_default();
        let admitted = repeat.admit(message, Instant::now());
        self.count.store(keys.len(), Ordering::Relaxed);
        admitted
    }

    /// Forgets the failures of `key`: its next failure is logged immediately.
    pub fn forget(&self, key: &K) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut keys = self.keys.lock();
        keys.remove(key);
        self.count.store(keys.len(), Ordering::Relaxed);
    }
}

/// The failures of one key.
#[derive(Debug, Default)]
pub(crate) struct Repeat {
    logged: Option<Logged>,
    /// The number of failures suppressed since.
    unlogged: u64,
}

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// A hash of the message: messages can be long.
    message: u64,
    /// How long to suppress the same message.
    pause: Duration,
}

impl Repeat {
    /// Implements [`Repeats::admit`] at a given time.
    pub(crate) fn admit(&mut self, message: &str, now: Instant) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let message = hasher.finish();
        let mut pause = FIRST_PAUSE;
        if let Some(logged) = &self.logged {
            let same = logged.message == message;
            if now.saturating_duration_since(logged.at) < if same { logged.pause } else { CHANGED }
            {
                self.unlogged += 1;
                return None;
            }
            if same {
                pause = (logged.pause * 2).min(LONGEST_PAUSE);
            }
        }
        self.logged = Some(Logged {
            at: now,
            message,
            pause,
        });
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests;
