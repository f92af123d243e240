use super::*;
use crate::events::tests::support::occurrence;

/// A cache with its own clock.
struct Fixture {
    cache: SeriesCache,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self {
            cache: SeriesCache::new(),
            now: Instant::now(),
        }
    }

    fn observe(&mut self, occurrence: &Occurrence) -> Observed {
        self.cache.observe(occurrence, self.now, Event::default)
    }

    /// Writes everything that is due and returns the counts.
    fn write_all(&mut self) -> Vec<i32> {
        let mut counts = Vec::new();
        while let Some(job) = self.cache.next() {
            counts.push(job.event.series.as_ref().map_or(1, |series| series.count));
            self.cache.done(&job, true);
        }
        counts
    }
}

/// Proves events/v1-series.
#[test]
fn second_occurrence_starts_a_series() {
    let mut series = Fixture::new();
    let crash = occurrence("web", "Crashed", "exit 1");
    assert_eq!(series.observe(&crash), Observed::Due);
    assert_eq!(series.write_all(), [1]);
    let other_note = Occurrence {
        message: "exit 2".into(),
        ..crash.clone()
    };
    assert_eq!(series.observe(&other_note), Observed::Due);
    assert_eq!(series.write_all(), [2]);
    assert_eq!(series.observe(&crash), Observed::Counted);
    assert!(series.write_all().is_empty());
}

/// Proves events/v1-series.
#[test]
fn events_are_separate_by_reason_action_and_objects() {
    let mut series = Fixture::new();
    let base = occurrence("web", "Crashed", "exit 1");
    let mut newer = base.clone();
    newer.regarding.resource_version = Some("7".into());
    let others = [
        occurrence("db", "Crashed", "exit 1"),
        occurrence("web", "Killed", "exit 1"),
        Occurrence {
            action: Some("Restart".into()),
            ..base.clone()
        },
        Occurrence {
            related: Some(base.regarding.clone()),
            ..base.clone()
        },
    ];
    series.observe(&base);
    for other in &others {
        series.observe(other);
    }
    assert_eq!(series.write_all(), [1; 5]);
    series.observe(&newer);
    assert_eq!(
        series.write_all(),
        [2],
        "another resourceVersion is the same object"
    );
}

/// Proves events/v1-series.
#[test]
fn silent_event_finishes_after_a_last_write() {
    let mut series = Fixture::new();
    let (once, often) = (
        occurrence("web", "Once", ""),
        occurrence("web", "Often", ""),
    );
    series.observe(&once);
    for _ in 0..5 {
        series.observe(&often);
    }
    series.write_all();
    series.observe(&often);
    series.now += FINISH.saturating_sub(Duration::from_millis(1));
    series.cache.finish(series.now);
    assert_eq!(
        (series.write_all(), series.cache.entries.len()),
        (vec![], 2),
        "not yet"
    );
    series.now += Duration::from_millis(1);
    series.cache.finish(series.now);
    assert_eq!(series.write_all(), [6]);
    assert_eq!(series.cache.entries.len(), 0);
    series.observe(&often);
    assert_eq!(series.write_all(), [1], "a new event");
}

/// Proves events/v1-series.
#[test]
fn series_that_recurs_during_its_last_write_stays() {
    let mut series = Fixture::new();
    let often = occurrence("web", "Often", "");
    for _ in 0..2 {
        series.observe(&often);
    }
    series.write_all();
    series.observe(&often);
    series.now += FINISH;
    series.cache.finish(series.now);
    let job = series.cache.next().expect("a last write");
    series.observe(&often);
    series.cache.done(&job, true);
    assert_eq!(series.cache.entries.len(), 1);
    series.cache.flush();
    assert_eq!(series.write_all(), [4]);
}

/// Proves events/v1-series.
#[test]
fn refresh_writes_series_but_not_single_events() {
    let mut series = Fixture::new();
    series.observe(&occurrence("web", "Once", ""));
    for _ in 0..3 {
        series.observe(&occurrence("web", "Often", ""));
    }
    series.write_all();
    series.cache.refresh();
    assert_eq!(series.write_all(), [3]);
}

/// Proves events/never-blocks.
#[test]
fn due_event_is_queued_once_with_its_latest_count() {
    let mut series = Fixture::new();
    let (a, b) = (occurrence("a", "Seen", ""), occurrence("b", "Seen", ""));
    for seen in [&a, &b, &a, &a, &b] {
        series.observe(seen);
    }
    let (first, second) = (series.cache.next(), series.cache.next());
    assert!(series.cache.next().is_none());
    let (first, second) = (first.expect("a"), second.expect("b"));
    let counts = [&first, &second].map(|job| job.event.series.as_ref().map(|s| s.count));
    assert_eq!(counts, [Some(3), Some(2)]);
    assert_eq!(
        (first.occurrences, second.occurrences),
        (2, 2),
        "the third was counted immediately"
    );
    assert_eq!(series.cache.pending(), 0);
}

/// Proves events/never-blocks.
#[test]
fn only_idle_events_make_room() {
    let mut series = Fixture::new();
    for i in 0..4096 {
        series.observe(&occurrence(&format!("pod-{i}"), "Seen", ""));
    }
    let late = occurrence("late", "Seen", "");
    assert_eq!(series.observe(&late), Observed::Rejected);
    assert_eq!(series.write_all().len(), 4096);
    assert_eq!(series.observe(&late), Observed::Due);
    assert_eq!(series.cache.entries.len(), 4096);
    assert_eq!(
        series.observe(&occurrence("pod-4095", "Seen", "")),
        Observed::Due
    );
    assert_eq!(series.write_all(), [1, 2], "pod-4095 was still known");
}

/// Proves events/never-blocks.
#[test]
fn full_cache_writes_pending_counts_to_make_room() {
    let mut series = Fixture::new();
    for i in 0..4096 {
        let seen = occurrence(&format!("pod-{i}"), "Seen", "");
        for _ in 0..2 {
            series.observe(&seen);
        }
        series.write_all();
        series.observe(&seen);
    }
    let late = occurrence("late", "Seen", "");
    assert_eq!(series.observe(&late), Observed::Rejected);
    assert_eq!(series.write_all(), [3; 4096]);
    assert_eq!(series.observe(&late), Observed::Due);
}
