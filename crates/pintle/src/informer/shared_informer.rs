//! The handle of an informer, and its single run.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    builder::{InformerBuilder, Start},
    event::Event,
    multi_namespace::{MultiNamespace, last_version},
    processor::{Feed, Processor},
    registration::{HandlerBuilder, Registration},
};
use crate::{
    cache::{IndexError, Lister},
    delta_fifo::DeltaFifo,
    object::{Kind, Object},
    reflector::Status,
    source::{Extent, ListWatch},
};

/// One watch of one kind, its cache, and any number of independent handlers.
///
/// `SharedInformer` is a handle; clones refer to the same informer. A reflector follows the source
/// and writes the [log](crate::delta_fifo); the informer applies the log to its
/// [cache](crate::cache), then notifies its handlers.
///
/// # Guarantees
/// - For each object the cache shows states the server had, in the server's order; a relist becomes
///   visible as a whole or not at all.
/// - A handler receives one event at a time, in order, after the cache shows it.
/// - Handlers are independent: one that is slow or panics delays neither the cache nor the others.
/// - A handler that registers late receives every existing object as initial, and then every
///   change: nothing is lost, nothing delivered twice.
/// - An object deleted and created again under the same name is delivered as a deletion and an
///   addition, even if both were missed.
///
/// # Stopping
/// An informer runs once. When it stops, calls in progress complete and waiting events are dropped.
/// An [`InformerFactory`](super::InformerFactory) that is started again builds a replacement:
/// listers follow it, handlers have to be registered again.
///
/// # Examples
/// ```no_run
/// # async fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::informer::SharedInformer;
/// use pintle::source::{KubeSource, Scope};
/// use tokio_util::sync::CancellationToken;
///
/// let pods = SharedInformer::<Pod>::new(KubeSource::<Pod>::new(client, Scope::all()));
/// pods.index_field("node", "/spec/nodeName").unwrap();
/// let _registration = pods.on_event(|event| println!("{}", event.key()));
/// pods.run(&CancellationToken::new()).await;
/// # }
/// ```
pub struct SharedInformer<K: Kind> {
    pub(super) processor: Arc<Processor<K>>,
    pub(super) runner: Arc<Runner>,
    pub(super) usage: Arc<Usage>,
}

/// The single run of an informer, and its status.
pub(super) struct Runner {
    /// Starts the reflector. `None` with several namespaces, which start theirs as they are added.
    pub(super) start: parking_lot::Mutex<Option<Start>>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) extent: Extent,
    /// The number of log entries applied to the cache.
    pub(super) changes: AtomicU64,
    /// The panic message of the informer's task, if it panicked.
    pub(super) panic: OnceLock<String>,
}

impl Runner {
    pub(super) fn describe(&self) -> String {
        self.status.borrow().target.to_string()
    }
}

/// Shared by everything that keeps an informer running: handles, listers, registrations, streams.
/// Dropping the last one stops an informer that a factory runs.
#[derive(Debug, Default)]
pub(super) struct Usage {
    unused: CancellationToken,
}

impl Usage {
    /// Returns a token that is cancelled once nothing uses the informer.
    pub(super) fn unused(&self) -> CancellationToken {
        self.unused.clone()
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.unused.cancel();
    }
}

impl<K: Kind> SharedInformer<K> {
    /// Returns an informer of the objects that `source` lists and watches.
    pub fn new(source: impl ListWatch) -> Self {
        Self::builder(source).build()
    }

    /// Returns a builder, for an informer with settings.
    pub fn builder<L: ListWatch>(source: L) -> InformerBuilder<K, L> {
        InformerBuilder::new(source)
    }

    pub(super) fn of_parts(
        processor: Processor<K>,
        start: Option<Start>,
        status: watch::Receiver<Status>,
        extent: Extent,
    ) -> Self {
        let runner = Runner {
            start: parking_lot::Mutex::new(start),
            status,
            extent,
            changes: AtomicU64::new(0),
            panic: OnceLock::new(),
        };
        Self {
            processor: Arc::new(processor),
            runner: Arc::new(runner),
            usage: Arc::new(Usage::default()),
        }
    }

