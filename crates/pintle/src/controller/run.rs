//! Running a controller: open the caches, wait until they are filled, work until the end.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, select_all},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Action, Context, Controller, Listers, ReconcileError, Watchable,
    apply::AppliedConfigurations,
    builder::{Register, Settings},
    context::{Inner, Shared},
    events::Events,
    listers::kind_name,
    metrics::ControllerMetrics,
    own_writes::OwnWrites,
    primary::PrimaryKind,
    reconciler::Reconciler,
    trigger,
    worker::Workers,
};
use crate::{
    cache::{BoxError, ObjectKey},
    clock,
    finalizer::{Finalizer, FinalizerError},
    informer::{InformerFactory, NotSynced, Registration},
    queue::WorkQueue,
    repeats::Repeats,
};

/// Why a controller ended other than by shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A cache was not filled in time.
    #[error(
        "controller {controller}: the cache of {kind} was not filled within {waited:?}{}",
        because(.cause.as_ref())
    )]
    NotSynced {
        /// The controller.
        controller: String,
        /// The kind it waited for.
        kind: String,
        /// How long it waited.
        waited: Duration,
        /// What the informers report.
        cause: Option<NotSynced>,
    },
    /// An informer stopped while the controller ran. Its cache is frozen, so it cannot be used.
    #[error("controller {controller}: the informer of {kind} stopped")]
    InformerStopped {
        /// The controller.
        controller: String,
        /// The kind of the informer.
        kind: String,
    },
    /// The name given to [`Controller::finalizer`] is invalid.
    #[error("controller {controller}: {source}")]
    Finalizer {
        /// The controller.
        controller: String,
        /// What is wrong with the name.
        source: FinalizerError,
    },
}

fn because(cause: Option<&NotSynced>) -> String {
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}

impl ControllerError {
    fn stopped(controller: &str, kind: &str) -> Self {
        Self::InformerStopped {
            controller: controller.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// Why a controller stopped, and the keys it left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Why it stopped.
    pub reason: StopReason,
    /// The keys whose reconcile was dropped because it did not end in time.
    pub unfinished: Vec<ObjectKey>,
    /// The number of keys that were ready.
    pub waiting: usize,
    /// The number of keys that waited for a retry, a delay or their own writes.
    pub delayed: usize,
}

/// What made a controller stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The token passed to [`Controller::run`] was cancelled.
    #[default]
    Shutdown,
    /// The queue passed to [`Controller::queue`] was shut down.
    QueueShutDown,
}

impl<K: Watchable, S: Send + Sync + 'static, E: Into<BoxError> + 'static> Controller<K, S, E> {
    /// Runs the controller until `shutdown`, calling `reconcile` with every object that needs work.
    ///
    /// `reconcile` is an `async fn(Arc<K>, Context<S>) -> Result<Action, Error>`, where `Error` is
    /// any error type: a `thiserror` enum, `anyhow::Error`, a boxed error, [`ReconcileError`]. It is
    /// called for live objects only; see [`finalizer`](Self::finalizer) and
    /// [`reconcile_deleting`](Self::reconcile_deleting).
    ///
    /// Starts the informers if they are not running; they then stop with `shutdown`. If several
    /// controllers share a factory, start it once for all of them, so that one controller's shutdown
    /// does not stop the informers of the others.
    ///
    /// After `shutdown`, running reconciles have [`stop_within`](Self::stop_within) to finish. Also
    /// stops when a [queue of the user](Self::queue) is shut down.
    ///
    /// # Errors
    ///
    /// A cache was not filled in time, an informer stopped, or the finalizer's name is invalid.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future drops running reconciles.
    pub async fn run<F, R, X>(
        self,
        reconcile: F,
        shutdown: &CancellationToken,
    ) -> Result<Stopped, ControllerError>
    where
        F: Fn(Arc<K>, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, X>> + Send + 'static,
        X: Into<E> + 'static,
    {
        self.run_with(reconcile, shutdown, |reconciler, inner| {
            async move { reconciler.by_object(inner).await }.boxed()
        })
        .await
    }
}

impl<K: Watchable, S: Send + Sync + 'static> Controller<K, S> {
    /// Runs the controller until `shutdown`, calling `reconcile` with every key that needs work.
    ///
    /// For controllers that have to see deletions: `reconcile` is also called when the object is
    /// being deleted or gone. The usual first line asks [`Context::primary`] which it is. Otherwise
    /// as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future drops running reconciles.
    pub async fn run_by_key<F, R>(
        self,
        reconcile: F,
        shutdown: &CancellationToken,
    ) -> Result<Stopped, ControllerError>
    where
        F: Fn(ObjectKey, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        self.run_with(reconcile, shutdown, |reconciler, inner| {
            async move { reconciler.by_key(inner).await }.boxed()
        })
        .await
    }
}

/// Reconciles one key.
type Call<R> = fn(Arc<R>, Inner) -> BoxFuture<'static, Result<Action, ReconcileError>>;

impl<K: Watchable, S: Send + Sync + 'static, E: 'static> Controller<K, S, E> {
    async fn run_with<F: Send + Sync + 'static>(
        self,
        reconcile: F,
        shutdown: &CancellationToken,
        call: Call<Reconciler<K, S, E, F>>,
    ) -> Result<Stopped, ControllerError> {
        let Self {
            settings,
            state,
            policy,
            finalizer,
        } = self;
        let finalizer = finalizer.map(|(name, finalize)| Ok((Finalizer::new(name)?, finalize)));
        let finalizer = finalizer
            .transpose()
            .map_err(|source| ControllerError::Finalizer {
                controller: settings.name.clone(),
                source,
            })?;
        let reconciler = Arc::new(Reconciler {
            reconcile,
            lister: settings.informers.informer::<K>().lister(),
            state,
            policy,
            finalizer,
            deleting: settings.reconcile_deleting,
        });
        let call = move |inner| call(Arc::clone(&reconciler), inner);
        settings.run(Box::new(call), shutdown).await
    }
}

