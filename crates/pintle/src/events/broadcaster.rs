//! Takes occurrences from every recorder and hands each to every sink.

use std::{
    env, fmt, fs, mem,
    panic::{AssertUnwindSafe, catch_unwind},
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
    delivery::{Ending, Inbox, Jitter, Patience},
    events_v1::SeriesWriter,
    log,
    metrics::{EventMetrics, SinkCounters},
    occurrence::{Occurrence, event_name},
    recorder::EventRecorder,
    sink::{ApiSink, EventSink, SinkError},
};
use crate::{
    clock::{Clock, Rng},
    metrics::Metrics,
};

/// How many occurrences wait for one sink at most.
const QUEUE: usize = 1000;

/// Hands what recorders record to any number of sinks.
///
/// Each sink has its own task and its own queue of 1000: a slow or failing one loses its own events
/// (and counts them) and nobody else's. A sink sees what is recorded after it was started.
///
/// A broadcaster is *open* until [`shutdown`](Self::shutdown), then *flushing* until the queues are
/// empty or the deadline has passed, then *closed*. Recording into one that is no longer open does
/// nothing but count. One that is dropped together with its recorders writes what is queued.
///
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
/// recorder.event(&pod, EventType::Normal, "Scaled", "three replicas now");
///
/// let flushed = broadcaster.shutdown(Duration::from_secs(5)).await;
/// assert_eq!(flushed.left, 0);
/// # }
/// ```
///
/// # Comparison to client-go
///
/// Recording puts an event straight into the sinks' queues: there is no second queue in between
/// that could be full. Shutting down writes what is queued, where client-go forgets it.
#[derive(Clone)]
pub struct EventBroadcaster {
    shared: Arc<Shared>,
}

/// Sets up an [`EventBroadcaster`].
#[derive(Debug, Default)]
pub struct EventBroadcasterBuilder {
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    host: Option<String>,
}

/// What recorders and the broadcaster's handles have in common. Tasks do not hold it: when the last
/// handle goes, the queues close and the tasks end.
pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
    rng: Rng,
    metrics: EventMetrics,
    host: Option<String>,
    tasks: TaskTracker,
    ending: Ending,
    left: Arc<AtomicUsize>,
}

struct State {
    open: bool,
    /// The time in the name given last: names are told apart by time, and a clock may stand still.
    last_nanos: i128,
    started: u64,
    outlets: Vec<Outlet>,
}

/// The near end of a sink's queue.
struct Outlet {
    id: u64,
    queue: mpsc::Sender<Arc<Occurrence>>,
    counters: SinkCounters,
    /// Whether the last occurrence did not fit: a full queue is reported once, not per event.
    overflowing: bool,
}

/// What a broadcaster could not do before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Flushed {
    /// How many events were still unwritten, over all sinks.
    pub left: usize,
}

/// A sink that was started. It may be ignored: dropping it stops nothing.
#[derive(Clone)]
pub struct SinkHandle {
    id: u64,
    shared: Weak<Shared>,
}

// === impl EventBroadcasterBuilder ===

impl EventBroadcasterBuilder {
    /// Where timestamps and names get their time from.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where jitter and random names come from.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Where the counters are registered.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The machine named as the source of events. Few controllers say it; agents of a node do.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// The broadcaster, open and without sinks.
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
                ending: Ending::default(),
                left: Arc::default(),
            }),
        }
    }
}

// === impl EventBroadcaster ===

impl EventBroadcaster {
    /// A broadcaster on the machine's clock, with metrics of its own.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets clock, RNG, metrics or host first.
    pub fn builder() -> EventBroadcasterBuilder {
        EventBroadcasterBuilder::default()
    }

    /// A recorder of events reported by `component`, the name of a controller.
    pub fn recorder(&self, component: impl Into<String>) -> EventRecorder {
        EventRecorder::new(Arc::clone(&self.shared), component.into())
    }

    /// Starts writing core/v1 events to `sink`: similar ones combined, repeats as counts, chatty
    /// objects held back.
    ///
    /// Like every `start_…` it spawns a task, so it must be called inside a tokio runtime.
    pub fn start_recording_to_sink(&self, sink: impl EventSink<Event>) -> SinkHandle {
        self.start("core/v1", |inbox| Writer::new(sink, inbox).run())
    }

    /// Starts writing events.k8s.io/v1 events to `sink`: repeats, whatever their message, become
    /// series.
    pub fn start_recording_series_to_sink(
        &self,
        sink: impl EventSink<events::v1::Event>,
    ) -> SinkHandle {
        self.start("events.k8s.io/v1", |inbox| {
            SeriesWriter::new(sink, inbox, machine()).run()
        })
    }

