//! The parts shared by every sink's task: its queue, the two stages of shutdown, and retries.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{metrics::SinkCounters, occurrence::Occurrence, sink::SinkError};
use crate::clock::Rng;

/// The maximum number of attempts per write.
const MAX_TRIES: u32 = 12;
/// The delay between two tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// How long one try may take, so that a server that never responds cannot block a sink.
const TRY_TIMEOUT: Duration = Duration::from_secs(30);

/// The two stages of shutdown, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Shutdown {
    /// No more events will arrive: try each remaining event once, without delays.
    pub(super) flush: CancellationToken,
    /// The deadline has passed: abandon the rest.
    pub(super) abort: CancellationToken,
}

/// How retry delays are spread, so that many clients do not retry at the same instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Jitter {
    /// The first delay is a random fraction of the full one.
    FirstDelay,
    /// Every delay is extended by up to a quarter.
    EveryDelay,
}

impl Jitter {
    fn delay(self, tries: u32, rng: &Rng) -> Duration {
        match self {
            Self::FirstDelay if tries == 1 => RETRY_DELAY.mul_f64(rng.f64()),
            Self::FirstDelay => RETRY_DELAY,
            Self::EveryDelay => RETRY_DELAY.mul_f64(1.0 + 0.25 * rng.f64()),
        }
    }
}

/// The receiving end of a sink's queue.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: mpsc::Receiver<Arc<Occurrence>>,
    pub(super) retry: Retry,
    /// The number of occurrences abandoned at shutdown, over all sinks.
    pub(super) left: Arc<AtomicUsize>,
}

/// Retries the writes of one sink.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) counters: SinkCounters,
    pub(super) shutdown: Shutdown,
    pub(super) rng: Rng,
}

impl Inbox {
    /// Returns the next occurrence, or `None` once the queue is closed and empty, or shutdown
    /// aborts. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Arc<Occurrence>> {
        tokio::select! {
            // Check for shutdown first: a full queue must not delay it.
            biased;
            () = self.retry.shutdown.abort.cancelled() => None,
            next = self.queue.recv() => next,
        }
    }

    /// Counts abandoned occurrences: `held` that were already dequeued, and all that are still
    /// queued.
    pub(super) fn abandon(&mut self, held: usize) {
        self.queue.close();
        let left = held + self.queue.len();
        self.retry.counters.dropped.inc_by(left as u64);
        self.left.fetch_add(left, Ordering::Relaxed);
    }
}

impl Retry {
    /// Runs `attempt` until it succeeds, fails permanently, or runs out of tries. Returns `None` if
    /// shutdown aborted it first.
    pub(super) async fn run<T, F>(
        &self,
        jitter: Jitter,
        mut attempt: impl FnMut() -> F,
    ) -> Option<Result<T, SinkError>>
    where
        F: Future<Output = Result<T, SinkError>>,
    {
        let mut tries = 0;
        loop {
            let last_try = self.shutdown.flush.is_cancelled();
            let answer = tokio::select! {
                // Check for shutdown first: the caller's deadline outranks any write.
                biased;
                () = self.shutdown.abort.cancelled() => return None,
                answer = contained(attempt()) => answer,
            };
            tries += 1;
            match answer {
                Err(error) if error.is_transient() && tries < MAX_TRIES && !last_try => {
                    tracing::debug!(%error, tries, "failed to write event; retrying");
                }
                done => return Some(done),
            }
            self.counters.retried.inc();
            tokio::select! {
                // Check for shutdown first: it turns the delay into one last try.
                biased;
                () = self.shutdown.flush.cancelled() => {}
                () = sleep(jitter.delay(tries, &self.rng)) => {}
            }
        }
    }
}

/// Limits the time of one try and turns a panic in a user's sink into an error.
async fn contained<T>(attempt: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    match tokio::time::timeout(TRY_TIMEOUT, AssertUnwindSafe(attempt).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_panic)) => Err(SinkError::Unwritable("the sink panicked".into())),
        Err(elapsed) => Err(SinkError::Unreachable(elapsed.into())),
    }
}

/// Logs an event that was abandoned, at debug level if the failure is part of normal operation.
pub(super) fn report(error: &SinkError, object: Option<&str>, reason: Option<&str>) {
    if error.is_expected() {
        tracing::debug!(%error, object, reason, "server rejected the event; dropping it");
    } else {
        tracing::error!(%error, object, reason, "failed to write event; dropping it");
    }
}
