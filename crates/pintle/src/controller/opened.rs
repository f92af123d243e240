//! A controller whose caches are open.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::{FutureExt, future::select_all};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ControllerError, Listers, Stopped,
    applied_configurations::AppliedConfigurations,
    builder::{Register, Settings, Target, Trigger},
    built::Defaults,
    cause::{self, Source},
    context::Shared,
    events::Events,
    metrics::ControllerMetrics,
    own_writes::OwnWrites,
    primary::PrimaryKind,
    trigger::{self, Recorded},
    wakes::{OwnKeys, Wakes},
    worker::{Reconcile, Workers},
};
use crate::{
    cache::{Kind, ObjectKey},
    clock::{self},
    informer::{self, InformerFactory, Registration},
    inspect::Via,
    queue::{Priority, WorkQueue},
    repeats::Repeats,
};

/// How many ready keys a standby tolerates before it drops the keys of deleted objects.
const MAX_GONE: usize = 1024;

/// Whether a controller may run for another term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The queue keeps collecting keys for another term.
    OneOfMany,
    /// The controller's own queue is shut down at the end.
    Last,
}

/// A controller whose caches are open and whose queue is filling.
pub(crate) struct Opened {
    name: String,
    pub(super) informers: InformerFactory,
    /// The handlers that fill the queue, by kind. They are removed on drop.
    handlers: Vec<(String, Registration)>,
    /// The external sources that fill the queue. They are stopped on drop.
    wakes: Wakes,
    pub(super) queue: WorkQueue<ObjectKey>,
    owns_queue: bool,
    /// Returns the keys of the objects of the controller's own kind that its predicate admits.
    keys: Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>,
    /// Returns whether an object of the controller's own kind is cached.
    is_cached: Box<dyn Fn(&ObjectKey) -> bool + Send + Sync>,
    reconcile: Arc<Reconcile>,
    /// The state shared by the contexts of all terms.
    shared: Shared,
    metrics: ControllerMetrics,
    next_id: Arc<AtomicU64>,
    workers: usize,
    timeout: Option<Duration>,
    stale_after: Option<Duration>,
    sync_timeout: Duration,
    stop_within: Duration,
}

