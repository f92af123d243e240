//! The status of a reflector: its phase and its last failure.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    object::{ObjectKey, ReadError},
    source::{BodyError, SourceError},
};

/// The phase of a reflector, and its last failure.
///
/// Displays as one line: `retrying in 3.2 s because 403 Forbidden on pods at cluster scope …`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The watched objects, as the source describes them.
    pub(crate) target: Arc<str>,
    /// The current phase.
    pub phase: Phase,
    /// Whether at least one list has completed.
    pub synced: bool,
    /// The last failure, until the next complete list or open watch.
    pub failure: Option<Arc<Failure>>,
    /// How many objects could not be read since the reflector started.
    pub unreadable: u64,
    /// The last object that could not be read.
    pub last_unreadable: Option<Arc<Unreadable>>,
    /// When the current watch was opened; `None` while no watch is open.
    pub following_since: Option<Instant>,
    /// When the watch was lost. It changes only when an established watch is lost, so
    /// that a watch that keeps opening and breaking does not count as healthy.
    lost_at: Option<Instant>,
}

/// How long a watch must last for the preceding outage to be over.
const STEADY: Duration = Duration::from_secs(5);

impl Status {
    pub(super) fn of(target: String) -> Self {
        Self {
            target: target.into(),
            ..Self::default()
        }
    }

    /// Returns how long the cache has been out of date, or `None` if it is kept up to date or
    /// nothing has failed yet.
    ///
    /// Only a watch ends an outage, not a list. The first five seconds of a watch neither end the
    /// outage nor add to it.
    pub fn behind_for(&self, now: Instant) -> Option<Duration> {
        let lost = self.lost_at?;
        match self.following_since {
            Some(since) if now.saturating_duration_since(since) >= STEADY => None,
            since => Some(since.unwrap_or(now).saturating_duration_since(lost)),
        }
    }

    /// Returns whether a watch is open at this moment.
    pub(crate) fn is_following(&self) -> bool {
        self.following_since.is_some()
    }

    /// Records that a watch is open.
    pub(super) fn follow(&mut self, now: Instant) {
        self.following_since = Some(now);
    }

    /// Records that no watch is open. Returns how long the last one was open.
    pub(super) fn lose(&mut self, now: Instant) -> Option<Duration> {
        let lasted = self
            .following_since
            .take()
            .map(|since| now.saturating_duration_since(since));
        if self.lost_at.is_none() || lasted.is_some_and(|lasted| lasted >= STEADY) {
            self.lost_at = Some(now);
        }
        lasted
    }
}

/// The phases of a reflector.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Phase {
    /// Not started.
    #[default]
    Idle,
    /// Listing all objects.
    Listing {
        /// The minimum `resourceVersion`; `None` for a consistent list.
        not_older_than: Option<String>,
        /// Whether it is a streaming list.
        streaming: bool,
    },
    /// Watching for changes.
    Watching {
        /// The `resourceVersion` from which the watch started.
        from: String,
    },
    /// Waiting before the next attempt.
    Retrying {
        /// The delay, from when this phase began.
        after: Duration,
        /// The failure that caused it.
        cause: Arc<Failure>,
    },
    /// Stopped.
    Stopped,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.phase, f)?;
        match (&self.phase, &self.failure) {
            (Phase::Retrying { .. }, _) | (_, None) => Ok(()),
            (_, Some(failure)) => write!(f, ", after {failure}"),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("not started"),
            Self::Listing {
                not_older_than: None,
                ..
            } => f.write_str("listing"),
            Self::Listing {
                not_older_than: Some(version),
                ..
            } => {
                write!(f, "listing at resourceVersion {version} or newer")
            }
            Self::Watching { from } => write!(f, "watching from resourceVersion {from}"),
            Self::Retrying { after, cause } => {
                write!(
                    f,
                    "retrying in {:.1} s because {cause}",
                    after.as_secs_f64()
                )
            }
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// A failed list or watch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct Failure {
    /// The operation that failed.
    pub during: During,
    /// The watched objects: `pods at cluster scope`.
    pub target: Arc<str>,
    /// Why it failed.
    #[source]
    pub reason: Reason,
}

/// The operation during which a reflector failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// Listing in pages.
    List,
    /// Reading a streaming list.
    WatchList,
    /// Opening or reading a watch.
    Watch,
}

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The server closed the watch within a second, without any event.
    #[error("the server closed the watch immediately")]
    VeryShortWatch,
    /// The server keeps closing watches within a second.
    #[error("the server keeps closing the watch")]
    ClosedTooOften,
    /// The watch received nothing for this long; its connection is probably dead.
    #[error("the watch received nothing for {0:?}")]
    Silent(Duration),
    /// A streaming list did not mark its end in time.
    #[error("the streaming list did not end within {0:?}")]
    NoEndMarker(Duration),
    /// The server closed a streaming list before its end.
    #[error("the server closed the streaming list before its end")]
    ClosedBeforeEnd,
    /// A deletion could not be read, so only a list can show which object is gone.
    #[error("a DELETED event cannot be decoded")]
    UnreadableDeletion,
    /// A streaming list and a list at the same `resourceVersion` differ.
    #[error("the streaming list and a list at the same resourceVersion differ in {0}")]
    Inconsistent(ObjectKey),
    /// The server sent the same continue token twice.
    #[error("the server repeated a continue token, so the list would never end")]
    CircularList,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let during = match self.during {
            During::List => "list",
            During::WatchList => "streaming list",
            During::Watch => "watch",
        };
        match &self.reason {
            // The server's message comes last, because it is long.
            Reason::Source(SourceError::Api(error)) => {
                write!(f, "{} on {} ({during})", error.title(), self.target)?;
                if !error.message.is_empty() {
                    write!(f, ": {}", error.message)?;
                }
                // A list of a served kind never returns 404.
                if error.code == 404 && self.target.contains('.') {
                    f.write_str("; is its CustomResourceDefinition installed?")?;
                }
                Ok(())
            }
            reason => write!(f, "{reason} on {} ({during})", self.target),
        }
    }
}

/// An object that could not be read. Other objects are not affected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{}{target}: {error}", KeyPrefix(key.as_ref()))]
pub struct Unreadable {
    /// The object's key, if it could be read.
    pub key: Option<ObjectKey>,
    /// The watched objects: `pods at cluster scope`.
    pub target: Arc<str>,
    /// Why it could not be read.
    #[source]
    pub error: UnreadableError,
}

/// Why an object could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableError {
    /// The bytes are not a valid object.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The source skipped the object.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The object is of another kind than requested.
    #[error("unexpected object of type {api_version} {kind}")]
    WrongType {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's `kind`.
        kind: String,
    },
    /// The event type is unknown.
    #[error("unknown event type {0:?}")]
    UnknownEvent(String),
}

struct KeyPrefix<'a>(Option<&'a ObjectKey>);

impl fmt::Display for KeyPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |key| write!(f, "{key} of "))
    }
}
