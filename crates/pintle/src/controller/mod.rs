//! Key in, reconcile, result out: the loop of workers, built from the pieces before it.
//!
//! # Flow
//!
//! Handlers on the informers of the primary kind, of the kinds it owns and of any other kind it
//! [watches](Controller::watches) turn changes into keys of the primary kind and add them to a
//! [`WorkQueue`]. Workers take keys, one key never twice at a time, and call the reconcile function
//! with the key and a [`Context`]. What it returns decides what becomes of the key:
//!
//! | result | the key |
//! |---|---|
//! | [`Action::await_change`] | is forgotten until something changes |
//! | [`Action::requeue_after`] | runs again after the delay, sooner if something changes |
//! | an error | is retried with back-off |
//! | a [terminal error](ReconcileError::terminal) | is forgotten until something changes |
//! | a panic, or the time limit | is retried with back-off |
//!
//! # Guarantees
//!
//! - The first reconcile starts when every cache is filled *and* every handler has seen what is in
//!   it.
//! - A reconcile sees what the previous reconcile of the same key wrote through its context.
//! - A deletion reaches the queue whatever the predicates say, also one whose final state was
//!   missed.
//! - What the first list and a resync bring never delays a real change for long: it comes in at low
//!   priority.
//!
//! # Example
//!
//! ```no_run
//! use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
//! use pintle::{
//!     controller::{Action, Controller},
//!     informer::InformerFactory,
//! };
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let informers = InformerFactory::new(client);
//! let shutdown = CancellationToken::new();
//! Controller::<ReplicaSet>::new("replica-sets", &informers)
//!     .owns::<Pod>()
//!     .workers(4)
//!     .run(
//!         |key, cx| async move {
//!             let Some(set) = cx.lister::<ReplicaSet>()?.get(&key) else {
//!                 return Ok(Action::await_change()); // Gone is a normal answer.
//!             };
//!             println!("{key} has generation {:?}", set.generation());
//!             Ok(Action::await_change())
//!         },
//!         &shutdown,
//!     )
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod action;
mod context;
mod metrics;
mod own_writes;
mod predicate;
mod primary;
mod trigger;
mod worker;
mod writes;

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
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

pub use self::{
    action::{Action, ReconcileError},
    context::{Context, NotWatched, Writable},
    predicate::Predicate,
    primary::Primary,
    writes::Writes,
};
use self::{
    context::Shared,
    metrics::ControllerMetrics,
    own_writes::{GroupKind, OwnWrites, View, Watched},
    trigger::Owners,
    worker::Workers,
};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey},
    clock,
    informer::{InformerFactory, NotSynced, Registration, SharedInformer},
    metrics::Metrics,
    queue::WorkQueue,
    repeats::Repeats,
};

/// A kind a controller can watch: one whose resource is known from its type.
pub trait Watchable: Kind<DynamicType: Default> {}

impl<K: Kind<DynamicType: Default>> Watchable for K {}

/// Builds a controller for the primary kind `P` and runs it. See the [module](self).
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<P: Watchable> {
    name: String,
    informers: InformerFactory,
    queue: Option<WorkQueue<ObjectKey>>,
    metrics: Metrics,
    predicate: Option<Predicate<P>>,
    triggers: Vec<Trigger>,
    workers: usize,
    timeout: Option<Duration>,
    stale_after: Option<Duration>,
    sync_timeout: Duration,
    stop_within: Duration,
}

/// Adds one kind to the wiring.
type Trigger = Box<dyn FnOnce(&InformerFactory, &WorkQueue<ObjectKey>, &mut Wiring) + Send>;

/// The listers of a controller, by the kind they list.
type Listers = BTreeMap<TypeId, Box<dyn Any + Send + Sync>>;

/// What connects the informers to the workers.
#[derive(Default)]
struct Wiring {
    handlers: Vec<(String, Registration)>,
    listers: Listers,
    watched: Vec<Watched>,
}

/// Why a controller ended without being told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A cache did not fill in time.
    #[error(
        "controller {controller}: the cache of {kind} did not fill within {waited:?}{}",
        because(.cause.as_ref())
    )]
    NotSynced {
        /// The controller that waited.
        controller: String,
        /// The kind it waited for.
        kind: String,
        /// How long.
        waited: Duration,
        /// What the informers say of themselves.
        cause: Option<NotSynced>,
    },
    /// An informer stopped under the controller, which cannot work from a cache that stands still.
    #[error("controller {controller}: the informer of {kind} stopped")]
    InformerStopped {
        /// The controller that used it.
        controller: String,
        /// The kind it kept.
        kind: String,
    },
}