    /// Starts writing events to the API server in the newest form it knows: events.k8s.io/v1, or
    /// core/v1 if discovery does not show that. Until the server has been asked, events wait.
    pub fn start_recording(&self, client: Client) -> SinkHandle {
        let sink = ApiSink::new(client);
        let asked = sink.clone();
        self.start_by_discovery(sink, move || {
            let sink = asked.clone();
            async move { sink.knows_events_v1().await }
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
            match inbox.patience.persist(Jitter::EveryWait, discover).await {
                Some(Ok(())) => SeriesWriter::new(sink, inbox, machine()).run().await,
                Some(Err(error)) => {
                    tracing::debug!(%error, "no events.k8s.io/v1 here, events go to core/v1");
                    Writer::new(sink, inbox).run().await;
                }
                None => inbox.leave(0),
            }
        })
    }

    /// Starts telling every event to the log (`tracing`, level info).
    pub fn start_logging(&self) -> SinkHandle {
        self.start("log", |inbox| watch(inbox, log::write))
    }

    /// Starts calling `watcher` for every event, one after the other. It must not block. A panic in
    /// it is contained and counts as a failed event.
    pub fn start_event_watcher(
        &self,
        watcher: impl FnMut(&Occurrence) + Send + 'static,
    ) -> SinkHandle {
        self.start("function", |inbox| watch(inbox, watcher))
    }

    /// Ends recording and gives the sinks until `deadline` from now to write what is queued: one
    /// try for each event, without waits between tries.
    ///
    /// Cancel safe: dropped half-way, the sinks go on flushing, and it can be called again.
    pub async fn shutdown(&self, deadline: Duration) -> Flushed {
        let Shared {
            state,
            tasks,
            ending,
            left,
            ..
        } = &*self.shared;
        let outlets = {
            let mut state = state.lock();
            state.open = false;
            mem::take(&mut state.outlets)
        };
        drop(outlets);
        ending.flush.cancel();
        tasks.close();
        if tokio::time::timeout(deadline, tasks.wait()).await.is_err() {
            ending.cut.cancel();
            tasks.wait().await;
        }
        let left = left.load(Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(left, "events left unwritten at shutdown");
        }
        Flushed { left }
    }

    fn start<F>(&self, name: &str, task: impl FnOnce(Inbox) -> F) -> SinkHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = &self.shared;
        let (sender, queue) = mpsc::channel(QUEUE);
        let counters = shared.metrics.sink(name);
        let inbox = Inbox {
            queue,
            patience: Patience {
                counters: counters.clone(),
                ending: shared.ending.clone(),
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
            tracing::error!(
                sink = name,
                "sink not started: the broadcaster was shut down"
            );
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

/// The task of a sink that is a function.
async fn watch(mut inbox: Inbox, mut watcher: impl FnMut(&Occurrence)) {
    let counters = inbox.patience.counters.clone();
    while let Some(occurrence) = inbox.next().await {
        match catch_unwind(AssertUnwindSafe(|| watcher(&occurrence))) {
            Ok(()) => counters.written.inc(),
            Err(_panic) => {
                tracing::error!(reason = occurrence.reason, "an event watcher panicked");
                counters.failed.inc()
            }
        };
    }
    inbox.leave(0);
}

/// The name of this machine, as far as it can be told without asking the system.
fn machine() -> String {
    let told = env::var("HOSTNAME")
        .ok()
        .or_else(|| fs::read_to_string("/etc/hostname").ok());
    let told = told
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    told.unwrap_or_else(|| "unknown".to_owned())
}

// === impl SinkHandle ===

impl SinkHandle {
    /// Gives the sink no further events. What is queued is still written.
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

    /// Names the occurrence and offers it to every sink. Never waits.
    pub(super) fn record(&self, mut occurrence: Occurrence) {
        let object = occurrence.regarding.name.clone().unwrap_or_default();
        let (open, overflowed) = {
            let mut state = self.state.lock();
            if state.open {
                state.last_nanos = occurrence.at.as_nanosecond().max(state.last_nanos + 1);
                occurrence.name = event_name(&object, state.last_nanos, &self.rng);
                let occurrence = Arc::new(occurrence);
                let full = state
                    .outlets
                    .iter_mut()
                    .filter_map(|outlet| outlet.offer(&occurrence));
                (true, full.count() > 0)
            } else {
                (false, false)
            }
        };
        if !open {
            self.metrics.refused().inc();
            tracing::error!(object, "event not recorded: the broadcaster was shut down");
        } else if overflowed {
            tracing::error!(object, "events are being dropped: a sink's queue is full");
        }
    }

    /// Counts an event that cannot be recorded.
    pub(super) fn refuse(&self) {
        self.metrics.refused().inc();
    }
}

// === impl Outlet ===

impl Outlet {
    /// Queues the occurrence, or drops it; `Some` if the queue has just become full.
    fn offer(&mut self, occurrence: &Arc<Occurrence>) -> Option<()> {
        self.counters.recorded.inc();
        let full = self.queue.try_send(Arc::clone(occurrence)).is_err();
        if full {
            self.counters.dropped.inc();
        }
        let began = full && !self.overflowing;
        self.overflowing = full;
        began.then_some(())
    }
}
