//! Applies changes to the cache and distributes them to the handlers.
//!
//! Applying and distributing happen under one lock, which is also held while a handler registers
//! and the existing objects are replayed to it. So a late handler misses nothing and receives
//! nothing twice.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{runtime, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    event::{Deleted, Event},
    handler::{Handler, Notification},
    metrics::StageMetrics,
    multi_namespace::MultiNamespace,
    relist::{MIN_RESYNC, is_recreated, missed, resync_period},
};
use crate::{
    cache::{IndexError, Indexer, Write},
    delta_fifo::{Delta, DeltaFifo, Deltas},
    object::{Kind, Object},
    sync::Mutex,
};

/// The parts that the handles of one informer share: client-go's `sharedProcessor`, together with
/// the log and the cache.
pub(super) struct Processor<K: Kind> {
    pub(super) feed: Feed<K>,
    pub(super) indexer: Indexer<K>,
    pub(super) metrics: StageMetrics,
    pub(super) distribution: Mutex<Distribution<K>>,
    tasks: TaskTracker,
    default_resync: Option<Duration>,
    stopped: CancellationToken,
    /// The number of objects that failed to decode on their way in.
    undecoded: Arc<AtomicU64>,
}

/// Where the changes come from.
pub(super) enum Feed<K> {
    /// The log of one reflector.
    One(Arc<DeltaFifo<K>>),
    /// A log per namespace.
    ByNamespace(Arc<MultiNamespace<K>>),
}

impl<K: Kind> Feed<K> {
    /// Returns whether the first list is in the cache. Once true, it stays true.
    pub(super) fn has_synced(&self) -> bool {
        match self {
            Self::One(fifo) => fifo.has_synced(),
            Self::ByNamespace(namespaces) => namespaces.has_synced(),
        }
    }

    fn synced(&self) -> watch::Receiver<bool> {
        match self {
            Self::One(fifo) => fifo.synced(),
            Self::ByNamespace(namespaces) => namespaces.synced(),
        }
    }
}

pub(super) struct Distribution<K> {
    phase: Phase,
    pub(super) handlers: Vec<Arc<Handler<K>>>,
    /// The loops of handlers that registered before the start.
    waiting: Vec<(Arc<Handler<K>>, BoxFuture<'static, ()>)>,
    synced: bool,
    /// How often to check which handlers are due for a resync; `None` means never.
    pub(super) check_period: Option<Duration>,
}

/// The phase of an informer, which runs only once.
pub(super) enum Phase {
    New,
    Running(runtime::Handle),
    Stopped,
}

impl<K: Kind> Processor<K> {
    pub(super) fn new(
        indexer: Indexer<K>,
        feed: Feed<K>,
        resync: Option<Duration>,
        metrics: StageMetrics,
        undecoded: Arc<AtomicU64>,
    ) -> Self {
        let distribution = Distribution {
            phase: Phase::New,
            handlers: Vec::new(),
            waiting: Vec::new(),
            synced: false,
            check_period: resync
                .filter(|p| !p.is_zero())
                .map(|period| period.max(MIN_RESYNC)),
        };
        Self {
            feed,
            indexer,
            metrics,
            distribution: Mutex::new(distribution),
            tasks: TaskTracker::new(),
            default_resync: resync,
            stopped: CancellationToken::new(),
            undecoded,
        }
    }

    #[cfg(test)]
    pub(super) fn fifo(&self) -> &Arc<DeltaFifo<K>> {
        match &self.feed {
            Feed::One(fifo) => fifo,
            Feed::ByNamespace(_) => panic!("there is a log per namespace"),
        }
    }

    /// Publishes how many objects could not be indexed or decoded.
    pub(super) fn count_faults(&self) {
        self.metrics.unindexed(self.indexer.unindexed());
        self.metrics
            .undecoded(self.undecoded.load(Ordering::Relaxed));
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.distribution.lock().phase, Phase::Stopped)
    }

