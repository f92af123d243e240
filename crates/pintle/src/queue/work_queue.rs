//! The public handle of a queue, and its builder.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Cause, Item, Key, Priority,
    metrics::{QueueMetrics, Readable},
    rate_limit::{ExponentialBackoff, RateLimiter},
    shared::Shared,
};
use crate::{metrics::Metrics, sync::timeout};

#[doc = include_str!("work_queue.md")]
pub struct WorkQueue<T: Key> {
    shared: Arc<Shared<T>>,
}

impl<T: Key> WorkQueue<T> {
    /// Creates a queue without metrics. Failed keys back off individually, from 5 ms to 1000 s; see
    /// [`rate_limit`](super::rate_limit).
    pub fn new(name: &str) -> Self {
        Self::builder(name).build()
    }

    /// Returns a builder, to set the rate limiter and metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle::{
    ///     metrics::Metrics,
    ///     queue::{WorkQueue, rate_limit::ExponentialBackoff},
    /// };
    ///
    /// let metrics = Metrics::new();
    /// let queue = WorkQueue::<String>::builder("foos")
    ///     .rate_limiter(ExponentialBackoff::default())
    ///     .metrics(&metrics)
    ///     .build();
    /// queue.add("default/a".to_owned());
    /// assert!(metrics.encode().contains(r#"workqueue_depth{name="foos",controller="foos"} 1"#));
    /// ```
    pub fn builder(name: &str) -> Builder<T> {
        Builder {
            name: name.into(),
            limiter: None,
            metrics: None,
        }
    }

    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Requests a run of `key` with [`Priority::NORMAL`].
    ///
    /// Adds collapse: a ready key stays where it is, a delayed one becomes ready, one being
    /// processed runs exactly once more. Does nothing after [`shut_down`](Self::shut_down).
    pub fn add(&self, key: T) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    /// Requests a run of `key` with this priority.
    ///
    /// If the key is already pending, the higher priority wins: a raised key moves to the tail of
    /// its new priority, and a lower priority changes nothing.
    pub fn add_with_priority(&self, key: T, priority: Priority) {
        self.add_because(key, priority, Cause::ADDED);
    }

    /// Like [`add_with_priority`](Self::add_with_priority), and passes the cause to the worker,
    /// unless an earlier request for the same run already did.
    pub(crate) fn add_because(&self, key: T, priority: Priority, cause: Cause) {
        self.shared.add(key, priority.get(), cause);
    }

