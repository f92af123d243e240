//! Detects responses that their client does not read.
//!
//! An HTTP/2 client can keep reading from its socket and still leave the window of a stream closed.
//! The response body is not polled while it waits, so it cannot detect this itself. Instead, it
//! records here when it passes on data, and the connection checks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The minimum delay between checks.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The responses of one connection that wait for their client.
#[derive(Debug, Clone, Default)]
pub(super) struct Stalls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    responses: u64,
    since: BTreeMap<u64, Instant>,
}

impl Stalls {
    /// Tracks another response.
    pub(super) fn track(&self) -> Stall {
        let mut state = self.0.lock();
        state.responses += 1;
        Stall {
            id: state.responses,
            of: self.clone(),
        }
    }

    /// Resolves when a client has left data of a response unread for `limit`.
    ///
    /// Nothing wakes this future when data is passed on: it sleeps until the earliest time at which
    /// some data could be overdue, then checks again.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(super) async fn overdue(&self, limit: Duration) {
        loop {
            let oldest = self.0.lock().since.values().min().copied();
            let left = match oldest {
                Some(since) => limit.saturating_sub(since.elapsed()),
                None => limit.max(MIN_CHECK_INTERVAL),
            };
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

/// One tracked response; dropping it stops tracking.
#[derive(Debug)]
pub(super) struct Stall {
    id: u64,
    of: Stalls,
}

impl Stall {
    /// Records that data is waiting for the client.
    pub(super) fn begin(&self) {
        self.of.0.lock().since.insert(self.id, Instant::now());
    }

    /// Records that the client has taken the data.
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
mod tests;