    /// Returns the resync period of handlers that do not set one.
    pub(super) fn default_resync(&self) -> Option<Duration> {
        self.default_resync
    }

    /// Waits for the first full list; returns false if the informer stopped first.
    pub(super) async fn synced(&self) -> bool {
        let mut synced = self.feed.synced();
        tokio::select! {
            biased;
            // Check this first, so that an informer that synced and then stopped counts as synced.
            seen = synced.wait_for(|synced| *synced) => seen.is_ok(),
            () = self.stopped.cancelled() => false,
        }
    }

    /// Returns whether the cache has been filled, including namespaces that were added since.
    pub(super) fn is_filled(&self) -> bool {
        match &self.feed {
            Feed::One(fifo) => fifo.has_synced(),
            Feed::ByNamespace(namespaces) => namespaces.has_synced() && namespaces.is_filled(),
        }
    }

    /// Waits until [`is_filled`](Self::is_filled); returns false if the informer stopped first.
    pub(super) async fn filled(&self) -> bool {
        match &self.feed {
            Feed::One(_) => self.synced().await,
            Feed::ByNamespace(namespaces) => namespaces.filled(&self.stopped).await,
        }
    }

    pub(super) fn refuse_if_stopped(&self, index: &str) -> Result<(), IndexError> {
        if self.is_stopped() {
            return Err(IndexError::Stopped {
                name: index.to_owned(),
            });
        }
        Ok(())
    }

    /// Returns how often to check which handlers are due for a resync.
    pub(super) fn check_period(&self) -> Option<Duration> {
        self.distribution.lock().check_period
    }

    /// Registers a handler and replays the cache to it as initial additions. If `task` is its loop,
    /// the loop starts with the informer.
    ///
    /// Registering with an informer that has stopped ends the handler.
    pub(super) fn add(&self, handler: &Arc<Handler<K>>, task: Option<BoxFuture<'static, ()>>) {
        let mut distribution = self.distribution.lock();
        let Distribution {
            phase,
            handlers,
            waiting,
            synced,
            check_period,
        } = &mut *distribution;
        handler.adjust_resync(|wanted| resync_period(wanted, check_period, phase, &handler.name));
        match phase {
            Phase::Stopped => {
                drop(distribution);
                handler.end();
                return;
            }
            Phase::Running(runtime) => {
                if let Some(task) = task {
                    self.tasks.spawn_on(task, runtime);
                }
            }
            Phase::New => waiting.extend(task.map(|task| (handler.clone(), task))),
        }
        let present: Vec<Notification<K>> = self
            .indexer
            .lister()
            .list()
            .into_iter()
            .map(|object| {
                Event::Added {
                    object,
                    initial: true,
                }
                .into()
            })
            .collect();
        handler.notify(present.iter());
        if *synced {
            handler.initial_delivered();
        }
        handlers.push(handler.clone());
    }

    /// Closes a handler and removes it. A call in progress completes; no further call is made.
    pub(super) fn remove(&self, handler: &Arc<Handler<K>>) {
        handler.close();
        let (handlers, task) = {
            let mut distribution = self.distribution.lock();
            let others = |other: &Arc<Handler<K>>| !Arc::ptr_eq(other, handler);
            distribution.handlers.retain(others);
            let at = distribution
                .waiting
                .iter()
                .position(|(other, _)| !others(other));
            (
                distribution.handlers.len(),
                at.map(|at| distribution.waiting.swap_remove(at)),
            )
        };
        // A loop that never started is dropped outside the lock: it owns the user's function.
        drop(task);
        tracing::trace!(handler = handler.name, handlers, "removed handler");
    }

    /// Starts the loops of the registered handlers; returns false if the informer has already run.
    pub(super) fn start(&self, runtime: &runtime::Handle) -> bool {
        let mut distribution = self.distribution.lock();
        if !matches!(distribution.phase, Phase::New) {
            return false;
        }
        distribution.phase = Phase::Running(runtime.clone());
        for (_, task) in mem::take(&mut distribution.waiting) {
            self.tasks.spawn_on(task, runtime);
        }
        true
    }