impl<K: Kind> Settings<K> {
    pub(super) fn open(self, reconcile: Arc<Reconcile>, defaults: Defaults) -> Opened {
        let metrics = self.metrics.or(defaults.metrics).unwrap_or_default();
        let clock = self.clock.or(defaults.clock).unwrap_or_default();
        // The controller works on the cluster of its own kind. Its events are not gated: the last
        // ones are written after the term.
        let (client, events_client) = if let Some(cluster) = self.input.in_cluster() {
            let gated = defaults.leadership.as_ref();
            let gated = gated.map(|leadership| leadership.gate(&cluster.client));
            let client = gated.unwrap_or_else(|| cluster.client.clone());
            (client, cluster.client.clone())
        } else {
            let client = defaults.client;
            let client = client.unwrap_or_else(|| self.informers.client().clone());
            (client.clone(), client)
        };
        let owns_queue = self.queue.is_none();
        let queue = self
            .queue
            .unwrap_or_else(|| WorkQueue::builder(&self.name).metrics(&metrics).build());
        let inspector = self.inspector.or(defaults.inspector);
        let record = inspector.as_ref().map(|inspector| {
            let kind = self.input.kind();
            inspector.caches(&self.informers);
            let (name, group) = (self.name.clone(), K::group(kind).into_owned());
            inspector.record_of(name, group, &K::kind(kind), &queue, cause::describe)
        });
        let client = inspector.map_or(client.clone(), |inspector| inspector.client(&client));
        let recorder = self.recorder.or_else(|| {
            // Events are written to the cluster of the object they are about.
            let is_here = self.input.in_cluster().is_none();
            let events = defaults.events.as_ref().filter(|_| is_here);
            events.map(|events| events.recorder(&self.name))
        });
        let mut listers = Listers::new(&self.name, &self.informers, &self.input);
        let (primary, own) = listers.add(&self.input);
        for path in &self.references {
            // An error means that another controller has added the index, or that the informer has
            // stopped, which `run` reports.
            let _ = primary.index_field(&trigger::reference_index(path), path);
        }
        let mut watched = Vec::from_iter(own);
        let open = |trigger: Trigger| trigger(&mut listers, &mut watched);
        let registers: Vec<Register> = self.triggers.into_iter().map(open).collect();
        // Handlers may run immediately and key mappers may read any cache, so open all caches
        // first.
        let listers = Arc::new(listers);
        let source = Source::new(0);
        let own = trigger::enqueue(
            &primary,
            &queue,
            source,
            self.predicate.clone(),
            Recorded::new(record.as_ref(), &self.input.kind_name(), Via::Own),
            |object, keys| {
                keys.push(object.key().clone());
            },
        );
        let mut handlers = vec![(self.input.kind_name(), own)];
        for (number, add) in registers.into_iter().enumerate() {
            let target = Target {
                queue: &queue,
                record: record.as_ref(),
            };
            handlers.push(add(&target, Source::new(number + 1), &listers));
        }
        let sources: Arc<[String]> = handlers.iter().map(|(kind, _)| kind.clone()).collect();
        if let Some(record) = &record {
            record.set_watches(&sources);
        }
        let controller_metrics = ControllerMetrics::new(&metrics, &self.name);
        controller_metrics
            .max_concurrent
            .set(i64::try_from(self.workers).unwrap_or(i64::MAX));
        let own_writes = OwnWrites::new(watched, controller_metrics.unseen_writes.clone());
        let own_keys = OwnKeys {
            lister: primary.lister(),
            predicate: self.predicate,
        };
        let wakes = Wakes::start(self.wakes, &queue, &own_keys);
        let cached = primary.lister();
        let events = Events::new(&self.name, &events_client, &clock, &metrics, recorder);
        Opened {
            informers: self.informers,
            handlers,
            wakes,
            owns_queue,
            keys: Box::new(move || own_keys.list()),
            is_cached: Box::new(move |key| cached.get(key).is_some()),
            reconcile,
            shared: Shared {
                events: Arc::new(events),
                sources,
                field_manager: self.field_manager.unwrap_or_else(|| self.name.clone()),
                name: self.name.clone(),
                client,
                listers,
                primary: Arc::new(PrimaryKind::new::<K>(self.input.kind(), primary.lister())),
                queue: queue.clone(),
                record,
                own_writes: self.stale_after.map(|_| Arc::new(own_writes)),
                applied: Arc::new(AppliedConfigurations::default()),
                clock,
                shutdown: CancellationToken::new(),
            },
            name: self.name,
            queue,
            metrics: controller_metrics,
            next_id: Arc::new(AtomicU64::new(1)),
            workers: self.workers,
            timeout: self.timeout,
            stale_after: self.stale_after,
            sync_timeout: self.sync_timeout,
            stop_within: self.stop_within,
        }
    }
}

impl Opened {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until every handler has seen its filled cache. Returns false on shutdown.
    pub(crate) async fn synced(
        &self,
        shutdown: &CancellationToken,
    ) -> Result<bool, ControllerError> {
        let deadline = clock::after(Instant::now(), self.sync_timeout);
        for (kind, handler) in &self.handlers {
            let synced = tokio::select! {
                biased; // Check for shutdown first, so a cancelled controller never starts workers.
                () = shutdown.cancelled() => return Ok(false),
                synced = timeout_at(deadline, handler.synced()) => synced,
            };
            match synced {
                Ok(true) => {}
                Ok(false) => return Err(ControllerError::stopped(&self.name, kind)),
                Err(_) => {
                    return Err(ControllerError::NotSynced {
                        controller: self.name.clone(),
                        kind: kind.clone(),
                        waited: self.sync_timeout,
                        cause: self.informers.not_synced(),
                    });
                }
            }
        }
        Ok(true)
    }

