//! Writes occurrences through the correlator to a core/v1 sink, one after the other.

use k8s_openapi::api::core::v1::Event;
use tokio::time::Instant;

mod correlator;

pub(super) use self::correlator::{key, object_parts, or_empty};

use self::correlator::{Correlator, Write};
use super::{
    delivery::{Inbox, Jitter},
    sink::{EventSink, SinkError},
};

/// The task of one core/v1 sink.
///
/// It takes an occurrence from its inbox, asks the correlator what to write, and writes it before
/// it takes the next: so the writes of one event are in order. While the server cannot be reached
/// it holds, and what does not fit in the inbox is dropped there.
#[derive(Debug)]
pub(super) struct Writer<S> {
    sink: S,
    inbox: Inbox,
    correlator: Correlator,
}

impl<S: EventSink<Event>> Writer<S> {
    pub(super) fn new(sink: S, inbox: Inbox) -> Self {
        Self {
            sink,
            inbox,
            correlator: Correlator::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut held = 0;
        while let Some(occurrence) = self.inbox.next().await {
            let Some(write) = self.correlator.correlate(&occurrence, Instant::now()) else {
                self.inbox.patience.counters.filtered.inc();
                continue;
            };
            if !self.write(&write).await {
                held = 1;
                break;
            }
        }
        self.inbox.leave(held);
    }

    /// Whether the write came to an end, good or bad, before time was up.
    async fn write(&mut self, write: &Write) -> bool {
        let Self {
            sink,
            inbox: Inbox { patience, .. },
            correlator,
        } = self;
        let counters = &patience.counters;
        let answer = patience.persist(Jitter::FirstWait, || attempt(sink, write));
        match answer.await {
            None => return false,
            Some(Ok(answer)) => {
                correlator.stored(write, &answer);
                if write.combined {
                    counters.aggregated.inc();
                } else {
                    counters.written.inc();
                }
            }
            Some(Err(error)) => {
                counters.failed.inc();
                let object = &write.event.involved_object;
                report(
                    &error,
                    object.name.as_deref(),
                    write.event.reason.as_deref(),
                );
            }
        }
        true
    }
}

/// Raises the count of an event that exists; creates one that does not, or not any more.
async fn attempt(sink: &impl EventSink<Event>, write: &Write) -> Result<Event, SinkError> {
    let metadata = &write.event.metadata;
    if let (Some(patch), Some(namespace), Some(name)) =
        (write.patch(), &metadata.namespace, &metadata.name)
    {
        match sink.patch(namespace, name, &patch).await {
            Err(gone) if gone.is_not_found() => {}
            done => return done,
        }
    }
    let mut event = write.event.clone();
    event.metadata.resource_version = None;
    sink.create(&event).await
}

/// Tells the log of an event that was given up: loudly, unless that is part of normal life.
pub(super) fn report(error: &SinkError, about: Option<&str>, reason: Option<&str>) {
    if error.is_expected() {
        tracing::debug!(%error, about, reason, "event not written");
    } else {
        tracing::error!(%error, about, reason, "event not written");
    }
}
