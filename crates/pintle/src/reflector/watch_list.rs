//! Reading everything as the beginning of a watch.

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

/// After so much silence of a streaming list somebody should hear of it.
const MARKER_WARNING: Duration = Duration::from_secs(10);

impl<K: Kind, L: ListWatch, S: Sink<K>> Runner<K, L, S> {
    pub(super) async fn watch_list(&mut self, options: ListOptions) -> Option<Verdict> {
        self.enter(Phase::Listing {
            not_older_than: options.resource_version.clone(),
            streaming: true,
        });
        let started = Instant::now();
        let limit = self.patience.marker_total;
        let outcome = timeout(limit, self.read_initial_events(options, started)).await;
        match outcome.unwrap_or(Err(Reason::NoEndMarker(limit))) {
            Ok((open, found, version)) => {
                self.replace(found, &version, started).await;
                self.machine.listed(&version, true, Instant::now());
                self.watch = Some(open);
                self.following(version);
                None
            }
            Err(reason) => Some(self.machine.watch_list_failed(reason, Instant::now())),
        }
    }

    /// Reads a streaming list up to its end. The sink is not touched.
    async fn read_initial_events(
        &mut self,
        options: ListOptions,
        started: Instant,
    ) -> Result<(Open<L::Watch>, Collection<K>, String), Reason> {
        let mut open = self.request_watch(options).await?;
        let mut found = Collection::new();
        let mut heard = Instant::now();
        let mut warned = heard;
        loop {
            consume_budget().await;
            // Timers cost more than events: they are set only when there is something to wait for.
            let ready = open.stream.next().now_or_never();
            let event = if let Some(event) = ready {
                event
            } else {
                tokio::select! {
                    biased;
                    // Time first: here the stream has nothing to say at the moment.
                    () = sleep_until(clock::after(heard, self.patience.marker_idle)) => {
                        return Err(Reason::NoEndMarker(self.patience.marker_idle));
                    }
                    () = sleep_until(warned.max(heard) + MARKER_WARNING) => {
                        warned = Instant::now();
                        self.intake.warn_of_missing_marker(open.events, heard, started);
                        continue;
                    }
                    event = open.stream.next() => event,
                }
            };
            heard = Instant::now();
            open.events += 1;
            match event {
                Some(Ok(WatchEvent::Added(json) | WatchEvent::Modified(json))) => {
                    match self.intake.read(&json) {
                        Read::Object(object) => found.put(object),
                        Read::Lost {
                            unread: Some(unread),
                            ..
                        } => found.put_unread(unread),
                        Read::Lost { unread: None, .. } | Read::Foreign => {}
                    }
                }
                Some(Ok(WatchEvent::Deleted(json))) => match self.intake.read(&json) {
                    Read::Object(object) => found.remove(object.key()),
                    Read::Lost { .. } => return Err(Reason::UnreadableDeletion),
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

    /// Compares what a streaming list told with a list at exactly its version.
    async fn verify(&mut self, found: &Collection<K>, version: &str) -> Result<(), Reason> {
        let listed = loop {
            match self.read_pages(Pager::exactly(version)).await {
                Ok((listed, _)) => break listed,
                Err(reason) => {
                    tracing::debug!(target: "pintle::reflector", "cannot verify yet: {reason}");
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
