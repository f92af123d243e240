//! One handler: its buffer, its progress, and the loop that feeds it.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use tokio::{sync::watch, time::Instant};

use super::{
    buffer::{Backlog, Buffer},
    event::Event,
    filter::Filter,
    metrics::HandlerMetrics,
};
use crate::{
    clock,
    object::panic_message,
    sync::{self, Mutex},
};

/// An event on its way to all handlers, with what each of them would have to find out.
pub(super) struct Told<K> {
    pub(super) event: Event<K>,
    /// It says nothing new, so only handlers that asked to be told again hear it.
    pub(super) resync: bool,
}

impl<K> From<Event<K>> for Told<K> {
    fn from(event: Event<K>) -> Self {
        let resync = event.is_resync();
        Self { event, resync }
    }
}

/// How far a handler has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) synced: bool,
    pub(super) ended: bool,
}

/// A handler as the informer sees it.
///
/// It is open until it is removed or the informer stops; closed, it takes nothing and hands out
/// nothing, and it has ended when its last call is over. It has synced when the informer has told
/// it everything that was there, and it has returned from all of that.
pub(super) struct Handler<K> {
    pub(super) name: String,
    state: Mutex<State<K>>,
    waker: AtomicWaker,
    progress: watch::Sender<Progress>,
    metrics: HandlerMetrics,
}

struct State<K> {
    buffer: Buffer<K>,
    closed: bool,
    /// Everything that was there is in the buffer or was taken out of it.
    told_initial: bool,
    /// The event being handled is one of those.
    handling_initial: bool,
    resync: Resync,
    panics: u64,
}

/// When a handler wants to be told everything once more.
pub(super) struct Resync {
    pub(super) period: Option<Duration>,
    pub(super) next: Instant,
    /// Whether events that say nothing new are for it. So at first, until a check says otherwise.
    pub(super) syncing: bool,
}

impl<K> Handler<K> {
    pub(super) fn new(
        name: String,
        backlog: Backlog,
        resync: Resync,
        metrics: HandlerMetrics,
    ) -> Self {
        let state = State {
            buffer: Buffer::new(backlog),
            closed: false,
            told_initial: false,
            handling_initial: false,
            resync,
            panics: 0,
        };
        Self {
            name,
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            progress: watch::Sender::new(Progress::default()),
            metrics,
        }
    }

    /// Takes events in; those that say nothing new only if the handler is to hear them.
    pub(super) fn tell<'a>(&self, events: impl Iterator<Item = &'a Told<K>>)
    where
        K: 'a,
    {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let merged = state.buffer.coalesced();
            for told in events {
                if !told.resync || state.resync.syncing {
                    state.buffer.push(told.event.clone());
                }
            }
            self.metrics
                .waiting(state.buffer.len(), state.buffer.coalesced() - merged);
            self.settle(&state);
        }
        sync::turn();
        self.waker.wake();
    }

    /// Notes that everything that was there has been told.
    pub(super) fn told_initial(&self) {
        let mut state = self.state.lock();
        state.told_initial = true;
        self.settle(&state);
    }

    /// Whether the handler is due to be told everything again at `now`, and from then on syncing.
    pub(super) fn check_resync(&self, now: Instant, tolerance: Duration) -> bool {
        let resync = &mut self.state.lock().resync;
        let soon = clock::after(now, tolerance);
        let due = resync.period.filter(|_| resync.next <= soon);
        if let Some(period) = due {
            resync.next = clock::after(now, period);
        }
        resync.syncing = due.is_some();
        resync.syncing
    }

    /// Raises the resync period to the informer's.
    pub(super) fn adjust_resync(&self, adjust: impl FnOnce(Option<Duration>) -> Option<Duration>) {
        let resync = &mut self.state.lock().resync;
        resync.period = adjust(resync.period);
    }

    /// Takes nothing and hands out nothing from now on.
    pub(super) fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            let backlog = Backlog::Lossless;
            std::mem::replace(&mut state.buffer, Buffer::new(backlog))
        };
        self.metrics.waiting(0, 0);
        drop(dropped);
        sync::turn();
        self.waker.wake();
    }

    /// Says that the last call is over.
    pub(super) fn end(&self) {
        self.close();
        self.progress.send_modify(|progress| progress.ended = true);
    }

    /// The next event; none when closed. Asking says that the event before it was handled.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.waker.register(context.waker());
        let mut state = self.state.lock();
        if std::mem::take(&mut state.handling_initial) {
            self.settle(&state);
        }
        if state.closed {
            return Poll::Ready(None);
        }
        let Some(event) = state.buffer.pop() else {
            return Poll::Pending;
        };
        state.handling_initial = event.is_initial();
        self.metrics.waiting(state.buffer.len(), 0);
        Poll::Ready(Some(event))
    }

    fn settle(&self, state: &State<K>) {
        let done = state.told_initial && !state.handling_initial && state.buffer.initial() == 0;
        if done && !state.closed && !self.progress.borrow().synced {
            self.progress.send_modify(|progress| progress.synced = true);
        }
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn panicked(&self, what: &'static str, panic: &(dyn std::any::Any + Send)) {
        self.state.lock().panics += 1;
        self.metrics.panicked();
        tracing::error!(handler = self.name, "{what} {}", panic_message(panic));
    }

    /// How many events wait, if it is many.
    fn lag(&self) -> Option<i64> {
        Some(self.metrics.shown()).filter(|waiting| *waiting > 1024)
    }

    /// Names a handler that is slow while many events wait: it must not block.
    fn warn_if_slow(&self, waiting: i64, took: Duration) {
        if took > Duration::from_millis(100) {
            tracing::warn!(handler = self.name, waiting, ?took, "a handler is slow");
        }
    }

    pub(super) fn panics(&self) -> u64 {
        self.state.lock().panics
    }

    pub(super) fn pending(&self) -> usize {
        self.state.lock().buffer.len()
    }
}

impl<K> fmt::Debug for Handler<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Handlers and filters are plain functions, so it is up to us to let others have a turn after this
/// many calls.
const TURN: usize = 128;

/// The receiving end of a handler. Dropping it ends the handler.
pub(super) struct Consumer<K> {
    pub(super) handler: Arc<Handler<K>>,
    pub(super) filter: Option<Filter<K>>,
}

impl<K> Consumer<K> {
    /// The next event that passes the filter.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        for _ in 0..TURN {
            let event = match self.handler.poll_next(context) {
                Poll::Ready(Some(event)) => event,
                other => return other,
            };
            let passed = match &mut self.filter {
                None => Some(event),
                Some(filter) => filter.pass(event, &self.handler),
            };
            if passed.is_some() {
                return Poll::Ready(passed);
            }
        }
        // A filter that rejects everything must not keep the thread.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Calls `handle` with each event until the handler is closed.
    pub(super) async fn run(mut self, mut handle: impl FnMut(Event<K>)) {
        let mut calls = 0_usize;
        while let Some(event) = std::future::poll_fn(|context| self.poll_next(context)).await {
            // The handler is only ever called again by this loop, which tells it the next event as
            // if nothing had happened: level-triggered code recovers, and others asked for it.
            let lag = self.handler.lag();
            let started = lag.map(|_| Instant::now());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handle(event))) {
                self.handler.panicked("a handler", panic.as_ref());
            }
            if let (Some(waiting), Some(started)) = (lag, started) {
                self.handler.warn_if_slow(waiting, started.elapsed());
            }
            calls += 1;
            if calls.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        // What the handler holds goes before anybody learns that it has ended.
        drop(handle);
    }
}

impl<K> Drop for Consumer<K> {
    fn drop(&mut self) {
        self.handler.end();
    }
}
