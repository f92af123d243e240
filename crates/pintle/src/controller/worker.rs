//! The workers: dequeue a key, reconcile it, decide what happens to it.
//!
//! Workers never hold a key that waits for the caches to show its own writes: such a key is parked
//! on a separate task, so that a slow watch cannot occupy all workers. If user code panics (a
//! reconcile, a rate limiter, the `Display` of an error), its key is retried and the worker
//! continues.

use std::{
    any::Any,
    collections::BTreeSet,
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use parking_lot::Mutex;
use tokio::{
    task::{JoinSet, coop::consume_budget},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, Level, debug, error, info, info_span, warn};

use super::{
    Action, ErrorAction, ReconcileError, StopReason, Stopped,
    cause::Described,
    context::{Inner, Shared},
    metrics::ControllerMetrics,
};
use crate::{
    cache::ObjectKey,
    inspect::{self, Delay, Reconciled},
    queue::{Cause, Item, WorkQueue},
    repeats::Repeats,
};

/// The user's reconcile function, with its types erased.
pub(super) type Reconcile =
    dyn Fn(Inner) -> BoxFuture<'static, Result<Action, ReconcileError>> + Send + Sync;

/// The state shared by all workers of a controller.
pub(super) struct Workers {
    pub(super) queue: WorkQueue<ObjectKey>,
    /// Whether to shut the queue down when the workers stop.
    pub(super) shuts_queue_down: bool,
    pub(super) reconcile: Arc<Reconcile>,
    pub(super) shared: Arc<Shared>,
    pub(super) stale_after: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) metrics: ControllerMetrics,
    /// The number of the next reconcile.
    pub(super) next_id: Arc<AtomicU64>,
    /// Which failures of a key are logged.
    pub(super) failures: Repeats<ObjectKey>,
    /// The keys being reconciled, for the report when the controller stops.
    pub(super) running: Mutex<BTreeSet<ObjectKey>>,
    pub(super) parked: TaskTracker,
}

/// How a reconcile ended.
enum Outcome {
    Done(Action),
    Failed(ReconcileError),
    Panicked(String),
    TimedOut(Duration),
}

/// A reconcile that has ended.
#[derive(Clone, Copy)]
struct Ended {
    id: u64,
    at: Instant,
    took: Duration,
}