    /// Waits until every cache of the controller has an open watch, but no longer than `limit`.
    /// Returns the caches that have none.
    pub(crate) async fn wait_for_watches(&self, limit: Duration) -> Vec<String> {
        informer::wait_for_watches(limit, || self.shared.listers.without_watch()).await
    }

    /// Prepares another term. Enqueues every object of the controller's own kind that its predicate
    /// admits, behind real changes, because this replica does not know the delays and retries of
    /// the leaders in between. For the same reason it forgets what it has applied.
    pub(crate) fn begin_another_term(&self) {
        self.shared.applied.clear();
        for key in (self.keys)() {
            self.queue.add_because(key, Priority::LOW, cause::NEW_TERM);
        }
    }

    /// Drops keys of objects that are gone, if many have accumulated. Without workers nothing else
    /// drops them, and the leader has seen these deletions too. Keys from external sources are
    /// retained, because the leader may not have received them.
    ///
    /// Cancel safe: no key is held across an await.
    pub(crate) async fn drop_gone_keys(&self) {
        let ready = self.queue.len();
        if ready <= MAX_GONE || ready <= 2 * (self.keys)().len() {
            return;
        }
        for _ in 0..ready {
            if self.queue.is_empty() {
                return;
            }
            let Some(mut item) = self.queue.get().await else {
                return;
            };
            item.park(); // Neither outcome counts as a processed key.
            if cause::is_external(item.cause()) || (self.is_cached)(item.key()) {
                item.put_back();
            } else {
                item.forget();
            }
        }
    }

    /// Returns whether the controller uses `informers`.
    pub(crate) fn uses(&self, informers: &InformerFactory) -> bool {
        self.informers.is(informers)
    }

    /// Runs the workers until `shutdown`, or until the queue or an informer stops. Running
    /// reconciles then have the controller's own time limit to finish, but at most `grace`.
    ///
    /// Not cancel safe: dropping the future drops running reconciles.
    pub(crate) async fn work(
        &self,
        shutdown: &CancellationToken,
        grace: Duration,
        term: Term,
    ) -> Result<Stopped, ControllerError> {
        let stop = shutdown.child_token();
        let workers = Arc::new(Workers {
            queue: self.queue.clone(),
            shuts_queue_down: self.owns_queue && term == Term::Last,
            reconcile: Arc::clone(&self.reconcile),
            shared: Arc::new(Shared {
                shutdown: stop.clone(),
                ..self.shared.clone()
            }),
            stale_after: self.stale_after,
            timeout: self.timeout,
            metrics: self.metrics.clone(),
            next_id: Arc::clone(&self.next_id),
            failures: Repeats::new(),
            running: Mutex::default(),
            parked: TaskTracker::new(),
        });
        let work = workers.run(self.workers, self.stop_within.min(grace), stop.clone());
        let ended = self.first_ended();
        tokio::pin!(work, ended);
        let ended = tokio::select! {
            biased; // If the workers are done, a stopped informer does not matter.
            stopped = &mut work => return Ok(stopped),
            kind = &mut ended => kind,
        };
        // Reconciling from a frozen cache would act on stale state.
        stop.cancel();
        let stopped = work.await;
        if shutdown.is_cancelled() {
            Ok(stopped)
        } else {
            Err(ControllerError::stopped(&self.name, ended))
        }
    }

    /// Waits until the informer of a handler stops, and returns its kind.
    async fn first_ended(&self) -> &str {
        let each = self.handlers.iter().map(|(kind, handler)| {
            async move {
                handler.ended().await;
                kind.as_str()
            }
            .boxed()
        });
        select_all(each).await.0
    }

    /// Stops the external sources and, if the controller owns its recorder, flushes its events.
    pub(crate) async fn close(&self) {
        self.wakes.stop().await;
        self.shared.events.flush().await;
    }
}
