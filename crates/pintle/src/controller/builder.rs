//! The builder: a controller's own kind and the functions it calls. What else it watches is in
//! `watches`, its other settings are in `settings`.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    Context, ErrorAction, Listers, Predicate, Watchable,
    cause::Source,
    own_writes::Watched,
    reconciler::{self, Finalize, Policy},
    wakes::Wake,
};
use crate::{
    cache::{BoxError, Kind, ObjectKey},
    clock::Clock,
    events::EventRecorder,
    informer::{InformerFactory, Registration, WatchInput},
    inspect::{Inspector, Record},
    metrics::Metrics,
    queue::WorkQueue,
    rbac::{Rules, Verb},
};

/// Builds a controller for objects of kind `K` and runs it. See the [module](super).
///
/// `S` is the [state](Self::state) that every reconcile gets, `E` the error type of the
/// [error policy](Self::error_policy).
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<K: Kind, S = (), E = BoxError> {
    pub(super) settings: Settings<K>,
    pub(super) state: Arc<S>,
    pub(super) policy: Option<Box<Policy<K, S, E>>>,
    pub(super) finalizer: Option<(String, Box<Finalize<K, S>>)>,
}

/// The settings that do not depend on the state.
pub(super) struct Settings<K: Kind> {
    pub(super) name: String,
    /// The controller's own kind.
    pub(super) input: WatchInput<K>,
    pub(super) field_manager: Option<String>,
    pub(super) informers: InformerFactory,
    pub(super) queue: Option<WorkQueue<ObjectKey>>,
    pub(super) metrics: Option<Metrics>,
    pub(super) recorder: Option<EventRecorder>,
    pub(super) clock: Option<Clock>,
    pub(super) inspector: Option<Inspector>,
    pub(super) predicate: Option<Predicate<K>>,
    pub(super) triggers: Vec<Trigger>,
    pub(super) wakes: Vec<Wake>,
    /// The permissions known so far in the factory's namespaces.
    pub(super) rules: Rules,
    /// The permissions in namespaces that inputs name.
    pub(super) own_rules: Rules,
    /// The permissions that the user declares.
    pub(super) declared_rules: Rules,
    /// Paths of fields in which the controller's own kind refers to other objects.
    pub(super) references: Vec<String>,
    /// The first kind that is owned across clusters, which is an error.
    pub(super) owned_elsewhere: Option<(String, String)>,
    pub(super) reconcile_deleting: bool,
    pub(super) workers: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) stale_after: Option<Duration>,
    pub(super) sync_timeout: Duration,
    pub(super) stop_within: Duration,
}

/// Opens the cache of one kind, and returns a function that registers its handler once all caches
/// are open.
pub(super) type Trigger = Box<dyn FnOnce(&mut Listers, &mut Vec<Watched>) -> Register + Send>;

pub(super) type Register =
    Box<dyn FnOnce(&Target<'_>, Source, &Arc<Listers>) -> (String, Registration) + Send>;

/// Where a trigger puts its keys.
pub(super) struct Target<'a> {
    pub(super) queue: &'a WorkQueue<ObjectKey>,
    pub(super) record: Option<&'a Record>,
}

impl<K: Watchable> Controller<K> {
    /// Creates a controller called `name` on the shared informers of the process.
    ///
    /// The name appears in logs, metrics and events and, unless
    /// [`field_manager`](Self::field_manager) sets another, in `managedFields`.
    pub fn new(name: impl Into<String>, informers: &InformerFactory) -> Self {
        Self::of(name, WatchInput::new(), informers)
    }
}

