//! Which of many equal failures are worth a line of the log.
//!
//! A key that fails is retried after milliseconds at first, and a server that is down fails every
//! reflector again and again. The first failure matters and so does that it goes on, but not each
//! one. [`Repeats`] admits the first failure of a key at once, and the same failure again after 10
//! seconds, 20, 40 and so on up to ten minutes.

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

/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// The shortest time between two lines about different failures of one key: messages may differ in
/// nothing but a number.
const CHANGED: Duration = Duration::from_secs(1);

/// Decides which failures of each key are logged. See the [module](self).
///
/// It holds a few bytes for each key that fails, until the key is [forgotten](Self::forget).
///
/// ```
/// use pintle::repeats::Repeats;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let repeats = Repeats::new();
/// for _ in 0..3 {
///     if let Some(unlogged) = repeats.admit(&"default/a", "409 Conflict") {
///         println!("default/a failed: 409 Conflict ({unlogged} times more since the last line)");
///     }
/// }
/// repeats.forget(&"default/a"); // It worked: the next failure is news.
/// # }
/// ```
#[derive(Debug)]
pub struct Repeats<K> {
    keys: Mutex<BTreeMap<K, Repeat>>,
    /// The number of keys, so that a success need not lock.
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
    /// Nothing has failed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `key` failed. Returns how many failures were not logged since the last one that
    /// was if this one should be, else `None`.
    pub fn admit(&self, key: &K, message: &str) -> Option<u64> {
        let mut keys = self.keys.lock();
        let repeat = keys.entry(key.clone()).or_default();
        let admitted = repeat.admit(message, Instant::now());
        self.count.store(keys.len(), Ordering::Relaxed);
        admitted
    }

    /// Forgets what failed for `key`: its next failure is logged at once.
    pub fn forget(&self, key: &K) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut keys = self.keys.lock();
        keys.remove(key);
        self.count.store(keys.len(), Ordering::Relaxed);
    }
}

/// The failures of one thing.
#[derive(Debug, Default)]
pub(crate) struct Repeat {
    logged: Option<Logged>,
    /// How many failures came since.
    unlogged: u64,
}

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// What was said, as a hash: messages can be long.
    message: u64,
    /// How long to be silent about the same.
    pause: Duration,
}

impl Repeat {
    /// As [`Repeats::admit`], at a given time.
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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn same_failure_is_admitted_at_a_falling_rate() {
        let (repeats, start) = (Repeats::new(), Instant::now());
        let mut admitted = Vec::new();
        while start.elapsed() < Duration::from_hours(1) {
            if repeats.admit(&"a", "conflict").is_some() {
                admitted.push(start.elapsed().as_secs());
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(
            admitted,
            [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn news_is_admitted_and_what_was_left_out_is_counted() {
        let repeats = Repeats::new();
        assert_eq!(repeats.admit(&"a", "conflict"), Some(0));
        assert_eq!(repeats.admit(&"b", "conflict"), Some(0), "another key");
        assert_eq!(repeats.admit(&"a", "conflict"), None);
        assert_eq!(repeats.admit(&"a", "forbidden"), None, "too soon");
        tokio::time::advance(CHANGED).await;
        assert_eq!(repeats.admit(&"a", "forbidden"), Some(2));
        repeats.forget(&"a");
        assert_eq!(repeats.admit(&"a", "forbidden"), Some(0), "after a success");
    }
}
