//! The token bucket behind every rate limit: of requests, of retries, of events.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

/// How fast a bucket refills and how many tokens it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// The time in which one token refills.
    period: Duration,
    /// The time in which an empty bucket fills up.
    fill_time: Duration,
}

impl Quota {
    /// Returns a quota of `burst` tokens that refills by one every `period`.
    pub(crate) fn new(period: Duration, burst: u32) -> Self {
        let fill_time = period.saturating_mul(burst);
        Self { period, fill_time }
    }

    /// Returns whether an empty bucket fills up within the lifetime of a program.
    #[cfg(any(feature = "limits", test))]
    pub(crate) fn refills(&self) -> bool {
        self.fill_time <= Duration::from_hours(24 * 365 * 30)
    }
}

/// A token bucket, represented by the instant at which it will be full again.
///
/// It starts full. It neither locks nor waits: the caller does both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// Takes a token, or returns how long to wait for the next one.
    pub(crate) fn try_take(&mut self, quota: Quota, now: Instant) -> Result<(), Duration> {
        let missing = self.missing(now).saturating_add(quota.period);
        match missing.checked_sub(quota.fill_time) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                self.full_at = Some(clock::after(now, missing));
                Ok(())
            }
        }
    }

    /// Takes a token, in advance if there is none, and returns how long to wait until it is
    /// available. Once `longest` is reserved, further reservations share the last slot.
    pub(crate) fn reserve(&mut self, quota: Quota, now: Instant, longest: Duration) -> Duration {
        let missing = self.missing(now).saturating_add(quota.period);
        let missing = missing.min(quota.fill_time.saturating_add(longest));
        self.full_at = Some(clock::after(now, missing));
        missing.saturating_sub(quota.fill_time)
    }

    /// Returns the time until the bucket is full.
    fn missing(&self, now: Instant) -> Duration {
        self.full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests;
