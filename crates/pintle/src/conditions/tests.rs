use std::time::Duration;

use super::*;

fn ready(status: ConditionStatus, reason: &str, message: &str) -> NewCondition {
    NewCondition::new("Ready", status, reason, message)
}

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00.75Z".parse().expect("timestamp"))
}

fn since(conditions: &[Condition]) -> String {
    find_condition(conditions, "Ready")
        .expect("condition")
        .last_transition_time
        .0
        .to_string()
}

/// Proves conditions/transition-time.
#[tokio::test(start_paused = true)]
async fn transition_time_changes_only_with_the_status() {
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
async fn unchanged_condition_is_not_reported_as_changed() {
    let (clock, mut conditions) = (clock(), Vec::new());
    let new = ready(ConditionStatus::Unknown, "Unreachable", "").observed_generation(1);
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

/// Proves conditions/readiness.
#[tokio::test(start_paused = true)]
async fn readiness_conditions_never_contradict_each_other() {
    let (clock, mut conditions) = (clock(), Vec::new());
    let other = NewCondition::new("Synced", true, "Done", "");
    set_condition(&mut conditions, other, &clock);
    let of = |conditions: &[Condition]| {
        let mut found: Vec<String> = conditions
            .iter()
            .map(|one| format!("{}={} {}", one.type_, one.status, one.reason))
            .collect();
        found.sort();
        found.join(", ")
    };
    let waiting = Readiness::in_progress("Waiting", "1 of 2");
    for (readiness, expected) in [
        (
            waiting.clone(),
            "Ready=False Waiting, Reconciling=True Waiting, Synced=True Done",
        ),
        (
            Readiness::stalled("Invalid", "no image"),
            "Ready=False Invalid, Stalled=True Invalid, Synced=True Done",
        ),
        (
            Readiness::ready("Up", ""),
            "Ready=True Up, Synced=True Done",
        ),
        (
            waiting.clone(),
            "Ready=False Waiting, Reconciling=True Waiting, Synced=True Done",
        ),
    ] {
        assert!(set_readiness(&mut conditions, &readiness, Some(1), &clock));
        assert!(!set_readiness(&mut conditions, &readiness, Some(1), &clock));
        assert_eq!(of(&conditions), expected);
    }
    assert!(
        set_readiness(&mut conditions, &waiting, Some(2), &clock),
        "the observed generation changed"
    );
    for type_ in [READY, RECONCILING] {
        let condition = find_condition(&conditions, type_).expect("condition");
        assert_eq!(condition.observed_generation, Some(2));
    }
}
