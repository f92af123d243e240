//! The inspector's view of a queue.

use std::time::Duration;

use super::{
    Key, WorkQueue,
    state::{Place, State, Tick},
};

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// It waits for a worker.
    Ready { waited: Duration },
    /// It waits until its delay expires.
    Delayed { left: Duration },
    /// A worker has been processing it for this long.
    Processing {
        since: Duration,
        /// Whether it waits for the caches to show its own writes.
        parked: bool,
    },
}

/// The number of keys in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) ready: usize,
    pub(crate) delayed: usize,
    pub(crate) processing: usize,
    pub(crate) parked: usize,
    pub(crate) longest: Duration,
}

impl<T: Key> WorkQueue<T> {
    pub(crate) fn counts(&self) -> Counts {
        self.read(|state, now| {
            let processing = state.running_for(now).count();
            Counts {
                ready: state.ready(),
                delayed: state.delayed(),
                processing,
                parked: state.processing() - processing,
                longest: nanos(longest(state, now)),
            }
        })
    }

    /// Returns where a key is, or `None` if it waits for a change.
    pub(crate) fn position(&self, key: &T) -> Option<Position> {
        let hash = self.hash(key);
        self.read(|state, now| Some(position(state.place(hash, key)?, now)))
    }

    /// Returns the keys that are not idle, in slot order.
    pub(crate) fn positions(&self) -> Vec<(T, Position)> {
        self.read(|state, now| {
            let places = state.places();
            places
                .map(|(key, place)| (key.clone(), position(place, now)))
                .collect()
        })
    }

    fn read<R>(&self, read: impl FnOnce(&State<T>, Tick) -> R) -> R {
        self.inspect(|state, now| read(state, now))
    }
}

fn position(place: Place, now: Tick) -> Position {
    match place {
        Place::Ready { since } => Position::Ready {
            waited: elapsed(since, now),
        },
        Place::Delayed { until } => Position::Delayed {
            left: nanos(until.saturating_sub(now)),
        },
        Place::Processing { since, parked } => Position::Processing {
            since: elapsed(since, now),
            parked,
        },
    }
}

/// Returns how long the longest-running key has been processed.
fn longest<T: Key>(state: &State<T>, now: Tick) -> Tick {
    // Keys that were dequeued before durations were measured appear to have run since tick 0.
    let measured = state.running_for(now).filter(|duration| *duration < now);
    measured.max().unwrap_or_default()
}

/// Returns the time since a tick; zero if the queue did not measure durations at the time.
fn elapsed(since: Tick, now: Tick) -> Duration {
    match since {
        0 => Duration::ZERO,
        since => nanos(now.saturating_sub(since)),
    }
}

fn nanos(ticks: Tick) -> Duration {
    Duration::from_nanos(ticks)
}
