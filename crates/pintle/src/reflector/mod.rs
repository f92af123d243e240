//! Follows a source through every failure.
//!
//! Watches end all the time: servers close them every few minutes, connections break, old
//! `resourceVersion`s expire. A [`Reflector`] hides all of that. It lists the objects of a
//! [`ListWatch`] into a [`DeltaFifo`](crate::delta_fifo::DeltaFifo), then watches for changes from
//! the `resourceVersion` of that list. When a watch ends normally, the next one continues from the
//! last `resourceVersion` seen. When that is not possible, the reflector backs off and lists again,
//! which consumers see as one replacement.
//!
//! # Listing
//! Where the server supports it, the reflector requests a streaming list: a watch that starts with
//! all objects and marks their end. Otherwise it lists in pages. If the server rejects a streaming
//! list, or never marks its end, the reflector does not request another for an hour. The first list
//! is consistent. Later lists request the last `resourceVersion` seen or newer, which servers
//! answer from memory, and fall back to a consistent list if the server cannot serve that.
//!
//! # Guarantees
//! - Consumers see changes in the server's order, and `resourceVersion`s never go back.
//! - An object that cannot be read is reported and skipped; everything else continues. An
//!   informer's cache retains the last state that could be read. If a *deletion* cannot be read,
//!   the reflector lists again, so that no deleted object stays in the cache.
//! - No failure is retried in a tight loop: after a few immediate retries at most, each is followed
//!   by a growing [delay](Backoff), which resets only after two healthy minutes.
//! - A watch that goes silent is closed; see [`Reflector::watchdog`].
//! - The [status](Reflector::status) shows every step and its cause.
//!
//! # Caveats
//! An object in a list whose name cannot be read is treated as absent.

mod backoff;
mod collect;
mod intake;
mod machine;
mod metrics;
mod pager;
mod resync;
mod run;
mod status;
mod watch_list;

#[cfg(test)]
mod tests;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::{
    backoff::Backoff,
    status::{During, Failure, Phase, Reason, Status, Unreadable, UnreadableError},
};
use self::{machine::Settings, metrics::ReflectorMetrics, run::Runner};
use crate::{
    clock::Rng,
    metrics::Metrics,
    object::{Kind, Object, ObjectKey, Reader},
    source::ListWatch,
};

/// The shortest timeout of a watch.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// Lists and watches a source and feeds a [`DeltaFifo`](crate::delta_fifo::DeltaFifo). See the
/// [module](self).
///
/// An [informer](crate::informer) runs one for you; use a reflector directly to process deltas
/// without a cache.
///
/// ```
/// # use futures::stream;
/// # use pintle::source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent};
/// # struct OnePod;
/// # impl ListWatch for OnePod {
/// #     type Watch = stream::Pending<Result<WatchEvent, SourceError>>;
/// #     fn resource(&self) -> &str { "pods" }
/// #     async fn list(&self, _: ListOptions, on_item: &mut (dyn FnMut(RawItem<'_>) + Send))
/// #         -> Result<Page, SourceError> {
/// #         on_item(RawItem::Json(br#"{"metadata":{"name":"a","namespace":"b"}}"#));
/// #         Ok(Page { resource_version: "1".into(), ..Page::default() })
/// #     }
/// #     async fn watch(&self, _: ListOptions) -> Result<Self::Watch, SourceError> {
/// #         Ok(stream::pending())
/// #     }
/// #     fn supports_watch_list(&self) -> bool { false }
/// # }
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::cache::Reader;
/// use pintle::delta_fifo::{Delta, DeltaFifo};
/// use pintle::reflector::Reflector;
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let fifo = Arc::new(DeltaFifo::<Pod>::new());
/// let reflector = Reflector::new(OnePod, Reader::new(), fifo.clone());
/// let stop = CancellationToken::new();
/// tokio::join!(reflector.run(&stop), async {
///     let entries = fifo.pop(|deltas| deltas.entries).await.unwrap();
///     assert!(matches!(&entries[..], [Delta::Replaced { items, .. }] if items.len() == 1));
///     stop.cancel();
/// });
/// # }
/// ```
#[must_use = "a reflector does nothing until it runs"]
pub struct Reflector<K: Kind, L, S> {
    source: L,
    reader: Reader<K>,
    sink: Arc<S>,
    settings: Settings,
    backoff: Backoff,
    rng: Rng,
    resync: Option<Duration>,
    timeouts: Timeouts,
    verify_watch_lists: bool,
    metrics: Metrics,
    status: watch::Sender<Status>,
}

