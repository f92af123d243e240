//! Keeps following a source through every failure.
//!
//! # Flow
//! A [`Reflector`] reads all objects of a [`ListWatch`] into a [`Sink`], then follows their changes
//! from the version of that list. When the watch ends in a normal way it opens the next one from the
//! last version seen. When it cannot go on so, it waits a little and reads everything anew: the sink
//! learns of that as one replacement.
//!
//! # How everything is read
//! As a streaming list, where the server has it: a watch that begins with all objects and marks
//! their end. Otherwise in pages. A server that refuses a streaming list, or never marks its end, is
//! not asked for one again for an hour. The first list is consistent; later ones ask for the last
//! version seen or a newer one, which any server answers from memory, and only if the server
//! cannot serve that, for the newest.
//!
//! # Guarantees
//! - The sink sees the server's order. Versions it is told never go back.
//! - One object that cannot be read is reported and passed over; everything else goes on. It stays
//!   in an informer's cache as it was last read. If a *deletion* could not be read, everything is
//!   read anew, so that nothing stays that is gone.
//! - No failure is repeated in a tight loop: each costs a [delay](Backoff) that grows, and begins
//!   anew only after two healthy minutes.
//! - A watch that goes silent is given up, see [`Reflector::watchdog`].
//! - Each step can be [seen](Reflector::status) with its cause.
//!
//! # Caveats
//! What becomes of an object that cannot be read during a list is for the sink to say, see
//! [`Sink::replace_with_unread`]. One of which not even the name can be read is not in the list.

mod backoff;
mod collect;
mod intake;
mod machine;
mod metrics;
mod pager;
mod run;
mod sink;
mod status;
mod watch_list;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::{
    backoff::Backoff,
    sink::{Sink, Unread},
    status::{During, Failure, Phase, Reason, Status, Unreadable, UnreadableError},
};
use self::{machine::Settings, metrics::ReflectorMetrics, run::Runner};
use crate::{
    clock::Rng,
    metrics::Metrics,
    object::{Kind, Reader},
    source::ListWatch,
};

/// The shortest time limit a watch can have.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// Reads a source into a sink and keeps the sink up to date. See the [module](self).
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
/// use std::sync::{Arc, Mutex};
///
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::cache::{Object, Reader};
/// use pintle::reflector::{Reflector, Sink};
/// use tokio_util::sync::CancellationToken;
///
/// #[derive(Default)]
/// struct Names(Mutex<Vec<String>>);
///
/// impl Sink<Pod> for Names {
///     fn replace(&self, items: Vec<Object<Pod>>, _resource_version: &str) {
///         *self.0.lock().unwrap() = items.iter().map(|pod| pod.key().to_string()).collect();
///     }
/// #   fn add(&self, _: Object<Pod>) {}
/// #   fn update(&self, _: Object<Pod>) {}
/// #   fn delete(&self, _: Object<Pod>) {}
/// #   fn bookmark(&self, _: &str) {}
/// #   fn resync(&self) {}
/// #   async fn ready(&self) {}
///     // … and what follows: add, update, delete, bookmark, resync, ready.
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let names = Arc::new(Names::default());
/// let reflector = Reflector::new(OnePod, Reader::new(), names.clone());
/// let mut status = reflector.status();
/// let stop = CancellationToken::new();
/// tokio::join!(reflector.run(&stop), async {
///     status.wait_for(|status| status.synced).await.unwrap();
///     assert_eq!(*names.0.lock().unwrap(), ["b/a"]);
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
    patience: Patience,
    verify_watch_lists: bool,
    metrics: Metrics,
    status: watch::Sender<Status>,
}

/// How long a reflector waits for a server that says nothing.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// An open watch, once its server is known to send bookmarks.
    watchdog: Option<Duration>,
    /// A watch beyond its own time limit, whether or not bookmarks come.
    overtime: Duration,
    /// A streaming list: between two events, and altogether.
    marker_idle: Duration,
    marker_total: Duration,
}

