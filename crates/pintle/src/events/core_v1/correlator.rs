//! Keeps a chatty controller from flooding the API server, before anything is sent.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use lru::LruCache;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::occurrence::Occurrence;

/// How many groups, events and objects are remembered at most, each.
const CACHE_ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// With so many different messages a group is combined into one event.
const DISTINCT_MESSAGES: usize = 10;
/// A group that was silent for longer starts afresh.
const GROUP_MEMORY: Duration = Duration::from_mins(10);
/// So many events of one type may come from one object at once.
const SPAM_BURST: u32 = 25;
/// How long it takes until one more may come.
const SPAM_REFILL: Duration = Duration::from_mins(5);
const COMBINED: &str = "(combined from similar events): ";

/// Decides what becomes of an occurrence: a new event, a higher count of one that is already
/// there, or nothing.
///
/// An occurrence passes three memories in this order, each bounded, the least recently used entry
/// leaving first:
///
/// 1. **Groups** (same source, object, type and reason; messages differ). Up to nine messages live
///    on their own; while a group is that full, every other message goes into one combined event of
///    the group. Ten minutes of silence empty the group.
/// 2. **Events** (same group, field and message, or the combined event of a group). The first
///    occurrence is a creation, each further one a patch that raises the count.
/// 3. **Objects** (same source, object and type): 25 writes at once, then one per five minutes.
///    What is withheld here was already counted in step 2, so the next write tells the true count.
#[derive(Debug)]
pub(super) struct Correlator {
    groups: LruCache<String, Group>,
    events: LruCache<String, Stored>,
    objects: LruCache<String, Bucket>,
}

#[derive(Debug)]
struct Group {
    messages: BTreeSet<String>,
    last: Instant,
}

/// What is known of an event on the server.
#[derive(Clone, Debug)]
struct Stored {
    name: String,
    resource_version: Option<String>,
    first: Option<Time>,
    count: i32,
}

/// A token bucket told by one instant: when it will be full again.
#[derive(Debug)]
struct Bucket {
    full_at: Instant,
}

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// The event in full: what is created when nothing can be patched.
    pub(super) event: Event,
    /// Whether the occurrence lost its own message to a combined event.
    pub(super) combined: bool,
    /// Under which entry the server's answer is remembered.
    key: String,
}

impl Write {
    /// What changes in an event that exists, or nothing if it has to be created.
    pub(super) fn patch(&self) -> Option<Value> {
        (self.event.count > Some(1)).then(|| {
            json!({
                "count": self.event.count,
                "lastTimestamp": self.event.last_timestamp,
                "message": self.event.message,
            })
        })
    }
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            groups: LruCache::new(CACHE_ENTRIES),
            events: LruCache::new(CACHE_ENTRIES),
            objects: LruCache::new(CACHE_ENTRIES),
        }
    }

    /// What to write about `occurrence`, or nothing if its object has had its share.
    pub(super) fn correlate(&mut self, occurrence: &Occurrence, now: Instant) -> Option<Write> {
        let mut write = self.aggregate(occurrence, now);
        self.count(&mut write);
        self.may_write(occurrence, now).then_some(write)
    }

    /// Remembers what the server made of a write.
    pub(super) fn stored(&mut self, write: &Write, answer: &Event) {
        let count = answer
            .count
            .filter(|&count| count > 0)
            .or(write.event.count)
            .unwrap_or(1);
        self.events
            .put(write.key.clone(), Stored::of(answer, count));
    }

    fn aggregate(&mut self, occurrence: &Occurrence, now: Instant) -> Write {
        let key = group_key(occurrence);
        let group = self
            .groups
            .get_or_insert_mut(key.clone(), || Group::new(now));
        if now.saturating_duration_since(group.last) > GROUP_MEMORY {
            *group = Group::new(now);
        }
        group.last = now;
        let mut event = occurrence.to_core_v1();
        if group.has_room_for(&occurrence.message) {
            return Write {
                event,
                combined: false,
                key: event_key(occurrence),
            };
        }
        event.message = Some(format!("{COMBINED}{}", occurrence.message));
        event.metadata.annotations = None;
        Write {
            event,
            combined: true,
            key,
        }
    }

    /// Turns an event that was written before into a higher count of itself.
    fn count(&mut self, write: &mut Write) {
        if let Some(stored) = self.events.get(&write.key) {
            let metadata = &mut write.event.metadata;
            metadata.name = Some(stored.name.clone());
            metadata
                .resource_version
                .clone_from(&stored.resource_version);
            write.event.first_timestamp.clone_from(&stored.first);
            write.event.count = Some(stored.count.saturating_add(1));
        }
        let count = write.event.count.unwrap_or(1);
        self.events
            .put(write.key.clone(), Stored::of(&write.event, count));
    }

    fn may_write(&mut self, occurrence: &Occurrence, now: Instant) -> bool {
        self.objects
            .get_or_insert_mut(object_key(occurrence), || Bucket { full_at: now })
            .take(now)
    }
}

impl Group {
    fn new(now: Instant) -> Self {
        Self {
            messages: BTreeSet::new(),
            last: now,
        }
    }

