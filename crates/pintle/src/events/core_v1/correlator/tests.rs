use super::*;
use crate::events::{EventType, tests::support::occurrence};

fn messages(writes: &[Write]) -> Vec<&str> {
    writes
        .iter()
        .filter_map(|write| write.event.message.as_deref())
        .collect()
}

fn correlate(correlator: &mut Correlator, reason: &str, message: &str, now: Instant) -> Write {
    correlator
        .correlate(&occurrence("web", reason, message), now)
        .expect("not throttled")
}

/// Proves events/repeats-patch.
#[test]
fn repeat_raises_the_count() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    let first = correlate(&mut correlator, "Pulled", "image is there", now);
    assert_eq!(first.patch(), None);
    let second = correlate(&mut correlator, "Pulled", "image is there", now);
    assert_eq!(second.event.metadata.name, first.event.metadata.name);
    assert_eq!(second.event.first_timestamp, first.event.first_timestamp);
    let patch = second.patch().expect("repeats are patches");
    assert_eq!(patch["count"], 2);
    assert_eq!(patch["message"], "image is there");
    assert_eq!(patch.as_object().map(serde_json::Map::len), Some(3));
}

/// Proves events/repeats-patch.
#[test]
fn repeat_builds_on_the_servers_response() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    let first = correlate(&mut correlator, "Pulled", "image is there", now);
    let mut answer = first.event.clone();
    answer.metadata.name = Some("renamed".into());
    answer.metadata.resource_version = Some("42".into());
    answer.count = Some(7);
    correlator.stored(&first, &answer);
    let next = correlate(&mut correlator, "Pulled", "image is there", now);
    assert_eq!(next.event.metadata.name.as_deref(), Some("renamed"));
    assert_eq!(next.event.metadata.resource_version.as_deref(), Some("42"));
    assert_eq!(next.event.count, Some(8));
}

/// Proves events/aggregation.
#[test]
fn tenth_message_of_a_group_is_combined() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    let mut writes: Vec<_> = (1..=12)
        .map(|i| correlate(&mut correlator, "Failed", &format!("m{i}"), now))
        .collect();
    writes.push(correlate(&mut correlator, "Failed", "m3", now));
    assert!(
        writes[..9]
            .iter()
            .all(|write| !write.combined && write.patch().is_none())
    );
    assert_eq!(
        messages(&writes[9..]),
        [
            "(combined from similar events): m10",
            "(combined from similar events): m11",
            "(combined from similar events): m12",
            "m3"
        ]
    );
    let counts: Vec<_> = writes[9..]
        .iter()
        .filter_map(|write| write.event.count)
        .collect();
    assert_eq!(
        counts,
        [1, 2, 3, 2],
        "one combined event; m3 occurred twice"
    );
    assert_eq!(writes[9].event.reason.as_deref(), Some("Failed"));
    let mut annotated = occurrence("web", "Failed", "m13");
    annotated
        .annotations
        .insert("about".into(), "m13 alone".into());
    let combined = correlator
        .correlate(&annotated, now)
        .expect("not throttled");
    assert_eq!(combined.event.metadata.annotations, None);
}

/// Proves events/aggregation.
#[test]
fn group_resets_after_ten_silent_minutes() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    for i in 1..=10 {
        correlate(&mut correlator, "Failed", &format!("m{i}"), start);
    }
    let mut now = start;
    for message in ["m11", "m12"] {
        now += GROUP_TTL;
        assert!(correlate(&mut correlator, "Failed", message, now).combined);
    }
    now += GROUP_TTL + Duration::from_millis(1);
    assert!(!correlate(&mut correlator, "Failed", "m13", now).combined);
}

/// Proves events/aggregation.
#[test]
fn groups_are_separate_by_reason_and_object() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    for i in 1..=10 {
        correlate(&mut correlator, "Failed", &format!("m{i}"), now);
    }
    assert!(!correlate(&mut correlator, "Pulled", "m11", now).combined);
    let elsewhere = occurrence("db", "Failed", "m11");
    assert!(
        correlator
            .correlate(&elsewhere, now)
            .is_some_and(|write| !write.combined)
    );
}

/// Proves events/spam-filter.
#[test]
fn object_may_cause_25_events_then_one_per_5_minutes() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    let same = occurrence("web", "BackOff", "again");
    let allowed = (0..40)
        .filter(|_| correlator.correlate(&same, start).is_some())
        .count();
    assert_eq!(allowed, 25);
    let soon = start + SPAM_REFILL - Duration::from_millis(1);
    assert_eq!(correlator.correlate(&same, soon), None);
    let later = start + SPAM_REFILL;
    let write = correlator
        .correlate(&same, later)
        .expect("one token is back");
    assert_eq!(write.event.count, Some(42), "withheld events are counted");
    assert_eq!(correlator.correlate(&same, later), None);
    let other_reason = occurrence("web", "Pulled", "done");
    assert_eq!(
        correlator.correlate(&other_reason, later),
        None,
        "the reason does not matter"
    );
    let warning = Occurrence {
        event_type: EventType::Warning,
        ..other_reason
    };
    assert!(
        correlator.correlate(&warning, later).is_some(),
        "each type has its own allowance"
    );
}

/// Proves events/never-blocks.
#[test]
fn each_cache_keeps_the_4096_most_recent() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    for i in 0..=4096 {
        let seen = occurrence(&format!("pod-{i}"), "Started", "up");
        assert!(correlator.correlate(&seen, now).is_some());
    }
    let sizes = (
        correlator.groups.len(),
        correlator.events.len(),
        correlator.objects.len(),
    );
    assert_eq!(sizes, (4096, 4096, 4096));
    let mut count_of = |name: &str| {
        correlator
            .correlate(&occurrence(name, "Started", "up"), now)
            .and_then(|w| w.event.count)
    };
    assert_eq!(count_of("pod-4096"), Some(2), "still known");
    assert_eq!(count_of("pod-0"), Some(1), "the oldest was evicted");
}

#[test]
fn key_parts_cannot_be_confused() {
    assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    assert_ne!(key(["1:a"]), key(["", "a"]));
}
