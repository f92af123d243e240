//! What a reflector is doing, and why.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    object::{ObjectKey, ReadError},
    source::{BodyError, SourceError},
};

/// What a reflector is doing now, and what went wrong last.
///
/// It prints as one sentence: `retrying in 3.2s because 403 Forbidden on pods at cluster scope …`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// What is followed, as its source describes it.
    pub(crate) target: Arc<str>,
    /// What it is doing.
    pub phase: Phase,
    /// Whether the sink has had a complete list at least once.
    pub synced: bool,
    /// The last thing that failed. It stays until a list is complete or a watch is open.
    pub failure: Option<Arc<Failure>>,
    /// How many objects could not be read since the reflector started.
    pub unreadable: u64,
    /// The last object that could not be read.
    pub last_unreadable: Option<Arc<Unreadable>>,
    /// Since when a watch is open; `None` while there is none.
    pub following_since: Option<Instant>,
    /// When the watch was lost. It stays until a watch has lasted for a while and is then lost, so
    /// that one which opens and breaks again and again does not pass for health.
    lost_at: Option<Instant>,
}

/// How long a watch must have lasted for what was before it to be over.
const STEADY: Duration = Duration::from_secs(5);

impl Status {
    pub(super) fn of(target: String) -> Self {
        Self {
            target: target.into(),
            ..Self::default()
        }
    }

    /// Returns for how long the sink has not been kept up to date, or `None` if it is.
    ///
    /// Between a list and the next watch it is not; neither is it during the first five seconds of
    /// a watch, whose time does not count.
    pub fn behind_for(&self, now: Instant) -> Option<Duration> {
        let lost = self.lost_at?;
        match self.following_since {
            Some(since) if now.saturating_duration_since(since) >= STEADY => None,
            since => Some(since.unwrap_or(now).saturating_duration_since(lost)),
        }
    }

    /// A watch is open.
    pub(super) fn follow(&mut self, now: Instant) {
        self.following_since = Some(now);
    }

    /// There is no watch, or it could not be had. Returns how long the last one was open.
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

/// What a reflector is doing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Phase {
    /// Not started.
    #[default]
    Idle,
    /// Reading all objects.
    Listing {
        /// At least this version; `None` for the newest.
        not_older_than: Option<String>,
        /// As the beginning of a watch, not in pages.
        streaming: bool,
    },
    /// Following changes.
    Watching {
        /// From this version on.
        from: String,
    },
    /// Waiting for the next try.
    Retrying {
        /// How long from the moment this was said.
        after: Duration,
        /// Why.
        cause: Arc<Failure>,
    },
    /// Stopped for good.
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
                write!(f, "listing at version {version} or newer")
            }
            Self::Watching { from } => write!(f, "watching from version {from}"),
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

/// One thing that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct Failure {
    /// What was being done.
    pub during: During,
    /// What is followed: `pods at cluster scope`.
    pub target: Arc<str>,
    /// Why it failed.
    #[source]
    pub reason: Reason,
}

/// What a reflector was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// Reading all objects in pages.
    List,
    /// Reading all objects as the beginning of a watch.
    WatchList,
    /// Opening or following a watch.
    Watch,
}

/// Why a list or a watch came to an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The watch was closed within a second and had told nothing.
    #[error("the watch was closed at once")]
    VeryShortWatch,
    /// The watch is closed again and again within a second.
    #[error("the watch is closed again and again")]
    ClosedTooOften,
    /// The watch went silent; its connection is probably dead.
    #[error("the watch was silent for {0:?}")]
    Silent(Duration),
    /// A streaming list did not say that it was complete.
    #[error("the streaming list did not end within {0:?}")]
    NoEndMarker(Duration),
    /// A streaming list was closed before it was complete.
    #[error("the streaming list was closed before its end")]
    ClosedBeforeEnd,
    /// An object was deleted, but which one could not be read: only a list can tell.
    #[error("a deletion could not be read")]
    UnreadableDeletion,
    /// A streaming list and a list of the same version differ.
    #[error("the streaming list and a list of the same version differ in {0}")]
    Inconsistent(ObjectKey),
    /// The server gave the same continue token twice.
    #[error("the list goes round in a circle: a continue token came twice")]
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
            // The server's own words last: they are long.
            Reason::Source(SourceError::Api(error)) => {
                write!(f, "{} on {} ({during})", error.title(), self.target)?;
                if !error.message.is_empty() {
                    write!(f, ": {}", error.message)?;
                }
                // A list of a kind that is served never answers so.
                if error.code == 404 && self.target.contains('.') {
                    f.write_str("; is its CustomResourceDefinition installed?")?;
                }
                Ok(())
            }
            reason => write!(f, "{reason} on {} ({during})", self.target),
        }
    }
}

/// An object that came but could not be read. Everything else goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{}of {target}: {error}", Named(key.as_ref()))]
pub struct Unreadable {
    /// Which object, if that much could be read.
    pub key: Option<ObjectKey>,
    /// What is followed: `pods at cluster scope`.
    pub target: Arc<str>,
    /// What is wrong with it.
    #[source]
    pub error: UnreadableError,
}

/// What is wrong with an object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableError {
    /// Its bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The source passed it over.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// It is of another kind than was asked for.
    #[error("a {kind} of {api_version} came instead")]
    WrongType {
        /// The `apiVersion` it states.
        api_version: String,
        /// The `kind` it states.
        kind: String,
    },
    /// It came with an event of a type that is not known.
    #[error("the event type {0:?} is not known")]
    UnknownEvent(String),
}

struct Named<'a>(Option<&'a ObjectKey>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(f, "{key} "),
            None => f.write_str("an object "),
        }
    }
}
