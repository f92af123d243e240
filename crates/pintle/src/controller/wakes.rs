//! External sources: keys to reconcile for reasons that no watch reports.
//!
//! A webhook of another system, a message queue, a timer: each is a stream of keys. A task per
//! stream adds its keys to the controller's queue from the moment the controller opens its caches
//! until it stops. A standby therefore collects keys as it collects changes, and nothing is lost
//! between two terms.
//!
//! The queue holds each key once, so a stream that names objects of the controller's own cache can
//! always be read, even on a standby, whose queue holds all of them. A stream may name any other
//! key, though. After every thousand keys, its task stops reading while the queue holds many more
//! keys than the cache holds objects, so that a bounded channel behind the stream fills up and
//! slows its senders down.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use tokio::{
    task::consume_budget,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Predicate, cause, trigger};
use crate::{
    cache::{Kind, Lister, ObjectKey},
    clock,
    object::panic_message,
    queue::{Priority, WorkQueue},
};

/// A source of keys.
pub(super) enum Wake {
    /// Keys from outside.
    Keys(BoxStream<'static, ObjectKey>),
    /// All keys of the controller's own cache, with this period.
    Every(Duration),
}

/// The keys of the controller's own kind that its predicate admits.
pub(super) struct OwnKeys<K: Kind> {
    pub(super) lister: Lister<K>,
    pub(super) predicate: Option<Predicate<K>>,
}

impl<K: Kind> OwnKeys<K> {
    pub(super) fn list(&self) -> Vec<ObjectKey> {
        let objects = self.lister.list();
        let admitted = objects
            .iter()
            .filter(|object| trigger::admits(self.predicate.as_ref(), None, object));
        admitted.map(|object| object.key().clone()).collect()
    }
}

impl<K: Kind> Clone for OwnKeys<K> {
    fn clone(&self) -> Self {
        Self {
            lister: self.lister.clone(),
            predicate: self.predicate.clone(),
        }
    }
}

/// How many keys a stream may add before its task checks the queue.
const BURST: usize = 1024;
/// How many more ready keys than cached objects the queue may hold before it counts as full.
const FULL: usize = 16 * 1024;
/// How often a task checks a full queue.
const PAUSE: Duration = Duration::from_millis(50);
/// The shortest period of a timer.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// The running sources of a controller. Dropping it stops them.
pub(super) struct Wakes {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Wakes {
    /// Starts a task per source.
    pub(super) fn start<K: Kind>(
        sources: Vec<Wake>,
        queue: &WorkQueue<ObjectKey>,
        own: &OwnKeys<K>,
    ) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        for source in sources {
            let (stop, queue, own) = (stop.clone(), queue.clone(), own.clone());
            tasks.spawn(async move {
                let wake = async {
                    match source {
                        Wake::Keys(keys) => add_keys(keys, &queue, || own.lister.len()).await,
                        Wake::Every(period) => add_all_every(period, &own, &queue).await,
                    }
                };
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = wake => {}
                }
            });
        }
        tasks.close();
        Self { stop, tasks }
    }

    /// Stops the sources and waits until their streams are dropped.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Adds the keys of a stream until it ends. `objects` returns how many the cache holds.
async fn add_keys(
    mut keys: BoxStream<'static, ObjectKey>,
    queue: &WorkQueue<ObjectKey>,
    objects: impl Fn() -> usize,
) {
    let controller = queue.name();
    for count in 1_usize.. {
        match AssertUnwindSafe(keys.next()).catch_unwind().await {
            Ok(Some(key)) => queue.add_because(key, Priority::default(), cause::WOKEN),
            Ok(None) => {
                tracing::debug!(controller, "external source ended; continuing without it");
                return;
            }
            Err(panic) => {
                let error = panic_message(&*panic);
                tracing::error!(
                    controller,
                    error,
                    "external source failed; continuing without it"
                );
                return;
            }
        }
        if count.is_multiple_of(BURST) {
            while queue.len() >= FULL + objects() {
                sleep(PAUSE).await;
            }
        }
        // A stream that is always ready must not starve other tasks.
        consume_budget().await;
    }
}

async fn add_all_every<K: Kind>(period: Duration, own: &OwnKeys<K>, queue: &WorkQueue<ObjectKey>) {
    let period = period.max(MIN_PERIOD);
    let mut ticks = interval_at(clock::after(Instant::now(), period), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for key in own.list() {
            // As with a resync, real changes go first.
            queue.add_because(key, Priority::LOW, cause::TIMER);
        }
    }
}

#[cfg(test)]
mod tests;
