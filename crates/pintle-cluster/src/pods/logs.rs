//! The logs of simulated containers.

use std::time::Duration;

use jiff::Timestamp;
use pintle_apiserver::PodLogLine;

/// A line that the containers of simulated Pods log, each time they start.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use pintle_cluster::LogLine;
///
/// let line = LogLine::from("ready to serve").after(Duration::from_secs(5));
/// # drop(line);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    text: String,
    after: Duration,
}

impl From<&str> for LogLine {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            after: Duration::ZERO,
        }
    }
}

impl LogLine {
    /// Sets how long after its start a container logs the line. Default: immediately.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }
}

/// Returns the lines logged by a container that ran from `start` to `end`.
pub(super) fn between(lines: &[LogLine], start: Timestamp, end: Timestamp) -> Vec<PodLogLine> {
    let lines = lines.iter();
    lines
        .map(|line| PodLogLine {
            at: start.saturating_add(line.after).unwrap_or(Timestamp::MAX),
            text: line.text.clone(),
        })
        .filter(|line| line.at <= end)
        .collect()
}
