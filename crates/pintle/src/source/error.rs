//! Errors of list and watch requests.

use std::{error::Error as StdError, fmt, io, time::Duration};

use serde::Deserialize;

use crate::{BoxError, client::describe};

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server returned an error.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The server's address refused the connection.
    #[error("cannot reach the API server: connection refused")]
    ConnectionRefused(#[source] BoxError),
    /// The connection failed or was interrupted.
    #[error("connection to the API server failed: {}", describe(&**.0))]
    Transport(#[source] BoxError),
    /// The server sent nothing for this long.
    #[error("no response from the API server for {0:?}")]
    IdleTimeout(Duration),
    /// The response body could not be read.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The request could not be built, because a selector or an option is invalid.
    #[error("cannot build the request: {0}")]
    Request(#[source] BoxError),
}

/// A response body that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is not JSON of the expected form.
    #[error("malformed response body: expected {expected} at byte {at}")]
    Malformed {
        /// The expected syntax.
        expected: &'static str,
        /// The position of the error.
        at: u64,
    },
    /// The body ended too soon.
    #[error("response body ended after {at} bytes, inside {inside}")]
    CutOff {
        /// How many bytes were received.
        at: u64,
        /// The part of the body being read.
        inside: &'static str,
    },
    /// The server sent a form meant for display, such as a `Table`.
    #[error("the server sent a {0} instead of a list")]
    Table(String),
    /// The body is an object but not a list.
    #[error("the response is not a list: it has no items")]
    NotAList,
    /// A part of the body is larger than this source accepts.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What was being read.
        what: &'static str,
        /// The largest accepted size in bytes.
        limit: usize,
    },
    /// A line of a watch is not an event.
    #[error("a line of the watch is not a watch event")]
    NotAnEvent,
}

impl SourceError {
    /// Wraps a transport error, as [`ConnectionRefused`](Self::ConnectionRefused) if that is its
    /// cause and as [`Transport`](Self::Transport) otherwise.
    pub fn transport(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        if has_io_kind(&*error, io::ErrorKind::ConnectionRefused) {
            Self::ConnectionRefused(error)
        } else {
            Self::Transport(error)
        }
    }

    /// Returns the server's error, if the server returned one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether the requested `resourceVersion` is too old.
    pub fn is_expired(&self) -> bool {
        self.api().is_some_and(ApiError::is_expired)
    }

    /// Returns whether the requested `resourceVersion` is newer than the server's own.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.api()
            .is_some_and(ApiError::is_too_large_resource_version)
    }

    /// Returns whether the server is throttling the client.
    pub fn is_too_many_requests(&self) -> bool {
        self.api().is_some_and(ApiError::is_too_many_requests)
    }

    /// Returns whether the server does not support this kind of request.
    pub fn is_unsupported(&self) -> bool {
        self.api().is_some_and(ApiError::is_unsupported)
    }

    /// Returns how long the server asks the client to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.api().and_then(|error| error.retry_after)
    }
}

/// Returns whether an I/O error of this kind is among the causes of `error`.
fn has_io_kind(error: &(dyn StdError + 'static), kind: io::ErrorKind) -> bool {
    // Bounded, in case a chain of sources is cyclic.
    let mut next = Some(error);
    for _ in 0..16 {
        let Some(error) = next else { return false };
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == kind)
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// A `Status` with which the server rejected a request or ended a watch.
///
/// ```
/// use pintle::source::ApiError;
///
/// let error = ApiError::new(410, "Expired", "too old resource version: 5 (9)");
/// assert!(error.is_expired());
/// assert_eq!(error.title(), "410 Expired");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, one word; empty if the server sent none.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The causes, each a reason and a message.
    pub causes: Vec<(String, String)>,
    /// How long the server asks the client to wait before the next attempt.
    pub retry_after: Option<Duration>,
}

impl StdError for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl ApiError {
    /// Returns an error without causes.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Parses a `Status` object; `None` if the JSON is not one. Missing fields stay empty.
    pub fn parse(status: &[u8]) -> Option<Self> {
        let status: StatusJson = serde_json::from_slice(status).ok()?;
        let details = status.details.unwrap_or_default();
        Some(Self {
            code: status.code,
            reason: status.reason,
            message: status.message,
            causes: details
                .causes
                .into_iter()
                .map(|cause| (cause.reason, cause.message))
                .collect(),
            retry_after: (details.retry_after_seconds > 0)
                .then(|| Duration::from_secs(u64::from(details.retry_after_seconds))),
        })
    }

    /// Returns the code and its reason, as in `403 Forbidden`.
    pub fn title(&self) -> String {
        let reason = if self.reason.is_empty() {
            http::StatusCode::from_u16(self.code)
                .ok()
                .and_then(|code| code.canonical_reason())
                .unwrap_or("Unknown")
        } else {
            &self.reason
        };
        format!("{} {reason}", self.code)
    }

    /// Returns whether the requested `resourceVersion` is too old. Servers report it as `Expired`
    /// or as `Gone`.
    pub fn is_expired(&self) -> bool {
        self.is("Expired", 410) || self.reason == "Gone"
    }

    /// Returns whether the reason is exactly `Expired`, which servers send for a continue token
    /// that is too old.
    pub fn is_expired_token(&self) -> bool {
        self.reason == "Expired"
    }

    /// Returns whether the requested `resourceVersion` is newer than the server's own. Depending on
    /// their version, servers report it in a cause, in the message of a cause, or in the message.
    pub fn is_too_large_resource_version(&self) -> bool {
        const SENTENCE: &str = "Too large resource version";
        if self
            .causes
            .iter()
            .any(|(reason, _)| reason == "ResourceVersionTooLarge")
        {
            return true;
        }
        self.is("Timeout", 504)
            && (self.causes.iter().any(|(_, message)| message == SENTENCE)
                || self.message.contains(SENTENCE))
    }

    /// Returns whether the server is throttling the client.
    pub fn is_too_many_requests(&self) -> bool {
        self.reason == "TooManyRequests" || self.code == 429
    }

    /// Returns whether the server reported an internal error.
    pub fn is_internal(&self) -> bool {
        self.reason == "InternalError"
    }

    /// Returns whether the server does not support this kind of request, so that repeating it is
    /// pointless until the server is upgraded.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.code, 400 | 405 | 406 | 415 | 422 | 501)
    }

    /// Compares by reason, and by code only if the server sent no reason.
    fn is(&self, reason: &str, code: u16) -> bool {
        self.reason == reason || (self.reason.is_empty() && self.code == code)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusJson {
    code: u16,
    reason: String,
    message: String,
    details: Option<DetailsJson>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DetailsJson {
    causes: Vec<CauseJson>,
    retry_after_seconds: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CauseJson {
    reason: String,
    message: String,
}
