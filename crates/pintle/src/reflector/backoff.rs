//! Delays between attempts.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Rng;

/// Exponential back-off with jitter, which resets only after a healthy period.
///
/// Delays grow from `base` by `factor` up to `cap`, each drawn uniformly from `[d, d × (1 + jitter))`:
/// by default 0.8 s, 1.6 s, 3.2 s … 30 s, each up to doubled. They reset only after a watch has been
/// healthy for `reset_after`; an outage, however long, does not count as health.
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
mod tests {
    use super::*;

    fn delays() -> Delays {
        Delays::new(Backoff::default(), Rng::with_seed(1))
    }

    /// Proves reflector/backoff.
    #[test]
    fn delays_double_up_to_the_cap_with_jitter() {
        let mut delays = delays();
        let now = Instant::now();
        let seconds: Vec<f64> = (0..9).map(|_| delays.failed(now).as_secs_f64()).collect();
        let floors = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0];
        for (delay, floor) in seconds.iter().zip(floors) {
            assert!((floor..floor * 2.0).contains(delay), "{delay} for {floor}");
        }
        assert!((seconds[7] - seconds[8]).abs() > 1e-9, "no jitter");
    }

    /// Proves reflector/backoff-resets-after-health.
    #[test]
    fn long_outage_does_not_reset_the_backoff() {
        let mut delays = delays();
        let mut now = Instant::now();
        let start = now;
        for _ in 0..6 {
            now += delays.failed(now);
        }
        while now.duration_since(start) < Duration::from_mins(10) {
            let delay = delays.failed(now);
            assert!(delay >= Duration::from_secs(30), "{delay:?}");
            now += delay;
        }
    }

    /// Proves reflector/backoff-resets-after-health.
    #[test]
    fn backoff_resets_only_after_two_healthy_minutes() {
        let mut delays = delays();
        let now = Instant::now();
        for _ in 0..4 {
            delays.failed(now);
        }
        delays.healthy(now);
        assert!(delays.failed(now + Duration::from_secs(119)) >= Duration::from_secs(12));
        delays.healthy(now + Duration::from_secs(200));
        delays.healthy(now + Duration::from_mins(5));
        assert!(delays.failed(now + Duration::from_secs(320)) < Duration::from_millis(1600));
    }

    #[test]
    fn invalid_settings_are_harmless() {
        let backoff = Backoff {
            factor: f64::NAN,
            jitter: -5.0,
            ..Backoff::default()
        };
        let mut delays = Delays::new(backoff, Rng::with_seed(1));
        for _ in 0..3 {
            assert!(delays.failed(Instant::now()) <= Duration::from_secs(30));
        }
    }
}
