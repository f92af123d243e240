//! The wall clock.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use tokio::time::Instant;

/// A wall clock for timestamps that leave the process: creation and deletion timestamps, events,
/// conditions, leases.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::time::Duration;
/// use pintle_clock::Clock;
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
    /// Returns the system clock.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where wall time enters"
    )]
    pub fn system() -> Self {
        Self::from_fn(Timestamp::now)
    }

    /// Returns the system clock or, if tokio's clock is paused, a clock that shows the system time
    /// now and advances with tokio's.
    ///
    /// Must be called on the runtime whose time it follows.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use pintle_clock::Clock;
    ///
    /// let clock = Clock::system_or_paused();
    /// let before = clock.now();
    /// tokio::time::sleep(Duration::from_secs(3600)).await; // returns immediately
    /// assert_eq!(clock.now().duration_since(before).as_hours(), 1);
    /// # }
    /// ```
    pub fn system_or_paused() -> Self {
        let system = Self::system();
        if is_paused() {
            Self::starting_at(system.now())
        } else {
            system
        }
    }

    /// Returns a clock that calls `now` for every reading.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now) }
    }

    /// Returns a clock that shows `start` now and advances with tokio's time, paused or not.
    ///
    /// Must be called on the runtime whose time it follows.
    pub fn starting_at(start: Timestamp) -> Self {
        let origin = Instant::now();
        Self::from_fn(move || {
            start
                .saturating_add(origin.elapsed())
                .unwrap_or(Timestamp::MAX)
        })
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns the current time as `metadata` carries it; see [`format_seconds`].
    pub fn stamp(&self) -> String {
        format_seconds(self.now())
    }
}

/// Returns whether tokio's clock is paused while the system's advances.
#[allow(
    clippy::disallowed_methods,
    reason = "tokio does not say whether its clock is paused"
)]
fn is_paused() -> bool {
    let (virtual_time, real) = (Instant::now(), std::time::Instant::now());
    while std::time::Instant::now() == real {
        std::hint::spin_loop();
    }
    Instant::now() == virtual_time
}

/// Formats a timestamp as Kubernetes' `metav1.Time` does: RFC 3339, UTC, whole seconds.
pub fn format_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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

#[cfg(test)]
mod tests;
