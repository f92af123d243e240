//! What time it is. Durations come from tokio, which tests can pause; timestamps come from here.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the server the time of day: creation and deletion timestamps, conditions, `managedFields`.
///
/// ```
/// use pintle_apiserver::{ApiServer, Clock};
///
/// let fixed: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
/// let server = ApiServer::builder().clock(Clock::from_fn(move || fixed)).build();
/// # drop(server);
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

    /// A clock that asks `now` each time.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now) }
    }

    /// A clock that shows `start` now and from then on runs with tokio's time, paused or not.
    ///
    /// Must be called inside a tokio runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        let origin = Instant::now();
        Self::from_fn(move || {
            start
                .saturating_add(origin.elapsed())
                .unwrap_or(Timestamp::MAX)
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// The time now as `metadata` carries it: RFC 3339, whole seconds, UTC.
    pub(crate) fn stamp(&self) -> String {
        format_seconds(self.now())
    }
}

/// A timestamp as `metadata` carries it: RFC 3339, whole seconds, UTC.
pub(crate) fn format_seconds(at: Timestamp) -> String {
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
