//! The builder: which kinds a controller watches, and which functions it calls. The module
//! `settings` has its other settings.

use std::{fmt, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use serde::Serialize;

use super::{
    Context, ErrorAction, Listers, Predicate, Watchable,
    cause::Source,
    own_writes::Watched,
    reconciler::{self, Finalize, Policy},
    trigger::{self, Owners},
    wakes::Wake,
};
use crate::{
    cache::{BoxError, Kind, Object, ObjectKey},
    clock::Clock,
    events::EventRecorder,
    informer::{InformerFactory, Registration, WatchInput},
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
    pub(super) predicate: Option<Predicate<K>>,
    pub(super) triggers: Vec<Trigger>,
    pub(super) wakes: Vec<Wake>,
    /// The permissions in the namespaces of the factory that are known so far.
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
    Box<dyn FnOnce(&WorkQueue<ObjectKey>, Source, &Arc<Listers>) -> (String, Registration) + Send>;

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
    /// Cleans up outside the cluster when an object is deleted.
    ///
    /// Every object gets the finalizer `name` before its first reconcile. Once the object is being
    /// deleted, `cleanup` is called instead of the reconcile function, and the finalizer is removed
    /// when it succeeds. Until then it is retried like a reconcile, so it must be idempotent: to
    /// wait for something, return an error such as [`ReconcileError::retry_after`].
    ///
    /// An invalid name is reported by [`run`](Self::run).
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
    /// that is being deleted works against the garbage collector. With this, as in kube-runtime and
    /// controller-runtime, the function has to check the deletion timestamp itself, usually through
    /// [`Context::finalizer`]. [`run_by_key`](Self::run_by_key) always calls the function.
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

    /// Enqueues the controlling owner of every `C` that changes. After a change of owner, the
    /// former one is enqueued too.
    pub fn owns<C: Watchable>(self) -> Self {
        self.on_owned::<C>(WatchInput::new(), None)
    }

    /// Like [`owns`](Self::owns), but only for deletions and the changes that `predicate` admits.
    pub fn owns_if<C: Watchable>(self, predicate: Predicate<C>) -> Self {
        self.on_owned(WatchInput::new(), Some(predicate))
    }

    /// Like [`owns`](Self::owns), for the objects that `input` names.
    ///
    /// An input of another cluster is an error of [`run`](Self::run).
    pub fn owns_from<C: Kind>(self, input: WatchInput<C>) -> Self {
        self.on_owned(input, None)
    }

    /// Like [`owns_from`](Self::owns_from), but only for deletions and the changes that `predicate`
    /// admits.
    pub fn owns_from_if<C: Kind>(self, input: WatchInput<C>, predicate: Predicate<C>) -> Self {
        self.on_owned(input, Some(predicate))
    }

    /// Enqueues the keys that `keys_of` returns for the old and the new state of every `C` that
    /// changes.
    ///
    /// `keys_of` gets the caches of the controller, to find the objects that depend on the changed
    /// one. If they name it in a field, [`watches_referenced`](Self::watches_referenced) does all
    /// of this.
    ///
    /// ```
    /// # use k8s_openapi::api::{core::v1::{Node, Pod}};
    /// # use pintle::{controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// // A relabelled Node affects every Pod.
    /// let controller = Controller::<Pod>::new("placement", informers)
    ///     .watches::<Node>(|_, listers| {
    ///         let pods = listers.get::<Pod>().map(|pods| pods.list()).unwrap_or_default();
    ///         pods.iter().map(|pod| pod.key().clone()).collect()
    ///     });
    /// # }
    /// ```
    ///
    /// It runs on the handler's task, so it must not block.
    pub fn watches<C: Watchable>(
        self,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(WatchInput::new(), None, keys_of)
    }

    /// Like [`watches`](Self::watches), but only for deletions and the changes that `predicate`
    /// admits.
    pub fn watches_if<C: Watchable>(
        self,
        predicate: Predicate<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(WatchInput::new(), Some(predicate), keys_of)
    }

    /// Like [`watches`](Self::watches), for the objects that `input` names, in this cluster or
    /// another.
    ///
    /// The keys that `keys_of` returns are keys of the controller's own kind, in its own cluster,
    /// wherever the changed object is. Two clusters with objects of the same name are two inputs,
    /// so each function knows which cluster a change comes from:
    ///
    /// ```
    /// # use k8s_openapi::api::{core::v1::ConfigMap, core::v1::Pod};
    /// # use pintle::{cache::ObjectKey, controller::Controller};
    /// # use pintle::informer::{InformerFactory, WatchInput};
    /// # fn build(informers: &InformerFactory, clusters: Vec<(String, kube::Client)>) {
    /// let mut controller = Controller::<ConfigMap>::new("placement", informers);
    /// for (name, client) in clusters {
    ///     let pods = WatchInput::<Pod>::new().cluster(&name, client).labels("placed=true");
    ///     // Each cluster is placed by the ConfigMap of its name.
    ///     controller = controller
    ///         .watches_from(pods, move |_, _| vec![ObjectKey::namespaced("placement", &name)]);
    /// }
    /// # }
    /// ```
    pub fn watches_from<C: Kind>(
        self,
        input: WatchInput<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(input, None, keys_of)
    }

    /// Like [`watches_from`](Self::watches_from), but only for deletions and the changes that
    /// `predicate` admits.
    pub fn watches_from_if<C: Kind>(
        self,
        input: WatchInput<C>,
        predicate: Predicate<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(input, Some(predicate), keys_of)
    }

    /// Enqueues the keys of a stream, for changes that no watch reports, such as those of an
    /// external system.
    ///
    /// A tokio channel can be used as one ([`ReceiverStream`] of tokio-stream, or as below). The
    /// stream is read from when the controller opens its caches until it stops, whether or not it
    /// leads; then it is dropped. Keys of objects that exist are always read, because the queue
    /// holds each key once, also on a standby. While the queue has over 16,384 keys more than there
    /// are objects, the stream is hardly read, so use a bounded channel. A stream that ends or
    /// panics enqueues no more keys, and the controller continues without it.
    ///
    /// [`ReceiverStream`]:
    /// https://docs.rs/tokio-stream/latest/tokio_stream/wrappers/struct.ReceiverStream.html
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{cache::ObjectKey, controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// let (sender, mut receiver) = tokio::sync::mpsc::channel::<ObjectKey>(64);
    /// let keys = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    /// let controller = Controller::<ConfigMap>::new("buckets", informers).wakes(keys);
    /// // Later, for example when a bucket has changed:
    /// let _ = sender.try_send(ObjectKey::namespaced("default", "bucket"));
    /// # }
    /// ```
    pub fn wakes(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.settings.wakes.push(Wake::Keys(keys.boxed()));
        self
    }

    /// Enqueues every object of the controller's own kind once per `period`, at low priority, to
    /// check on things outside the cluster. Periods below a second are raised to one.
    ///
    /// For a single object, [`Action::requeue_after`](super::Action::requeue_after) is better.
    pub fn wakes_every(mut self, period: Duration) -> Self {
        self.settings.wakes.push(Wake::Every(period));
        self
    }

    /// Enqueues the objects of the controller's own kind that refer to a changed `C` by name.
    ///
    /// `path` is a JSON pointer to the name in the controller's own kind, such as
    /// `/spec/secretName`, or to an array of names. If `C` is namespaced, only objects in the same
    /// namespace are enqueued. An index on the controller's own cache finds them, so the cost does
    /// not depend on the number of objects. The cache must contain the field, so this does not work
    /// with a metadata-only cache unless the field is part of the metadata.
    ///
    /// An invalid path is reported by [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// # use k8s_openapi::api::{networking::v1::{Ingress, IngressClass}};
    /// # use pintle::{controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// let controller = Controller::<Ingress>::new("ingress", informers)
    ///     .watches_referenced::<IngressClass>("/spec/ingressClassName");
    /// # }
    /// ```
    pub fn watches_referenced<C: Watchable>(mut self, path: &str) -> Self {
        self.settings.references.push(path.to_owned());
        let own = self.settings.input.clone();
        let index = trigger::reference_index(path);
        self.on_mapped(
            WatchInput::new(),
            None,
            move |object: &Object<C>, listers| {
                trigger::referrers(object.key(), &index, listers.from_input(&own).ok())
            },
        )
    }

    fn on_owned<C: Kind>(mut self, input: WatchInput<C>, predicate: Option<Predicate<C>>) -> Self {
        let own = self.settings.input.clone();
        let cluster = own.in_cluster().map(|cluster| &cluster.name);
        if let Some(other) = input.in_cluster()
            && Some(&other.name) != cluster
        {
            let elsewhere = (input.kind_name(), other.name.clone());
            self.settings.owned_elsewhere.get_or_insert(elsewhere);
        }
        let owners = Owners::of::<K>(own.kind());
        let controller = self.needs(&own, Some("finalizers"), [Verb::Update]);
        controller.on(input, predicate, move |object, listers, keys| {
            let exists = |key: &ObjectKey| {
                let own = listers.from_input(&own);
                own.is_ok_and(|own| own.get(key).is_some())
            };
            let owner = object.controller_owner();
            let namespace = object.key().namespace();
            keys.extend(owner.and_then(|owner| owners.key(owner, namespace, exists)));
        })
    }

    fn on_mapped<C: Kind>(
        self,
        input: WatchInput<C>,
        predicate: Option<Predicate<C>>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on(input, predicate, move |object, listers, keys| {
            keys.extend(keys_of(object, listers));
        })
    }

    fn on<C: Kind>(
        mut self,
        input: WatchInput<C>,
        predicate: Option<Predicate<C>>,
        keys_of: impl Fn(&Object<C>, &Listers, &mut Vec<ObjectKey>) + Send + 'static,
    ) -> Self {
        self = self.reads(&input);
        let open: Trigger = Box::new(move |listers, watched| {
            let (informer, new) = listers.add(&input);
            watched.extend(new);
            Box::new(move |queue, source, listers| {
                let listers = Arc::clone(listers);
                let keys_of = move |object: &Object<C>, keys: &mut Vec<ObjectKey>| {
                    keys_of(object, &listers, keys);
                };
                let registration = trigger::enqueue(&informer, queue, source, predicate, keys_of);
                (input.kind_name(), registration)
            })
        });
        self.settings.triggers.push(open);
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