impl<K: Watchable> Settings<K> {
    async fn run(
        self,
        reconcile: Box<super::worker::Reconcile>,
        shutdown: &CancellationToken,
    ) -> Result<Stopped, ControllerError> {
        let shuts_queue_down = self.queue.is_none();
        let queue = self.queue.clone().unwrap_or_else(|| {
            WorkQueue::builder(&self.name)
                .metrics(&self.metrics)
                .build()
        });
        if queue.is_shut_down() {
            return Ok(Stopped {
                reason: StopReason::QueueShutDown,
                ..Stopped::default()
            });
        }
        let primary = self.informers.informer::<K>();
        let mut listers = Listers::new(&self.name);
        let mut watched = Vec::from_iter(listers.add(&primary));
        let open =
            |trigger: super::builder::Trigger| trigger(&self.informers, &mut listers, &mut watched);
        let registers: Vec<Register> = self.triggers.into_iter().map(open).collect();
        // Handlers may run at once, and mapping functions read any cache, so all are opened first.
        let listers = Arc::new(listers);
        let own = trigger::enqueue(&primary, &queue, self.predicate.clone(), |object, keys| {
            keys.push(object.key().clone());
        });
        let mut handlers = vec![(kind_name::<K>(), own)];
        handlers.extend(registers.into_iter().map(|add| add(&queue, &listers)));
        self.informers.start(shutdown);
        let synced = wait_for_sync(
            &self.name,
            &handlers,
            self.sync_timeout,
            &self.informers,
            shutdown,
        );
        if !synced.await? {
            return Ok(Stopped::default());
        }

        let metrics = ControllerMetrics::new(&self.metrics, &self.name);
        metrics
            .max_concurrent
            .set(i64::try_from(self.workers).unwrap_or(i64::MAX));
        let own_writes = OwnWrites::new(watched, metrics.unseen_writes.clone());
        let stop = shutdown.child_token();
        let client = self.informers.client().clone();
        let shared = Arc::new(Shared {
            events: Events::new(
                &self.name,
                &client,
                &self.clock,
                &self.metrics,
                self.recorder,
            ),
            field_manager: self.field_manager.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            client,
            listers,
            primary: PrimaryKind::new(primary.lister()),
            queue: queue.clone(),
            own_writes: self.stale_after.map(|_| own_writes),
            applied: AppliedConfigurations::default(),
            clock: self.clock,
            shutdown: stop.clone(),
        });
        let workers = Arc::new(Workers {
            queue,
            shuts_queue_down,
            reconcile,
            shared: Arc::clone(&shared),
            stale_after: self.stale_after,
            timeout: self.timeout,
            metrics,
            next_id: AtomicU64::new(1),
            failures: Repeats::new(),
            running: Mutex::default(),
            parked: TaskTracker::new(),
        });
        let work = workers.run(self.workers, self.stop_within, stop.clone());
        let ended = first_ended(&handlers);
        tokio::pin!(work, ended);
        let ended = tokio::select! {
            biased; // If the workers are done, a stopped informer does not matter.
            stopped = &mut work => Ok(stopped),
            kind = &mut ended => Err(kind),
        };
        let result = match ended {
            Ok(stopped) => Ok(stopped),
            Err(kind) => {
                // A frozen cache must not be worked from.
                stop.cancel();
                let stopped = work.await;
                if shutdown.is_cancelled() {
                    Ok(stopped)
                } else {
                    Err(ControllerError::stopped(&shared.name, kind))
                }
            }
        };
        shared.events.flush().await;
        result
    }
}

/// Waits until every handler has seen its filled cache. Returns false on shutdown.
async fn wait_for_sync(
    controller: &str,
    handlers: &[(String, Registration)],
    limit: Duration,
    informers: &InformerFactory,
    shutdown: &CancellationToken,
) -> Result<bool, ControllerError> {
    let deadline = clock::after(Instant::now(), limit);
    for (kind, handler) in handlers {
        let synced = tokio::select! {
            biased; // Check for shutdown first, so a cancelled controller never starts workers.
            () = shutdown.cancelled() => return Ok(false),
            synced = timeout_at(deadline, handler.synced()) => synced,
        };
        match synced {
            Ok(true) => {}
            Ok(false) => return Err(ControllerError::stopped(controller, kind)),
            Err(_) => {
                return Err(ControllerError::NotSynced {
                    controller: controller.to_owned(),
                    kind: kind.clone(),
                    waited: limit,
                    cause: informers.not_synced(),
                });
            }
        }
    }
    Ok(true)
}

/// Waits until the informer of a handler stops, and returns its kind.
async fn first_ended(handlers: &[(String, Registration)]) -> &str {
    let each = handlers.iter().map(|(kind, handler)| {
        async move {
            handler.ended().await;
            kind.as_str()
        }
        .boxed()
    });
    select_all(each).await.0
}
