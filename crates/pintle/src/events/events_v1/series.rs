//! Which events.k8s.io/v1 events belong together, and what the server has yet to hear of them.

use std::{collections::VecDeque, num::NonZeroUsize, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use lru::LruCache;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::{
    core_v1::{key, object_parts, or_empty},
    occurrence::Occurrence,
};

/// How many different events are remembered at most.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// An event that was silent for so long is over.
pub(super) const FINISH: Duration = Duration::from_mins(6);
/// Series that go on are told again this often, so that the server does not let them expire.
pub(super) const REFRESH: Duration = Duration::from_mins(30);

/// The events that may still repeat, each with what the server knows of it.
///
/// Occurrences that differ only by message, time and version of the object are one event. Its first
/// occurrence makes it *due* to be created, its second due to become a series; further ones are only
/// counted. A due event waits in line, once, however often it occurs meanwhile; taken out of the
/// line it is *in flight* and is written as it is at that moment, so a server out of reach costs
/// order and memory nothing. Written, it is *idle* until it occurs again, is refreshed, or was
/// silent for long enough to leave.
///
/// At most 4096 events are remembered. An idle one makes room for a new one; while none is idle,
/// new ones are turned away.
#[derive(Debug)]
pub(super) struct SeriesBook {
    entries: LruCache<String, Entry>,
    due: VecDeque<String>,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    count: i32,
    last_observed: Timestamp,
    last_seen: Instant,
    /// The count that was told last; 0 before the first time.
    told: i32,
    /// Occurrences whose end is not yet counted.
    unsettled: usize,
    stage: Stage,
    /// Whether the event leaves with its next write, because it has been silent.
    leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Due,
    InFlight,
}

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// It will be part of a write.
    Due,
    /// It is counted in a series that the server knows of.
    Counted,
    /// There is no room to remember it.
    TurnedAway,
}

/// One event to be written as it is now.
#[derive(Clone, Debug)]
pub(super) struct Job {
    key: String,
    pub(super) event: Event,
    /// How many occurrences come to their end with this write.
    pub(super) settles: usize,
}

impl Job {
    /// What changes in an event that exists, or nothing if it happened once.
    pub(super) fn patch(&self) -> Option<Value> {
        self.event
            .series
            .as_ref()
            .map(|series| json!({ "series": series }))
    }
}

impl SeriesBook {
    pub(super) fn new() -> Self {
        Self {
            entries: LruCache::new(ENTRIES),
            due: VecDeque::new(),
        }
    }

    /// Takes in one occurrence; `event` says how a first one is written.
    pub(super) fn observe(
        &mut self,
        occurrence: &Occurrence,
        now: Instant,
        event: impl FnOnce() -> Event,
    ) -> Observed {
        let key = series_key(occurrence);
        let Some(entry) = self.entries.get_mut(&key) else {
            if !self.make_room() {
                return Observed::TurnedAway;
            }
            self.entries
                .put(key.clone(), Entry::new(event(), occurrence.at, now));
            self.line_up(key);
            return Observed::Due;
        };
        entry.count = entry.count.saturating_add(1);
        entry.last_observed = occurrence.at;
        entry.last_seen = now;
        entry.leaving = false;
        if entry.count > 2 {
            return Observed::Counted;
        }
        entry.unsettled += 1;
        self.line_up(key);
        Observed::Due
    }

    /// The next event to write, if any is due.
    pub(super) fn next(&mut self) -> Option<Job> {
        while let Some(key) = self.due.pop_front() {
            if let Some(entry) = self.entries.peek_mut(&key) {
                entry.stage = Stage::InFlight;
                let settles = std::mem::take(&mut entry.unsettled);
                return Some(Job {
                    event: entry.snapshot(),
                    key,
                    settles,
                });
            }
        }
        None
    }

    /// The job was written, or given up.
    pub(super) fn done(&mut self, job: &Job, written: bool) {
        let Some(entry) = self.entries.peek_mut(&job.key) else {
            return;
        };
        if written {
            entry.told = job.event.series.as_ref().map_or(1, |series| series.count);
        }
        if entry.stage == Stage::InFlight {
            entry.stage = Stage::Idle;
            if entry.leaving {
                self.entries.pop(&job.key);
            }
        }
    }

