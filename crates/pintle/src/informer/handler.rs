//! One handler: its buffer, its progress, its filter, and the loop that calls it.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use hashbrown::HashSet;
use tokio::{sync::watch, time::Instant};

use super::{
    buffer::Buffer,
    event::{Deleted, Event},
    metrics::HandlerMetrics,
};
use crate::{
    clock,
    object::{Object, ObjectKey, panic_message},
    sync::{self, Mutex},
};

/// An event on its way to all handlers, with a property that each of them would otherwise have to
/// compute.
pub(super) struct Notification<K> {
    pub(super) event: Event<K>,
    /// Whether the event carries no change, so that only handlers due for a resync get it.
    pub(super) resync: bool,
}

impl<K> From<Event<K>> for Notification<K> {
    fn from(event: Event<K>) -> Self {
        let resync = event.is_resync();
        Self { event, resync }
    }
}

/// The progress of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) synced: bool,
    pub(super) ended: bool,
}

/// A handler as the informer sees it.
///
/// A handler is open until it is removed or the informer stops. Once closed, it accepts and returns
/// no events, and it has ended when its last call has returned. It has synced once the informer has
/// delivered every initial object and the handler has returned from all of them.
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
    /// Whether every initial object is in the buffer or was taken out of it.
    initial_delivered: bool,
    /// Whether the event being handled is an initial one.
    handling_initial: bool,
    resync: Resync,
    panics: u64,
}

/// When a handler is due for a resync.
pub(super) struct Resync {
    pub(super) period: Option<Duration>,
    pub(super) next: Instant,
    /// Whether the handler gets events without a change. True until the first check.
    pub(super) syncing: bool,
}

impl<K> Handler<K> {
    pub(super) fn new(
        name: String,
        coalesce_beyond: Option<usize>,
        resync: Resync,
        metrics: HandlerMetrics,
    ) -> Self {
        let state = State {
            buffer: Buffer::new(coalesce_beyond),
            closed: false,
            initial_delivered: false,
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

    /// Buffers events; those without a change only if the handler is due for a resync.
    pub(super) fn notify<'a>(&self, events: impl Iterator<Item = &'a Notification<K>>)
    where
        K: 'a,
    {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let merged = state.buffer.coalesced();
            for notification in events {
                if !notification.resync || state.resync.syncing {
                    state.buffer.push(notification.event.clone());
                }
            }
            self.metrics
                .waiting(state.buffer.len(), state.buffer.coalesced() - merged);
            self.update_synced(&state);
        }
        sync::yield_point();
        self.waker.wake();
    }

    /// Records that every initial object has been buffered.
    pub(super) fn initial_delivered(&self) {
        let mut state = self.state.lock();
        state.initial_delivered = true;
        self.update_synced(&state);
    }

    /// Returns whether the handler is due for a resync at `now`, and schedules the next one.
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

    /// Replaces the requested resync period with the effective one.
    pub(super) fn adjust_resync(&self, adjust: impl FnOnce(Option<Duration>) -> Option<Duration>) {
        let resync = &mut self.state.lock().resync;
        resync.period = adjust(resync.period);
    }

