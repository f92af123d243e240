//! Conditions of a status: what is true of an object, since when, and why.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::clock::Clock;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// The word used on the wire.
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

/// A condition as a controller sees it now. Since when that is so, [`set_condition`] finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    type_: String,
    status: ConditionStatus,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl NewCondition {
    /// `type_` and `reason` are words in CamelCase for programs (a server refuses an empty reason);
    /// the message, which may be empty, is for people.
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

    /// The generation of the object the controller looked at.
    pub fn observed_generation(mut self, generation: impl Into<Option<i64>>) -> Self {
        self.observed_generation = generation.into();
        self
    }
}

/// Puts a condition into a status, and says whether that changed anything.
///
/// The transition time moves only when the status does: a new reason or message of the same status
/// keeps it. When nothing is new, nothing is changed, so a controller can leave out the write.
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
/// assert!(!set_condition(&mut conditions, ready, &clock), "nothing new, nothing to write");
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
    let since = match &known {
        Some(known) if known.status == status => known.last_transition_time.clone(),
        _ => now(clock),
    };
    let last_transition_time = since;
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

/// Takes a condition out of a status, and says whether it was there.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|known| known.type_ != type_);
    conditions.len() != before
}

/// The condition of this type.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|known| known.type_ == type_)
}

/// Whether the condition of this type is there and holds.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find_condition(conditions, type_).is_some_and(|known| known.status == "True")
}

/// The time in whole seconds, as it comes back from a server: so a condition that was just made
/// equals itself once stored.
fn now(clock: &Clock) -> Time {
    let now = clock.now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ready(status: ConditionStatus, reason: &str, message: &str) -> NewCondition {
        NewCondition::new("Ready", status, reason, message)
    }

    fn clock() -> Clock {
        Clock::starting_at("2026-01-01T00:00:00.75Z".parse().expect("a time"))
    }

    fn since(conditions: &[Condition]) -> String {
        find_condition(conditions, "Ready")
            .expect("there")
            .last_transition_time
            .0
            .to_string()
    }

    /// Proves conditions/transition-time.
    #[tokio::test(start_paused = true)]
    async fn the_transition_time_moves_with_the_status_only() {
        let (clock, mut conditions) = (clock(), Vec::new());
        assert!(set_condition(
            &mut conditions,
            ready(false.into(), "Starting", "0 of 3"),
            &clock
        ));
        assert_eq!(since(&conditions), "2026-01-01T00:00:00Z", "whole seconds");

        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(set_condition(
            &mut conditions,
            ready(false.into(), "Starting", "1 of 3"),
            &clock
        ));
        assert!(set_condition(
            &mut conditions,
            ready(false.into(), "Waiting", "1 of 3"),
            &clock
        ));
        let seen = ready(false.into(), "Waiting", "1 of 3").observed_generation(2);
        assert!(set_condition(&mut conditions, seen, &clock));
        assert_eq!(since(&conditions), "2026-01-01T00:00:00Z");
        assert_eq!(conditions[0].message, "1 of 3");
        assert_eq!(conditions[0].observed_generation, Some(2));

        assert!(set_condition(
            &mut conditions,
            ready(true.into(), "Up", ""),
            &clock
        ));
        assert_eq!(since(&conditions), "2026-01-01T00:00:10Z");
        assert_eq!(conditions.len(), 1);
    }

    /// Proves conditions/transition-time.
    #[tokio::test(start_paused = true)]
    async fn what_is_not_new_changes_nothing() {
        let (clock, mut conditions) = (clock(), Vec::new());
        let new = ready(ConditionStatus::Unknown, "NoWord", "").observed_generation(1);
        assert!(set_condition(&mut conditions, new.clone(), &clock));
        let stored = serde_json::to_string(&conditions).expect("JSON");
        let mut conditions: Vec<Condition> = serde_json::from_str(&stored).expect("conditions");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(!set_condition(&mut conditions, new, &clock));
        assert_eq!(serde_json::to_string(&conditions).expect("JSON"), stored);
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_are_found_and_removed_by_type() {
        let (clock, mut conditions) = (clock(), Vec::new());
        set_condition(&mut conditions, ready(true.into(), "Up", ""), &clock);
        let degraded = NewCondition::new("Degraded", false, "Fine", "");
        set_condition(&mut conditions, degraded, &clock);
        assert!(is_true(&conditions, "Ready"));
        assert!(!is_true(&conditions, "Degraded"));
        assert!(!is_true(&conditions, "Absent"));
        assert!(remove_condition(&mut conditions, "Ready"));
        assert!(!remove_condition(&mut conditions, "Ready"));
        assert_eq!(conditions.len(), 1);
    }
}
