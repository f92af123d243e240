//! Streaming lists: reading all objects at the start of a watch.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::{
    task::consume_budget,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Phase, Sink,
    collect::Collection,
    intake::Read,
    machine::Verdict,
    pager::Pager,
    run::{Open, Runner},
    status::Reason,
};
use crate::{
    clock,
    object::Kind,
    source::{ListOptions, ListWatch, SourceError, WatchEvent},
};

/// How long a streaming list may be silent before a warning is logged.
const MARKER_WARNING: Duration = Duration::from_secs(10);

impl<K: Kind, L: ListWatch, S: Sink<K>> Runner<K, L, S> {
    pub(super) async fn watch_list(&mut self, options: ListOptions) -> Option<Verdict> {
        self.enter(Phase::Listing {
            not_older_than: options.resource_version.clone(),
            streaming: true,
        });
        let started = Instant::now();
        let limit = self.timeouts.marker_total;
        let outcome = timeout(limit, self.read_initial_events(options, started)).await;
        match outcome.unwrap_or(Err(Reason::NoEndMarker(limit))) {
            Ok((open, found, version)) => {
                self.replace(found, &version, started).await;
                self.machine.listed(&version, true, Instant::now());
                self.watch = Some(open);
                self.watching(version);
                None
            }
            Err(reason) => Some(self.machine.watch_list_failed(reason, Instant::now())),
        }
    }

    /// Reads a streaming list up to its end marker, without touching the sink.
    async fn read_initial_events(
        &mut self,
        options: ListOptions,
        started: Instant,
    ) -> Result<(Open<L::Watch>, Collection<K>, String), Reason> {
        let mut open = self.request_watch(options).await?;
        let mut found = Collection::new();
        let mut last_event = Instant::now();
        let mut warned = last_event;
        loop {
            consume_budget().await;
            // Timers cost more than events, so they are armed only when no event is ready.
            let ready = open.stream.next().now_or_never();
            let event = if let Some(event) = ready {
                event
            } else {
                tokio::select! {
                    biased;
                    () = sleep_until(clock::after(last_event, self.timeouts.marker_idle)) => {
                        return Err(Reason::NoEndMarker(self.timeouts.marker_idle));
                    }
                    () = sleep_until(warned.max(last_event) + MARKER_WARNING) => {
                        warned = Instant::now();
                        self.intake.warn_missing_marker(open.events, last_event, started);
                        continue;
                    }
                    event = open.stream.next() => event,
                }
            };
            last_event = Instant::now();
            open.events += 1;
            match event {
                Some(Ok(WatchEvent::Added(json) | WatchEvent::Modified(json))) => {
                    match self.intake.read(&json) {
                        Read::Object(object) => found.put(object),
                        Read::Unreadable {
                            unread: Some(unread),
                            ..
                        } => found.put_unread(unread),
                        Read::Unreadable { unread: None, .. } | Read::Foreign => {}
                    }
                }
                Some(Ok(WatchEvent::Deleted(json))) => match self.intake.read(&json) {
                    Read::Object(object) => found.remove(object.key()),
                    Read::Unreadable { .. } => return Err(Reason::UnreadableDeletion),
                    Read::Foreign => {}
                },
                Some(Ok(WatchEvent::Bookmark {
                    resource_version,
                    initial_events_end: true,
                })) => {
                    if self.verify_watch_lists {
                        self.verify(&found, &resource_version).await?;
                    }
                    return Ok((open, found, resource_version));
                }
                Some(Ok(WatchEvent::Bookmark { .. })) => {}
                Some(Ok(WatchEvent::Error(error))) => return Err(SourceError::Api(error).into()),
                Some(Ok(WatchEvent::Unknown { kind, object })) => {
                    self.intake.unknown_event(kind, &object);
                }
                Some(Err(error)) => return Err(error.into()),
                None => {
                    open.events -= 1;
                    return Err(if open.course().is_very_short() {
                        self.intake.counters.short_watches.inc();
                        Reason::VeryShortWatch
                    } else {
                        Reason::ClosedBeforeEnd
                    });
                }
            }
        }
    }

    /// Compares a streaming list with a list at exactly the same `resourceVersion`.
    async fn verify(&mut self, found: &Collection<K>, version: &str) -> Result<(), Reason> {
        let listed = loop {
            match self.read_pages(Pager::exactly(version)).await {
                Ok((listed, _)) => break listed,
                Err(reason) => {
                    tracing::debug!(
                        target: "pintle::reflector", error = %reason,
                        "cannot verify the streaming list; retrying in 1 s"
                    );
                    sleep(Duration::from_secs(1)).await;
                }
            }
        };
        match found.first_difference(&listed) {
            None => Ok(()),
            Some(key) => Err(Reason::Inconsistent(key)),
        }
    }
}
