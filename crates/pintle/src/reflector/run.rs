//! The task of a reflector: performs the steps of the state machine and reports the outcomes to it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use tokio::{
    task::consume_budget,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Phase, Reflector, Sink, Timeouts,
    backoff::Delays,
    collect::Collection,
    intake::{Intake, Read},
    machine::{Course, End, Machine, Step, Verdict},
    metrics::Counters,
    pager::{Pager, Paging},
    resync::Resync,
    status::{Failure, Reason},
};
use crate::{
    clock::{self, Rng},
    object::{Kind, Object},
    repeats::Repeat,
    source::{ListOptions, ListWatch, RawItem, SourceError, WatchEvent, peek_resource_version},
};

/// How many events are handled between two checks of the timers.
const BATCH: usize = 64;

/// A watch that lasted this long ends a series of failures, so that the next failure is logged.
const STABLE: Duration = Duration::from_mins(1);

/// A running reflector.
pub(super) struct Runner<K: Kind, L: ListWatch, S> {
    pub(super) source: L,
    pub(super) sink: Arc<S>,
    pub(super) intake: Intake<K>,
    pub(super) machine: Machine,
    rng: Rng,
    resync: Option<Resync>,
    pub(super) timeouts: Timeouts,
    pub(super) verify_watch_lists: bool,
    /// The open watch.
    pub(super) watch: Option<Open<L::Watch>>,
    /// Whether this server sends bookmarks, so that silence means a dead connection.
    sends_bookmarks: bool,
    /// Decides which failures are logged.
    failures: Repeat,
    /// Whether anything has failed since the last open watch.
    failing: bool,
}

/// An open watch.
pub(super) struct Open<W> {
    pub(super) stream: W,
    /// When it was requested.
    since: Instant,
    /// When it should have timed out at the latest.
    until: Instant,
    pub(super) events: u64,
    /// It started with existing objects, which are not ordered by `resourceVersion`, and is still
    /// delivering them.
    unordered: bool,
}

impl<K: Kind, L: ListWatch, S: Sink<K>> Runner<K, L, S> {
    pub(super) fn new(reflector: Reflector<K, L, S>, counters: Counters) -> Self {
        let Reflector {
            source,
            reader,
            sink,
            settings,
            rng,
            resync,
            timeouts,
            ..
        } = reflector;
        let expected = source
            .expected_type()
            .map(|(api, kind)| (api.to_owned(), kind.to_owned()));
        let intake = Intake {
            reader,
            target: source.describe().into(),
            expected,
            counters,
            status: reflector.status,
        };
        Self {
            machine: Machine::new(settings, Delays::new(reflector.backoff, rng.clone())),
            source,
            sink,
            intake,
            rng,
            resync: resync.map(Resync::new),
            timeouts,
            verify_watch_lists: reflector.verify_watch_lists,
            watch: None,
            sends_bookmarks: false,
            failures: Repeat::default(),
            failing: false,
        }
    }

