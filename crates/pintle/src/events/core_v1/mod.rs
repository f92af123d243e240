//! The `core/v1` sink: correlates occurrences and writes them one after the other.

use k8s_openapi::api::core::v1::Event;
use tokio::time::Instant;

mod correlator;

pub(super) use self::correlator::{key, object_parts, or_empty};

use self::correlator::{Correlator, Write};
use super::{
    delivery::{Inbox, Jitter, report},
    sink::{EventSink, SinkError},
};

/// The task of one `core/v1` sink.
///
/// It takes an occurrence from its inbox, asks the correlator what to write, and writes it before
/// it takes the next one, so the writes of one event are in order. While the server is unreachable
/// it retries, and occurrences that do not fit into the inbox are dropped.
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
                self.inbox.retry.counters.filtered.inc();
                continue;
            };
            if !self.write(&write).await {
                held = 1;
                break;
            }
        }
        self.inbox.abandon(held);
    }

    /// Writes one event; returns false if shutdown aborted the write.
    async fn write(&mut self, write: &Write) -> bool {
        let Self {
            sink,
            inbox: Inbox { retry, .. },
            correlator,
        } = self;
        let counters = &retry.counters;
        let answer = retry.run(Jitter::FirstDelay, || attempt(sink, write));
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

/// Patches the count of an existing event; creates the event if it does not exist or is gone.
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
