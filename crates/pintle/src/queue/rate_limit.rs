//! Rate limiters: how long a failed key waits before it is retried.
//!
//! A queue uses [`ExponentialBackoff`] by default: each key backs off on its own, from 5 ms to 1000
//! s, regardless of other keys. The limiters are client-go's, with the same numbers:
//!
//! | limiter | delay of a key's next try | use it |
//! |---|---|---|
//! | [`ExponentialBackoff`] | doubles with each failure of the key, up to a cap | nearly always |
//! | [`TokenBucket`] | none while tokens last; all keys share them | to bound retries overall |
//! | [`FastSlow`] | short for the first failures of the key, then long | if a retry either succeeds immediately or fails for some time |
//! | [`MaxOf`] | the longest that any of several limiters returns | to combine limiters |
//! | [`WithMaxWait`] | another limiter's delay, up to a maximum | if no key may wait longer than that |
//!
//! A queue calls its limiter outside its lock. If a limiter panics, that is logged and its key is
//! delayed by one second.
//!
//! # Comparison with client-go
//!
//! client-go's default, `DefaultTypedControllerRateLimiter`, also sends every retry through one
//! token bucket. A burst of failures then delays unrelated keys: after 10,000 failures the first
//! conflict of a healthy key waits more than 16 minutes instead of 5 ms. controller-runtime dropped
//! the bucket when it introduced its priority queue. [`with_shared_bucket`] brings it back; to
//! limit requests to the API server instead of retries, use
//! [`RateLimit`](crate::limits::RateLimit).

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hashbrown::HashMap;
use tokio::time::Instant;

use super::Key;
use crate::{
    sync::Mutex,
    token_bucket::{Bucket, Quota},
};

/// Decides how long a failed key waits.
///
/// # Examples
///
/// ```
/// use pintle::queue::rate_limit::{ExponentialBackoff, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = ExponentialBackoff::default();
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(10));
/// assert_eq!(limiter.when(&"b"), Duration::from_millis(5));
/// assert_eq!(limiter.retries(&"a"), 2);
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// ```
pub trait RateLimiter<T>: Send + Sync + 'static {
    /// Counts a failure of `key`. Returns the delay before its next try.
    fn when(&self, key: &T) -> Duration;

    /// Forgets the failures of `key`: it succeeded, or no longer needs to run.
    fn forget(&self, key: &T);

    /// Returns the failures of `key` since it was last forgotten.
    fn retries(&self, key: &T) -> u32;
}

impl<T: 'static> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&self, key: &T) -> Duration {
        (**self).when(key)
    }

    fn forget(&self, key: &T) {
        (**self).forget(key);
    }

    fn retries(&self, key: &T) -> u32 {
        (**self).retries(key)
    }
}

/// The longest delay of the default limiters.
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Combines the default [`ExponentialBackoff`] per key with a [`TokenBucket`] for all keys, as
/// client-go's default does: 10 retries per second, bursts of 100.
///
/// ```
/// use pintle::queue::{WorkQueue, rate_limit};
///
/// let queue = WorkQueue::<String>::builder("foos")
///     .rate_limiter(rate_limit::with_shared_bucket())
///     .build();
/// ```
pub fn with_shared_bucket<T: Key>() -> MaxOf<T> {
    MaxOf::new([
        Box::new(ExponentialBackoff::default()) as Box<dyn RateLimiter<T>>,
        Box::new(TokenBucket::default()),
    ])
}

/// The capacity that stays allocated when failing keys recover.
const RETAINED_CAPACITY: usize = 1024;

/// The failures of keys. A key without failures takes no memory.
struct Failures<T> {
    /// The number of keys with failures, so that `forget` need not lock while there are none.
    keys: AtomicUsize,
    of: Mutex<HashMap<T, u32>>,
}

impl<T: Key> Failures<T> {
    fn new() -> Self {
        Self {
            keys: AtomicUsize::new(0),
            of: Mutex::new(HashMap::new()),
        }
    }

    /// Counts a failure. Returns how many there were before.
    fn count(&self, key: &T) -> u32 {
        let mut of = self.of.lock();
        let before = if let Some(failures) = of.get_mut(key) {
            let before = *failures;
            *failures = before.saturating_add(1);
            before
        } else {
            of.insert(key.clone(), 1);
            0
        };
        // Relaxed is enough: a key passes to the next worker under the queue's lock, which orders
        // this store before that worker's load.
        self.keys.store(of.len(), Ordering::Relaxed);
        before
    }

    fn forget(&self, key: &T) {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut of = self.of.lock();
        let freed = of.remove_entry(key);
        if of.capacity() > RETAINED_CAPACITY && of.len() < of.capacity() / 4 {
            of.shrink_to_fit();
        }
        self.keys.store(of.len(), Ordering::Relaxed);
        drop(of);
        drop(freed);
    }