    /// Whether `message` lives on its own: it does already, or it is one of the first nine.
    fn has_room_for(&mut self, message: &str) -> bool {
        self.messages.contains(message)
            || (self.messages.len() + 1 < DISTINCT_MESSAGES
                && self.messages.insert(message.to_owned()))
    }
}

impl Stored {
    fn of(event: &Event, count: i32) -> Self {
        Self {
            name: event.metadata.name.clone().unwrap_or_default(),
            resource_version: event.metadata.resource_version.clone(),
            first: event.first_timestamp.clone(),
            count,
        }
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + SPAM_REFILL;
        let taken = full_at.saturating_duration_since(now) <= SPAM_REFILL * SPAM_BURST;
        if taken {
            self.full_at = full_at;
        }
        taken
    }
}

fn object_key(occurrence: &Occurrence) -> String {
    let Occurrence {
        component,
        host,
        regarding,
        event_type,
        ..
    } = occurrence;
    key([component, or_empty(host.as_ref()), event_type.as_str()]
        .into_iter()
        .chain(object_parts(regarding)))
}

fn group_key(occurrence: &Occurrence) -> String {
    key([object_key(occurrence).as_str(), &occurrence.reason])
}

fn event_key(occurrence: &Occurrence) -> String {
    let field = or_empty(occurrence.regarding.field_path.as_ref());
    key([group_key(occurrence).as_str(), field, &occurrence.message])
}

/// What tells one object from another, whatever version of it was seen.
pub(in crate::events) fn object_parts(reference: &ObjectReference) -> [&str; 5] {
    [
        &reference.api_version,
        &reference.kind,
        &reference.namespace,
        &reference.name,
        &reference.uid,
    ]
    .map(|part| or_empty(part.as_ref()))
}

pub(in crate::events) fn or_empty(part: Option<&String>) -> &str {
    part.map_or("", String::as_str)
}

/// One string of many, such that different parts never give the same one: each part is preceded by
/// its length.
pub(in crate::events) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    parts.into_iter().fold(String::new(), |mut key, part| {
        key.push_str(&part.len().to_string());
        key.push(':');
        key.push_str(part);
        key
    })
}

#[cfg(test)]
mod tests {
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
            .expect("within the object's share")
    }

    /// Proves events/repeats-patch.
    #[test]
    fn a_repeat_raises_the_count_of_the_first() {
        let (mut correlator, now) = (Correlator::new(), Instant::now());
        let first = correlate(&mut correlator, "Pulled", "image is there", now);
        assert_eq!(first.patch(), None);
        let second = correlate(&mut correlator, "Pulled", "image is there", now);
        assert_eq!(second.event.metadata.name, first.event.metadata.name);
        assert_eq!(second.event.first_timestamp, first.event.first_timestamp);
        let patch = second.patch().expect("a repeat is a patch");
        assert_eq!(patch["count"], 2);
        assert_eq!(patch["message"], "image is there");
        assert_eq!(patch.as_object().map(serde_json::Map::len), Some(3));
    }

    /// Proves events/repeats-patch.
    #[test]
    fn the_servers_answer_is_what_the_next_repeat_builds_on() {
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
    fn the_tenth_message_of_a_group_is_combined_and_the_first_nine_live_on() {
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
            "one combined event, counted up; m3 seen twice"
        );
        assert_eq!(writes[9].event.reason.as_deref(), Some("Failed"));
        let mut annotated = occurrence("web", "Failed", "m13");
        annotated
            .annotations
            .insert("about".into(), "m13 alone".into());
        let combined = correlator
            .correlate(&annotated, now)
            .expect("within the share");
        assert_eq!(combined.event.metadata.annotations, None);
    }

    /// Proves events/aggregation.
    #[test]
    fn a_group_is_forgotten_only_after_more_than_ten_silent_minutes() {
        let (mut correlator, start) = (Correlator::new(), Instant::now());
        for i in 1..=10 {
            correlate(&mut correlator, "Failed", &format!("m{i}"), start);
        }
        let mut now = start;
        for message in ["m11", "m12"] {
            now += GROUP_MEMORY;
            assert!(correlate(&mut correlator, "Failed", message, now).combined);
        }
        now += GROUP_MEMORY + Duration::from_millis(1);
        assert!(!correlate(&mut correlator, "Failed", "m13", now).combined);
    }

    /// Proves events/aggregation.
    #[test]
    fn other_reasons_and_objects_are_other_groups() {
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
    fn an_object_has_25_events_at_once_and_one_more_each_five_minutes() {
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
            .expect("a token came back");
        assert_eq!(write.event.count, Some(42), "what was withheld is counted");
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
            "each type has its own share"
        );
    }

    /// Proves events/bounded-memory.
    #[test]
    fn each_memory_keeps_the_4096_used_last() {
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
        assert_eq!(count_of("pod-0"), Some(1), "the oldest was forgotten");
    }

    #[test]
    fn parts_of_a_key_cannot_run_into_each_other() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["1:a"]), key(["", "a"]));
    }
}
