//! How a controller runs: its workers, its queue, its time limits, and what it reports to.

use std::time::Duration;

use super::Controller;
use crate::{
    cache::{Kind, ObjectKey},
    clock::Clock,
    events::EventRecorder,
    metrics::Metrics,
    queue::WorkQueue,
};

impl<K: Kind, S: Send + Sync + 'static, E> Controller<K, S, E> {
    /// Sets how many keys are reconciled concurrently. Default: 1.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers.max(1);
        self
    }

    /// Sets the name under which the controller's writes appear in `managedFields`. Default: the
    /// controller's name.
    ///
    /// Server-side apply removes the fields that the *same* manager applied earlier and leaves out
    /// now. Keep the name stable between releases, and use one name per controller: after a rename,
    /// fields applied under the old name are not removed.
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.settings.field_manager = Some(name.into());
        self
    }

    /// Records events with `recorder`, instead of a recorder that the controller starts with its
    /// first event. The owner of `recorder` has to flush it when the program stops.
    pub fn recorder(mut self, recorder: EventRecorder) -> Self {
        self.settings.recorder = Some(recorder);
        self
    }

    /// Uses `queue` instead of creating one, to choose the rate limiter or to add keys from
    /// elsewhere.
    ///
    /// The controller does not shut `queue` down: keys still in it when the controller stops wait
    /// for the next [`run`](Self::run). If you shut it down, the controller finishes the ready keys
    /// and stops with [`StopReason::QueueShutDown`](super::StopReason::QueueShutDown).
    pub fn queue(mut self, queue: WorkQueue<ObjectKey>) -> Self {
        self.settings.queue = Some(queue);
        self
    }

    /// Registers the metrics of the controller and its queue.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.settings.metrics = Some(metrics.clone());
        self
    }

    /// Records why keys run, wait and fail. A [`Manager`](crate::manager::Manager) that
    /// [inspects](crate::manager::Builder::inspect) does this for its controllers.
    #[cfg(feature = "inspect")]
    pub fn inspector(mut self, inspector: &crate::inspect::Inspector) -> Self {
        self.settings.inspector = Some(inspector.clone());
        self
    }

    /// Sets the clock for timestamps in conditions and events. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = Some(clock);
        self
    }

    /// Drops a reconcile that takes longer than `limit`, and retries it. Default: no limit.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Sets how long a key waits for the caches to show its own writes before it runs anyway.
    /// Default: 5 s.
    pub fn read_own_writes_within(mut self, bound: Duration) -> Self {
        self.settings.stale_after = Some(bound);
        self
    }

    /// Runs keys without waiting for the caches to show their own writes.
    pub fn without_reading_own_writes(mut self) -> Self {
        self.settings.stale_after = None;
        self
    }

    /// Sets how long the caches may take to fill before [`run`](Self::run) fails. Default: 2
    /// minutes.
    pub fn sync_timeout(mut self, limit: Duration) -> Self {
        self.settings.sync_timeout = limit;
        self
    }

    /// Sets how long running reconciles may take after the shutdown. Default: 30 s.
    pub fn stop_within(mut self, limit: Duration) -> Self {
        self.settings.stop_within = limit;
        self
    }
}