fn because(cause: Option<&NotSynced>) -> String {
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Why a controller stopped, and what it left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Why it stopped.
    pub reason: StopReason,
    /// The keys whose reconcile did not end within the time allowed, and was dropped.
    pub unfinished: Vec<ObjectKey>,
    /// How many keys were ready and had not had their turn.
    pub waiting: usize,
    /// How many keys waited for something else: a retry, the delay they asked for, their own writes.
    pub delayed: usize,
}

/// What made a controller stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The token given to [`Controller::run`] was cancelled.
    #[default]
    Shutdown,
    /// The queue given to [`Controller::queue`] was shut down.
    QueueShutDown,
}

impl<P: Watchable> Controller<P> {
    /// A controller called `name`, on the shared informers of the process.
    pub fn new(name: impl Into<String>, informers: &InformerFactory) -> Self {
        Self {
            name: name.into(),
            informers: informers.clone(),
            queue: None,
            metrics: Metrics::new(),
            predicate: None,
            triggers: Vec::new(),
            workers: 1,
            timeout: None,
            stale_after: Some(Duration::from_secs(5)),
            sync_timeout: Duration::from_secs(120),
            stop_within: Duration::from_secs(30),
        }
    }

    /// Changes of the primary kind that are not worth a reconcile are left out. Deletions never
    /// are.
    pub fn filter(mut self, predicate: Predicate<P>) -> Self {
        self.predicate = Some(match self.predicate {
            Some(earlier) => earlier.and(predicate),
            None => predicate,
        });
        self
    }

    /// A change of a `K` wakes the `P` that controls it, and the one that did before the change.
    pub fn owns<K: Watchable>(self) -> Self {
        let owners = Owners::of::<P>();
        self.on::<K>(None, move |_, object, keys| {
            if let Some(object) = object {
                let owner = object.controller_owner();
                keys.extend(owner.and_then(|owner| owners.key(owner, object.key().namespace())));
            }
        })
    }

    /// As [`owns`](Self::owns), for every `P` among the owners of a `K`, not only the controlling
    /// one.
    pub fn owns_shared<K: Watchable>(self) -> Self {
        let owners = Owners::of::<P>();
        self.on::<K>(None, move |_, object, keys| {
            if let Some(object) = object {
                let namespace = object.key().namespace();
                let all = object.owner_references().iter();
                keys.extend(all.filter_map(|owner| owners.key(owner, namespace)));
            }
        })
    }

    /// A change of a `K` wakes the keys that `keys_of` names for its old and its new state.
    pub fn watches<K: Watchable>(
        self,
        keys_of: impl Fn(&Object<K>) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on::<K>(None, move |_, object, keys| {
            keys.extend(object.map(&keys_of).into_iter().flatten());
        })
    }

    /// As [`watches`](Self::watches), leaving out the changes that `predicate` does not admit.
    pub fn watches_if<K: Watchable>(
        self,
        predicate: Predicate<K>,
        keys_of: impl Fn(&Object<K>) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        let predicate = Some(predicate);
        self.on::<K>(predicate, move |_, object, keys| {
            keys.extend(object.map(&keys_of).into_iter().flatten());
        })
    }

    fn on<K: Watchable>(
        mut self,
        predicate: Option<Predicate<K>>,
        keys_of: impl Fn(&ObjectKey, Option<&Object<K>>, &mut Vec<ObjectKey>) + Send + 'static,
    ) -> Self {
        self.triggers
            .push(Box::new(move |informers, queue, wiring| {
                let informer = informers.informer::<K>();
                let registration = trigger::wake(&informer, queue, predicate, keys_of);
                wiring.add(&informer, registration);
            }));
        self
    }

