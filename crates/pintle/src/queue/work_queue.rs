//! The queue as its users hold it.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use super::{
    Item, Key, Priority,
    metrics::{QueueMetrics, Readable},
    rate_limit::{ExponentialBackoff, RateLimiter},
    shared::Shared,
    state::{Merge, State},
};
use crate::{metrics::Metrics, sync::timeout};

#[doc = include_str!("work_queue.md")]
pub struct WorkQueue<T: Key> {
    shared: Arc<Shared<T>>,
}

impl<T: Key> WorkQueue<T> {
    /// A queue without metrics whose keys back off one by one, from 5 ms to 1000 s; see
    /// [`rate_limit`](super::rate_limit).
    pub fn new(name: &str) -> Self {
        Self::builder(name).build()
    }

    /// A queue with a rate limiter or metrics of your choice.
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

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// `key` should run, with [`Priority::NORMAL`].
    ///
    /// Adds collapse: a key that is ready stays where it is, one that waits for a time becomes ready
    /// now, one in process runs exactly once more. A queue that is shut down ignores it.
    pub fn add(&self, key: T) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    /// `key` should run, with this priority.
    ///
    /// Of two priorities of one pending key the higher counts: raising it moves the key to the tail
    /// of the new level, a lower one changes nothing.
    pub fn add_with_priority(&self, key: T, priority: Priority) {
        self.shared.add(key, priority.get());
    }

    /// `key` should run after `delay`, with [`Priority::NORMAL`].
    ///
    /// Of two due times of one key the earlier survives, and a key that is to run now does so; to
    /// postpone it, [`reschedule`](Self::reschedule).
    pub fn add_after(&self, key: T, delay: Duration) {
        self.shared
            .add_after(key, Priority::NORMAL.get(), delay, Merge::Earlier);
    }

    /// `key` should run after `delay`, and not at the time it waits for now.
    ///
    /// Without a pending delay this is [`add_after`](Self::add_after): in particular a key that is
    /// to run now still does.
    pub fn reschedule(&self, key: T, delay: Duration) {
        self.shared
            .add_after(key, Priority::NORMAL.get(), delay, Merge::Replace);
    }

    /// Drops the delay `key` waits for; says whether there was one.
    ///
    /// A key that is ready or in process stays so. The back-off of the key is not touched.
    pub fn cancel(&self, key: &T) -> bool {
        self.shared.cancel(key)
    }

    /// `key` should run after the delay that the rate limiter gives it for one more failure.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.shared.limit(&key);
        self.add_after(key, delay);
    }

    /// Ends the back-off of `key`. A pending delay stays.
    pub fn forget(&self, key: &T) {
        self.shared.forget(key);
    }

    /// How often `key` has failed since it was last forgotten.
    pub fn retries(&self, key: &T) -> u32 {
        self.shared.retries(key)
    }

    /// The next key, as soon as there is one; `None` once the queue is shut down and has nothing
    /// left to hand out.
    ///
    /// Cancel safe: a cancelled call has taken no key, and a wake-up meant for it goes to another
    /// waiting worker. Poll it or drop it: one of the calls that wait watches the clock for all, and
    /// if that one is kept without being polled, keys whose delay ends come late. Takes part in
    /// tokio's cooperative scheduling: a worker that always finds a key still lets other tasks run.
    pub async fn get(&self) -> Option<Item<T>> {
        tokio::task::coop::consume_budget().await;
        let taken = self.shared.take(State::take).await?;
        Some(Item::new(&self.shared, taken))
    }

    /// Up to `limit` keys at once, as soon as there is one, under a single lock: for one dispatcher
    /// that feeds many workers. Empty once the queue is shut down and has nothing left to hand out.
    ///
    /// It does not wait for a batch to fill, and never holds back a key that another worker waits
    /// for: each key in the batch is in process from now on. Cancel safe, as [`get`](Self::get) is.
    pub async fn get_batch(&self, limit: usize) -> Vec<Item<T>> {
        tokio::task::coop::consume_budget().await;
        let batch = self.shared.take(|state, now| {
            let limit = limit.max(1).min(state.ready());
            let first = state.take(now)?;
            let mut batch = Vec::with_capacity(limit);
            batch.push(first);
            while batch.len() < limit {
                // Those before it are in process: a key whose clone panics must not take them along.
                // It stays ready, and whoever comes to it next hears of it.
                let taken = catch_unwind(AssertUnwindSafe(|| state.take(now)));
                let Ok(Some(taken)) = taken else { break };
                batch.push(taken);
            }
            Some(batch)
        });
        let batch = batch.await.unwrap_or_default();
        batch
            .into_iter()
            .map(|taken| Item::new(&self.shared, taken))
            .collect()
    }

    /// Ready keys: neither those in process nor those that wait for a time.
    pub fn len(&self) -> usize {
        self.shared.look(|state, _| state.ready())
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.look(|state, _| state.is_closed())
    }

    /// Takes nothing in any more. What is ready is still handed out, as is a key in process that was
    /// added once more; then [`get`](Self::get) says `None`. Delayed keys stay behind. Shutting down
    /// twice is shutting down once.
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }

    /// Shuts down and waits until every key that should run has run: none ready, none in process,
    /// none in process and added once more; for at most `deadline`. Says what it left.
    ///
    /// The workers must go on calling [`get`](Self::get) until it says `None`. Cancel safe: the queue
    /// stays shut down, and another call goes on waiting.
    pub async fn drain(&self, deadline: Duration) -> Left<T> {
        self.shut_down();
        // The answer comes from the state either way, so it does not matter who wins.
        let _ = timeout(deadline, self.shared.idle()).await;
        self.left()
    }

    /// The keys in the queue, by state.
    pub(crate) fn left(&self) -> Left<T> {
        self.shared.look(|state, _| {
            let (ready, in_process, delayed) = state.snapshot();
            Left {
                ready,
                in_process,
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
        // Written after the lock is gone: where to is not our affair.
        let (ready, delayed, in_process, shut_down) = self.shared.look(|state, _| {
            let closed = state.is_closed();
            (state.ready(), state.delayed(), state.held(), closed)
        });
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .field("ready", &ready)
            .field("delayed", &delayed)
            .field("in_process", &in_process)
            .field("shut_down", &shut_down)
            .finish_non_exhaustive()
    }
}

/// What a [drained](WorkQueue::drain) queue did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left<T> {
    /// Ready, but no worker came before the deadline.
    pub ready: Vec<T>,
    /// Still in process at the deadline.
    pub in_process: Vec<T>,
    /// Waiting for a time, or retried while the queue was already shut down; in the order of their
    /// due times.
    pub delayed: Vec<T>,
}

impl<T> Left<T> {
    /// Everything that should have run now did: only delays are left, if anything.
    pub fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.in_process.is_empty()
    }
}

/// Makes a [`WorkQueue`].
#[must_use = "`build` makes the queue"]
pub struct Builder<T: Key> {
    name: Arc<str>,
    limiter: Option<Arc<dyn RateLimiter<T>>>,
    metrics: Option<QueueMetrics>,
}

impl<T: Key> Builder<T> {
    /// How long a failed key waits. Never called while the queue is locked.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Some(Arc::new(limiter));
        self
    }

    /// Counts into this registry, see [`QueueMetrics`].
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.set());
        self
    }

    /// The queue.
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