impl<K: Kind, L: ListWatch, S: Sink<K>> Reflector<K, L, S> {
    /// A reflector of `source` into `sink`. Every object goes through `reader`.
    pub fn new(source: L, reader: Reader<K>, sink: Arc<S>) -> Self {
        let settings = Settings {
            watch_list: gate("WatchListClient", true) && source.supports_watch_list(),
            refusal_memory: Duration::from_hours(1),
            page_size: None,
            internal_error_retry: Duration::ZERO,
            watch_timeout: MIN_WATCH_TIMEOUT,
        };
        let patience = Patience {
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
            patience,
            verify_watch_lists: false,
            metrics: Metrics::new(),
            status: watch::Sender::new(status),
        }
    }

    /// Calls [`Sink::resync`] this often while a watch is open; zero is never, which is the default.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// How to wait between tries.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Where jitter comes from.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Where to count.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Whether to ask for streaming lists: yes, unless the source does not support them or the
    /// environment variable `KUBE_FEATURE_WatchListClient` is `false`, as in client-go.
    pub fn watch_list(mut self, ask: bool) -> Self {
        self.settings.watch_list = ask && self.source.supports_watch_list();
        self
    }

    /// Reads every list in pages of this size. By default a consistent list is read in pages of 500,
    /// and a list at a known version in one piece, which the server can answer from memory.
    pub fn page_size(mut self, items: u32) -> Self {
        self.settings.page_size = Some(items).filter(|items| *items > 0);
        self
    }

    /// The time limit of each watch is drawn from one to two times this. Less than five minutes, the
    /// default, is taken as five minutes.
    pub fn min_watch_timeout(mut self, time: Duration) -> Self {
        self.settings.watch_timeout = time.max(MIN_WATCH_TIMEOUT);
        self
    }

    /// Answers internal errors of the server in a watch with a new watch instead of a new list, while
    /// their run is not longer than this. Zero, the default, is never.
    pub fn max_internal_error_retry(mut self, time: Duration) -> Self {
        self.settings.internal_error_retry = time;
        self
    }

    /// Gives a watch up that was silent for so long, and opens the next one: two minutes by default.
    ///
    /// Servers send a bookmark about once a minute even if nothing changes. So this holds as soon as
    /// one has come; for servers that send none, a watch ends half a minute after its own time limit.
    /// `None` leaves only the latter.
    pub fn watchdog(mut self, silence: Option<Duration>) -> Self {
        self.patience.watchdog = silence;
        self
    }

    /// How long a streaming list may be silent, and how long it may take altogether, before pages
    /// are asked for instead: 15 seconds and two minutes by default.
    pub fn marker_wait(mut self, silent: Duration, altogether: Duration) -> Self {
        self.patience.marker_idle = silent;
        self.patience.marker_total = altogether;
        self
    }

    /// Checks each streaming list against a list of the same version, as tests of a server may want.
    ///
    /// It costs a whole list each time. A difference is an error of the streaming list: it is told, and
    /// pages are read instead. Differs from client-go, whose detector panics.
    pub fn verify_watch_lists(mut self, verify: bool) -> Self {
        self.verify_watch_lists = verify;
        self
    }

    /// Where the reflector puts what it reads: for whoever wants to put something there besides.
    pub fn sink(&self) -> &Arc<S> {
        &self.sink
    }

    /// What the reflector is doing. The receiver sees every later state, too.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Follows the source until `stop` is cancelled.
    ///
    /// Cancel safe: dropping the future stops the reflector, and closes its watch, as cancelling
    /// `stop` does; only the status then does not say so.
    pub async fn run(self, stop: &CancellationToken) {
        let counters = self
            .metrics
            .set::<ReflectorMetrics>()
            .of(self.source.resource());
        let status = self.status.clone();
        let mut runner = Runner::new(self, counters);
        tokio::select! {
            biased;
            // Cancellation first, or a busy stream would keep it waiting.
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

/// Whether a feature gate is on, by the variable that client-go reads, too.
fn gate(name: &str, default: bool) -> bool {
    match std::env::var(format!("KUBE_FEATURE_{name}")) {
        Ok(value) => gate_value(&value).unwrap_or(default),
        Err(_) => default,
    }
}

/// The words Go takes for a truth value.
fn gate_value(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