    /// How many keys are reconciled at once; 1 unless said otherwise.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Uses `queue` instead of one made for the controller: to choose its rate limiter, or to add
    /// keys from elsewhere.
    ///
    /// The queue stays yours. The controller does not shut it down: keys that had no turn when it
    /// stops wait there for the next [`run`](Self::run). Shutting it down yourself stops the
    /// controller after the keys that are ready, with [`StopReason::QueueShutDown`].
    pub fn queue(mut self, queue: WorkQueue<ObjectKey>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Where the controller and its queue count.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Drops a reconcile that takes longer than `limit`, and retries it. No limit unless said.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long a key waits for the caches to show what it wrote, before it runs anyway; 5 s unless
    /// said otherwise.
    pub fn read_own_writes_within(mut self, bound: Duration) -> Self {
        self.stale_after = Some(bound);
        self
    }

    /// Runs keys on whatever the caches show, also if that is older than what the key wrote.
    pub fn without_reading_own_writes(mut self) -> Self {
        self.stale_after = None;
        self
    }

    /// How long the caches may take to fill before [`run`](Self::run) gives up; 2 minutes unless
    /// said otherwise.
    pub fn sync_timeout(mut self, limit: Duration) -> Self {
        self.sync_timeout = limit;
        self
    }

    /// How long reconciles may go on after the shutdown; 30 s unless said otherwise.
    pub fn stop_within(mut self, limit: Duration) -> Self {
        self.stop_within = limit;
        self
    }

    /// Runs the controller until `shutdown`, then finishes what is being reconciled and says what
    /// it left. Also ends, with that [reason](StopReason::QueueShutDown), when a queue that the user
    /// [gave](Self::queue) is shut down.
    ///
    /// Starts the informers it needs if nobody has; they then stop with `shutdown`. Where several
    /// controllers share a factory, start it once for all of them, so that none takes the informers
    /// of another along. A controller whose informer stops ends with an error.
    ///
    /// Not cancel safe: dropping the future drops the reconciles that run.
    pub async fn run<F, R>(
        self,
        reconcile: F,
        shutdown: &CancellationToken,
    ) -> Result<Stopped, ControllerError>
    where
        F: Fn(ObjectKey, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
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
        let mut wiring = Wiring::default();
        let primary = self.informers.informer::<P>();
        let itself = trigger::wake(&primary, &queue, self.predicate.clone(), |key, _, keys| {
            keys.push(key.clone());
        });
        wiring.add(&primary, itself);
        for trigger in self.triggers {
            trigger(&self.informers, &queue, &mut wiring);
        }
        self.informers.start(shutdown);
        let Wiring {
            handlers,
            listers,
            watched,
        } = wiring;
        let deadline = clock::after(Instant::now(), self.sync_timeout);
        for (kind, handler) in &handlers {
            let synced = tokio::select! {
                biased; // Who is told to stop does not start.
                () = shutdown.cancelled() => return Ok(Stopped::default()),
                synced = timeout_at(deadline, handler.synced()) => synced,
            };
            match synced {
                Ok(true) => {}
                Ok(false) => return Err(ControllerError::stopped(&self.name, kind)),
                Err(_) => {
                    return Err(ControllerError::NotSynced {
                        controller: self.name,
                        kind: kind.clone(),
                        waited: self.sync_timeout,
                        cause: self.informers.not_synced(),
                    });
                }
            }
        }

        let metrics = ControllerMetrics::new(&self.metrics, &self.name);
        metrics
            .max_concurrent
            .set(i64::try_from(self.workers).unwrap_or(i64::MAX));
        let own_writes = OwnWrites::new(watched, metrics.unseen_writes.clone());
        let workers = Arc::new(Workers {
            queue,
            shuts_queue_down,
            reconcile: Box::new(move |key, cx| reconcile(key, cx).boxed()),
            shared: Arc::new(Shared {
                client: self.informers.client().clone(),
                name: self.name,
                listers,
                own_writes: self.stale_after.map(|_| own_writes),
            }),
            stale_after: self.stale_after,
            timeout: self.timeout,
            metrics,
            next_id: AtomicU64::new(1),
            failures: Repeats::new(),
            running: Mutex::default(),
            parked: TaskTracker::new(),
        });
        let name = workers.shared.name.clone();
        let ended = async {
            let each = handlers.iter().map(|(kind, handler)| {
                let ended = async move {
                    handler.ended().await;
                    kind
                };
                ended.boxed()
            });
            select_all(each).await.0
        };
        let stop = shutdown.child_token();
        let work = workers.run(self.workers, self.stop_within, stop.clone());
        tokio::pin!(work, ended);
        let kind = tokio::select! {
            biased; // The workers also end when told to, and then the rest is of no interest.
            stopped = &mut work => return Ok(stopped),
            kind = &mut ended => kind,
        };
        // A cache that nobody fills any more must not be worked from.
        stop.cancel();
        let stopped = work.await;
        if shutdown.is_cancelled() {
            return Ok(stopped);
        }
        Err(ControllerError::stopped(&name, kind))
    }
}

impl ControllerError {
    fn stopped(controller: &str, kind: &str) -> Self {
        Self::InformerStopped {
            controller: controller.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

impl Wiring {
    fn add<K: Watchable>(&mut self, informer: &SharedInformer<K>, registration: Registration) {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        self.handlers.push((kind, registration));
        if self.listers.contains_key(&TypeId::of::<K>()) {
            return;
        }
        let lister = informer.lister();
        self.listers
            .insert(TypeId::of::<K>(), Box::new(lister.clone()));
        self.watched.push(Watched {
            kind: GroupKind::of::<K>(&K::DynamicType::default()),
            extent: informer.extent().clone(),
            view: Box::new(lister),
        });
    }
}

impl<K: Kind> View for Lister<K> {
    fn version(&self) -> String {
        self.resource_version()
    }

    fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
        self.get(key).is_some_and(|object| object.uid() == uid)
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        Lister::changed(self).boxed()
    }
}

impl<P: Watchable> fmt::Debug for Controller<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