    /// Drops the waiting events; from now on the handler accepts and returns none.
    pub(super) fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::replace(&mut state.buffer, Buffer::new(None))
        };
        self.metrics.waiting(0, 0);
        drop(dropped);
        sync::yield_point();
        self.waker.wake();
    }

    /// Closes the handler and reports that its last call has returned.
    pub(super) fn end(&self) {
        self.close();
        self.progress.send_modify(|progress| progress.ended = true);
    }

    /// Polls for the next event; ready with `None` once the handler is closed. Polling marks the
    /// previous event as handled.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.waker.register(context.waker());
        let mut state = self.state.lock();
        if std::mem::take(&mut state.handling_initial) {
            self.update_synced(&state);
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

    fn update_synced(&self, state: &State<K>) {
        let done =
            state.initial_delivered && !state.handling_initial && state.buffer.initial() == 0;
        if done && !state.closed && !self.progress.borrow().synced {
            self.progress.send_modify(|progress| progress.synced = true);
        }
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Counts and logs a panic of user code, described by `code`.
    fn panicked(&self, code: &'static str, panic: &(dyn std::any::Any + Send)) {
        self.state.lock().panics += 1;
        self.metrics.panicked();
        let error = panic_message(panic);
        tracing::error!(
            handler = self.name,
            code,
            error,
            "user code panicked; continuing"
        );
    }

    /// Returns the number of waiting events if it is large.
    fn lag(&self) -> Option<i64> {
        Some(self.metrics.shown()).filter(|waiting| *waiting > 1024)
    }

    /// Warns about a handler that blocks while many events wait.
    fn warn_if_slow(&self, waiting: i64, took: Duration) {
        if took > Duration::from_millis(100) {
            tracing::warn!(
                handler = self.name,
                waiting,
                ?took,
                "handler is slow; buffering its events"
            );
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

/// Handlers and filters are synchronous, so tokio cannot preempt them: yield after this many calls.
const CALLS_PER_YIELD: usize = 128;

/// The receiving end of a handler. Dropping it ends the handler.
pub(super) struct Consumer<K> {
    pub(super) handler: Arc<Handler<K>>,
    pub(super) filter: Option<Filter<K>>,
}

impl<K> Consumer<K> {
    /// Polls for the next event that passes the filter.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        for _ in 0..CALLS_PER_YIELD {
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
        // A filter that rejects everything must not monopolize the thread.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Calls `handle` with each event until the handler is closed.
    ///
    /// A panic is contained and the next event is delivered as if nothing had happened:
    /// level-triggered code recovers on its own.
    pub(super) async fn run(mut self, mut handle: impl FnMut(Event<K>)) {
        let mut calls = 0_usize;
        while let Some(event) = std::future::poll_fn(|context| self.poll_next(context)).await {
            let lag = self.handler.lag();
            let started = lag.map(|_| Instant::now());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handle(event))) {
                self.handler.panicked("handler", panic.as_ref());
            }
            if let (Some(waiting), Some(started)) = (lag, started) {
                self.handler.warn_if_slow(waiting, started.elapsed());
            }
            calls += 1;
            if calls.is_multiple_of(CALLS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
        }
        // Drop the handler's captured values before `ended` resolves.
        drop(handle);
    }
}

impl<K> Drop for Consumer<K> {
    fn drop(&mut self) {
        self.handler.end();
    }
}

type Predicate<K> = dyn FnMut(&Object<K>) -> bool + Send;

/// Turns events of all objects into events of the objects that match a predicate.
///
/// An object that starts to match is added, one that stops matching is deleted. The filter
/// remembers which objects it delivered, so a deletion needs no predicate: it is delivered if and
/// only if the object was, whatever its last state looks like.
pub(super) struct Filter<K> {
    predicate: Box<Predicate<K>>,
    delivered: HashSet<ObjectKey>,
}

impl<K> Filter<K> {
    pub(super) fn new(predicate: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        Self {
            predicate: Box::new(predicate),
            delivered: HashSet::new(),
        }
    }

    fn pass(&mut self, event: Event<K>, handler: &Handler<K>) -> Option<Event<K>> {
        match event {
            Event::Added { object, initial } => {
                let matches = self.matches(&object, handler);
                self.record(object.key(), matches);
                matches.then_some(Event::Added { object, initial })
            }
            Event::Updated { old, new } => {
                let matched = self.delivered.contains(new.key());
                let matches = self.matches(&new, handler);
                self.record(new.key(), matches);
                match (matched, matches) {
                    (true, true) => Some(Event::Updated { old, new }),
                    (false, true) => Some(Event::Added {
                        object: new,
                        initial: false,
                    }),
                    (true, false) => Some(Event::Deleted(Deleted::exact(old))),
                    (false, false) => None,
                }
            }
            Event::Deleted(deleted) => self
                .delivered
                .remove(&deleted.key)
                .then_some(Event::Deleted(deleted)),
        }
    }

    fn record(&mut self, key: &ObjectKey, matches: bool) {
        if matches {
            self.delivered.insert(key.clone());
        } else {
            self.delivered.remove(key);
        }
    }

    /// Evaluates the predicate. A panic counts as a match, so that no event is lost to it.
    fn matches(&mut self, object: &Object<K>, handler: &Handler<K>) -> bool {
        let predicate = &mut self.predicate;
        catch_unwind(AssertUnwindSafe(|| predicate(object))).unwrap_or_else(|panic| {
            handler.panicked("handler's filter", panic.as_ref());
            true
        })
    }
}
