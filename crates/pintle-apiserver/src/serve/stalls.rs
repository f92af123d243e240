//! Which answers of a connection wait for their client to read.
//!
//! An HTTP/2 client can keep its socket readable and still leave no window for a stream. The body of
//! that answer is not polled while it waits, so it cannot notice: it records here when it handed out
//! a piece, and the connection looks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The pause between two looks, however short the limit is.
const SHORTEST: Duration = Duration::from_millis(1);

/// The stalled answers of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Stalls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answers: u64,
    since: BTreeMap<u64, Instant>,
}

impl Stalls {
    /// Follows one more answer.
    pub(super) fn answer(&self) -> Stall {
        let mut state = self.0.lock();
        state.answers += 1;
        Stall {
            id: state.answers,
            of: self.clone(),
        }
    }

    /// Resolves when the client has left a piece of an answer waiting for `limit`.
    ///
    /// Cancel safe. Nothing wakes this when a piece is handed out: it sleeps until the earliest time
    /// at which one could be overdue, and looks again.
    pub(super) async fn overdue(&self, limit: Duration) {
        loop {
            let oldest = self.0.lock().since.values().min().copied();
            let left = match oldest {
                Some(since) => limit.saturating_sub(since.elapsed()),
                None => limit.max(SHORTEST),
            };
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

/// One answer; it no longer counts when this is dropped.
#[derive(Debug)]
pub(super) struct Stall {
    id: u64,
    of: Stalls,
}

impl Stall {
    /// A piece is on its way to the client.
    pub(super) fn begin(&self) {
        self.of.0.lock().since.insert(self.id, Instant::now());
    }

    /// The client took the last piece.
    pub(super) fn end(&self) {
        self.of.0.lock().since.remove(&self.id);
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);
    const HOUR: Duration = Duration::from_secs(3600);

    async fn is_overdue(stalls: &Stalls) -> bool {
        let waited = tokio::time::timeout(HOUR, stalls.overdue(LIMIT)).await;
        waited.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_piece_that_waits_is_overdue() {
        let stalls = Stalls::default();
        let (read, waiting) = (stalls.answer(), stalls.answer());
        read.begin();
        read.end();
        assert!(!is_overdue(&stalls).await, "nothing waits");

        waiting.begin();
        let start = Instant::now();
        sleep(LIMIT / 2).await;
        read.begin();
        assert!(is_overdue(&stalls).await);
        assert_eq!(start.elapsed(), LIMIT);

        drop(waiting);
        assert!(is_overdue(&stalls).await);
        assert_eq!(start.elapsed(), LIMIT + LIMIT / 2);
        drop(read);
        assert!(!is_overdue(&stalls).await, "all answers are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_slowly_is_not_overdue() {
        let stalls = Stalls::default();
        let answer = stalls.answer();
        let reads = async {
            for _ in 0..100 {
                answer.begin();
                sleep(LIMIT / 2).await;
                answer.end();
            }
        };
        tokio::select! {
            biased;
            () = stalls.overdue(LIMIT) => panic!("every piece was read in time"),
            () = reads => {}
        }
    }
}
