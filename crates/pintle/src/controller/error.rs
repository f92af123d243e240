//! Errors that a reconcile returns, and whether each is retried.

use std::{error::Error, fmt, time::Duration};

use super::ErrorAction;
use crate::{cache::BoxError, client::describe};

/// An error together with the decision whether to retry it.
///
/// A reconcile may return any error type; plain errors are retried with back-off. This type is for
/// code that decides case by case: every [`Error`] converts into it through `?` and is retried,
/// [`terminal`](Self::terminal) marks an error that retrying cannot fix (an invalid spec), and
/// [`retry_after`](Self::retry_after) sets the delay.
///
/// ```
/// use pintle::controller::ReconcileError;
///
/// fn replicas(spec: &str) -> Result<u32, ReconcileError> {
///     spec.parse().map_err(ReconcileError::terminal)
/// }
/// assert!(replicas("many").unwrap_err().is_terminal());
/// ```
pub struct ReconcileError {
    error: BoxError,
    action: ErrorAction,
}

impl ReconcileError {
    /// Wraps an error that is retried with back-off.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self::new(error, ErrorAction::Retry)
    }

    /// Wraps an error that is retried after `delay`.
    pub fn retry_after(error: impl Into<BoxError>, delay: Duration) -> Self {
        Self::new(error, ErrorAction::RetryAfter(delay))
    }

    /// Wraps an error that is counted and logged but not retried: the key runs again when something
    /// changes.
    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self::new(error, ErrorAction::Terminal)
    }

    pub(super) fn new(error: impl Into<BoxError>, action: ErrorAction) -> Self {
        Self {
            error: error.into(),
            action,
        }
    }

    /// Recovers the decision of a `ReconcileError` that was boxed; retries every other error.
    pub(super) fn from_boxed(error: BoxError) -> Self {
        match error.downcast::<Classified>() {
            Ok(classified) => classified.0,
            Err(error) => Self::retry(error),
        }
    }

    /// Returns what happens to the key.
    pub fn action(&self) -> ErrorAction {
        self.action
    }

    /// Returns whether the error is not retried.
    pub fn is_terminal(&self) -> bool {
        self.action == ErrorAction::Terminal
    }

    /// Returns the wrapped error.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl From<ReconcileError> for BoxError {
    fn from(error: ReconcileError) -> Self {
        Box::new(Classified(error))
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(&*self.error))
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconcileError")
            .field("error", &self.error)
            .field("action", &self.action)
            .finish()
    }
}

/// A [`ReconcileError`] that travels as a `dyn Error`. `ReconcileError` itself cannot implement
/// [`Error`]: that would conflict with its conversion from every error.
#[derive(Debug)]
struct Classified(ReconcileError);

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Classified {}

#[cfg(test)]
mod tests;
