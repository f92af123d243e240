//! Status conditions: what is true of an object, since when, and why.
//!
//! The difficult part is the transition time. It must change only with the condition's status;
//! otherwise a controller that reports the same state twice writes twice and triggers itself.
//!
//! [`Readiness`] is the vocabulary that tools understand without knowing the kind: `Ready`,
//! `Reconciling` and `Stalled`, always set together.

mod readiness;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use self::readiness::{READY, RECONCILING, Readiness, STALLED, set_readiness};
use crate::clock::Clock;

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The controller cannot tell.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as it appears in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition as observed now. [`set_condition`] adds the transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    type_: String,
    status: ConditionStatus,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl NewCondition {
    /// Creates a condition.
    ///
    /// `type_` and `reason` are CamelCase words for programs; API servers reject an empty reason.
    /// `message` is for people and may be empty.
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: None,
        }
    }

    /// Sets the generation of the object that was observed.
    pub fn observed_generation(mut self, generation: impl Into<Option<i64>>) -> Self {
        self.observed_generation = generation.into();
        self
    }

    pub(crate) fn type_(&self) -> &str {
        &self.type_
    }

    /// Sets the observed generation unless it is set.
    pub(crate) fn or_observed_generation(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = self.observed_generation.or(generation);
        self
    }
}

/// Sets a condition in a list of conditions. Returns whether that changed anything.
///
/// The transition time changes only with the status of the condition, not with its reason or
/// message. If nothing changed, the controller can skip the write.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use pintle::{clock::Clock, conditions::{NewCondition, is_true, set_condition}};
///
/// let clock = Clock::system();
/// let mut conditions = Vec::new();
/// let ready = NewCondition::new("Ready", true, "AllReplicasUp", "3 of 3").observed_generation(2);
/// assert!(set_condition(&mut conditions, ready.clone(), &clock));
/// assert!(!set_condition(&mut conditions, ready, &clock), "nothing to write");
/// assert!(is_true(&conditions, "Ready"));
/// # }
/// ```
pub fn set_condition(conditions: &mut Vec<Condition>, new: NewCondition, clock: &Clock) -> bool {
    let NewCondition {
        type_,
        status,
        reason,
        message,
        observed_generation,
    } = new;
    let status = status.as_str().to_owned();
    let known = conditions.iter_mut().find(|known| known.type_ == type_);
    let last_transition_time = match &known {
        Some(known) if known.status == status => known.last_transition_time.clone(),
        _ => now(clock),
    };
    let new = Condition {
        type_,
        status,
        reason,
        message,
        observed_generation,
        last_transition_time,
    };
    match known {
        Some(known) if *known == new => return false,
        Some(known) => *known = new,
        None => conditions.push(new),
    }
    true
}

/// Removes the condition of this type. Returns whether there was one.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|known| known.type_ != type_);
    conditions.len() != before
}

/// Returns the condition of this type.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|known| known.type_ == type_)
}

/// Returns whether there is a condition of this type with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find_condition(conditions, type_).is_some_and(|known| known.status == "True")
}

/// Returns the time in whole seconds. Servers store no fraction, so a new condition equals itself
/// once it is read back.
fn now(clock: &Clock) -> Time {
    let now = clock.now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests;
