//! The result of a reconcile: when its key runs again.

use std::time::Duration;

use crate::queue::Priority;

/// When a key runs again after a reconcile that succeeded.
///
/// ```
/// use pintle::controller::Action;
/// use std::time::Duration;
///
/// // Nothing more to do until something changes.
/// let done = Action::await_change();
/// // Check again in an hour, or as soon as something changes.
/// let later = Action::requeue_after(Duration::from_secs(3600));
/// assert_ne!(done, later);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an action has no effect unless the reconcile function returns it"]
pub struct Action {
    pub(super) after: Option<Duration>,
    pub(super) priority: Option<Priority>,
}

impl Action {
    /// Does not run the key again until a watched object changes.
    pub fn await_change() -> Self {
        Self {
            after: None,
            priority: None,
        }
    }

    /// Runs the key again after `delay`, or earlier if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            after: Some(delay),
            priority: None,
        }
    }

    /// The same as [`requeue_after`](Self::requeue_after), under kube-runtime's name.
    pub fn requeue(delay: Duration) -> Self {
        Self::requeue_after(delay)
    }

    /// Sets the priority of the run after the delay. By default the key keeps its priority.
    pub fn with_priority(self, priority: Priority) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }
}

/// When a key runs again after a reconcile that failed.
///
/// An [error policy](super::Controller::error_policy) returns one. It may also return an
/// [`Action`]: `requeue_after` becomes [`RetryAfter`](Self::RetryAfter), `await_change` becomes
/// [`Terminal`](Self::Terminal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorAction {
    /// Retries with the queue's back-off, which grows with every failure of the key.
    #[default]
    Retry,
    /// Retries after this delay. The failure counts towards the back-off of later retries.
    RetryAfter(Duration),
    /// Does not retry: the key runs again when something changes.
    Terminal,
}

impl From<Action> for ErrorAction {
    fn from(action: Action) -> Self {
        action.after.map_or(Self::Terminal, Self::RetryAfter)
    }
}
