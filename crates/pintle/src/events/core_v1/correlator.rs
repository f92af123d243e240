//! Keeps a chatty controller from flooding the API server: client-go's `EventCorrelator`.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use lru::LruCache;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    events::occurrence::Occurrence,
    token_bucket::{Bucket, Quota},
};

/// The capacity of each of the three caches.
const CACHE_ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// The number of different messages at which a group is combined into one event.
const DISTINCT_MESSAGES: usize = 10;
/// A group that was silent for longer than this starts over.
const GROUP_TTL: Duration = Duration::from_mins(10);
/// The number of events of one type that one object may cause at once.
const SPAM_BURST: u32 = 25;
/// How long such an object has to wait for each further event.
const SPAM_REFILL: Duration = Duration::from_mins(5);
const COMBINED: &str = "(combined from similar events): ";

/// Decides whether an occurrence becomes a new event, a higher count of an existing one, or
/// nothing.
///
/// An occurrence passes three bounded LRU caches in this order:
///
/// 1. **Groups** (same source, object, type and reason; messages differ). Up to nine messages stay
///    separate; once a group is full, every other message goes into one combined event of the
///    group. Ten minutes of silence reset the group.
/// 2. **Events** (same group, field and message, or the combined event of a group). The first
///    occurrence is a creation, each further one a patch that raises the count.
/// 3. **Objects** (same source, object and type): 25 writes at once, then one every five minutes.
///    Occurrences withheld here were already counted in step 2, so the next write has the true
///    count.
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

/// An event as last stored by the server.
#[derive(Clone, Debug)]
struct Stored {
    name: String,
    resource_version: Option<String>,
    first: Option<Time>,
    count: i32,
}

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// The full event, in case there is nothing to patch.
    pub(super) event: Event,
    /// Whether the occurrence was merged into a combined event.
    pub(super) combined: bool,
    /// The cache key for the server's response.
    key: String,
}

impl Write {
    /// Returns the patch for an existing event, or `None` if the event has to be created.
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

    /// Returns the write for `occurrence`, or `None` if its object is throttled.
    pub(super) fn correlate(&mut self, occurrence: &Occurrence, now: Instant) -> Option<Write> {
        let mut write = self.aggregate(occurrence, now);
        self.count(&mut write);
        self.may_write(occurrence, now).then_some(write)
    }

    /// Remembers the event as the server stored it.
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
        if now.saturating_duration_since(group.last) > GROUP_TTL {
            *group = Group::new(now);
        }
        group.last = now;
        let mut event = occurrence.to_core_v1();
        if group.admits(&occurrence.message) {
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

    /// Turns a repeated event into a higher count of the first one.
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
        let quota = Quota::new(SPAM_REFILL, SPAM_BURST);
        self.objects
            .get_or_insert_mut(object_key(occurrence), Bucket::default)
            .try_take(quota, now)
            .is_ok()
    }
}

impl Group {
    fn new(now: Instant) -> Self {
        Self {
            messages: BTreeSet::new(),
            last: now,
        }
    }

    /// Returns whether `message` stays separate: it already does, or is one of the first nine.
    fn admits(&mut self, message: &str) -> bool {
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

/// Returns the identity of an object, regardless of its `resourceVersion`.
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

/// Joins parts into a key. Each part is preceded by its length, so different parts never produce
/// the same key.
pub(in crate::events) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    parts.into_iter().fold(String::new(), |mut key, part| {
        key.push_str(&part.len().to_string());
        key.push(':');
        key.push_str(part);
        key
    })
}

#[cfg(test)]
mod tests;