    /// Lets go of events that were silent for six minutes; a series the server does not know in
    /// full is told once more first.
    pub(super) fn finish(&mut self, now: Instant) {
        let silent = |entry: &Entry| {
            entry.stage == Stage::Idle && now.saturating_duration_since(entry.last_seen) >= FINISH
        };
        for key in self.keys(silent) {
            match self.entries.peek_mut(&key) {
                Some(entry) if entry.count > 1 && entry.count > entry.told => {
                    entry.leaving = true;
                    self.line_up(key);
                }
                _ => drop(self.entries.pop(&key)),
            }
        }
    }

    /// Tells every series again.
    pub(super) fn refresh(&mut self) {
        for key in self.keys(|entry| entry.count > 1) {
            self.line_up(key);
        }
    }

    /// Tells everything the server does not know yet.
    pub(super) fn flush(&mut self) {
        for key in self.keys(|entry| entry.count > 1 && entry.count > entry.told) {
            self.line_up(key);
        }
    }

    /// How many occurrences have not come to their end.
    pub(super) fn unsettled(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.unsettled).sum()
    }

    /// Keys of the entries for which `wanted` holds, the least recently seen first.
    fn keys(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        let entries = self.entries.iter().rev();
        entries
            .filter(|(_, entry)| wanted(entry))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn line_up(&mut self, key: String) {
        if let Some(entry) = self.entries.peek_mut(&key)
            && entry.stage != Stage::Due
        {
            entry.stage = Stage::Due;
            self.due.push_back(key);
        }
    }

    fn make_room(&mut self) -> bool {
        if self.entries.len() < ENTRIES.get() {
            return true;
        }
        let known = |entry: &Entry| entry.stage == Stage::Idle && entry.count <= entry.told.max(1);
        let oldest = self.entries.iter().rev().find(|(_, entry)| known(entry));
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.entries.pop(&key);
            return true;
        }
        // Nobody can go yet: have those told whose counts are all that keeps them.
        self.flush();
        false
    }
}

impl Entry {
    fn new(event: Event, at: Timestamp, now: Instant) -> Self {
        Self {
            event,
            count: 1,
            last_observed: at,
            last_seen: now,
            told: 0,
            unsettled: 1,
            stage: Stage::Idle,
            leaving: false,
        }
    }

    fn snapshot(&self) -> Event {
        let series = EventSeries {
            count: self.count,
            last_observed_time: MicroTime(self.last_observed),
        };
        Event {
            series: (self.count > 1).then_some(series),
            ..self.event.clone()
        }
    }
}

