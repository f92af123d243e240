//! Delays between attempts.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Rng;

/// Exponential back-off with jitter, which resets only after a healthy period.
///
/// Delays grow from `base` by `factor` up to `cap`, each drawn uniformly from `[d, d × (1 +
/// jitter))`: by default 0.8 s, 1.6 s, 3.2 s … 30 s, each up to doubled. They reset only after a
/// watch has been healthy for `reset_after`; an outage, however long, does not count as health.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub base: Duration,
    /// The factor from one delay to the next.
    pub factor: f64,
    /// The longest delay, before jitter.
    pub cap: Duration,
    /// The maximum jitter, as a fraction of the delay.
    pub jitter: f64,
    /// How long a watch must be healthy for the delays to reset.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(800),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: 1.0,
            reset_after: Duration::from_mins(2),
        }
    }
}

/// The state of a [`Backoff`]. All retries of a reflector share it.
#[derive(Debug)]
pub(super) struct Delays {
    backoff: Backoff,
    rng: Rng,
    /// The next delay, before jitter.
    next: Duration,
    /// When the current healthy period began. `None` from a failure until the next open watch.
    healthy_since: Option<Instant>,
}

impl Delays {
    pub(super) fn new(backoff: Backoff, rng: Rng) -> Self {
        Self {
            next: backoff.base.min(backoff.cap),
            backoff,
            rng,
            healthy_since: None,
        }
    }

    /// Records that a watch is open.
    pub(super) fn healthy(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Records a failure and returns how long to wait.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let healthy_for = self
            .healthy_since
            .take()
            .map(|since| now.duration_since(since));
        if healthy_for.is_some_and(|time| time >= self.backoff.reset_after) {
            self.next = self.backoff.base.min(self.backoff.cap);
        }
        let delay = self.next;
        self.next = scale(delay, self.backoff.factor).min(self.backoff.cap);
        scale(delay, 1.0 + self.backoff.jitter * self.rng.f64())
    }
}

/// Multiplies a delay. A product that is not a valid duration leaves the delay unchanged.
fn scale(delay: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * by).unwrap_or(delay)
}

#[cfg(test)]
mod tests;
