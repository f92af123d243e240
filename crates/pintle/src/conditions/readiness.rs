//! The progress of a reconcile, as conditions that agree with each other.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{NewCondition, remove_condition, set_condition};
use crate::clock::Clock;

/// The type of the condition that is `True` once an object matches its spec.
pub const READY: &str = "Ready";

/// The type of the condition that is `True` while a controller works on an object. It is absent
/// otherwise.
pub const RECONCILING: &str = "Reconciling";

/// The type of the condition that is `True` when a controller cannot bring an object to its desired
/// state. It is absent otherwise.
pub const STALLED: &str = "Stalled";

/// The progress of an object: ready, in progress, or stalled.
///
/// [`set_readiness`] and [`Context::report`](crate::controller::Context::report) turn it into the
/// three conditions that [kstatus](crate::kstatus) understands:
///
/// | | `Ready` | `Reconciling` | `Stalled` | kstatus |
/// |---|---|---|---|---|
/// | [`ready`](Self::ready) | `True` | absent | absent | Current |
/// | [`in_progress`](Self::in_progress) | `False` | `True` | absent | InProgress |
/// | [`stalled`](Self::stalled) | `False` | absent | `True` | Failed |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    state: State,
    reason: String,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    InProgress,
    Stalled,
}

impl Readiness {
    /// Creates the readiness of an object that matches its spec.
    ///
    /// `reason` is one CamelCase word for programs, `message` a sentence for people.
    pub fn ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(State::Ready, reason, message)
    }

    /// Creates the readiness of an object that does not match its spec yet while the controller
    /// works on it: waiting for a rollout, or retrying an error.
    pub fn in_progress(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(State::InProgress, reason, message)
    }

    /// Creates the readiness of an object that will not become ready without intervention: its spec
    /// is invalid, or a deadline has passed.
    pub fn stalled(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(State::Stalled, reason, message)
    }

    fn new(state: State, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Returns whether the object matches its spec.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }
}

/// Sets `Ready`, and sets or removes `Reconciling` and `Stalled`, so that the three agree. Returns
/// whether that changed anything.
///
/// `generation` is the generation of the observed object; all three conditions record it. Other
/// conditions are left alone. If the status has its own `observedGeneration`, set that too:
/// [kstatus](crate::kstatus) considers the conditions outdated otherwise. In a reconcile,
/// [`Context::report`](crate::controller::Context::report) does both and writes the result.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use pintle::{clock::Clock, conditions::{Readiness, find_condition, is_true, set_readiness}};
///
/// let clock = Clock::system();
/// let mut conditions = Vec::new();
/// let waiting = Readiness::in_progress("RollingOut", "1 of 3 replicas are ready");
/// assert!(set_readiness(&mut conditions, &waiting, Some(1), &clock));
/// assert!(is_true(&conditions, "Reconciling") && !is_true(&conditions, "Ready"));
///
/// let ready = Readiness::ready("RolledOut", "3 of 3 replicas are ready");
/// assert!(set_readiness(&mut conditions, &ready, Some(1), &clock));
/// assert!(is_true(&conditions, "Ready"));
/// assert!(find_condition(&conditions, "Reconciling").is_none());
/// # }
/// ```
pub fn set_readiness(
    conditions: &mut Vec<Condition>,
    readiness: &Readiness,
    generation: Option<i64>,
    clock: &Clock,
) -> bool {
    let state = readiness.state;
    let new = |type_: &str, holds: bool| {
        NewCondition::new(type_, holds, &readiness.reason, &readiness.message)
            .observed_generation(generation)
    };
    let mut changed = set_condition(conditions, new(READY, readiness.is_ready()), clock);
    for (type_, holds) in [
        (RECONCILING, state == State::InProgress),
        (STALLED, state == State::Stalled),
    ] {
        changed |= if holds {
            set_condition(conditions, new(type_, true), clock)
        } else {
            remove_condition(conditions, type_)
        };
    }
    changed
}
