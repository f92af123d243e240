//! A key in the hands of a worker.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Key, Priority,
    shared::{Done, Shared},
    slab::NIL,
    state::Taken,
};

/// A key that a worker has, and nobody else until it is handed back.
///
/// Exactly one of these happens to it:
///
/// | | back-off | runs again |
/// |---|---|---|
/// | [`forget`](Self::forget): it worked | forgotten | when somebody adds it |
/// | [`forget_and_next`](Self::forget_and_next): it worked, and on to the next | forgotten | when somebody adds it |
/// | [`requeue_after`](Self::requeue_after): it worked, look again later | forgotten | after that time, or earlier if somebody adds it |
/// | [`put_back`](Self::put_back): not now | stays | as soon as those before it have run |
/// | [`retry`](Self::retry): it failed | grows | after the rate limiter's delay, or earlier if somebody adds it |
/// | dropped without a word: a `?`, a panic, a cancelled future | grows | like `retry`, and it is counted |
///
/// An item owns a share of its queue, so it can move to another task.
#[must_use = "dropping an item without a verdict counts as a failure: say `forget`, `retry` or `requeue_after`"]
pub struct Item<T: Key> {
    shared: Arc<Shared<T>>,
    key: T,
    /// `NIL` once it is handed back: dropping it means nothing any more. Not a flag of its own, which
    /// would make moving an item cost more than the queue's lock.
    slot: u32,
    priority: i32,
}

impl<T: Key> Item<T> {
    pub(super) fn new(shared: &Arc<Shared<T>>, taken: Taken<T>) -> Self {
        let Taken {
            slot,
            key,
            priority,
        } = taken;
        Self {
            shared: Arc::clone(shared),
            key,
            slot,
            priority,
        }
    }

    /// The key to work on.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The priority at which it was handed out; a retry keeps it.
    pub fn priority(&self) -> Priority {
        Priority::new(self.priority)
    }

    /// How often this key has failed since its last success.
    pub fn retries(&self) -> u32 {
        self.shared.retries(&self.key)
    }

    /// It worked: the key is done and its back-off forgotten.
    pub fn forget(mut self) {
        self.shared.forget(&self.key);
        self.settle(Done::Forget);
    }

    /// It worked, and on to the next: as [`forget`](Self::forget), and gives the next key if one is
    /// ready, all under one lock, which matters where many workers share a queue.
    ///
    /// `None` says only that nothing is ready: [`get`](super::WorkQueue::get) waits, and knows the
    /// end. Unlike that it never yields, so a loop around it must, now and then.
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
    #[must_use = "the next key is in process: it must be worked on"]
    pub fn forget_and_next(mut self) -> Option<Self> {
        self.shared.forget(&self.key);
        let slot = std::mem::replace(&mut self.slot, NIL);
        let (next, freed) = self.shared.done_and_take(slot, Done::Forget);
        Taken {
            slot: self.slot,
            key: self.key,
            priority: self.priority,
        } = next?;
        drop(freed);
        Some(self)
    }

    /// It failed: the key is done and runs again after the rate limiter's delay, which is returned.
    pub fn retry(mut self) -> Duration {
        let delay = self.shared.limit(&self.key);
        self.settle(Done::Again {
            delay,
            priority: self.priority,
        });
        delay
    }

    /// Finishes a key that failed: it runs again after `delay` instead of the rate limiter's. The
    /// failure counts for the back-off of later retries.
    pub fn retry_after(mut self, delay: Duration) {
        self.shared.limit(&self.key);
        self.settle(Done::Again {
            delay,
            priority: self.priority,
        });
    }

    /// It worked, and should be looked at again after `delay` even if nothing happens: the key is
    /// done and its back-off forgotten. An earlier due time it already has stays.
    pub fn requeue_after(mut self, delay: Duration) {
        self.shared.forget(&self.key);
        self.settle(Done::Again {
            delay,
            priority: self.priority,
        });
    }

    /// Not now: the key is done and ready again at once, at the tail of its priority, with the
    /// back-off it had. For a worker that finds that the time to work on it has not come: it counts
    /// neither as work nor as a retry. A queue that is shut down leaves it as delayed.
    pub fn put_back(mut self) {
        self.settle(Done::Back {
            priority: self.priority,
        });
    }

    /// Notes that the item is only held back and not worked on, until it is
    /// [put back](Self::put_back). No other worker gets the key meanwhile, and the time does not
    /// count as work in the [metrics](super::QueueMetrics).
    pub fn park(&mut self) {
        self.shared.park(self.slot);
    }

    /// The same item with another priority, which a `retry` or `requeue_after` will keep.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority.get();
        self
    }

    fn settle(&mut self, done: Done) {
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
        self.settle(Done::Again {
            delay,
            priority: self.priority,
        });
        tracing::debug!(
            queue = &*self.shared.name,
            ?delay,
            "an item was dropped without a verdict and will be retried"
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