    fn get(&self, key: &T) -> u32 {
        self.of.lock().get(key).copied().unwrap_or(0)
    }
}

/// Doubles a key's delay with each of its failures: `base`, 2 × `base`, 4 × `base`, … `max`.
///
/// The default is 5 ms to 1000 s, reached by the 19th failure in a row.
pub struct ExponentialBackoff<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Key> ExponentialBackoff<T> {
    /// Creates a back-off from `base` up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: Failures::new(),
        }
    }

    fn delay(&self, failures: u32) -> Duration {
        let base = self.base.as_nanos();
        if base == 0 {
            return Duration::ZERO;
        }
        if failures >= base.leading_zeros() {
            return self.max;
        }
        let nanos = (base << failures).min(self.max.as_nanos());
        Duration::from_nanos_u128(nanos)
    }

    /// Returns the size of the failure counters in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.failures.of.lock().allocation_size()
    }
}

impl<T: Key> Default for ExponentialBackoff<T> {
    fn default() -> Self {
        Self::new(Duration::from_millis(5), MAX_DELAY)
    }
}

impl<T: Key> RateLimiter<T> for ExponentialBackoff<T> {
    fn when(&self, key: &T) -> Duration {
        self.delay(self.failures.count(key))
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.failures.get(key)
    }
}

impl<T> fmt::Debug for ExponentialBackoff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExponentialBackoff")
            .field("base", &self.base)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

/// Delays the first failures of a key briefly, and all later ones for longer.
///
/// For keys whose failures either disappear with the next try, such as conflicts, or persist, such
/// as a remote system that is down. client-go calls it `ItemFastSlowRateLimiter`.
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    fast_tries: u32,
    failures: Failures<T>,
}

impl<T: Key> FastSlow<T> {
    /// Delays the first `fast_tries` failures by `fast`, later ones by `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_tries: u32) -> Self {
        Self {
            fast,
            slow,
            fast_tries,
            failures: Failures::new(),
        }
    }
}

impl<T: Key> RateLimiter<T> for FastSlow<T> {
    fn when(&self, key: &T) -> Duration {
        if self.failures.count(key) < self.fast_tries {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.failures.get(key)
    }
}

impl<T> fmt::Debug for FastSlow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("fast_tries", &self.fast_tries)
            .finish_non_exhaustive()
    }
}

/// Bounds the retries of all keys together, to a rate and a burst.
///
/// A delay is a reservation: it counts even if the key runs earlier for another reason. The default
/// is 10 per second with bursts of 100. No delay exceeds 1000 s: once that much is reserved,
/// further retries share the last slot. client-go's bucket has no such bound.
#[derive(Debug)]
pub struct TokenBucket {
    quota: Quota,
    bucket: Mutex<Bucket>,
}

impl TokenBucket {
    /// Creates a bucket that refills with `per_second` tokens per second and holds up to `burst`.
    /// Both are raised to one if smaller.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let period = Duration::from_secs(1) / per_second.max(1);
        Self {
            quota: Quota::new(period, burst.max(1)),
            bucket: Mutex::new(Bucket::default()),
        }
    }
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(10, 100)
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&self, _: &T) -> Duration {
        self.bucket
            .lock()
            .reserve(self.quota, Instant::now(), MAX_DELAY)
    }

    fn forget(&self, _: &T) {}

    fn retries(&self, _: &T) -> u32 {
        0
    }
}

/// Returns the longest delay of several limiters. Each of them counts every failure.
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOf<T> {
    /// Combines limiters. An empty list means no delay.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<T>>>) -> Self {
        Self {
            limiters: limiters.into_iter().collect(),
        }
    }
}

impl<T: 'static> RateLimiter<T> for MaxOf<T> {
    fn when(&self, key: &T) -> Duration {
        self.limiters
            .iter()
            .map(|limiter| limiter.when(key))
            .max()
            .unwrap_or_default()
    }

    fn forget(&self, key: &T) {
        self.limiters.iter().for_each(|limiter| limiter.forget(key));
    }

    fn retries(&self, key: &T) -> u32 {
        self.limiters
            .iter()
            .map(|limiter| limiter.retries(key))
            .max()
            .unwrap_or(0)
    }
}

impl<T> fmt::Debug for MaxOf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf")
            .field("limiters", &self.limiters.len())
            .finish()
    }
}

/// Caps the delay of another limiter, which still counts every failure.
///
/// For keys that must be retried at least this often, whatever limiter the program chooses.
/// client-go calls it `WithMaxWaitRateLimiter`.
#[derive(Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// Caps the delays of `inner` at `max`.
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWait<L> {
    fn when(&self, key: &T) -> Duration {
        self.inner.when(key).min(self.max)
    }

    fn forget(&self, key: &T) {
        self.inner.forget(key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.inner.retries(key)
    }
}
