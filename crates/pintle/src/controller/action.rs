//! What a reconcile answers.

use std::{error::Error, fmt, time::Duration};

use crate::{client::describe, queue::Priority};

/// What happens to a key after a reconcile that succeeded.
///
/// ```
/// use pintle::controller::Action;
/// use std::time::Duration;
///
/// // Nothing more to do until something changes.
/// let done = Action::await_change();
/// // Look again in an hour, whatever happens until then.
/// let later = Action::requeue_after(Duration::from_secs(3600));
/// assert_ne!(done, later);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the controller acts on what a reconcile returns"]
pub struct Action {
    pub(super) after: Option<Duration>,
    pub(super) priority: Option<Priority>,
}

impl Action {
    /// Done: the key runs again when one of the watched objects changes.
    pub fn await_change() -> Self {
        Self {
            after: None,
            priority: None,
        }
    }

    /// Done for now: the key runs again after `delay` at the latest, sooner if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            after: Some(delay),
            priority: None,
        }
    }

    /// The priority of the run after the delay; without it the key keeps the one it has now.
    pub fn with_priority(self, priority: Priority) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }
}

/// Why a reconcile failed, and whether trying again can help.
///
/// Any type that is an [`Error`] becomes one through `?`, and is retried with back-off; for others
/// (a boxed error, `anyhow`'s) there is [`retry`](Self::retry). An error that no retry mends
/// (a spec that cannot be right) is made [`terminal`](Self::terminal): the key rests until
/// something changes.
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
    error: Box<dyn Error + Send + Sync>,
    terminal: bool,
}

impl ReconcileError {
    /// An error that is retried with back-off.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            error: error.into(),
            terminal: false,
        }
    }

    /// An error that is counted and reported but not retried.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            error: error.into(),
            terminal: true,
        }
    }

    /// Whether the key rests until something changes.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The error itself.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::retry(error)
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
            .field("terminal", &self.terminal)
            .finish()
    }
}
