//! A controller between its configuration and its work.
//!
//! ```text
//! Controller ──build──► BuiltController ──open──► Opened ──work──► Stopped
//!                                                   ▲                 │
//!                                                   └── another term ─┘
//! ```
//!
//! An open controller has its caches, handlers and queue, but no workers. A standby keeps it in
//! that state: the queue fills, and the workers of its first term start from there, without a list.

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{
    Action, Context, Controller, ControllerError, ReconcileError, StopReason, Stopped,
    context::Inner,
    opened::{Opened, Term},
    reconciler::Reconciler,
};
use crate::{
    cache::{BoxError, Kind, ObjectKey},
    clock::Clock,
    events::EventBroadcaster,
    finalizer::Finalizer,
    inspect::Inspector,
    leader_election::Leadership,
    metrics::Metrics,
    object::Pointer,
    rbac::Rules,
};

impl<K: Kind, S: Send + Sync + 'static, E: Into<BoxError> + 'static> Controller<K, S, E> {
    /// Combines the controller with its reconcile function, for a
    /// [`Manager`](crate::manager::Manager) to run.
    ///
    /// `reconcile` is called as described at [`run`](Self::run).
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use pintle::{controller::{Action, Context, Controller}, manager::Manager};
    /// # use std::{convert::Infallible, sync::Arc};
    /// # async fn reconcile(_: Arc<ConfigMap>, _: Context) -> Result<Action, Infallible> { unimplemented!() }
    /// # fn example(manager: &mut Manager) {
    /// let controller = Controller::<ConfigMap>::new("config-deployer", manager.informers());
    /// manager.add(controller.owns::<Deployment>().build(reconcile));
    /// # }
    /// ```
    pub fn build<F, R, X>(self, reconcile: F) -> BuiltController
    where
        F: Fn(Arc<K>, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, X>> + Send + 'static,
        X: Into<E> + 'static,
    {
        self.build_with(reconcile, |reconciler, inner| {
            async move { reconciler.by_object(inner).await }.boxed()
        })
    }
}

impl<K: Kind, S: Send + Sync + 'static> Controller<K, S> {
    /// Combines the controller with its reconcile function, which is called with every key that
    /// needs work, as described at [`run_by_key`](Self::run_by_key).
    pub fn build_by_key<F, R>(self, reconcile: F) -> BuiltController
    where
        F: Fn(ObjectKey, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        self.build_with(reconcile, |reconciler, inner| {
            async move { reconciler.by_key(inner).await }.boxed()
        })
    }
}

/// Reconciles one key.
type Call<R> = fn(Arc<R>, Inner) -> BoxFuture<'static, Result<Action, ReconcileError>>;

impl<K: Kind, S: Send + Sync + 'static, E: 'static> Controller<K, S, E> {
    fn build_with<F: Send + Sync + 'static>(
        self,
        reconcile: F,
        call: Call<Reconciler<K, S, E, F>>,
    ) -> BuiltController {
        let rules = self.rules();
        let Self {
            settings,
            state,
            policy,
            finalizer,
        } = self;
        let name = settings.name.clone();
        let is_elsewhere = settings.input.in_cluster().is_some();
        let open = move |defaults: Defaults| {
            let finalizer = finalizer.map(|(name, finalize)| Ok((Finalizer::new(name)?, finalize)));
            let finalizer = finalizer
                .transpose()
                .map_err(|source| ControllerError::Finalizer {
                    controller: settings.name.clone(),
                    source,
                })?;
            if let Some((kind, cluster)) = settings.owned_elsewhere {
                return Err(ControllerError::OwnedElsewhere {
                    controller: settings.name,
                    kind,
                    cluster,
                });
            }
            for path in &settings.references {
                path.parse::<Pointer>()
                    .map_err(|source| ControllerError::InvalidReference {
                        controller: settings.name.clone(),
                        source,
                    })?;
            }
            let reconciler = Arc::new(Reconciler {
                reconcile,
                lister: settings.informers.informer_from(&settings.input).lister(),
                state,
                policy,
                finalizer,
                deleting: settings.reconcile_deleting,
            });
            let call = move |inner| call(Arc::clone(&reconciler), inner);
            Ok(settings.open(Arc::new(call), defaults))
        };
        BuiltController {
            name,
            rules,
            is_elsewhere,
            open: Box::new(open),
        }
    }
}

/// A controller with its reconcile function; returned by [`Controller::build`].
///
/// A [`Manager`](crate::manager::Manager) runs it together with others, term after term;
/// [`Controller::run`] builds a controller and runs it on its own.
#[must_use = "a controller does nothing until it is run"]
pub struct BuiltController {
    name: String,
    pub(super) rules: Rules,
    /// Whether it works in a cluster other than its informers' cluster.
    is_elsewhere: bool,
    open: Box<dyn FnOnce(Defaults) -> Result<Opened, ControllerError> + Send>,
}

/// The defaults for settings that a controller does not override.
#[derive(Clone, Default)]
pub(crate) struct Defaults {
    /// The client for writes; the informers' client by default.
    pub(crate) client: Option<Client>,
    /// Gates the writes to other clusters.
    pub(crate) leadership: Option<Leadership>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) clock: Option<Clock>,
    pub(crate) events: Option<EventBroadcaster>,
    pub(crate) inspector: Option<Inspector>,
}

impl BuiltController {
    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the controller works in a cluster other than its informers' cluster.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Opens the caches, registers the handlers, creates the queue and starts the external sources.
    /// Starts no informer. Must be called inside a tokio runtime.
    pub(crate) fn open(self, defaults: Defaults) -> Result<Opened, ControllerError> {
        (self.open)(defaults)
    }

    /// Runs the controller on its own, without a manager.
    pub(super) async fn run(
        self,
        shutdown: &CancellationToken,
    ) -> Result<Stopped, ControllerError> {
        let opened = self.open(Defaults::default())?;
        if opened.queue.is_shut_down() {
            return Ok(Stopped {
                reason: StopReason::QueueShutDown,
                ..Stopped::default()
            });
        }
        opened.informers.start(shutdown);
        if !opened.synced(shutdown).await? {
            return Ok(Stopped::default());
        }
        let stopped = opened.work(shutdown, Duration::MAX, Term::Last).await;
        opened.close().await;
        stopped
    }
}

impl fmt::Debug for BuiltController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltController")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
