//! What every sink's task shares: its inbox, the two signals that end it, and how often it tries.

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

/// A write is tried so often, then given up.
const MAX_TRIES: u32 = 12;
/// The wait between two tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// A try without an answer is over after this time, so that a silent server cannot hold a sink.
const TRY_TIMEOUT: Duration = Duration::from_secs(30);

/// The two signals of the end, in this order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    /// Nothing new will come: one more try for each event that is left, and no waiting.
    pub(super) flush: CancellationToken,
    /// Time is up: whatever is left stays unwritten.
    pub(super) cut: CancellationToken,
}

/// How the waits between tries are spread, so that many clients do not come back in one instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Jitter {
    /// The first wait is anything up to the full one.
    FirstWait,
    /// Every wait is up to a quarter longer.
    EveryWait,
}

impl Jitter {
    fn delay(self, tries: u32, rng: &Rng) -> Duration {
        match self {
            Self::FirstWait if tries == 1 => RETRY_DELAY.mul_f64(rng.f64()),
            Self::FirstWait => RETRY_DELAY,
            Self::EveryWait => RETRY_DELAY.mul_f64(1.0 + 0.25 * rng.f64()),
        }
    }
}

/// A sink's end of its queue.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: mpsc::Receiver<Arc<Occurrence>>,
    pub(super) patience: Patience,
    /// How many occurrences stayed behind, over all sinks.
    pub(super) left: Arc<AtomicUsize>,
}

/// How long a sink keeps trying, and where it counts that.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    pub(super) counters: SinkCounters,
    pub(super) ending: Ending,
    pub(super) rng: Rng,
}

impl Inbox {
    /// The next occurrence; nothing once the queue is closed and empty, or time is up. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Arc<Occurrence>> {
        tokio::select! {
            // The end comes first: a full queue must not put it off.
            biased;
            () = self.patience.ending.cut.cancelled() => None,
            next = self.queue.recv() => next,
        }
    }

    /// Counts what stays behind: `held` occurrences in hand and everything still queued.
    pub(super) fn leave(&mut self, held: usize) {
        self.queue.close();
        let left = held + self.queue.len();
        self.patience.counters.dropped.inc_by(left as u64);
        self.left.fetch_add(left, Ordering::Relaxed);
    }
}

impl Patience {
    /// Tries `attempt` until it succeeds, cannot succeed, or was tried often enough. `None` when
    /// time was up before there was an answer.
    pub(super) async fn persist<T, F>(
        &self,
        jitter: Jitter,
        mut attempt: impl FnMut() -> F,
    ) -> Option<Result<T, SinkError>>
    where
        F: Future<Output = Result<T, SinkError>>,
    {
        let mut tries = 0;
        loop {
            let last_chance = self.ending.flush.is_cancelled();
            let answer = tokio::select! {
                // The end comes first: nothing is worth more than the caller's deadline.
                biased;
                () = self.ending.cut.cancelled() => return None,
                answer = contained(attempt()) => answer,
            };
            tries += 1;
            match answer {
                Err(error) if error.is_transient() && tries < MAX_TRIES && !last_chance => {
                    tracing::debug!(%error, tries, "event not written, will try again");
                }
                done => return Some(done),
            }
            self.counters.retried.inc();
            tokio::select! {
                // Shutdown first: it turns this wait into one last try.
                biased;
                () = self.ending.flush.cancelled() => {}
                () = sleep(jitter.delay(tries, &self.rng)) => {}
            }
        }
    }
}

/// One try, with its time limited and a panic of a foreign sink turned into an error.
async fn contained<T>(attempt: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    match tokio::time::timeout(TRY_TIMEOUT, AssertUnwindSafe(attempt).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_panic)) => Err(SinkError::Unwritable("the sink panicked".into())),
        Err(elapsed) => Err(SinkError::Unreachable(elapsed.into())),
    }
}
