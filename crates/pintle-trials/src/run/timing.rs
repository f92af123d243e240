//! How long scenarios wait. Virtual time costs nothing, so controllers in this process get plenty;
//! programs run in real time.

use std::time::Duration;

/// The durations of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    /// From the start of the controller to the first step of the story.
    pub(crate) start: Duration,
    /// How long nothing may change before the cluster of a reference counts as idle. Longer than
    /// any timer that a controller is likely to have.
    pub(crate) long_idle: Duration,
    /// The idle time of a run that is compared with the reference.
    pub(crate) short_idle: Duration,
    /// The idle time of such a run at the end of the story.
    pub(crate) last_idle: Duration,
    /// The time between two steps of a rapid story.
    pub(crate) gap: Duration,
    /// How long the idle reference is observed at the end, and how often it is polled.
    pub(crate) day: (Duration, Duration),
    /// How long it is observed after a restart.
    pub(crate) after_restart: Duration,
    /// How long the cluster may take to become idle, not counting the idle time itself.
    pub(crate) deadline: Duration,
    /// How often to check whether the cluster is idle.
    pub(crate) poll: Duration,
    /// The successive waits for a state that equals the reference.
    pub(crate) waits: &'static [u64],
}

impl Timing {
    pub(crate) fn of_virtual_time() -> Self {
        Self {
            start: Duration::from_millis(50),
            long_idle: Duration::from_secs(15 * 60),
            short_idle: Duration::from_secs(5),
            last_idle: Duration::from_secs(40),
            gap: Duration::from_millis(7),
            day: (
                Duration::from_secs(24 * 60 * 60),
                Duration::from_secs(10 * 60),
            ),
            after_restart: Duration::from_secs(120),
            deadline: Duration::from_secs(20 * 60),
            poll: Duration::from_secs(60),
            waits: &[25, 95, 480, 1200, 1800, 7200],
        }
    }
}
