//! Keys, their priorities, and the handle of a key that is being processed.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use super::{
    shared::{Done, Shared},
    state::{Cause, NIL, Taken},
};

/// A key that a queue can hold: hashable, cheap to clone, movable between tasks.
///
/// `Eq` and `Clone` run while the queue is locked, so they should not block.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> Key for T {}

/// The priority of a key: higher priorities run first, lower ones are never starved.
///
/// ```
/// use pintle::queue::Priority;
///
/// assert!(Priority::LOW < Priority::NORMAL);
/// assert_eq!(Priority::default(), Priority::new(0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

impl Priority {
    /// For keys enqueued without a change: the initial list and resyncs. Actual changes run first.
    pub const LOW: Self = Self(-100);

    /// For changes; the default.
    pub const NORMAL: Self = Self(0);

    /// Creates a priority.
    pub const fn new(priority: i32) -> Self {
        Self(priority)
    }

    /// Returns the number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// A key that is being processed. No other worker gets the key until the item is done.
///
/// An item ends in exactly one of these ways:
///
/// | | back-off | runs again |
/// |---|---|---|
/// | [`forget`](Self::forget): succeeded | reset | when it is added |
/// | [`forget_and_next`](Self::forget_and_next): succeeded, dequeue the next | reset | when it is added |
/// | [`requeue_after`](Self::requeue_after): succeeded, check again later | reset | after the delay, or when it is added |
/// | [`put_back`](Self::put_back): not processed | stays | behind the keys that are ready |
/// | [`retry`](Self::retry): failed | grows | after the rate limiter's delay, or when it is added |
/// | [`retry_after`](Self::retry_after): failed | grows | after the given delay, or when it is added |
/// | dropped: an early return, a panic, a cancelled future | grows | like `retry`, and it is counted |
///
/// An item holds a reference to its queue, so it can move to another task.
#[must_use = "dropping an item counts as a failure: call `forget`, `retry` or `requeue_after`"]
pub struct Item<T: Key> {
    shared: Arc<Shared<T>>,
    key: T,
    /// `NIL` once the item is done, which makes `drop` a no-op. A separate flag would make moving
    /// an item more expensive than the queue's lock.
    slot: u32,
    priority: i32,
    cause: Cause,
}

impl<T: Key> Item<T> {
    pub(super) fn new(shared: &Arc<Shared<T>>, taken: Taken<T>) -> Self {
        let Taken {
            slot,
            key,
            priority,
            cause,
        } = taken;
        Self {
            shared: Arc::clone(shared),
            key,
            slot,
            priority,
            cause,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the priority at which the key was dequeued. A retry keeps it.
    pub fn priority(&self) -> Priority {
        Priority::new(self.priority)
    }

    /// Returns why the key runs.
    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the number of failures of the key since its last success.
    pub fn retries(&self) -> u32 {
        self.shared.retries(&self.key)
    }

    /// Finishes a key that succeeded, and resets its back-off.
    pub fn forget(mut self) {
        self.shared.forget(&self.key);
        self.done(Done::Forget);
    }

    /// Finishes a key that succeeded, and dequeues the next one if a key is ready, all under one
    /// lock. That matters where many workers share a queue.
    ///
    /// `None` only means that no key is ready: use [`get`](super::WorkQueue::get) to wait for one,
    /// and to learn that the queue is shut down. Unlike `get` this never yields, so a loop around
    /// it must yield now and then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pintle::queue::WorkQueue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::new("foos");
    /// queue.add("default/a");
    /// queue.add("default/b");
    /// let a = queue.get().await.unwrap();
    /// let b = a.forget_and_next().unwrap();
    /// assert_eq!(*b.key(), "default/b");
    /// assert!(b.forget_and_next().is_none());
    /// # }
    /// ```
    #[must_use = "the next key is already being processed"]
    pub fn forget_and_next(mut self) -> Option<Self> {
        self.shared.forget(&self.key);
        let slot = std::mem::replace(&mut self.slot, NIL);
        let (next, freed) = self.shared.done_and_take(slot, Done::Forget);
        Taken {
            slot: self.slot,
            key: self.key,
            priority: self.priority,
            cause: self.cause,
        } = next?;
        drop(freed);
        Some(self)
    }

    /// Finishes a key that failed: it runs again after the rate limiter's delay, which is returned.
    pub fn retry(mut self) -> Duration {
        let delay = self.shared.limit(&self.key);
        self.run_after(delay, Cause::RETRIED);
        delay
    }

    /// Finishes a key that failed: it runs again after `delay` instead of the rate limiter's. The
    /// failure counts for the back-off of later retries.
    pub fn retry_after(mut self, delay: Duration) {
        self.shared.limit(&self.key);
        self.run_after(delay, Cause::RETRIED);
    }

    /// Finishes a key that succeeded and should run again after `delay` even if nothing changes.
    /// Resets its back-off. If the key already has an earlier due time, that one counts.
    pub fn requeue_after(mut self, delay: Duration) {
        self.shared.forget(&self.key);
        self.run_after(delay, Cause::REQUEUED);
    }

    /// Returns a key that was not processed: it becomes ready behind the others of its priority,
    /// and keeps its back-off.
    ///
    /// Counts neither as work nor as a retry. After shutdown, the key stays in the queue as
    /// delayed.
    pub fn put_back(mut self) {
        self.done(Done::PutBack {
            priority: self.priority,
        });
    }

    /// Marks the item as held without being processed, until it is [put back](Self::put_back): the
    /// time does not count as work in the [metrics](super#metrics).
    pub fn park(&mut self) {
        self.shared.park(self.slot);
    }

    /// Sets the priority of the next run after `retry`, `requeue_after` or `put_back`.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority.get();
        self
    }

    fn run_after(&mut self, delay: Duration, cause: Cause) {
        self.done(Done::RunAfter {
            delay,
            priority: self.priority,
            cause,
        });
    }

    fn done(&mut self, done: Done) {
        let slot = std::mem::replace(&mut self.slot, NIL);
        self.shared.done(slot, done);
    }
}

impl<T: Key> Drop for Item<T> {
    fn drop(&mut self) {
        if self.slot == NIL {
            return;
        }
        let delay = self.shared.limit(&self.key);
        self.shared.count_undecided();
        self.run_after(delay, Cause::RETRIED);
        tracing::debug!(
            queue = &*self.shared.name,
            retry_in = ?delay,
            "item dropped without a result; retrying its key"
        );
    }
}

impl<T: Key + fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