    /// Runs until the future is dropped, which is safe at any point.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            // A source and a sink that are always ready must not starve other tasks.
            consume_budget().await;
            let jitter = self.rng.f64();
            let verdict = match self.machine.next(Instant::now(), jitter) {
                Step::WatchList(options) => self.watch_list(options).await,
                Step::List(pager) => self.list(pager).await,
                Step::Watch(options) => self.open(options).await,
                Step::Follow => Some(self.read_open_watch().await),
            };
            if let Some(verdict) = verdict {
                self.back_off(verdict).await;
            }
        }
    }

    /// Reports a failure and waits for the delay in the verdict.
    async fn back_off(&mut self, verdict: Verdict) {
        let Verdict {
            wait,
            cause,
            watching,
        } = verdict;
        let Some((during, reason)) = cause else {
            return;
        };
        self.refresh_target();
        let failure = Arc::new(Failure {
            during,
            target: self.intake.target.clone(),
            reason,
        });
        let Some(after) = wait else {
            tracing::debug!(target: "pintle::reflector", error = %failure, "retrying immediately");
            self.intake.status.send_modify(|status| {
                status.lose(Instant::now());
                status.failure = Some(failure);
            });
            return;
        };
        self.intake.counters.failures.inc();
        self.report(&failure, after);
        self.intake.status.send_modify(|status| {
            status.lose(Instant::now());
            status.failure = Some(failure.clone());
            status.phase = Phase::Retrying {
                after,
                cause: failure,
            };
        });
        if !watching {
            self.stop_resync();
        }
        let until = clock::after(Instant::now(), after);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                () = Resync::due(&mut self.resync) => self.sink.resync(),
            }
        }
    }

    /// Logs a failure: the first one as a warning, repetitions at a decreasing rate.
    fn report(&mut self, failure: &Failure, after: Duration) {
        self.failing = true;
        let error = failure.to_string();
        match self.failures.admit(&error, Instant::now()) {
            Some(0) => tracing::warn!(
                target: "pintle::reflector", error, retry_in = ?after,
                "cannot list or watch; retrying"
            ),
            Some(unlogged) => tracing::warn!(
                target: "pintle::reflector", error, retry_in = ?after, unlogged,
                "still cannot list or watch; retrying"
            ),
            None => tracing::debug!(
                target: "pintle::reflector", error, retry_in = ?after,
                "cannot list or watch; retrying"
            ),
        }
    }

    /// Records that a watch is open.
    pub(super) fn watching(&mut self, from: String) {
        if std::mem::take(&mut self.failing) {
            let watching = &self.intake.target;
            tracing::info!(target: "pintle::reflector", %watching, "recovered");
        }
        self.intake.status.send_modify(|status| {
            status.failure = None;
            status.follow(Instant::now());
        });
        self.enter(Phase::Watching { from });
    }

    async fn list(&mut self, pager: Pager) -> Option<Verdict> {
        let started = Instant::now();
        self.enter(Phase::Listing {
            not_older_than: pager.request().resource_version,
            streaming: false,
        });
        match self.read_pages(pager).await {
            Ok((found, version)) => {
                self.replace(found, &version, started).await;
                self.machine.listed(&version, false, Instant::now());
                None
            }
            Err(reason) => Some(self.machine.list_failed(reason, Instant::now())),
        }
    }

    /// Reads a list in pages, without touching the sink.
    pub(super) async fn read_pages(
        &mut self,
        mut pager: Pager,
    ) -> Result<(Collection<K>, String), Reason> {
        let mut found = Collection::new();
        loop {
            let intake = &mut self.intake;
            let mut on_item = |item: RawItem<'_>| {
                intake.item(item, &mut found);
            };
            let response = self.source.list(pager.request(), &mut on_item).await;
            match pager.handle(response)? {
                Paging::More => {}
                Paging::StartOver => found.clear(),
                Paging::Done(version) => return Ok((found, version)),
            }
        }
    }

    async fn open(&mut self, options: ListOptions) -> Option<Verdict> {
        let from = options.resource_version.clone().unwrap_or_default();
        match self.request_watch(options).await {
            Ok(open) => {
                self.watch = Some(open);
                self.machine.opened(Instant::now());
                self.watching(from);
                None
            }
            Err(error) => Some(self.machine.open_failed(error, Instant::now())),
        }
    }

    /// Opens a watch. The server may take as long to respond as a watch may be silent.
    pub(super) async fn request_watch(
        &mut self,
        options: ListOptions,
    ) -> Result<Open<L::Watch>, SourceError> {
        // The timeout starts here: some proxies respond only with the first event.
        let since = Instant::now();
        let until = clock::after(since, options.timeout.unwrap_or_default());
        let until = clock::after(until, self.timeouts.overtime);
        let limit = match self.timeouts.watchdog {
            Some(limit) if self.sends_bookmarks => limit,
            _ => until - since,
        };
        let unordered = !options.send_initial_events
            && matches!(options.resource_version.as_deref(), None | Some("" | "0"));
        self.intake.counters.watches.inc();
        let stream = timeout(limit, self.source.watch(options))
            .await
            .map_err(|_| SourceError::IdleTimeout(limit))??;
        Ok(Open {
            stream,
            since,
            until,
            events: 0,
            unordered,
        })
    }

    /// Reads the open watch until it ends.
    async fn read_open_watch(&mut self) -> Verdict {
        let Some(mut open) = self.watch.take() else {
            // Unreachable: the machine follows only an open watch.
            let course = Course {
                lasted: Duration::MAX,
                events: 0,
            };
            return self
                .machine
                .watch_ended(End::Closed, course, Instant::now());
        };
        if let Some(resync) = &mut self.resync {
            resync.start();
        }
        let end = self.read_watch(&mut open).await;
        let course = open.course();
        drop(open);
        self.intake.status.send_modify(|status| {
            status.lose(Instant::now());
        });
        if course.lasted >= STABLE {
            self.failures = Repeat::default();
        }
        let counters = &self.intake.counters;
        counters.watch_duration.observe(course.lasted.as_secs_f64());
        match &end {
            End::Closed | End::Broken(_) if course.is_very_short() => {
                counters.short_watches.inc();
            }
            End::Silent(_) => {
                counters.silent_watches.inc();
            }
            _ => {}
        }
        self.machine.watch_ended(end, course, Instant::now())
    }

    async fn read_watch(&mut self, open: &mut Open<L::Watch>) -> End {
        let mut last_event = Instant::now();
        let mut watchdog = Box::pin(sleep(Duration::ZERO));
        loop {
            let before = open.events;
            for _ in 0..BATCH {
                if self.sink.ready().now_or_never().is_none() {
                    self.sink.ready().await;
                    // Time spent waiting for the sink does not count as silence.
                    last_event = Instant::now();
                }
                match open.stream.next().now_or_never() {
                    Some(event) => {
                        if let Some(end) = self.handle(open, event) {
                            return end;
                        }
                    }
                    None => break,
                }
            }
            consume_budget().await;
            if open.events > before {
                last_event = Instant::now();
            }
            let deadline = match self.timeouts.watchdog {
                Some(limit) if self.sends_bookmarks => {
                    clock::after(last_event, limit).min(open.until)
                }
                _ => open.until,
            };
            watchdog.as_mut().reset(deadline);
            let event = tokio::select! {
                biased;
                // Poll timers before data, or a busy stream would starve them.
                () = Resync::due(&mut self.resync) => {
                    self.sink.resync();
                    continue;
                }
                () = &mut watchdog => return End::Silent(last_event.elapsed()),
                event = open.stream.next() => event,
            };
            last_event = Instant::now();
            if let Some(end) = self.handle(open, event) {
                return end;
            }
        }
    }

    /// Passes one event to the sink. Returns the reason if this event ended the watch.
    fn handle(
        &mut self,
        open: &mut Open<L::Watch>,
        event: Option<Result<WatchEvent, SourceError>>,
    ) -> Option<End> {
        let event = match event {
            None => return Some(End::Closed),
            Some(Err(error)) => return Some(End::Broken(error)),
            Some(Ok(event)) => event,
        };
        let (json, deliver): (Bytes, fn(&S, Object<K>)) = match event {
            WatchEvent::Added(json) => (json, S::add),
            WatchEvent::Modified(json) => {
                open.unordered = false;
                (json, S::update)
            }
            WatchEvent::Deleted(json) => return self.handle_deleted(open, &json),
            WatchEvent::Bookmark {
                resource_version, ..
            } => {
                open.unordered = false;
                self.sends_bookmarks = true;
                self.sink.bookmark(&resource_version);
                self.advance(open, Some(&resource_version));
                return None;
            }
            WatchEvent::Error(error) => return Some(End::Error(error)),
            WatchEvent::Unknown { kind, object } => {
                self.intake.unknown_event(kind, &object);
                self.advance(open, peek_resource_version(&object).as_deref());
                return None;
            }
        };
        match self.intake.read(&json) {
            Read::Object(object) => {
                deliver(&self.sink, object.clone());
                self.advance(open, Some(object.resource_version()));
            }
            Read::Unreadable { version, .. } => self.advance(open, version.as_deref()),
            Read::Foreign => {}
        }
        None
    }

    /// Like [`handle`](Self::handle), for a deletion. If it cannot be read, only a list can show
    /// which object is gone.
    fn handle_deleted(&mut self, open: &mut Open<L::Watch>, json: &[u8]) -> Option<End> {
        open.unordered = false;
        match self.intake.read(json) {
            Read::Object(object) => {
                self.sink.delete(object.clone());
                self.advance(open, Some(object.resource_version()));
                None
            }
            Read::Unreadable { version, .. } => {
                self.advance(open, version.as_deref());
                Some(End::UnreadableDeletion)
            }
            Read::Foreign => None,
        }
    }

    /// Records that an event with this `resourceVersion` has been handled.
    fn advance(&mut self, open: &mut Open<L::Watch>, version: Option<&str>) {
        open.events += 1;
        if let Some(version) = version.filter(|version| !version.is_empty())
            && !open.unordered
        {
            self.machine.advance(version);
            self.intake.note_version(version);
        }
    }

    pub(super) async fn replace(&mut self, found: Collection<K>, version: &str, started: Instant) {
        self.sink.ready().await;
        let (items, unread) = found.finish();
        let counters = &self.intake.counters;
        counters.lists.inc();
        counters
            .list_duration
            .observe(started.elapsed().as_secs_f64());
        #[allow(
            clippy::cast_precision_loss,
            reason = "a count that large is approximate anyway"
        )]
        counters.items_per_list.observe(items.len() as f64);
        tracing::debug!(
            target: "pintle::reflector",
            listed = %self.intake.target, objects = items.len(), resource_version = version,
            "listed"
        );
        self.sink.replace_with_unread(items, unread, version);
        self.intake.note_version(version);
        self.intake.status.send_modify(|status| {
            status.synced = true;
            status.failure = None;
        });
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.refresh_target();
        tracing::debug!(target: "pintle::reflector", source = %self.intake.target, %phase, "changed phase");
        self.intake
            .status
            .send_modify(|status| status.phase = phase);
    }

    /// Updates the description of the source, whose first request may have looked up the scope.
    fn refresh_target(&mut self) {
        let target = self.source.describe();
        if *self.intake.target != *target {
            self.intake.target = target.into();
            let target = self.intake.target.clone();
            self.intake
                .status
                .send_modify(|status| status.target = target);
        }
    }

    fn stop_resync(&mut self) {
        if let Some(resync) = &mut self.resync {
            resync.stop();
        }
    }
}

impl<W> Open<W> {
    pub(super) fn course(&self) -> Course {
        Course {
            lasted: self.since.elapsed(),
            events: self.events,
        }
    }
}