/// How long a reflector waits for a silent server.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// Between two events of a watch, once the server is known to send bookmarks.
    watchdog: Option<Duration>,
    /// After a watch should have timed out, with or without bookmarks.
    overtime: Duration,
    /// For a streaming list, between two events and in total.
    marker_idle: Duration,
    marker_total: Duration,
}

impl<K: Kind, L: ListWatch, S: Sink<K>> Reflector<K, L, S> {
    /// Returns a reflector of `source` into `sink`, usually a
    /// [`DeltaFifo`](crate::delta_fifo::DeltaFifo). `reader` reads every object.
    pub fn new(source: L, reader: Reader<K>, sink: Arc<S>) -> Self {
        let settings = Settings {
            watch_list: gate("WatchListClient", true) && source.supports_watch_list(),
            refusal_memory: Duration::from_hours(1),
            page_size: None,
            internal_error_retry: Duration::ZERO,
            watch_timeout: MIN_WATCH_TIMEOUT,
        };
        let timeouts = Timeouts {
            watchdog: Some(Duration::from_mins(2)),
            overtime: Duration::from_secs(30),
            marker_idle: Duration::from_secs(15),
            marker_total: Duration::from_mins(2),
        };
        let status = Status::of(source.describe());
        Self {
            source,
            reader,
            sink,
            settings,
            backoff: Backoff::default(),
            rng: Rng::from_entropy(),
            resync: None,
            timeouts,
            verify_watch_lists: false,
            metrics: Metrics::new(),
            status: watch::Sender::new(status),
        }
    }

    /// Requests a resync this often while a watch is open. Zero, the default, disables it.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Sets the delays between attempts.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the source of jitter. A fixed seed makes retries reproducible in tests.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Sets where metrics are registered.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets whether to request streaming lists. By default they are requested if the source
    /// supports them, unless the environment variable `KUBE_FEATURE_WatchListClient` is `false`, as
    /// in client-go.
    pub fn watch_list(mut self, enabled: bool) -> Self {
        self.settings.watch_list = enabled && self.source.supports_watch_list();
        self
    }

    /// Lists in pages of this size. By default a consistent list is read in pages of 500, and a
    /// list at a known `resourceVersion` in one piece, which the server can answer from memory.
    pub fn page_size(mut self, items: u32) -> Self {
        self.settings.page_size = Some(items).filter(|items| *items > 0);
        self
    }

    /// Sets the minimum timeout of watches. Each watch gets a random timeout between this and twice
    /// this. Five minutes is both the default and the lower bound.
    pub fn min_watch_timeout(mut self, time: Duration) -> Self {
        self.settings.watch_timeout = time.max(MIN_WATCH_TIMEOUT);
        self
    }

    /// Sets for how long internal server errors in a watch lead to a new watch rather than a new
    /// list, as client-go's `MaxInternalErrorRetryDuration` does. Zero, the default, always lists.
    ///
    /// Use it for kinds with very many objects, where a list is far more expensive for a struggling
    /// server than a watch.
    pub fn max_internal_error_retry(mut self, time: Duration) -> Self {
        self.settings.internal_error_retry = time;
        self
    }

    /// Sets how long a watch may be silent before it is reopened; two minutes by default.
    ///
    /// Servers send a bookmark about once a minute even if nothing changes, so this applies as soon
    /// as the first bookmark has arrived. Without bookmarks, a watch is closed half a minute after
    /// its own timeout. `None` leaves only the latter.
    pub fn watchdog(mut self, limit: Option<Duration>) -> Self {
        self.timeouts.watchdog = limit;
        self
    }

    /// Sets how long a streaming list may be silent and how long it may take in total before the
    /// reflector falls back to pages; 15 seconds and two minutes by default.
    pub fn watch_list_timeouts(mut self, idle: Duration, total: Duration) -> Self {
        self.timeouts.marker_idle = idle;
        self.timeouts.marker_total = total;
        self
    }

    /// Sets whether to compare each streaming list with a list at the same `resourceVersion`.
    ///
    /// Use it to test a server or a proxy; it costs a full list each time. A difference is reported
    /// as a failure of the streaming list, and the reflector falls back to pages. Differs from
    /// client-go, whose `KUBE_WATCHLIST_INCONSISTENCY_DETECTOR` panics.
    pub fn verify_watch_lists(mut self, verify: bool) -> Self {
        self.verify_watch_lists = verify;
        self
    }

