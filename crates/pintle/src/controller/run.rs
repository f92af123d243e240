//! Running a controller without a manager: how it starts, and how it ends.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{Action, Context, Controller, ReconcileError};
use crate::{
    cache::{BoxError, InvalidPointer, Kind, ObjectKey},
    finalizer::FinalizerError,
    informer::NotSynced,
};

/// Why a controller did not start, or ended before shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A cache was not filled in time.
    #[error(
        "controller {controller}: cache of {kind} did not sync within {waited:?}{}",
        because(.cause.as_ref())
    )]
    NotSynced {
        /// The controller.
        controller: String,
        /// The kind it waited for.
        kind: String,
        /// How long it waited.
        waited: Duration,
        /// The state of the informers that have not synced.
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
    /// A kind of another cluster cannot be owned: owner references do not reach across clusters.
    #[error(
        "controller {controller}: cannot own {kind} in cluster {cluster}: owner references do not \
         reach across clusters; use watches_from with a function"
    )]
    OwnedElsewhere {
        /// The controller.
        controller: String,
        /// The kind.
        kind: String,
        /// The cluster.
        cluster: String,
    },
    /// The path given to [`Controller::watches_referenced`] is invalid.
    #[error("controller {controller}: {source}")]
    InvalidReference {
        /// The controller.
        controller: String,
        /// Why the path is invalid.
        source: InvalidPointer,
    },
    /// The name given to [`Controller::finalizer`] is invalid.
    #[error("controller {controller}: {source}")]
    Finalizer {
        /// The controller.
        controller: String,
        /// Why the name is invalid.
        source: FinalizerError,
    },
}

fn because(cause: Option<&NotSynced>) -> String {
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}

impl ControllerError {
    pub(super) fn stopped(controller: &str, kind: &str) -> Self {
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
    /// The keys whose reconcile was dropped because it did not finish in time.
    pub unfinished: Vec<ObjectKey>,
    /// The number of keys that were ready.
    pub waiting: usize,
    /// The number of keys that waited for a retry, a delay or their own writes.
    pub delayed: usize,
}

/// Why a controller stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The token passed to [`Controller::run`] was cancelled.
    #[default]
    Shutdown,
    /// The queue passed to [`Controller::queue`] was shut down.
    QueueShutDown,
}

impl<K: Kind, S: Send + Sync + 'static, E: Into<BoxError> + 'static> Controller<K, S, E> {
    /// Runs the controller until `shutdown`, calling `reconcile` with every object that needs work.
    ///
    /// `reconcile` is an `async fn(Arc<K>, Context<S>) -> Result<Action, Error>`, where `Error` is
    /// any error type: a `thiserror` enum, `anyhow::Error`, a boxed error, [`ReconcileError`]. It
    /// is called for live objects only; see [`finalizer`](Self::finalizer) and
    /// [`reconcile_deleting`](Self::reconcile_deleting).
    ///
    /// Starts the informers if they are not running; they then stop with `shutdown`. If several
    /// controllers share a factory, start it once for all of them, so that one controller's
    /// shutdown does not stop the informers of the others.
    ///
    /// After `shutdown`, running reconciles have [`stop_within`](Self::stop_within) to finish. Also
    /// stops when a [queue of the user](Self::queue) is shut down.
    ///
    /// # Errors
    ///
    /// Fails if a cache is not filled in time, an informer stops, the finalizer's name or a
    /// reference path is invalid, or a kind of another cluster is owned.
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
        self.build(reconcile).run(shutdown).await
    }
}

impl<K: Kind, S: Send + Sync + 'static> Controller<K, S> {
    /// Runs the controller until `shutdown`, calling `reconcile` with every key that needs work.
    ///
    /// For controllers that have to see deletions: `reconcile` is also called when the object is
    /// being deleted or gone. The usual first line calls [`Context::primary`] to find out which.
    /// Otherwise the same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
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
        self.build_by_key(reconcile).run(shutdown).await
    }
}