    /// Closes every handler: only calls in progress complete.
    pub(super) fn stop(&self) {
        let (handlers, waiting) = {
            let mut distribution = self.distribution.lock();
            distribution.phase = Phase::Stopped;
            (
                mem::take(&mut distribution.handlers),
                mem::take(&mut distribution.waiting),
            )
        };
        drop(waiting);
        for handler in handlers {
            handler.close();
        }
        self.tasks.close();
        self.stopped.cancel();
    }

    /// Waits until the loops of all handlers have ended.
    pub(super) async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Applies entries of a log to the cache, then notifies the handlers. If there are several
    /// namespaces, `within` is the log's.
    ///
    /// Index functions are user code, so their values are computed before the locks are taken; if
    /// an index was added in the meantime, they are computed again.
    pub(super) fn handle_deltas(&self, deltas: Deltas<K>, within: Option<&str>) {
        let Deltas { entries, initial } = deltas;
        let mut writes = Vec::with_capacity(entries.len());
        for delta in entries {
            match delta {
                Delta::Added(object) | Delta::Updated(object) => writes.push(Write::Put(object)),
                Delta::Deleted(last) => writes.push(Write::Remove(last)),
                Delta::Bookmark(version) => writes.push(Write::Reached(version)),
                Delta::Replaced {
                    mut items,
                    unread,
                    resource_version,
                } => {
                    self.apply(&mut writes, initial);
                    items.extend(self.last_read(&unread));
                    match within {
                        None => self.replace(items, &resource_version, initial),
                        Some(namespace) => self.replace_within(namespace, items, initial),
                    }
                }
                Delta::Sync => {
                    self.apply(&mut writes, initial);
                    self.resync();
                }
            }
        }
        self.apply(&mut writes, initial);
    }

    fn apply(&self, writes: &mut Vec<Write<K>>, initial: bool) {
        let mut writes = mem::take(writes);
        while !writes.is_empty() {
            let prepared = self.indexer.prepare(writes);
            let distribution = self.distribution.lock();
            match self.indexer.commit(prepared) {
                Err(again) => writes = again,
                Ok(applied) => {
                    let mut events = Vec::with_capacity(applied.len());
                    for (write, old) in applied {
                        events_of(write, old, initial, &mut events);
                    }
                    distribution.notify(&events);
                    // Drop objects outside the lock: the last holder of a typed view runs its
                    // destructor.
                    drop(distribution);
                    return;
                }
            }
        }
    }

    /// Once the first list is in the cache, marks the initial objects as delivered.
    pub(super) fn check_synced(&self) {
        if !self.feed.has_synced() {
            return;
        }
        let mut distribution = self.distribution.lock();
        if mem::replace(&mut distribution.synced, true) {
            return;
        }
        let former = self.indexer.take_over();
        for handler in &distribution.handlers {
            handler.initial_delivered();
        }
        drop(distribution);
        drop(former); // Runs destructors of user types.
    }
}

impl<K> Distribution<K> {
    pub(super) fn notify(&self, events: &[Notification<K>]) {
        if events.is_empty() {
            return;
        }
        for handler in &self.handlers {
            handler.notify(events.iter());
        }
    }
}

/// Converts one write to the cache into events.
pub(super) fn events_of<K>(
    write: Write<K>,
    old: Option<Object<K>>,
    initial: bool,
    events: &mut Vec<Notification<K>>,
) {
    match (write, old) {
        (Write::Put(object), None) => events.push(Event::Added { object, initial }.into()),
        (Write::Put(object), Some(old)) if is_recreated(&old, &object) => {
            events.push(missed(old));
            events.push(
                Event::Added {
                    object,
                    initial: false,
                }
                .into(),
            );
        }
        (Write::Put(new), Some(old)) => events.push(Event::Updated { old, new }.into()),
        (Write::Remove(last), _) => events.push(Event::Deleted(Deleted::exact(last)).into()),
        (Write::Reached(_), _) => {}
    }
}