    /// Returns the sink that the reflector feeds.
    pub fn sink(&self) -> &Arc<S> {
        &self.sink
    }

    /// Returns a receiver of the reflector's status.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Runs until `stop` is cancelled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the reflector and closes its watch just as cancelling `stop` does,
    /// except that the status does not become [`Phase::Stopped`].
    pub async fn run(self, stop: &CancellationToken) {
        let counters = self
            .metrics
            .set::<ReflectorMetrics>()
            .of(self.source.resource());
        let status = self.status.clone();
        let mut runner = Runner::new(self, counters);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            never = runner.run() => match never {},
        }
        drop(runner);
        status.send_modify(|status| status.phase = Phase::Stopped);
    }
}

impl<K: Kind, L: ListWatch, S> fmt::Debug for Reflector<K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("source", &self.source.describe())
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}

/// Returns whether a feature gate is enabled, by the environment variable that client-go reads.
fn gate(name: &str, default: bool) -> bool {
    match std::env::var(format!("KUBE_FEATURE_{name}")) {
        Ok(value) => gate_value(&value).unwrap_or(default),
        Err(_) => default,
    }
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
fn gate_value(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// An object in a list that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's UID, if at least that could be read.
    pub uid: Option<String>,
}

impl Unread {
    /// Returns whether `cached` may be an earlier state of this object, rather than another object
    /// of the same name.
    pub(crate) fn may_be<K>(&self, cached: &Object<K>) -> bool {
        let uid = self.uid.as_deref().unwrap_or_default();
        uid.is_empty() || cached.uid().is_empty() || uid == cached.uid()
    }
}

/// Receives the objects and events that a [`Reflector`] reads, in the server's order. client-go
/// calls this a `ReflectorStore`.
///
/// [`DeltaFifo`](crate::delta_fifo::DeltaFifo) implements it. Implement it yourself to reflect into
/// a store of your own, without the cache and the handlers of an informer. No method but
/// [`ready`](Sink::ready) may block.
///
/// # Examples
///
/// ```
/// use std::{collections::BTreeSet, sync::Mutex};
///
/// use pintle::cache::{Object, ObjectKey};
/// use pintle::reflector::Sink;
///
/// /// The keys of all objects that exist.
/// #[derive(Default)]
/// struct Keys(Mutex<BTreeSet<ObjectKey>>);
///
/// impl<K: Send + Sync + 'static> Sink<K> for Keys {
///     fn replace(&self, items: Vec<Object<K>>, _resource_version: &str) {
///         *self.0.lock().unwrap() = items.iter().map(|item| item.key().clone()).collect();
///     }
///
///     fn add(&self, object: Object<K>) {
///         self.0.lock().unwrap().insert(object.key().clone());
///     }
///
///     fn update(&self, _: Object<K>) {}
///
///     fn delete(&self, object: Object<K>) {
///         self.0.lock().unwrap().remove(object.key());
///     }
///
///     fn bookmark(&self, _resource_version: &str) {}
///
///     fn resync(&self) {}
///
///     async fn ready(&self) {}
/// }
/// ```
pub trait Sink<K>: Send + Sync + 'static {
    /// Replaces all objects with those of a list at this `resourceVersion`.
    fn replace(&self, items: Vec<Object<K>>, resource_version: &str);

    /// Like [`replace`](Sink::replace), with objects that exist but could not be read.
    ///
    /// The sink may retain an earlier state of such an object if the UIDs match. The default
    /// implementation treats them as deleted.
    fn replace_with_unread(
        &self,
        items: Vec<Object<K>>,
        unread: Vec<Unread>,
        resource_version: &str,
    ) {
        drop(unread);
        self.replace(items, resource_version);
    }

    /// Adds a new object.
    fn add(&self, object: Object<K>);

    /// Updates an object.
    fn update(&self, object: Object<K>);

    /// Deletes an object; this is its last state.
    fn delete(&self, object: Object<K>);

    /// Records that the watch has reached this `resourceVersion`.
    fn bookmark(&self, resource_version: &str);

    /// Requests a resync: every cached object is delivered again, without a request to the server.
    fn resync(&self);

    /// Waits until there is room for another entry.
    ///
    /// The reflector waits before each entry without reading from the server, so that a
    /// slow consumer slows the stream down instead of filling memory.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe.
    fn ready(&self) -> impl Future<Output = ()> + Send;
}