    /// Returns a view of the cache. It can be read at any time.
    pub fn lister(&self) -> Lister<K> {
        self.processor.indexer.lister_keeping(self.usage.clone())
    }

    /// Calls `handle` with every event, one at a time and in order.
    ///
    /// Delivery is lossless; see [slow handlers](super#slow-handlers) for what that costs. The
    /// function must not block: it decides what to do, usually by adding a key to a queue. Code
    /// that awaits should use a [stream](HandlerBuilder::stream) instead.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use pintle::{cache::ObjectKey, informer::{Registration, SharedInformer}, queue::WorkQueue};
    /// fn enqueue_pods(pods: &SharedInformer<Pod>, queue: &WorkQueue<ObjectKey>) -> Registration {
    ///     let queue = queue.clone();
    ///     pods.on_event(move |event| queue.add(event.key().clone()))
    /// }
    /// ```
    pub fn on_event<F>(&self, handle: F) -> Registration
    where
        F: FnMut(Event<K>) + Send + 'static,
    {
        self.handler().on_event(handle)
    }

    /// Returns a builder for a handler with a name, a filter or its own resync period.
    pub fn handler(&self) -> HandlerBuilder<'_, K> {
        HandlerBuilder::new(self)
    }

    /// Indexes objects by a field, such as `/spec/nodeName`. See
    /// [`Indexer::index_field`](crate::cache::Indexer::index_field).
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped, the name is taken or the path is invalid.
    pub fn index_field(&self, name: &str, path: &str) -> Result<(), IndexError> {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_field(name, path)
    }

    /// Indexes objects by the values that `values` computes from the header of each. See
    /// [`Indexer::index_header`](crate::cache::Indexer::index_header).
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped or the name is taken.
    pub fn index_header<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_header(name, values)
    }

    /// Indexes objects by the values that `values` computes from each. See
    /// [`Indexer::index_by`](crate::cache::Indexer::index_by).
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped or the name is taken.
    pub fn index_by<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_by(name, values)
    }

    /// Returns whether the cache has shown a full list. Once true, it stays true.
    pub fn has_synced(&self) -> bool {
        self.processor.feed.has_synced()
    }

    /// Returns whether the cache was filled but is currently not kept up to date.
    pub(crate) fn is_stale(&self) -> bool {
        self.has_synced() && !self.runner.status.borrow().is_following()
    }

    /// Waits for the first full list; returns false if the informer stopped first.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn synced(&self) -> bool {
        self.processor.synced().await
    }

    /// Returns whether the informer has stopped. It cannot run again.
    pub fn is_stopped(&self) -> bool {
        self.processor.is_stopped()
    }

    /// Returns the status of the reflector: listing, watching or waiting to retry, and why.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.runner.status.clone()
    }

    /// Describes the watched objects for people: `pods at cluster scope`.
    ///
    /// In a factory with a namespace, the scope of a kind known only at run time is looked up when
    /// the informer first lists. Until then the kind counts as namespaced.
    pub fn describe(&self) -> String {
        self.runner.describe()
    }

    /// Replaces an informer that has stopped: its listers follow this one, and its handles keep
    /// this one running.
    pub(super) fn succeed(self, before: &Processor<K>, usage: Arc<Usage>) -> Self {
        self.processor.indexer.succeed(&before.indexer);
        Self { usage, ..self }
    }

    /// Returns whether every object in `namespace` is in the cache or about to be; `None` stands
    /// for cluster scope.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        match &self.processor.feed {
            Feed::One(_) => self.runner.extent.includes(namespace),
            Feed::ByNamespace(namespaces) => namespaces.covers(namespace),
        }
    }

    /// Returns whether each namespace has its own watch, and so advances through `resourceVersion`s
    /// independently.
    pub(crate) fn advances_by_namespace(&self) -> bool {
        matches!(self.processor.feed, Feed::ByNamespace(_))
    }

    /// Returns the `resourceVersion` up to which the cache shows the changes in `namespace`, or
    /// `None` if it never will.
    pub(crate) fn reached(&self, namespace: Option<&str>) -> Option<String> {
        match &self.processor.feed {
            Feed::One(_) => Some(self.processor.indexer.lister().resource_version()),
            Feed::ByNamespace(namespaces) => namespaces.reached(namespace?),
        }
    }

    /// Resolves when the result of [`reached`](Self::reached) may have changed since the call.
    pub(crate) fn advanced(&self) -> BoxFuture<'static, ()> {
        match &self.processor.feed {
            Feed::One(_) => Box::pin(self.processor.indexer.lister().changed()),
            Feed::ByNamespace(namespaces) => Box::pin(namespaces.advanced()),
        }
    }

    /// Runs the informer until `shutdown` is cancelled. Returns when every handler has returned
    /// from its last call. A second run logs a warning and returns.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime. Handlers run as tasks of that runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informer without waiting for the handlers.
    pub async fn run(&self, shutdown: &CancellationToken) {
        run(&self.processor, &self.runner, shutdown).await;
    }
}

