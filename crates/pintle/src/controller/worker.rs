//! One worker: a key in, a reconcile, a verdict out.

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
    Action, Context, ReconcileError, StopReason, Stopped, context::Shared,
    metrics::ControllerMetrics,
};
use crate::{
    cache::ObjectKey,
    queue::{Item, WorkQueue},
    repeats::Repeats,
};

/// The user's reconcile, boxed once at the edge.
pub(super) type Reconcile =
    dyn Fn(ObjectKey, Context) -> BoxFuture<'static, Result<Action, ReconcileError>> + Send + Sync;

/// What all workers of a controller share.
pub(super) struct Workers {
    pub(super) queue: WorkQueue<ObjectKey>,
    /// The queue was made for this controller, and ends with it.
    pub(super) shuts_queue_down: bool,
    pub(super) reconcile: Box<Reconcile>,
    pub(super) shared: Arc<Shared>,
    pub(super) stale_after: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) metrics: ControllerMetrics,
    pub(super) next_id: AtomicU64,
    /// Which failures of a key are logged.
    pub(super) failures: Repeats<ObjectKey>,
    /// The keys that are being reconciled, for the report at the end.
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

impl Workers {
    /// Works with `count` workers until `shutdown` or the end of the queue, then for at most `grace`
    /// until those that reconcile have ended.
    pub(super) async fn run(
        self: Arc<Self>,
        count: usize,
        grace: Duration,
        shutdown: CancellationToken,
    ) -> Stopped {
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
            biased; // If both happened, the shutdown is what the caller asked for.
            () = shutdown.cancelled() => StopReason::Shutdown,
            () = all_ended(&mut tasks) => StopReason::QueueShutDown,
            never = self.forget_seen_writes() => match never {},
        };
        shutdown.cancel(); // Parked keys wait for nothing any more.
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
        // In the same moment as the count of the rest, and before any is dropped, or a key would be
        // in both: as one that did not end, and as one to retry.
        let unfinished: Vec<_> = self.running.lock().iter().cloned().collect();
        // Not awaited: a reconcile that blocks its thread would never let us.
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
                "controller stopped before every reconcile had ended"
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

    /// Works until `shutdown`; the reconcile that runs then is finished.
    pub(super) async fn work(self: Arc<Self>, shutdown: CancellationToken) {
        // Taken in the same breath in which the one before was handed back.
        let mut next: Option<Item<ObjectKey>> = None;
        loop {
            let item = if let Some(item) = next.take() {
                consume_budget().await; // A worker that always finds a key lets others run, too.
                if shutdown.is_cancelled() {
                    return item.put_back();
                }
                item
            } else {
                let item = tokio::select! {
                    biased; // Who is told to stop takes no further key.
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
            // What panics here is the user's too: a limiter, an error's text, a destructor. The item
            // was dropped then, and its key is retried.
            let processed = AssertUnwindSafe(self.process(item, &shutdown)).catch_unwind();
            next = processed.await.unwrap_or_else(|panic| {
                self.metrics.panics.inc();
                let panic = message_of(&*panic);
                error!(
                    controller = self.shared.name,
                    panic, "a worker panicked beside a reconcile"
                );
                None
            });
        }
    }

    /// Keeps `item` away from the workers until the caches have caught up with what its last
    /// reconcile wrote. No other worker gets the key meanwhile, because the item is held.
    fn park(self: &Arc<Self>, mut item: Item<ObjectKey>, shutdown: &CancellationToken) {
        self.metrics.parked.inc();
        item.park();
        let (workers, shutdown) = (Arc::clone(self), shutdown.clone());
        let bound = self.stale_after.unwrap_or_default();
        self.parked.spawn(async move {
            let Some(own_writes) = &workers.shared.own_writes else {
                return item.put_back();
            };
            let caught_up = own_writes.seen(item.key());
            let waited = tokio::select! {
                biased; // Stopping frees the key at once; the time limit comes before more waiting.
                () = shutdown.cancelled() => Ok(()),
                waited = timeout(bound, caught_up) => waited,
            };
            if waited.is_err() {
                workers.metrics.stale.inc();
                warn!(
                    controller = workers.shared.name, key = %item.key(), ?bound,
                    "a cache has not seen this key's own writes in time; reconciling anyway"
                );
                own_writes.forget(item.key());
            }
            item.put_back();
        });
    }

    /// Reconciles a key and hands it back. Gives the next one, if there is one and nobody told us to
    /// stop.
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
        );
        let running = Running::new(self, item.key());
        let started = Instant::now();
        let outcome = self
            .reconcile(item.key(), id)
            .instrument(span.clone())
            .await;
        self.metrics
            .seconds
            .observe(started.elapsed().as_secs_f64());
        drop(running);
        span.in_scope(|| self.conclude(item, outcome, shutdown))
    }

    async fn reconcile(&self, key: &ObjectKey, id: u64) -> Outcome {
        let cx = Context {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            id,
        };
        // Also the call that makes the future is the user's code.
        let run =
            AssertUnwindSafe(async { (self.reconcile)(key.clone(), cx).await }).catch_unwind();
        let ended = match self.timeout {
            Some(limit) => match timeout(limit, run).await {
                Ok(ended) => ended,
                Err(_) => return Outcome::TimedOut(limit),
            },
            None => run.await,
        };
        match ended {
            Ok(Ok(action)) => Outcome::Done(action),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(panic) => Outcome::Panicked(message_of(&*panic)),
        }
    }

    /// Counts and reports the outcome, and gives the queue its verdict. Success, which is by far the
    /// most frequent, takes the next key with it.
    fn conclude(
        &self,
        item: Item<ObjectKey>,
        outcome: Outcome,
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
                    metrics.requeue_after.inc();
                    debug!(?after, "reconciled; again later");
                    item.requeue_after(after);
                } else {
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
                if error.is_terminal() {
                    metrics.terminal_errors.inc();
                    self.report_terminal(item, &error);
                } else {
                    let error = error.to_string();
                    self.retry(Level::WARN, item, &error, "reconcile failed; retrying");
                }
            }
            Outcome::Panicked(message) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.panics.inc();
                self.retry(Level::ERROR, item, &message, "reconcile panicked; retrying");
            }
            Outcome::TimedOut(limit) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.timeouts.inc();
                let message = format!("no result within {limit:?}");
                let what = "reconcile timed out and was dropped; retrying";
                self.retry(Level::WARN, item, &message, what);
            }
        }
        None
    }

    /// Retries a key. The log says so at once, and of the same failure again at a falling rate: the
    /// first retries are only milliseconds apart.
    fn retry(&self, level: Level, item: Item<ObjectKey>, error: &str, what: &str) {
        let key = item.key().clone();
        let retries = item.retries();
        let retry_in = item.retry();
        match self.failures.admit(&key, error) {
            Some(unlogged) if level == Level::ERROR => {
                error!(error, retries, ?retry_in, unlogged, "{what}");
            }
            Some(unlogged) => warn!(error, retries, ?retry_in, unlogged, "{what}"),
            None => debug!(error, retries, ?retry_in, "{what}"),
        }
    }

    fn report_terminal(&self, item: Item<ObjectKey>, error: &ReconcileError) {
        let error = error.to_string();
        let what = "reconcile failed with a terminal error; not retrying";
        if let Some(unlogged) = self.failures.admit(item.key(), &error) {
            error!(error, unlogged, "{what}");
        } else {
            debug!(error, "{what}");
        }
        item.forget();
    }
}

/// Counts a reconcile as running, until it has ended or was dropped.
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
        .unwrap_or_else(|| "not a message".to_owned())
}
