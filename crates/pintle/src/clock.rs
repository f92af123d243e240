//! What time it is. Durations come from tokio, which tests can pause; timestamps come from here.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time of day for timestamps that leave the process (events, conditions, leases).
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use pintle::clock::Clock;
/// use std::time::Duration;
///
/// let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
/// let clock = Clock::starting_at(start);
/// tokio::time::advance(Duration::from_secs(90)).await;
/// assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
/// # }
/// ```
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clock {
    /// The machine's own clock.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where wall time enters"
    )]
    pub fn system() -> Self {
        Self {
            now: Arc::new(Timestamp::now),
        }
    }

    /// A clock that shows `start` now and from then on runs with tokio's time, paused or not.
    ///
    /// Must be called inside a tokio runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        let origin = Instant::now();
        Self {
            now: Arc::new(move || {
                start
                    .saturating_add(origin.elapsed())
                    .unwrap_or(Timestamp::MAX)
            }),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }
}

/// Longer than any program runs, and short enough that an [`Instant`] takes it any number of times.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// The instant `delay` after `start`. Unlike `+` it takes any delay: one that a user set to
/// `Duration::MAX` means "never" and must not overflow.
pub(crate) fn after(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay.min(NEVER)).unwrap_or(start)
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
