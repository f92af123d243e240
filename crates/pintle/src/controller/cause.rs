//! Why a key runs, as text for logs and spans.
//!
//! The queue carries one byte per key from the first request of a run to its worker. This module
//! defines the byte: a watched kind, and what happened to one of its objects.

use std::fmt;

use crate::queue::Cause;

/// A new term has started, which reconciles every object.
pub(super) const NEW_TERM: Cause = Cause::new(Cause::FIRST_FREE);
/// An external source named the key.
pub(super) const WOKEN: Cause = Cause::new(Cause::FIRST_FREE + 1);
/// A timer has fired.
pub(super) const TIMER: Cause = Cause::new(Cause::FIRST_FREE + 2);

/// Returns whether a key runs for a reason that no watch reports, so other replicas may not know
/// about it.
pub(super) fn is_external(cause: Cause) -> bool {
    // Keys that the program itself adds to the queue also count as external.
    cause == WOKEN || cause == Cause::ADDED
}

const FIRST_CHANGE: u8 = Cause::FIRST_FREE + 3;
const CHANGES: u8 = 4;
/// The number of kinds with separate causes; any further kinds share the last one.
const MAX_SOURCES: u8 = (u8::MAX - FIRST_CHANGE) / CHANGES;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Updated,
    Deleted,
    Resync,
}

/// A watched kind of a controller, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source(u8);

impl Source {
    pub(super) fn new(number: usize) -> Self {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        Self(number.min(MAX_SOURCES - 1))
    }

    pub(super) fn cause(self, change: Change) -> Cause {
        Cause::new(FIRST_CHANGE + self.0 * CHANGES + change as u8)
    }
}

/// Returns a cause as text, for the inspector.
pub(super) fn describe(cause: u8, sources: &[String]) -> String {
    let cause = Cause::new(cause);
    Described { cause, sources }.to_string()
}

/// A human-readable cause: `Deployment updated`.
pub(super) struct Described<'a> {
    pub(super) cause: Cause,
    /// The names of the watched kinds.
    pub(super) sources: &'a [String],
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::ADDED => return f.write_str("added to the queue"),
            Cause::REQUEUED => return f.write_str("requeued"),
            Cause::RETRIED => return f.write_str("retried"),
            NEW_TERM => return f.write_str("new term"),
            WOKEN => return f.write_str("external source"),
            TIMER => return f.write_str("timer"),
            _ => {}
        }
        let number = self.cause.number() - FIRST_CHANGE;
        let source = usize::from(number / CHANGES);
        let last = usize::from(MAX_SOURCES - 1);
        let name = match self.sources.get(source) {
            Some(name) if source < last || self.sources.len() == last + 1 => name,
            _ => "object",
        };
        let change = match number % CHANGES {
            0 => "added",
            1 => "updated",
            2 => "deleted",
            _ => "resynced",
        };
        write!(f, "{name} {change}")
    }
}

#[cfg(test)]
mod tests;