impl<K: Kind> Controller<K> {
    /// Creates a controller for the objects that `input` selects: of a kind known only at run time,
    /// in certain namespaces, with certain labels, or cached in another form.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::core::{ApiResource, DynamicObject};
    /// # use pintle::{controller::Controller, informer::{InformerFactory, WatchInput}};
    /// # fn build(informers: &InformerFactory, discovered: ApiResource) {
    /// let tenants = WatchInput::<ConfigMap>::new().namespaces(["blue", "green"]);
    /// let configs = Controller::of("configs", tenants, informers);
    ///
    /// let widgets = WatchInput::<DynamicObject>::of(discovered);
    /// let widgets = Controller::of("widgets", widgets, informers);
    /// # }
    /// ```
    ///
    /// # Clusters
    ///
    /// A controller works in the cluster of its own kind: its writes and events go there, and
    /// inputs without a [cluster](WatchInput::cluster) refer to it. Objects of other clusters can
    /// be [watched](Self::watches_from) but not owned, because owner references do not reach across
    /// clusters. Keys in the queue are always keys of the controller's own kind.
    ///
    /// A [`Manager`](crate::manager::Manager) that elects a leader gates all of the controller's
    /// writes, in every cluster.
    pub fn of(name: impl Into<String>, input: WatchInput<K>, informers: &InformerFactory) -> Self {
        let controller = Self {
            settings: Settings {
                name: name.into(),
                input,
                field_manager: None,
                informers: informers.clone(),
                queue: None,
                metrics: None,
                recorder: None,
                clock: None,
                inspector: None,
                predicate: None,
                triggers: Vec::new(),
                wakes: Vec::new(),
                rules: Rules::new(),
                own_rules: Rules::new(),
                declared_rules: Rules::new(),
                references: Vec::new(),
                owned_elsewhere: None,
                reconcile_deleting: false,
                workers: 1,
                timeout: None,
                stale_after: Some(Duration::from_secs(5)),
                sync_timeout: Duration::from_secs(120),
                stop_within: Duration::from_secs(30),
            },
            state: Arc::new(()),
            policy: None,
            finalizer: None,
        };
        let input = controller.settings.input.clone();
        controller.reads(&input)
    }
}

impl<K: Kind, E: 'static> Controller<K, (), E> {
    /// Sets the state that every reconcile gets: clients of other systems, configuration, caches.
    ///
    /// A [`Context<S>`](Context) dereferences to it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{controller::{Action, Context, Controller}, informer::InformerFactory};
    /// # use std::{convert::Infallible, sync::Arc};
    /// struct State {
    ///     region: String,
    /// }
    ///
    /// async fn reconcile(_: Arc<ConfigMap>, cx: Context<State>) -> Result<Action, Infallible> {
    ///     println!("working in {}", cx.region);
    ///     Ok(Action::await_change())
    /// }
    ///
    /// # async fn run(informers: &InformerFactory, shutdown: &tokio_util::sync::CancellationToken) {
    /// let controller = Controller::<ConfigMap>::new("configs", informers)
    ///     .state(State { region: "north".to_owned() });
    /// controller.run(reconcile, shutdown).await.unwrap();
    /// # }
    /// ```
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> Controller<K, S, E> {
        let Self {
            settings,
            policy,
            finalizer,
            ..
        } = self;
        Controller {
            settings,
            state: Arc::new(state),
            policy: policy.map(|policy| -> Box<Policy<K, S, E>> {
                Box::new(move |object, error, cx: Context<S>| {
                    policy(object, error, cx.without_state())
                })
            }),
            finalizer: finalizer.map(|(name, finalize)| -> (String, Box<Finalize<K, S>>) {
                let finalize = move |object, cx: Context<S>, finalizer| {
                    finalize(object, cx.without_state(), finalizer)
                };
                (name, Box::new(finalize))
            }),
        }
    }
}