/// Runs an informer once.
pub(super) async fn run<K: Kind>(
    processor: &Processor<K>,
    runner: &Runner,
    shutdown: &CancellationToken,
) {
    if !processor.start(&tokio::runtime::Handle::current()) {
        tracing::warn!(
            informer = runner.describe(),
            "informer has already run; not starting it again"
        );
        return;
    }
    let stop = StopOnDrop(processor);
    let resync = processor.check_period();
    match &processor.feed {
        Feed::One(fifo) => {
            let start = runner.start.lock().take();
            let reflector = start.map(|start| start(resync, shutdown.child_token()));
            tokio::join!(
                async {
                    if let Some(reflector) = reflector {
                        reflector.await;
                    }
                    fifo.close();
                },
                pump(processor, runner, fifo, None),
            );
        }
        Feed::ByNamespace(namespaces) => namespaces.run(processor, runner, resync, shutdown).await,
    }
    drop(stop);
    processor.ended().await;
}

/// Pops entries from a log until it is closed and empty. If there are several namespaces, `within`
/// is the log's.
pub(super) async fn pump<K: Kind>(
    processor: &Processor<K>,
    runner: &Runner,
    fifo: &DeltaFifo<K>,
    within: Option<(&MultiNamespace<K>, &str)>,
) {
    loop {
        let popped = fifo.pop(|deltas| {
            let (count, started) = (deltas.entries.len(), Instant::now());
            let version = within.and_then(|_| last_version(&deltas.entries));
            processor.handle_deltas(deltas, within.map(|(_, namespace)| namespace));
            (count, started.elapsed(), version)
        });
        let Ok((count, took, version)) = popped.await else {
            return;
        };
        runner.changes.fetch_add(count as u64, Ordering::Relaxed);
        if let Some((namespaces, namespace)) = within {
            namespaces.advance(namespace, version, fifo.has_synced());
        }
        processor.check_synced();
        let depth = fifo.len();
        processor.metrics.queued(depth);
        processor.metrics.processed(took);
        let lister = processor.indexer.lister();
        processor.metrics.reached(&lister.resource_version());
        processor.metrics.objects(lister.len());
        processor.count_faults();
        let tolerated = Duration::from_millis(100) * u32::try_from(count.min(10)).unwrap_or(10);
        if depth > 10 && took > tolerated {
            tracing::warn!(
                informer = runner.describe(),
                count,
                depth,
                ?took,
                "slow cache update; the reflector may fall behind"
            );
        }
    }
}

struct StopOnDrop<'a, K: Kind>(&'a Processor<K>);

impl<K: Kind> Drop for StopOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<K: Kind> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        let Self {
            processor,
            runner,
            usage,
        } = self;
        Self {
            processor: processor.clone(),
            runner: runner.clone(),
            usage: usage.clone(),
        }
    }
}

impl<K: Kind> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("of", &self.describe())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
