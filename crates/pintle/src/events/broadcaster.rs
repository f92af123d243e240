//! Distributes recorded events to sinks.

use std::{
    env, fmt, fs, mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Event, events};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{
    core_v1::Writer,
    delivery::{Inbox, Jitter, Retry, Shutdown},
    events_v1::SeriesWriter,
    metrics::{EventMetrics, SinkCounters},
    occurrence::{Occurrence, event_name},
    recorder::EventRecorder,
    sink::{ApiSink, EventSink, SinkError},
    watcher,
};
use crate::{
    clock::{Clock, Rng},
    metrics::Metrics,
};

/// The capacity of each sink's queue.
const QUEUE_CAPACITY: usize = 1000;

/// Distributes recorded events to any number of sinks.
///
/// Each sink has its own task and its own queue of 1,000 events: a slow or failing sink drops (and
/// counts) only its own events. A sink receives the events recorded after it was started.
///
/// A broadcaster is *open* until [`shutdown`](Self::shutdown), then *flushing* until the queues are
/// empty or the deadline has passed, then *closed*. Once it is no longer open, recording only
/// counts the event. If the broadcaster and its recorders are dropped, queued events are still
/// written.
///
/// # Examples
/// ```no_run
/// # async fn example(client: kube::Client, pod: k8s_openapi::api::core::v1::Pod) {
/// use pintle::events::{ApiSink, EventBroadcaster, EventType};
/// use std::time::Duration;
///
/// let broadcaster = EventBroadcaster::new();
/// broadcaster.start_logging();
/// broadcaster.start_recording_to_sink(ApiSink::new(client));
///
/// let recorder = broadcaster.recorder("my-controller");
/// recorder.event(&pod, EventType::Normal, "Scaled", "scaled to 3 replicas");
///
/// let flushed = broadcaster.shutdown(Duration::from_secs(5)).await;
/// assert_eq!(flushed.left, 0);
/// # }
/// ```
///
/// # Comparison to client-go
///
/// Recording puts an event straight into the queues of the sinks: there is no intermediate queue
/// that could overflow. Shutting down writes the queued events, which client-go drops.
#[derive(Clone)]
pub struct EventBroadcaster {
    shared: Arc<Shared>,
}

/// Configures an [`EventBroadcaster`].
#[derive(Debug, Default)]
pub struct EventBroadcasterBuilder {
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    host: Option<String>,
}

/// Shared by the recorders and handles of a broadcaster, but not by the tasks: when the last handle
/// is dropped, the queues close and the tasks end.
pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
    rng: Rng,
    metrics: EventMetrics,
    host: Option<String>,
    tasks: TaskTracker,
    shutdown: Shutdown,
    left: Arc<AtomicUsize>,
}

struct State {
    open: bool,
    /// The time in the last name. Names differ only by time, and the clock may not advance between
    /// two events.
    last_nanos: i128,
    started: u64,
    outlets: Vec<Outlet>,
}

/// The sending end of a sink's queue.
struct Outlet {
    id: u64,
    queue: mpsc::Sender<Arc<Occurrence>>,
    counters: SinkCounters,
    /// Whether the last occurrence did not fit, so that a full queue is logged once, not per event.
    overflowing: bool,
}

/// The result of [`EventBroadcaster::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Flushed {
    /// The number of events that were abandoned at the deadline, over all sinks.
    pub left: usize,
}

/// A handle to a running sink. Dropping it does not stop the sink.
#[derive(Clone)]
pub struct SinkHandle {
    id: u64,
    shared: Weak<Shared>,
}

// === impl EventBroadcasterBuilder ===

impl EventBroadcasterBuilder {
    /// Sets the clock for timestamps and names.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of jitter and random names.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Sets where metrics are registered.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets the host named as the source of events. Agents on a node set it, controllers rarely do.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Builds the broadcaster, open and without sinks.
    pub fn build(self) -> EventBroadcaster {
        let state = State {
            open: true,
            last_nanos: 0,
            started: 0,
            outlets: Vec::new(),
        };
        EventBroadcaster {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                clock: self.clock,
                rng: self.rng,
                metrics: self.metrics.set(),
                host: self.host,
                tasks: TaskTracker::new(),
                shutdown: Shutdown::default(),
                left: Arc::default(),
            }),
        }
    }
}