impl<K: Kind, S: Send + Sync + 'static> Controller<K, S> {
    /// Sets what happens to a key whose reconcile returned an error of type `E`: retry with
    /// back-off (the default), retry after a fixed delay, or wait until something changes.
    ///
    /// The reconcile function passed to [`run`](Self::run) must return the same error type, or one
    /// that converts into it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{controller::{Context, Controller, ErrorAction}, informer::InformerFactory};
    /// # use std::{sync::Arc, time::Duration};
    /// #[derive(Debug, thiserror::Error)]
    /// enum Error {
    ///     #[error("the region is full")]
    ///     RegionFull,
    ///     #[error("invalid spec: {0}")]
    ///     Invalid(String),
    ///     #[error(transparent)]
    ///     Kube(#[from] kube::Error),
    /// }
    ///
    /// fn error_policy(_: Arc<ConfigMap>, error: &Error, _: Context) -> ErrorAction {
    ///     match error {
    ///         Error::RegionFull => ErrorAction::RetryAfter(Duration::from_secs(300)),
    ///         Error::Invalid(_) => ErrorAction::Terminal,
    ///         Error::Kube(_) => ErrorAction::Retry,
    ///     }
    /// }
    /// # fn build(informers: &InformerFactory) {
    ///
    /// let controller = Controller::<ConfigMap>::new("configs", informers).error_policy(error_policy);
    /// # }
    /// ```
    pub fn error_policy<E, A, F>(self, policy: F) -> Controller<K, S, E>
    where
        F: Fn(Arc<K>, &E, Context<S>) -> A + Send + Sync + 'static,
        A: Into<ErrorAction>,
    {
        Controller {
            settings: self.settings,
            state: self.state,
            policy: Some(Box::new(move |object, error, cx| {
                policy(object, error, cx).into()
            })),
            finalizer: self.finalizer,
        }
    }
}

impl<K: Kind, S: Send + Sync + 'static, E> Controller<K, S, E> {
    /// Sets a function that cleans up outside the cluster when an object is deleted.
    ///
    /// Every object gets the finalizer `name` before its first reconcile. Once the object is being
    /// deleted, `cleanup` is called instead of the reconcile function, and the finalizer is removed
    /// when it succeeds. Until then it is retried like a reconcile, so it must be idempotent: to
    /// wait for something, return an error such as [`ReconcileError::retry_after`].
    ///
    /// An invalid name is reported by [`run`](Self::run).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{controller::{Context, Controller}, informer::InformerFactory};
    /// # use std::sync::Arc;
    /// async fn clean_up(config: Arc<ConfigMap>, cx: Context) -> Result<(), std::io::Error> {
    ///     // Delete what the reconcile function has created outside the cluster.
    ///     Ok(())
    /// }
    ///
    /// # fn build(informers: &InformerFactory) {
    /// let controller = Controller::<ConfigMap>::new("configs", informers)
    ///     .finalizer("example.com/clean-up", clean_up);
    /// # }
    /// ```
    ///
    /// [`ReconcileError::retry_after`]: super::ReconcileError::retry_after
    pub fn finalizer<F, R, X>(mut self, name: impl Into<String>, cleanup: F) -> Self
    where
        K: Serialize,
        F: Fn(Arc<K>, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), X>> + Send + 'static,
        X: Into<BoxError>,
    {
        let input = self.settings.input.clone();
        let finalize = reconciler::finalize(input.kind().clone(), cleanup);
        self.finalizer = Some((name.into(), finalize));
        self.needs(&input, None, [Verb::Patch])
    }

    /// Also calls the reconcile function for objects that are being deleted.
    ///
    /// By default [`run`](Self::run) passes on live objects only: creating children for an object
    /// that is being deleted works against the garbage collector. With this setting, as in
    /// kube-runtime and controller-runtime, the function has to check the deletion timestamp
    /// itself, usually through [`Context::finalizer`]. [`run_by_key`](Self::run_by_key) always
    /// calls the function.
    pub fn reconcile_deleting(mut self) -> Self {
        self.settings.reconcile_deleting = true;
        self
    }

    /// Ignores changes to the controller's own kind that are not worth a reconcile. Deletions are
    /// never ignored. With several filters, all must admit a change.
    pub fn filter(mut self, predicate: Predicate<K>) -> Self {
        let settings = &mut self.settings;
        settings.predicate = Some(match settings.predicate.take() {
            Some(earlier) => earlier.and(predicate),
            None => predicate,
        });
        self
    }
}

impl<K: Kind, S, E> fmt::Debug for Controller<K, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
