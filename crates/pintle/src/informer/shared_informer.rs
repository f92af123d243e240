//! The informer's handle.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    buffer::Backlog,
    builder::{InformerBuilder, Start},
    event::Event,
    filter::Filter,
    handler::{Consumer, Handler, Resync},
    processor::Processor,
    registration::Registration,
    stream::EventStream,
    usage::Usage,
};
use crate::{
    cache::{IndexError, Lister},
    clock,
    object::{Kind, Object},
    reflector::Status,
    source::{Extent, ListWatch},
};

/// One watch of one kind, its cache, and any number of independent handlers. A handle: clones are
/// the same informer.
///
/// # Flow
/// A reflector follows the source and writes the [log](crate::delta_fifo); the informer applies the
/// log to its [cache](crate::cache), then tells its handlers.
///
/// # Guarantees
/// - For each object the cache shows states the server had, in the server's order; a relist is
///   seen as a whole or not at all.
/// - A handler is told one event at a time, in order, after the cache shows it.
/// - Handlers are independent: one that is slow or panics delays neither the cache nor the others.
/// - A handler that comes late is told everything that is there, as initial, and then every
///   change: nothing is lost, nothing told twice.
/// - An object that was deleted and created again under the same name is told as a deletion and an
///   addition, also if both were missed.
///
/// # Stopping
/// An informer runs once. When it stops, calls in progress complete and what waits is dropped. An
/// [`InformerFactory`](super::InformerFactory) makes another one in its place when it is started
/// again; handlers have to be registered with that one, listers follow it.
///
/// ```no_run
/// # async fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::informer::SharedInformer;
/// use pintle::source::{KubeSource, Scope};
/// use tokio_util::sync::CancellationToken;
///
/// let pods = SharedInformer::<Pod>::new(KubeSource::<Pod>::new(client, Scope::all()));
/// pods.index_field("node", "/spec/nodeName").unwrap();
/// let _watching = pods.on_event(|event| println!("{}", event.key()));
/// pods.run(&CancellationToken::new()).await;
/// # }
/// ```
pub struct SharedInformer<K: Kind> {
    pub(super) processor: Arc<Processor<K>>,
    pub(super) runner: Arc<Runner>,
    pub(super) usage: Arc<Usage>,
}

/// The one run of an informer, and what it is doing.
pub(super) struct Runner {
    pub(super) start: parking_lot::Mutex<Option<Start>>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) extent: Extent,
    /// What the task that ran the informer panicked with.
    pub(super) panic: OnceLock<String>,
}

impl Runner {
    pub(super) fn describe(&self) -> String {
        self.status.borrow().target.to_string()
    }
}

impl<K: Kind> SharedInformer<K> {
    /// An informer of what `source` lists and watches.
    pub fn new(source: impl ListWatch) -> Self {
        Self::builder(source).build()
    }

    /// As [`new`](Self::new), with settings.
    pub fn builder<L: ListWatch>(source: L) -> InformerBuilder<K, L> {
        InformerBuilder::new(source)
    }

    /// A view of the cache. It can be had, and read, at any time.
    pub fn lister(&self) -> Lister<K> {
        self.processor.indexer.lister_keeping(self.usage.clone())
    }

    /// Calls `handle` with every event, one at a time and in order.
    ///
    /// The function must not block or take long: it is for deciding what to do, usually to add a
    /// key to a queue. Whoever wants to await takes the events as a [stream](HandlerBuilder::stream).
    pub fn on_event<F>(&self, handle: F) -> Registration
    where
        F: FnMut(Event<K>) + Send + 'static,
    {
        self.handler().on_event(handle)
    }

    /// A handler with settings: a name, a filter, its own resync.
    pub fn handler(&self) -> HandlerBuilder<'_, K> {
        HandlerBuilder {
            informer: self,
            name: String::new(),
            backlog: Backlog::default(),
            resync: self.processor.default_resync(),
            filter: None,
        }
    }

    /// Indexes objects by a field, such as `/spec/nodeName`. See
    /// [`Indexer::index_field`](crate::cache::Indexer::index_field).
    pub fn index_field(&self, name: &str, path: &str) -> Result<(), IndexError> {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_field(name, path)
    }

    /// Indexes objects by what `values` says of the header of each. See
    /// [`Indexer::index_header`](crate::cache::Indexer::index_header).
    pub fn index_header<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_header(name, values)
    }

    /// Indexes objects by what `values` says of each. See
    /// [`Indexer::index_by`](crate::cache::Indexer::index_by).
    pub fn index_by<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.processor.refuse_if_stopped(name)?;
        self.processor.indexer.index_by(name, values)
    }

    /// Whether the cache has shown one full list. Never again false.
    pub fn has_synced(&self) -> bool {
        self.processor.fifo.has_synced()
    }

    /// Waits for the first full list; false if the informer stopped before.
    ///
    /// Cancel safe.
    pub async fn synced(&self) -> bool {
        self.processor.synced().await
    }

    /// Whether the informer has run and stopped.
    pub fn is_stopped(&self) -> bool {
        self.processor.is_stopped()
    }

    /// What the reflector is doing, with the cause: listing, watching, waiting to try again.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.runner.status.clone()
    }

    /// What is followed, for people: `pods at cluster scope`.
    ///
    /// In a factory with a namespace, the scope of a kind known only at run time is looked up when
    /// the informer first lists. Until then it is taken for namespaced.
    pub fn describe(&self) -> String {
        self.runner.describe()
    }

    /// Takes the place of an informer that has stopped: its listers follow this one, and what kept
    /// that one running keeps this one.
    pub(super) fn succeed(self, before: &Processor<K>, usage: Arc<Usage>) -> Self {
        self.processor.indexer.succeed(&before.indexer);
        Self { usage, ..self }
    }

    /// Which objects of its kind are followed.
    pub(crate) fn extent(&self) -> &Extent {
        &self.runner.extent
    }

    /// Runs until `shutdown` is cancelled: follows the source, applies, tells. Returns when every
    /// handler has returned from its last call. A second run warns and returns.
    ///
    /// Must be called within a tokio runtime; handlers run as its tasks. Cancel safe: dropping the
    /// future stops the informer, without waiting for the handlers.
    pub async fn run(&self, shutdown: &CancellationToken) {
        run(&self.processor, &self.runner, shutdown).await;
    }
}

