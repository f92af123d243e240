//! Time and randomness, injected so that tests can replace both, and a hash that never changes.
//!
//! [`Clock`] supplies the timestamps that leave the process; [`Rng`] supplies jitter and generated
//! names; [`StableHash`] supplies names and fingerprints derived from data. Durations and timers
//! come from tokio, which tests can pause.

use std::time::Duration;

pub use pintle_clock::{Clock, Rng, StableHash};
use tokio::time::Instant;

/// Longer than any program runs, yet short enough to add to an [`Instant`] any number of times.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Returns the instant `delay` after `start`. Unlike `+` it does not overflow when a user sets a
/// delay to `Duration::MAX` to mean "never".
pub(crate) fn after(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay.min(NEVER)).unwrap_or(start)
}