impl Workers {
    /// Runs `count` workers until `shutdown`, or until the queue is shut down and empty, then waits
    /// up to `grace` for running reconciles.
    pub(super) async fn run(
        self: Arc<Self>,
        count: usize,
        grace: Duration,
        shutdown: CancellationToken,
    ) -> Stopped {
        // If this future is dropped, parked keys are released too.
        let _release = shutdown.clone().drop_guard();
        let recorded = self.shared.record.clone().map(|record| {
            record.workers(count);
            Recorded(record)
        });
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(Arc::clone(&self).work(shutdown.clone()));
        }
        info!(
            controller = self.shared.name,
            workers = count,
            "controller started"
        );
        let reason = tokio::select! {
            biased; // If both happened, report the shutdown, which the caller requested.
            () = shutdown.cancelled() => StopReason::Shutdown,
            () = all_ended(&mut tasks) => StopReason::QueueShutDown,
            never = self.forget_seen_writes() => match never {},
        };
        shutdown.cancel(); // Releases parked keys.
        drop(recorded);
        if self.shuts_queue_down {
            self.queue.shut_down();
        }
        self.parked.close();
        let ended = async {
            all_ended(&mut tasks).await;
            self.parked.wait().await;
        };
        let _ = timeout(grace, ended).await;
        let left = self.queue.left();
        // Collected with the rest of the report, before any reconcile is dropped: the key of a
        // dropped reconcile is retried and would be counted twice.
        let unfinished: Vec<_> = self.running.lock().iter().cloned().collect();
        // Not awaited: a reconcile that blocks its thread would block the shutdown.
        tasks.abort_all();
        let stopped = Stopped {
            reason,
            unfinished,
            waiting: left.ready.len(),
            delayed: left.delayed.len(),
        };
        if stopped.unfinished.is_empty() {
            info!(
                controller = self.shared.name,
                ?stopped,
                "controller stopped"
            );
        } else {
            warn!(
                controller = self.shared.name,
                ?stopped,
                "controller stopped before all reconciles ended; dropping them"
            );
        }
        stopped
    }

    async fn forget_seen_writes(&self) -> Infallible {
        match &self.shared.own_writes {
            Some(own_writes) => own_writes.forget_seen().await,
            None => pending().await,
        }
    }

    /// Reconciles keys until `shutdown`, then finishes the current reconcile and returns.
    pub(super) async fn work(self: Arc<Self>, shutdown: CancellationToken) {
        // Dequeued under the same lock that marked the previous key as done.
        let mut next: Option<Item<ObjectKey>> = None;
        loop {
            let item = if let Some(item) = next.take() {
                consume_budget().await; // `get` does this; without it a busy worker would starve other tasks.
                if shutdown.is_cancelled() {
                    return item.put_back();
                }
                item
            } else {
                let item = tokio::select! {
                    biased; // Check for shutdown first, so a stopping worker dequeues no key.
                    () = shutdown.cancelled() => return,
                    item = self.queue.get() => item,
                };
                let Some(item) = item else { return };
                item
            };
            if let Some(own_writes) = &self.shared.own_writes
                && !own_writes.is_seen(item.key())
            {
                self.park(item, &shutdown);
                continue;
            }
            // User code also runs outside the reconcile: a rate limiter, an error's `Display`, a
            // `Drop`. If it panics the item is dropped, which retries the key.
            let processed = AssertUnwindSafe(self.process(item, &shutdown)).catch_unwind();
            next = processed.await.unwrap_or_else(|panic| {
                self.metrics.panics.inc();
                let panic = message_of(&*panic);
                error!(
                    controller = self.shared.name,
                    panic, "user code panicked outside a reconcile; retrying the key"
                );
                None
            });
        }
    }

    /// Holds `item` until the caches show the writes of its last reconcile. The key still counts as
    /// being processed, so no worker gets it in the meantime.
    fn park(self: &Arc<Self>, mut item: Item<ObjectKey>, shutdown: &CancellationToken) {
        self.metrics.parked.inc();
        item.park();
        let (workers, shutdown) = (Arc::clone(self), shutdown.clone());
        let bound = self.stale_after.unwrap_or_default();
        self.parked.spawn(async move {
            let Some(own_writes) = &workers.shared.own_writes else {
                return item.put_back();
            };
            let started = Instant::now();
            let caught_up = own_writes.seen(item.key());
            let waited = tokio::select! {
                biased; // Check for shutdown first, so a parked key is released immediately.
                () = shutdown.cancelled() => Ok(()),
                waited = timeout(bound, caught_up) => waited,
            };
            if let Some(record) = &workers.shared.record {
                record.delayed(item.key(), Delay::OwnWrite, started.elapsed());
            }
            if waited.is_err() {
                workers.metrics.stale.inc();
                warn!(
                    controller = workers.shared.name, key = %item.key(), ?bound,
                    "caches did not show the key's own writes in time; reconciling anyway"
                );
                own_writes.forget(item.key());
            }
            item.put_back();
        });
    }

    /// Reconciles a key. After a success, may return the next key, unless the controller is
    /// stopping.
    async fn process(
        &self,
        item: Item<ObjectKey>,
        shutdown: &CancellationToken,
    ) -> Option<Item<ObjectKey>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let span = info_span!(
            "reconcile",
            controller = self.shared.name,
            namespace = item.key().namespace(),
            name = item.key().name(),
            reconcile_id = id,
            cause = %Described {
                cause: item.cause(),
                sources: &self.shared.sources,
            },
            attempt = item.retries().saturating_add(1),
        );
        let running = Running::new(self, item.key());
        let started = Instant::now();
        let outcome = self
            .reconcile(item.key(), id)
            .instrument(span.clone())
            .await;
        let took = started.elapsed();
        self.metrics.seconds.observe(took.as_secs_f64());
        drop(running);
        let ended = Ended {
            id,
            at: started + took,
            took,
        };
        span.in_scope(|| self.conclude(item, outcome, ended, shutdown))
    }

    async fn reconcile(&self, key: &ObjectKey, id: u64) -> Outcome {
        let context = Inner {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            id,
            primary: None,
        };
        // The call itself is user code that may panic, so it is inside the block too.
        let run = AssertUnwindSafe(async { (self.reconcile)(context).await }).catch_unwind();
        let ended = match (&self.shared.record, self.timeout) {
            (None, None) => Ok(run.await),
            (None, Some(limit)) => timeout(limit, run).await.map_err(|_| limit),
            // Boxed, so that reconciles without an inspector do not pay for its larger future.
            (Some(record), limit) => {
                let run = Box::pin(async move {
                    match limit {
                        Some(limit) => timeout(limit, run).await.map_err(|_| limit),
                        None => Ok(run.await),
                    }
                });
                record.scope(key, id, run).await
            }
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(limit) => return Outcome::TimedOut(limit),
        };
        match ended {
            Ok(Ok(action)) => Outcome::Done(action),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(panic) => Outcome::Panicked(message_of(&*panic)),
        }
    }

    /// Counts and logs the outcome, and passes it to the queue. After a success, the most frequent
    /// outcome, also dequeues the next key.
    fn conclude(
        &self,
        item: Item<ObjectKey>,
        outcome: Outcome,
        ended: Ended,
        shutdown: &CancellationToken,
    ) -> Option<Item<ObjectKey>> {
        let metrics = &self.metrics;
        match outcome {
            Outcome::Done(Action { after, priority }) => {
                self.failures.forget(item.key());
                let item = match priority {
                    Some(priority) => item.with_priority(priority),
                    None => item,
                };
                if let Some(after) = after {
                    let next = Some((Delay::Requeue, after));
                    self.record(&item, ended, inspect::Outcome::Requeue, None, next);
                    metrics.requeue_after.inc();
                    debug!(?after, "reconciled; requeueing");
                    item.requeue_after(after);
                } else {
                    self.record(&item, ended, inspect::Outcome::Ok, None, None);
                    metrics.success.inc();
                    debug!("reconciled");
                    if !shutdown.is_cancelled() {
                        return item.forget_and_next();
                    }
                    item.forget();
                }
            }
            Outcome::Failed(error) => {
                metrics.error.inc();
                metrics.errors.inc();
                let (text, what) = (error.to_string(), "reconcile failed; retrying");
                match error.action() {
                    ErrorAction::Retry => {
                        self.retry(
                            Level::WARN,
                            item,
                            ended,
                            inspect::Outcome::Error,
                            &text,
                            what,
                        );
                    }
                    ErrorAction::RetryAfter(delay) => {
                        self.retry_after(item, ended, &text, delay);
                    }
                    ErrorAction::Terminal => {
                        metrics.terminal_errors.inc();
                        self.record(&item, ended, inspect::Outcome::Terminal, Some(&text), None);
                        self.report_terminal(item, &text);
                    }
                }
            }
            Outcome::Panicked(message) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.panics.inc();
                let what = "reconcile panicked; retrying";
                let outcome = inspect::Outcome::Panic;
                self.retry(Level::ERROR, item, ended, outcome, &message, what);
            }
            Outcome::TimedOut(limit) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.timeouts.inc();
                let message = format!("no result within {limit:?}");
                let what = "reconcile timed out and was dropped; retrying";
                let outcome = inspect::Outcome::Timeout;
                self.retry(Level::WARN, item, ended, outcome, &message, what);
            }
        }
        None
    }

    /// Retries a key with back-off. Logs a new failure immediately and its repeats at a decreasing
    /// rate: the first retries are only milliseconds apart.
    fn retry(
        &self,
        level: Level,
        item: Item<ObjectKey>,
        ended: Ended,
        outcome: inspect::Outcome,
        error: &str,
        what: &str,
    ) {
        let key = item.key().clone();
        let retries = item.retries();
        let cause = item.cause();
        let retry_in = item.retry();
        let next = Some((Delay::BackOff, retry_in));
        self.record_as(&key, cause, ended, outcome, Some(error), next);
        match self.failures.admit(&key, error) {
            Some(unlogged) if level == Level::ERROR => {
                error!(error, retries, ?retry_in, unlogged, "{what}");
            }
            Some(unlogged) => warn!(error, retries, ?retry_in, unlogged, "{what}"),
            None => debug!(error, retries, ?retry_in, "{what}"),
        }
    }

    /// Retries a key after a delay chosen by the user.
    fn retry_after(&self, item: Item<ObjectKey>, ended: Ended, error: &str, retry_in: Duration) {
        let next = Some((Delay::BackOff, retry_in));
        self.record(&item, ended, inspect::Outcome::Error, Some(error), next);
        if let Some(unlogged) = self.failures.admit(item.key(), error) {
            warn!(error, ?retry_in, unlogged, "reconcile failed; retrying");
        } else {
            debug!(error, ?retry_in, "reconcile failed; retrying");
        }
        item.retry_after(retry_in);
    }

    #[inline]
    fn record(
        &self,
        item: &Item<ObjectKey>,
        ended: Ended,
        outcome: inspect::Outcome,
        error: Option<&str>,
        next: Option<(Delay, Duration)>,
    ) {
        if self.shared.record.is_some() {
            self.record_as(item.key(), item.cause(), ended, outcome, error, next);
        }
    }

    /// Reports the end of a reconcile to the inspector.
    fn record_as(
        &self,
        key: &ObjectKey,
        cause: Cause,
        ended: Ended,
        outcome: inspect::Outcome,
        error: Option<&str>,
        next: Option<(Delay, Duration)>,
    ) {
        let Some(record) = &self.shared.record else {
            return;
        };
        let reconciled = Reconciled {
            id: ended.id,
            cause: cause.number(),
            attempt: 1,
            took: ended.took,
            outcome,
            error: error.map(Into::into),
            next,
        };
        record.reconciled(key, ended.at, reconciled);
    }

    fn report_terminal(&self, item: Item<ObjectKey>, error: &str) {
        let what = "reconcile failed with a terminal error; not retrying";
        if let Some(unlogged) = self.failures.admit(item.key(), error) {
            error!(error, unlogged, "{what}");
        } else {
            debug!(error, "{what}");
        }
        item.forget();
    }
}

/// Resets the inspector's worker count when the workers stop or the future that runs them is
/// dropped.
struct Recorded(inspect::Record);

impl Drop for Recorded {
    fn drop(&mut self) {
        self.0.workers(0);
    }
}

/// Counts a reconcile as running until it ends or is dropped.
struct Running<'a> {
    workers: &'a Workers,
    key: ObjectKey,
}

impl<'a> Running<'a> {
    fn new(workers: &'a Workers, key: &ObjectKey) -> Self {
        workers.metrics.active.inc();
        workers.running.lock().insert(key.clone());
        Self {
            workers,
            key: key.clone(),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.workers.metrics.active.dec();
        self.workers.running.lock().remove(&self.key);
    }
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