    /// Requests a run of `key` after `delay`, with [`Priority::NORMAL`].
    ///
    /// If the key is already delayed, the earlier due time wins; a ready key stays ready. To
    /// postpone a key, [`cancel`](Self::cancel) its delay first.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.shared.add_after(key, Priority::NORMAL.get(), delay);
    }

    /// Cancels the delay of `key`. Returns whether there was one.
    ///
    /// A key that is ready or being processed stays so, and its back-off is not reset.
    pub fn cancel(&self, key: &T) -> bool {
        self.shared.cancel(key)
    }

    /// Counts a failure of `key` and requests a run after the rate limiter's delay.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.shared.limit(&key);
        self.add_after(key, delay);
    }

    /// Resets the back-off of `key`. A pending delay stays.
    pub fn forget(&self, key: &T) {
        self.shared.forget(key);
    }

    /// Returns the number of failures of `key` since it was last forgotten.
    pub fn retries(&self, key: &T) -> u32 {
        self.shared.retries(key)
    }

    /// Waits for the next key. Returns `None` once the queue is shut down and no key is left to
    /// return.
    ///
    /// Participates in tokio's cooperative scheduling: a worker that always finds a key still lets
    /// other tasks run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a cancelled call has dequeued no key, and a wake-up meant for it passes to
    /// another waiting worker. Either poll the future or drop it: one of the waiting calls holds
    /// the timer for all of them, and if it is kept without being polled, delayed keys run late.
    pub async fn get(&self) -> Option<Item<T>> {
        tokio::task::coop::consume_budget().await;
        let taken = self.shared.take().await?;
        Some(Item::new(&self.shared, taken))
    }

    /// Returns the number of ready keys, without those being processed or delayed.
    pub fn len(&self) -> usize {
        self.shared.inspect(|state, _| state.ready())
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the queue is shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.inspect(|state, _| state.is_closed())
    }

    /// Shuts the queue down: it accepts no further adds.
    ///
    /// Ready keys are still returned, as are keys being processed that were added again; then
    /// [`get`](Self::get) returns `None`. Delayed keys are not returned. A second call does
    /// nothing.
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }

    /// Shuts the queue down and waits until no key is ready, being processed or dirty, for at most
    /// `deadline`. Returns the keys that are left.
    ///
    /// Workers must keep calling [`get`](Self::get) until it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the queue stays shut down, and another call continues to wait.
    pub async fn drain(&self, deadline: Duration) -> Left<T> {
        self.shut_down();
        // The result is read from the state, whether the queue is idle or the deadline has passed.
        let _ = timeout(deadline, self.shared.idle()).await;
        self.left()
    }

    /// Reads the state, after making due keys ready.
    #[cfg(feature = "inspect")]
    pub(super) fn inspect<R>(
        &self,
        read: impl FnOnce(&mut super::state::State<T>, super::state::Tick) -> R,
    ) -> R {
        self.shared.inspect(read)
    }

    /// Starts measuring durations, even without metrics.
    #[cfg(feature = "inspect")]
    pub(crate) fn measure(&self) {
        self.shared.measure();
    }

    #[cfg(feature = "inspect")]
    pub(super) fn hash(&self, key: &T) -> u64 {
        self.shared.hash(key)
    }

    /// Returns the keys in the queue, by state.
    pub(crate) fn left(&self) -> Left<T> {
        self.shared.inspect(|state, _| {
            let (ready, processing, delayed) = state.snapshot();
            Left {
                ready,
                processing,
                delayed,
            }
        })
    }
}

impl<T: Key> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: Key> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatted after the lock is released: the formatter is foreign code.
        let (ready, delayed, processing, shut_down) = self.shared.inspect(|state, _| {
            let closed = state.is_closed();
            (state.ready(), state.delayed(), state.processing(), closed)
        });
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .field("ready", &ready)
            .field("delayed", &delayed)
            .field("processing", &processing)
            .field("shut_down", &shut_down)
            .finish_non_exhaustive()
    }
}

/// The keys left in a [drained](WorkQueue::drain) queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left<T> {
    /// Ready, but not dequeued before the deadline.
    pub ready: Vec<T>,
    /// Still being processed at the deadline.
    pub processing: Vec<T>,
    /// Delayed, or retried after the shutdown; sorted by due time.
    pub delayed: Vec<T>,
}

impl<T> Left<T> {
    /// Returns whether no key was left ready or being processed.
    pub fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.processing.is_empty()
    }
}

/// Builds a [`WorkQueue`].
#[must_use = "call `build` to get the queue"]
pub struct Builder<T: Key> {
    name: Arc<str>,
    limiter: Option<Arc<dyn RateLimiter<T>>>,
    metrics: Option<QueueMetrics>,
}

impl<T: Key> Builder<T> {
    /// Sets the rate limiter, which delays failed keys. It is never called under the queue's lock.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Some(Arc::new(limiter));
        self
    }

    /// Registers the queue's metrics; see the [module](super#metrics).
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.set());
        self
    }

    /// Returns the queue.
    #[must_use]
    pub fn build(self) -> WorkQueue<T> {
        let Self {
            name,
            limiter,
            metrics,
        } = self;
        let limiter = limiter.unwrap_or_else(|| Arc::new(ExponentialBackoff::default()));
        let shared = Arc::new(Shared::new(name, limiter, metrics.clone()));
        if let Some(metrics) = metrics {
            let queue: Arc<dyn Readable> = Arc::clone(&shared) as _;
            metrics.join(Arc::downgrade(&queue));
        }
        WorkQueue { shared }
    }
}

impl<T: Key> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
