//! Groups repeated events into series and tracks the last written state of each.

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

/// The capacity of the cache.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// An event that was silent for this long is finished.
pub(super) const FINISH: Duration = Duration::from_mins(6);
/// How often ongoing series are written again, so that the server does not let them expire.
pub(super) const REFRESH: Duration = Duration::from_mins(30);

/// The events that may still repeat, each with its last written state.
///
/// Occurrences that differ only in message, time and `resourceVersion` of the object are one event.
/// The first occurrence makes the event *due* for creation, the second for becoming a series; later
/// ones are only counted. A due event is queued once, however often it occurs in the meantime. Once
/// dequeued, it is *in flight* and is written with its count at that moment, so an unreachable
/// server costs neither order nor memory. Once written, it is *idle* until it occurs again, is
/// refreshed, or was silent long enough to be removed.
///
/// At most 4096 events are cached. An idle event whose count is written makes room for a new one;
/// while there is none, new events are rejected.
#[derive(Debug)]
pub(super) struct SeriesCache {
    entries: LruCache<String, Entry>,
    due: VecDeque<String>,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    count: i32,
    last_observed: Timestamp,
    last_seen: Instant,
    /// The count written last; 0 before the first write.
    written: i32,
    /// Occurrences that are not accounted for yet.
    pending: usize,
    stage: Stage,
    /// Whether the event is removed after its next write, because it has been silent.
    finishing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Due,
    InFlight,
}

/// The outcome of recording an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// It will be part of a write.
    Due,
    /// It was added to the count of a series.
    Counted,
    /// The cache has no room for it.
    Rejected,
}

/// An event to be written in its current state.
#[derive(Clone, Debug)]
pub(super) struct Job {
    key: String,
    pub(super) event: Event,
    /// The number of occurrences that this write accounts for.
    pub(super) occurrences: usize,
}

impl Job {
    /// Returns the patch for an existing event, or `None` if the event occurred only once.
    pub(super) fn patch(&self) -> Option<Value> {
        self.event
            .series
            .as_ref()
            .map(|series| json!({ "series": series }))
    }
}

impl SeriesCache {
    pub(super) fn new() -> Self {
        Self {
            entries: LruCache::new(CAPACITY),
            due: VecDeque::new(),
        }
    }

    /// Records one occurrence; `event` builds the event if this is the first.
    pub(super) fn observe(
        &mut self,
        occurrence: &Occurrence,
        now: Instant,
        event: impl FnOnce() -> Event,
    ) -> Observed {
        let key = series_key(occurrence);
        let Some(entry) = self.entries.get_mut(&key) else {
            if !self.make_room() {
                return Observed::Rejected;
            }
            self.entries
                .put(key.clone(), Entry::new(event(), occurrence.at, now));
            self.enqueue(key);
            return Observed::Due;
        };
        entry.count = entry.count.saturating_add(1);
        entry.last_observed = occurrence.at;
        entry.last_seen = now;
        entry.finishing = false;
        if entry.count > 2 {
            return Observed::Counted;
        }
        entry.pending += 1;
        self.enqueue(key);
        Observed::Due
    }

    /// Returns the next event to write, if any is due.
    pub(super) fn next(&mut self) -> Option<Job> {
        while let Some(key) = self.due.pop_front() {
            if let Some(entry) = self.entries.peek_mut(&key) {
                entry.stage = Stage::InFlight;
                let occurrences = std::mem::take(&mut entry.pending);
                return Some(Job {
                    event: entry.snapshot(),
                    key,
                    occurrences,
                });
            }
        }
        None
    }

    /// Records that the job was written or abandoned.
    pub(super) fn done(&mut self, job: &Job, written: bool) {
        let Some(entry) = self.entries.peek_mut(&job.key) else {
            return;
        };
        if written {
            entry.written = job.event.series.as_ref().map_or(1, |series| series.count);
        }
        if entry.stage == Stage::InFlight {
            entry.stage = Stage::Idle;
            if entry.finishing {
                self.entries.pop(&job.key);
            }
        }
    }

    /// Removes events that were silent for six minutes; a series whose latest count the server does
    /// not know is written once more first.
    pub(super) fn finish(&mut self, now: Instant) {
        let silent = |entry: &Entry| {
            entry.stage == Stage::Idle && now.saturating_duration_since(entry.last_seen) >= FINISH
        };
        for key in self.keys(silent) {
            match self.entries.peek_mut(&key) {
                Some(entry) if entry.has_unwritten_count() => {
                    entry.finishing = true;
                    self.enqueue(key);
                }
                _ => drop(self.entries.pop(&key)),
            }
        }
    }

    /// Makes every series due.
    pub(super) fn refresh(&mut self) {
        for key in self.keys(|entry| entry.count > 1) {
            self.enqueue(key);
        }
    }

    /// Makes every series due whose latest count the server does not know.
    pub(super) fn flush(&mut self) {
        for key in self.keys(Entry::has_unwritten_count) {
            self.enqueue(key);
        }
    }

    /// Returns the number of occurrences that are not accounted for yet.
    pub(super) fn pending(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.pending).sum()
    }

    /// Returns the keys of the entries that match, least recently seen first.
    fn keys(&self, matches: impl Fn(&Entry) -> bool) -> Vec<String> {
        let entries = self.entries.iter().rev();
        entries
            .filter(|(_, entry)| matches(entry))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn enqueue(&mut self, key: String) {
        if let Some(entry) = self.entries.peek_mut(&key)
            && entry.stage != Stage::Due
        {
            entry.stage = Stage::Due;
            self.due.push_back(key);
        }
    }

    fn make_room(&mut self) -> bool {
        if self.entries.len() < CAPACITY.get() {
            return true;
        }
        let evictable =
            |entry: &Entry| entry.stage == Stage::Idle && entry.count <= entry.written.max(1);
        let mut oldest_first = self.entries.iter().rev();
        let evicted = oldest_first.find(|(_, entry)| evictable(entry));
        if let Some(key) = evicted.map(|(key, _)| key.clone()) {
            self.entries.pop(&key);
            return true;
        }
        // Nothing can be evicted yet: write the series that are kept only for their unwritten
        // counts.
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
            written: 0,
            pending: 1,
            stage: Stage::Idle,
            finishing: false,
        }
    }

    fn has_unwritten_count(&self) -> bool {
        self.count > 1 && self.count > self.written
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
mod tests;