fn series_key(occurrence: &Occurrence) -> String {
    let Occurrence {
        component,
        host,
        event_type,
        reason,
        action,
        regarding,
        related,
        ..
    } = occurrence;
    let field = |reference: &ObjectReference| reference.field_path.clone().unwrap_or_default();
    let (regarding_field, related_field) = (field(regarding), related.as_ref().map(field));
    let parts = [
        component,
        or_empty(host.as_ref()),
        event_type.as_str(),
        reason,
    ]
    .into_iter()
    .chain([or_empty(action.as_ref()), &regarding_field])
    .chain(object_parts(regarding))
    .chain(related_field.as_deref())
    .chain(related.iter().flat_map(object_parts));
    key(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::support::occurrence;

    struct Page {
        book: SeriesBook,
        now: Instant,
    }

    impl Page {
        fn new() -> Self {
            Self {
                book: SeriesBook::new(),
                now: Instant::now(),
            }
        }

        fn see(&mut self, occurrence: &Occurrence) -> Observed {
            self.book.observe(occurrence, self.now, Event::default)
        }

        /// Writes everything that is due; the counts written.
        fn write_all(&mut self) -> Vec<i32> {
            let mut counts = Vec::new();
            while let Some(job) = self.book.next() {
                counts.push(job.event.series.as_ref().map_or(1, |series| series.count));
                self.book.done(&job, true);
            }
            counts
        }
    }

    /// Proves events/v1-series.
    #[test]
    fn the_first_creates_the_second_makes_a_series_the_third_is_counted() {
        let mut page = Page::new();
        let crash = occurrence("web", "Crashed", "exit 1");
        assert_eq!(page.see(&crash), Observed::Due);
        assert_eq!(page.write_all(), [1]);
        let other_note = Occurrence {
            message: "exit 2".into(),
            ..crash.clone()
        };
        assert_eq!(page.see(&other_note), Observed::Due);
        assert_eq!(page.write_all(), [2]);
        assert_eq!(page.see(&crash), Observed::Counted);
        assert!(page.write_all().is_empty());
    }

    /// Proves events/v1-series.
    #[test]
    fn another_action_reason_object_or_related_object_is_another_event() {
        let mut page = Page::new();
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
        page.see(&base);
        for other in &others {
            page.see(other);
        }
        assert_eq!(page.write_all(), [1; 5]);
        page.see(&newer);
        assert_eq!(
            page.write_all(),
            [2],
            "another version of the object is the same object"
        );
    }

    /// Proves events/v1-series.
    #[test]
    fn six_silent_minutes_end_an_event_and_a_series_is_told_in_full_first() {
        let mut page = Page::new();
        let (once, often) = (
            occurrence("web", "Once", ""),
            occurrence("web", "Often", ""),
        );
        page.see(&once);
        for _ in 0..5 {
            page.see(&often);
        }
        page.write_all();
        page.see(&often);
        page.now += FINISH.saturating_sub(Duration::from_millis(1));
        page.book.finish(page.now);
        assert_eq!(
            (page.write_all(), page.book.entries.len()),
            (vec![], 2),
            "not yet"
        );
        page.now += Duration::from_millis(1);
        page.book.finish(page.now);
        assert_eq!(page.write_all(), [6]);
        assert_eq!(page.book.entries.len(), 0);
        page.see(&often);
        assert_eq!(page.write_all(), [1], "a new event");
    }

    /// Proves events/v1-series.
    #[test]
    fn a_series_that_wakes_up_while_it_is_told_for_the_last_time_stays() {
        let mut page = Page::new();
        let often = occurrence("web", "Often", "");
        for _ in 0..2 {
            page.see(&often);
        }
        page.write_all();
        page.see(&often);
        page.now += FINISH;
        page.book.finish(page.now);
        let job = page.book.next().expect("the last word");
        page.see(&often);
        page.book.done(&job, true);
        assert_eq!(page.book.entries.len(), 1);
        page.book.flush();
        assert_eq!(page.write_all(), [4]);
    }

    /// Proves events/v1-series.
    #[test]
    fn a_refresh_tells_every_series_and_no_single_event() {
        let mut page = Page::new();
        page.see(&occurrence("web", "Once", ""));
        for _ in 0..3 {
            page.see(&occurrence("web", "Often", ""));
        }
        page.write_all();
        page.book.refresh();
        assert_eq!(page.write_all(), [3]);
    }

    /// Proves events/v1-bounded.
    #[test]
    fn one_event_waits_once_however_often_it_occurs_and_is_written_as_it_is() {
        let mut page = Page::new();
        let (a, b) = (occurrence("a", "Seen", ""), occurrence("b", "Seen", ""));
        for seen in [&a, &b, &a, &a, &b] {
            page.see(seen);
        }
        let (first, second) = (page.book.next(), page.book.next());
        assert!(page.book.next().is_none());
        let (first, second) = (first.expect("a"), second.expect("b"));
        let counts = [&first, &second].map(|job| job.event.series.as_ref().map(|s| s.count));
        assert_eq!(counts, [Some(3), Some(2)]);
        assert_eq!(
            (first.settles, second.settles),
            (2, 2),
            "the third was counted at once"
        );
        assert_eq!(page.book.unsettled(), 0);
    }

    /// Proves events/v1-bounded.
    #[test]
    fn memory_is_bounded_idle_events_make_room_and_unwritten_ones_do_not() {
        let mut page = Page::new();
        for i in 0..4096 {
            page.see(&occurrence(&format!("pod-{i}"), "Seen", ""));
        }
        let late = occurrence("late", "Seen", "");
        assert_eq!(page.see(&late), Observed::TurnedAway);
        assert_eq!(page.write_all().len(), 4096);
        assert_eq!(page.see(&late), Observed::Due);
        assert_eq!(page.book.entries.len(), 4096);
        assert_eq!(page.see(&occurrence("pod-4095", "Seen", "")), Observed::Due);
        assert_eq!(page.write_all(), [1, 2], "pod-4095 was still known");
    }

    /// Proves events/v1-bounded.
    #[test]
    fn series_with_untold_counts_are_told_to_make_room() {
        let mut page = Page::new();
        for i in 0..4096 {
            let seen = occurrence(&format!("pod-{i}"), "Seen", "");
            for _ in 0..2 {
                page.see(&seen);
            }
            page.write_all();
            page.see(&seen);
        }
        let late = occurrence("late", "Seen", "");
        assert_eq!(page.see(&late), Observed::TurnedAway);
        assert_eq!(page.write_all(), [3; 4096]);
        assert_eq!(page.see(&late), Observed::Due);
    }
}