/// The one run of an informer.
pub(super) async fn run<K: Kind>(
    processor: &Processor<K>,
    runner: &Runner,
    shutdown: &CancellationToken,
) {
    let start = runner.start.lock().take();
    let Some(start) = start.filter(|_| processor.start(&tokio::runtime::Handle::current())) else {
        tracing::warn!(of = runner.describe(), "an informer runs only once");
        return;
    };
    let stop = StopOnDrop(processor);
    let reflector = start(processor.check_period(), shutdown.child_token());
    tokio::join!(
        async {
            reflector.await;
            processor.fifo.close();
        },
        pump(processor, runner),
    );
    drop(stop);
    processor.ended().await;
}

/// Takes entries from the log until it is closed and empty.
async fn pump<K: Kind>(processor: &Processor<K>, runner: &Runner) {
    loop {
        let popped = processor.fifo.pop(|deltas| {
            let (count, started) = (deltas.entries.len(), Instant::now());
            processor.handle_deltas(deltas);
            (count, started.elapsed())
        });
        let Ok((count, took)) = popped.await else {
            return;
        };
        processor.check_synced();
        let depth = processor.fifo.len();
        processor.metrics.queued(depth);
        processor.metrics.processed(took);
        processor
            .metrics
            .reached(&processor.indexer.lister().resource_version());
        processor.count_faults();
        let patience = Duration::from_millis(100) * u32::try_from(count.min(10)).unwrap_or(10);
        if depth > 10 && took > patience {
            let of = runner.describe();
            tracing::warn!(of, count, depth, ?took, "applying changes is slow");
        }
    }
}

struct StopOnDrop<'a, K: Kind>(&'a Processor<K>);

impl<K: Kind> Drop for StopOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A handler that is about to be registered.
#[must_use = "a handler is registered by on_event or stream"]
pub struct HandlerBuilder<'a, K: Kind> {
    informer: &'a SharedInformer<K>,
    name: String,
    backlog: Backlog,
    resync: Option<Duration>,
    filter: Option<Filter<K>>,
}

impl<K: Kind> HandlerBuilder<'_, K> {
    /// A name for logs and metrics. Handlers without one are counted together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Tells everything once more this often, instead of as often as the informer's default; zero
    /// is never. The period is rounded up to a multiple of the informer's own.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Tells only of objects for which `matches` says so: one that begins to match is added, one
    /// that ceases to is deleted. Deletions are told of all objects that were told of.
    pub fn filter<F>(mut self, matches: F) -> Self
    where
        F: FnMut(&Object<K>) -> bool + Send + 'static,
    {
        self.filter = Some(Filter::new(matches));
        self
    }

    /// What happens to events that wait while the handler is slow.
    pub fn backlog(mut self, backlog: Backlog) -> Self {
        self.backlog = backlog;
        self
    }

    /// Registers `handle`. See [`SharedInformer::on_event`].
    pub fn on_event<F>(self, handle: F) -> Registration
    where
        F: FnMut(Event<K>) + Send + 'static,
    {
        let (consumer, informer) = self.consumer();
        let handler = consumer.handler.clone();
        informer
            .processor
            .add(&handler, Some(Box::pin(consumer.run(handle))));
        Registration::new(informer.processor.clone(), handler, informer.usage.clone())
    }

    /// The events as a stream, for whoever wants to await while handling them. It ends when the
    /// informer stops.
    pub fn stream(self) -> EventStream<K> {
        let (consumer, informer) = self.consumer();
        let handler = consumer.handler.clone();
        informer.processor.add(&handler, None);
        let registration =
            Registration::new(informer.processor.clone(), handler, informer.usage.clone());
        EventStream::new(consumer, registration)
    }

    fn consumer<'a>(self) -> (Consumer<K>, &'a SharedInformer<K>)
    where
        Self: 'a,
    {
        let Self {
            informer,
            name,
            backlog,
            resync,
            filter,
        } = self;
        let next = clock::after(Instant::now(), resync.unwrap_or_default());
        let resync = Resync {
            period: resync,
            next,
            syncing: true,
        };
        let metrics = informer.processor.metrics.handler(&name);
        let handler = Arc::new(Handler::new(name, backlog, resync, metrics));
        (Consumer { handler, filter }, informer)
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
            .field("of", &self.runner.describe())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for HandlerBuilder<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
