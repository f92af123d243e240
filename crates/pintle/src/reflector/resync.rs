//! The resync timer.

use std::{pin::Pin, time::Duration};

use tokio::time::{Sleep, sleep};

/// The resync timer, which runs during the watch phase.
pub(super) struct Resync {
    period: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Resync {
    /// Returns a timer that has not started.
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            timer: None,
        }
    }

    /// Starts the timer unless it is running.
    pub(super) fn start(&mut self) {
        let period = self.period;
        self.timer.get_or_insert_with(|| Box::pin(sleep(period)));
    }

    pub(super) fn stop(&mut self) {
        self.timer = None;
    }

    /// Waits until the next resync is due and arms the timer for the one after. Never returns if
    /// resync is disabled.
    pub(super) async fn due(resync: &mut Option<Self>) {
        let Some(Self {
            period,
            timer: Some(timer),
        }) = resync
        else {
            return std::future::pending().await;
        };
        timer.as_mut().await;
        timer.set(sleep(*period));
    }
}