// === impl EventBroadcaster ===

impl EventBroadcaster {
    /// Returns a broadcaster on the system clock, with its own metrics.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder, to set the clock, metrics or host.
    pub fn builder() -> EventBroadcasterBuilder {
        EventBroadcasterBuilder::default()
    }

    /// Returns a recorder for `component`, usually the name of a controller.
    pub fn recorder(&self, component: impl Into<String>) -> EventRecorder {
        EventRecorder::new(Arc::clone(&self.shared), component.into())
    }

    /// Starts writing `core/v1` events to `sink`: similar events are combined, repeats become
    /// counts, and chatty objects are throttled.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime, as do all `start_` methods.
    pub fn start_recording_to_sink(&self, sink: impl EventSink<Event>) -> SinkHandle {
        self.start("core/v1", |inbox| Writer::new(sink, inbox).run())
    }

    /// Starts writing `events.k8s.io/v1` events to `sink`: repeats, whatever their message, become
    /// series.
    pub fn start_recording_series_to_sink(
        &self,
        sink: impl EventSink<events::v1::Event>,
    ) -> SinkHandle {
        self.start("events.k8s.io/v1", |inbox| {
            SeriesWriter::new(sink, inbox, machine()).run()
        })
    }

    /// Starts writing events to the API server: as `events.k8s.io/v1`, or as `core/v1` if discovery
    /// of that API fails. Events are queued until discovery has responded.
    pub fn start_recording(&self, client: Client) -> SinkHandle {
        let sink = ApiSink::new(client);
        let asked = sink.clone();
        self.start_by_discovery(sink, move || {
            let sink = asked.clone();
            async move { sink.discover_events_v1().await }
        })
    }

    pub(super) fn start_by_discovery<S, F>(
        &self,
        sink: S,
        discover: impl FnMut() -> F + Send + 'static,
    ) -> SinkHandle
    where
        S: EventSink<Event> + EventSink<events::v1::Event>,
        F: Future<Output = Result<(), SinkError>> + Send,
    {
        self.start("api", |mut inbox| async move {
            match inbox.retry.run(Jitter::EveryDelay, discover).await {
                Some(Ok(())) => SeriesWriter::new(sink, inbox, machine()).run().await,
                Some(Err(error)) => {
                    tracing::debug!(%error, "server has no events.k8s.io/v1; writing core/v1 events");
                    Writer::new(sink, inbox).run().await;
                }
                None => inbox.abandon(0),
            }
        })
    }

    /// Starts logging every event (with `tracing`, at level info).
    pub fn start_logging(&self) -> SinkHandle {
        self.start("log", |inbox| watcher::watch(inbox, watcher::log))
    }

    /// Starts calling `watcher` with every event, before events are combined or throttled.
    ///
    /// Use it in tests to assert on the events that a controller records, as client-go programs use
    /// a `FakeRecorder`, or to forward events to another system. The function must not block; a
    /// panic is contained and counts as a failed event.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pintle::events::{EventBroadcaster, EventType};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (seen, events) = mpsc::channel();
    /// let broadcaster = EventBroadcaster::new();
    /// broadcaster.start_event_watcher(move |event| drop(seen.send(event.reason.clone())));
    /// let recorder = broadcaster.recorder("scaler");
    /// recorder.event(&Pod::default(), EventType::Normal, "Scaled", "scaled to 3 replicas");
    /// let _ = broadcaster.shutdown(Duration::from_secs(5)).await;
    /// assert_eq!(events.recv().unwrap(), "Scaled");
    /// # }
    /// ```
    pub fn start_event_watcher(
        &self,
        watcher: impl FnMut(&Occurrence) + Send + 'static,
    ) -> SinkHandle {
        self.start("function", |inbox| watcher::watch(inbox, watcher))
    }

