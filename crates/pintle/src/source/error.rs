//! What can go wrong between a source and its server.

use std::{error::Error as StdError, fmt, io, time::Duration};

use serde::Deserialize;

use crate::client::describe;

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server answered with an error of its own.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Nobody listens at the server's address.
    #[error("cannot reach the API server: connection refused")]
    ConnectionRefused(#[source] BoxError),
    /// The connection failed, or was cut.
    #[error("cannot talk to the API server: {}", describe(&**.0))]
    Transport(#[source] BoxError),
    /// The server went silent.
    #[error("no answer for {0:?}")]
    Silent(Duration),
    /// The answer could not be understood.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The request could not be made: a selector or an option is wrong.
    #[error("the request could not be made: {0}")]
    Request(#[source] BoxError),
}

/// An error of any type.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What is wrong with the bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is not JSON of the expected form.
    #[error("the answer is not {expected}, at byte {at}")]
    Malformed {
        /// What should have stood there.
        expected: &'static str,
        /// How far the body was understood.
        at: u64,
    },
    /// The body ended too soon.
    #[error("the answer was cut off after {at} bytes, inside {inside}")]
    CutOff {
        /// How many bytes came.
        at: u64,
        /// What was being read.
        inside: &'static str,
    },
    /// The server answered in a form meant for people.
    #[error("the answer is a {0}, which is not data")]
    Table(String),
    /// The answer is an object, but no list.
    #[error("the answer is no list: it has no items")]
    NotAList,
    /// A part of the answer is larger than this source accepts.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What was being read.
        what: &'static str,
        /// How large it may be.
        limit: usize,
    },
    /// A line of a watch is not an event.
    #[error("a line of the watch is not an event")]
    NotAnEvent,
}

impl SourceError {
    /// Sorts an error of the transport: a refused connection is told from all others.
    pub fn transport(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        if has_io_kind(&*error, io::ErrorKind::ConnectionRefused) {
            Self::ConnectionRefused(error)
        } else {
            Self::Transport(error)
        }
    }

    /// The server's own error, if it is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    /// The version that was asked for is too old to be served.
    pub fn is_expired(&self) -> bool {
        self.api().is_some_and(ApiError::is_expired)
    }

    /// The version that was asked for is newer than what the server has.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.api()
            .is_some_and(ApiError::is_too_large_resource_version)
    }

    /// The server asks for patience.
    pub fn is_too_many_requests(&self) -> bool {
        self.api().is_some_and(ApiError::is_too_many_requests)
    }

    /// The server does not know this way of asking.
    pub fn is_refusal(&self) -> bool {
        self.api().is_some_and(ApiError::is_refusal)
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.api().and_then(|error| error.retry_after)
    }
}

/// Whether an I/O error of this kind is among the causes of `error`.
fn has_io_kind(error: &(dyn StdError + 'static), kind: io::ErrorKind) -> bool {
    // Bounded, so that a chain that loops does not hold us.
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

/// A `Status` with which the server refused a request or ended a watch.
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
    /// The reason, one word for programs; empty when the server gave none.
    pub reason: String,
    /// The message, a sentence for people.
    pub message: String,
    /// The causes, each a type and a message.
    pub causes: Vec<(String, String)>,
    /// How long the server asks to wait before the next try.
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
    /// An error without causes.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Reads a `Status` object. Whatever is missing stays empty.
    pub fn parse(status: &[u8]) -> Option<Self> {
        let status: StatusForm = serde_json::from_slice(status).ok()?;
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

    /// The code and its reason, as in `403 Forbidden`.
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

    /// The version that was asked for is too old to be served, in either word servers use.
    pub fn is_expired(&self) -> bool {
        self.is("Expired", 410) || self.reason == "Gone"
    }

    /// The reason is exactly `Expired`: what a continue token that is too old is answered with.
    pub fn is_expired_token(&self) -> bool {
        self.reason == "Expired"
    }

    /// The version that was asked for is newer than what the server has, in three dialects: by
    /// cause, by the message of a cause, and by the message itself.
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

    /// The server asks for patience.
    pub fn is_too_many_requests(&self) -> bool {
        self.reason == "TooManyRequests" || self.code == 429
    }

    /// The server failed inside.
    pub fn is_internal(&self) -> bool {
        self.reason == "InternalError"
    }

    /// The server does not know this way of asking: it never will until it is replaced.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code, 400 | 405 | 406 | 415 | 422 | 501)
    }

    /// By reason; by code only when the server gave no reason that is known.
    fn is(&self, reason: &str, code: u16) -> bool {
        self.reason == reason || (self.reason.is_empty() && self.code == code)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusForm {
    code: u16,
    reason: String,
    message: String,
    details: Option<DetailsForm>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DetailsForm {
    causes: Vec<CauseForm>,
    retry_after_seconds: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CauseForm {
    reason: String,
    message: String,
}
