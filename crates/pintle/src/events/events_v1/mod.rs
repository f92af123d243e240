//! The `events.k8s.io/v1` sink: writes events and series.

mod series;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use tokio::time::{Instant, interval_at};

use self::series::{FINISH, Job, Observed, REFRESH, SeriesCache};
use super::{
    delivery::{Inbox, Jitter, report},
    occurrence::Occurrence,
    sink::{EventSink, SinkError},
};

/// The task of one `events.k8s.io/v1` sink.
///
/// It never stops receiving: while a write waits for its response or its next attempt, occurrences
/// go into the cache, where repeats cost nothing. One write is in flight at a time, so the writes
/// of one event are in order.
#[derive(Debug)]
pub(super) struct SeriesWriter<S> {
    sink: Arc<S>,
    inbox: Inbox,
    cache: SeriesCache,
    /// The machine name to use if the broadcaster has no host.
    machine: String,
}

/// A write in progress; resolves to `None` if shutdown aborted it.
type Write = BoxFuture<'static, (Job, Option<Result<Event, SinkError>>)>;

impl<S: EventSink<Event>> SeriesWriter<S> {
    pub(super) fn new(sink: S, inbox: Inbox, machine: String) -> Self {
        Self {
            sink: Arc::new(sink),
            inbox,
            cache: SeriesCache::new(),
            machine,
        }
    }

    pub(super) async fn run(mut self) {
        let start = Instant::now();
        let mut finish = interval_at(start + FINISH, FINISH);
        let mut refresh = interval_at(start + REFRESH, REFRESH);
        let mut write: Option<Write> = None;
        let mut open = true;
        let abort = self.inbox.retry.shutdown.abort.clone();
        let mut in_flight = 0;
        loop {
            if write.is_none() {
                write = self.cache.next().map(|job| {
                    in_flight = job.occurrences;
                    self.start_write(job)
                });
            }
            if write.is_none() && !open {
                break;
            }
            tokio::select! {
                // Check for shutdown first, then timers, which must not starve; completed writes
                // make room for new occurrences.
                biased;
                () = abort.cancelled() => break,
                _ = finish.tick() => self.cache.finish(Instant::now()),
                _ = refresh.tick() => self.cache.refresh(),
                Some((job, answer)) = completion(&mut write) => {
                    write = None;
                    let Some(answer) = answer else { break };
                    in_flight = 0;
                    self.complete(&job, answer);
                }
                next = self.inbox.queue.recv(), if open => {
                    open = next.is_some();
                    if let Some(occurrence) = next {
                        self.observe(&occurrence);
                    } else {
                        self.cache.flush();
                    }
                }
            }
        }
        self.inbox.abandon(in_flight + self.cache.pending());
    }

    fn observe(&mut self, occurrence: &Occurrence) {
        let (counters, machine) = (&self.inbox.retry.counters, &self.machine);
        let event = || occurrence.to_events_v1(machine);
        match self.cache.observe(occurrence, Instant::now(), event) {
            Observed::Due => {}
            Observed::Counted => drop(counters.aggregated.inc()),
            Observed::Rejected => drop(counters.dropped.inc()),
        }
    }

    fn start_write(&self, job: Job) -> Write {
        let (sink, retry) = (Arc::clone(&self.sink), self.inbox.retry.clone());
        Box::pin(async move {
            let answer = retry
                .run(Jitter::EveryDelay, || attempt(&*sink, &job))
                .await;
            (job, answer)
        })
    }

    fn complete(&mut self, job: &Job, answer: Result<Event, SinkError>) {
        let counters = &self.inbox.retry.counters;
        let occurrences = job.occurrences as u64;
        self.cache.done(job, answer.is_ok());
        match answer {
            Ok(_) => {
                counters.written.inc_by(occurrences.min(1));
                counters.aggregated.inc_by(occurrences.saturating_sub(1));
            }
            Err(error) => {
                counters.failed.inc_by(occurrences);
                let Event {
                    regarding, reason, ..
                } = &job.event;
                let object = regarding.as_ref().and_then(|object| object.name.as_deref());
                report(&error, object, reason.as_deref());
            }
        }
    }
}

/// Waits for the write to complete; `None` if there is no write.
async fn completion(write: &mut Option<Write>) -> Option<(Job, Option<Result<Event, SinkError>>)> {
    Some(write.as_mut()?.await)
}

/// Patches the series of an existing event; creates the event if it does not exist or is gone.
async fn attempt(sink: &impl EventSink<Event>, job: &Job) -> Result<Event, SinkError> {
    let metadata = &job.event.metadata;
    let (Some(patch), Some(namespace), Some(name)) =
        (job.patch(), &metadata.namespace, &metadata.name)
    else {
        return sink.create(&job.event).await;
    };
    match sink.patch(namespace, name, &patch).await {
        Err(gone) if gone.is_not_found() => {}
        done => return done,
    }
    match sink.create(&job.event).await {
        // Another writer created it first: the next try patches it.
        Err(exists) if exists.is_already_exists() => Err(SinkError::Unreachable(exists.into())),
        done => done,
    }
}

#[cfg(test)]
mod tests;