    /// Stops recording and gives the sinks `deadline` to write the queued events: one try for each
    /// event, without retry delays.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the sinks continue to flush; the method can be called again.
    pub async fn shutdown(&self, deadline: Duration) -> Flushed {
        let Shared {
            state,
            tasks,
            shutdown,
            left,
            ..
        } = &*self.shared;
        let outlets = {
            let mut state = state.lock();
            state.open = false;
            mem::take(&mut state.outlets)
        };
        drop(outlets);
        shutdown.flush.cancel();
        tasks.close();
        if tokio::time::timeout(deadline, tasks.wait()).await.is_err() {
            shutdown.abort.cancel();
            tasks.wait().await;
        }
        let left = left.load(Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(left, "shutdown deadline passed; dropping unwritten events");
        }
        Flushed { left }
    }

    fn start<F>(&self, name: &str, task: impl FnOnce(Inbox) -> F) -> SinkHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = &self.shared;
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let counters = shared.metrics.sink(name);
        let inbox = Inbox {
            queue,
            retry: Retry {
                counters: counters.clone(),
                shutdown: shared.shutdown.clone(),
                rng: shared.rng.clone(),
            },
            left: Arc::clone(&shared.left),
        };
        let (id, open) = {
            let mut state = shared.state.lock();
            state.started += 1;
            let id = state.started;
            if state.open {
                let outlet = Outlet {
                    id,
                    queue: sender,
                    counters,
                    overflowing: false,
                };
                state.outlets.push(outlet);
            }
            (id, state.open)
        };
        if open {
            shared.tasks.spawn(task(inbox));
        } else {
            tracing::error!(sink = name, "broadcaster was shut down; not starting sink");
        }
        SinkHandle {
            id,
            shared: Arc::downgrade(shared),
        }
    }
}

impl Default for EventBroadcaster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EventBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("EventBroadcaster")
            .field("open", &state.open)
            .field("sinks", &state.outlets.len())
            .finish()
    }
}

/// Returns this machine's host name from `HOSTNAME` or `/etc/hostname`, or else `unknown`.
fn machine() -> String {
    let name = env::var("HOSTNAME")
        .ok()
        .or_else(|| fs::read_to_string("/etc/hostname").ok());
    let name = name
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "unknown".to_owned())
}

// === impl SinkHandle ===

impl SinkHandle {
    /// Stops the sink from receiving further events. Queued ones are still written.
    pub fn stop(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared
                .state
                .lock()
                .outlets
                .retain(|outlet| outlet.id != self.id);
        }
    }
}

impl fmt::Debug for SinkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn host(&self) -> Option<&String> {
        self.host.as_ref()
    }

    /// Names the occurrence and queues it for every sink. Never waits.
    pub(super) fn record(&self, mut occurrence: Occurrence) {
        let object = occurrence.regarding.name.clone().unwrap_or_default();
        let (open, overflowed) = {
            let mut state = self.state.lock();
            if state.open {
                state.last_nanos = occurrence.at.as_nanosecond().max(state.last_nanos + 1);
                occurrence.name = event_name(&object, state.last_nanos, &self.rng);
                let occurrence = Arc::new(occurrence);
                let mut overflowed = false;
                for outlet in &mut state.outlets {
                    overflowed |= outlet.offer(&occurrence);
                }
                (true, overflowed)
            } else {
                (false, false)
            }
        };
        if !open {
            self.metrics.refused().inc();
            tracing::error!(object, "broadcaster was shut down; dropping event");
        } else if overflowed {
            tracing::error!(object, "queue of a sink is full; dropping events");
        }
    }

    /// Counts an event that cannot be recorded.
    pub(super) fn refuse(&self) {
        self.metrics.refused().inc();
    }
}

// === impl Outlet ===

impl Outlet {
    /// Queues the occurrence or drops it; returns true if the queue has just become full.
    fn offer(&mut self, occurrence: &Arc<Occurrence>) -> bool {
        self.counters.recorded.inc();
        let full = self.queue.try_send(Arc::clone(occurrence)).is_err();
        if full {
            self.counters.dropped.inc();
        }
        let began = full && !self.overflowing;
        self.overflowing = full;
        began
    }
}
