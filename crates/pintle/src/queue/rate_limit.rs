//! How long a failed key waits before it is tried again.
//!
//! A queue uses [`ExponentialBackoff`] unless told otherwise: each key backs off on its own, from
//! 5 ms to 1000 s, and the failures of other keys do not matter. The limiters are client-go's, with
//! its numbers:
//!
//! | | the delay of a key's next try |
//! |---|---|
//! | [`ExponentialBackoff`] | doubles with each failure of the key, up to a cap |
//! | [`TokenBucket`] | none while tokens last; all keys share them |
//! | [`FastSlow`] | short for the first failures of the key, long for all others |
//! | [`MaxOf`] | the longest that any of several limiters says |
//! | [`WithMaxWait`] | what another limiter says, but not more than this |
//!
//! A queue calls its limiter outside its lock; a limiter of your own that panics is reported and
//! costs its key a delay of one second.
//!
//! # Comparison with client-go
//!
//! client-go's default, `DefaultTypedControllerRateLimiter`, also sends every retry through one
//! token bucket. A burst of failures then delays keys that have nothing to do with it: after 10,000
//! failures the first conflict of a healthy key waits more than 16 minutes instead of 5 ms.
//! controller-runtime left the bucket out when it introduced its priority queue, and so do we. To
//! have it back, ask for [`with_shared_bucket`]; to limit what reaches the API server, use
//! [`RateLimit`](crate::limits::RateLimit), which counts requests and not retries.

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
    /// The delay before `key` is tried again. Counts one more failure.
    fn when(&self, key: &T) -> Duration;

    /// `key` succeeded, or is nobody's business any more: its memory is freed.
    fn forget(&self, key: &T);

    /// The failures of `key` since it was last forgotten.
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

/// Combines the default [`ExponentialBackoff`] per key with a [`TokenBucket`] for all keys together,
/// as client-go's default does: 10 retries per second, bursts of 100.
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

/// Room for this many failing keys is kept; what a worse time needed beyond is given back.
const KEPT: usize = 1024;

/// The failures of keys, and nothing of keys without failures.
struct Failures<T> {
    /// How many keys have failures, so that forgetting a key costs nothing while none has.
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

    /// Counts one more; says how many there were before.
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
        // Only a number to skip work by: whoever hands a key on does so under the queue's lock,
        // which orders this store before the next worker's load.
        self.keys.store(of.len(), Ordering::Relaxed);
        before
    }

    fn forget(&self, key: &T) {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut of = self.of.lock();
        let freed = of.remove_entry(key);
        if of.capacity() > KEPT && of.len() < of.capacity() / 4 {
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
/// By default 5 ms to 1000 s, which the 19th failure in a row reaches.
pub struct ExponentialBackoff<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Key> ExponentialBackoff<T> {
    /// A back-off from `base` up to `max`.
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

    /// The bytes in which failures are counted.
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

/// A short delay for the first failures of a key, a long one for all that follow.
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    fast_tries: u32,
    failures: Failures<T>,
}

impl<T: Key> FastSlow<T> {
    /// `fast` for the first `fast_tries` failures, then `slow`.
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

/// So many retries a second for all keys together, and so many at once after a quiet time.
///
/// A delay is a reservation: it counts even if the key is run earlier for another reason. By default
/// 10 a second, bursts of 100. No delay is longer than 1000 s: once that much is reserved, further
/// retries share the last place instead of queueing up behind it. Differs from client-go, whose
/// bucket has no such bound.
#[derive(Debug)]
pub struct TokenBucket {
    quota: Quota,
    bucket: Mutex<Bucket>,
}

impl TokenBucket {
    /// `per_second` tokens a second, at most `burst` saved up; both at least one.
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

/// The longest delay of several limiters. Every one of them counts every failure.
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOf<T> {
    /// The longest of these; none of them means no delay.
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

/// What another limiter says, but never more than a maximum. The other still counts.
#[derive(Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// At most `max` of what `inner` says.
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
