//! One resource: its current objects and a bounded log of recent events.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;

use super::{Change, Object, object::Content};

/// Objects by key. Clones share the tree, so a snapshot is a pointer.
pub(crate) type Objects = RedBlackTreeMapSync<Arc<str>, Arc<Object>>;

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One committed change.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// The object after the change; for a deletion, its last state at the deletion's revision.
    pub(crate) object: Arc<Object>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The fixed memory cost of an event in bytes, in addition to the states it retains.
const EVENT_OVERHEAD: usize = 256;

impl Event {
    pub(crate) fn revision(&self) -> u64 {
        self.object.revision
    }

    /// Returns the bytes retained by this event: the states before and after it.
    pub(super) fn cost(&self) -> usize {
        let before = self.previous.as_ref();
        let before = before.map_or(0, |previous| previous.content.len());
        EVENT_OVERHEAD + before + self.object.content.len()
    }
}

/// One resource. The log holds every event with a revision above `dropped`, oldest first.
///
/// `floor` is the oldest revision at which a new reader may start. It can be above `dropped`,
/// because a compaction also covers revisions at which this resource did not change. An existing
/// cursor has missed an event only if it has not reached `dropped`.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) objects: Objects,
    pub(super) log: VecDeque<Arc<Event>>,
    /// The total cost of the log.
    pub(super) bytes: usize,
    pub(super) floor: u64,
    /// The revision of the newest event that is no longer in the log.
    pub(super) dropped: u64,
    /// No longer served; retained for watchers that have not read the last event.
    pub(super) closed: bool,
    /// Notifies watchers of a commit, or that the collection was closed.
    pub(super) changed: watch::Sender<u64>,
}

impl Collection {
    pub(super) fn new(floor: u64) -> Self {
        Self {
            objects: Objects::new_sync(),
            log: VecDeque::new(),
            bytes: 0,
            floor,
            dropped: 0,
            closed: false,
            changed: watch::Sender::new(floor),
        }
    }

    /// Returns a collection with the same objects and no events up to `revision`.
    pub(super) fn fork(&self, revision: u64) -> Self {
        Self {
            objects: self.objects.clone(),
            dropped: revision,
            ..Self::new(revision)
        }
    }

    /// Applies a change at `revision` and logs it.
    pub(super) fn apply(&mut self, key: &Arc<str>, change: Change, revision: u64) -> Arc<Object> {
        let previous = self.objects.get(key).cloned();
        let make = |content: Arc<Content>| {
            Arc::new(Object {
                key: Arc::clone(key),
                revision,
                content,
            })
        };
        let (kind, object) = match change {
            Change::Put(content) => {
                let object = make(content);
                self.objects
                    .insert_mut(Arc::clone(key), Arc::clone(&object));
                let kind = if previous.is_some() {
                    EventKind::Modified
                } else {
                    EventKind::Added
                };
                (kind, object)
            }
            Change::Delete(content) => {
                self.objects.remove_mut(key);
                (EventKind::Deleted, make(content))
            }
        };
        let event = Event {
            kind,
            object: Arc::clone(&object),
            previous,
        };
        self.bytes += event.cost();
        self.log.push_back(Arc::new(event));
        object
    }

    pub(super) fn drop_oldest(&mut self) {
        if let Some(oldest) = self.log.pop_front() {
            self.bytes -= oldest.cost();
            self.dropped = oldest.revision();
            self.floor = self.floor.max(self.dropped);
        }
    }

    /// Returns the revision of the oldest event in the log.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.log.front().map(|event| event.revision())
    }

    /// Drops every event up to `revision`.
    pub(super) fn compact(&mut self, revision: u64) {
        while self
            .log
            .front()
            .is_some_and(|event| event.revision() <= revision)
        {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// Returns the events after `revision`, oldest first, and whether there are more. Stops after
    /// `most` events or once their objects reach `most_bytes`.
    pub(super) fn events_after(
        &self,
        revision: u64,
        most: usize,
        most_bytes: usize,
    ) -> (Vec<Arc<Event>>, bool) {
        let start = self
            .log
            .partition_point(|event| event.revision() <= revision);
        let mut bytes = 0;
        let mut events = Vec::new();
        for event in self.log.range(start..) {
            if events.len() >= most || bytes >= most_bytes {
                return (events, true);
            }
            bytes += event.object.content.len();
            events.push(Arc::clone(event));
        }
        (events, false)
    }

    /// Returns the events after `revision`, newest first, ready for [`undo`].
    pub(super) fn newest_first(&self, revision: u64) -> Vec<Arc<Event>> {
        let start = self
            .log
            .partition_point(|event| event.revision() <= revision);
        self.log.range(start..).rev().cloned().collect()
    }
}

/// Reverts `events`, which are ordered newest first.
pub(super) fn undo(mut objects: Objects, events: &[Arc<Event>]) -> Objects {
    for event in events {
        match &event.previous {
            Some(previous) => {
                objects.insert_mut(Arc::clone(&event.object.key), Arc::clone(previous));
            }
            None => {
                objects.remove_mut(&event.object.key);
            }
        }
    }
    objects
}

/// Returns the key range of a namespace, starting no earlier than `start`. The range is empty if
/// `start` is past the namespace.
pub(crate) fn key_range<'a>(
    namespace: Option<&'a (String, String)>,
    start: Option<&'a str>,
) -> (Bound<&'a str>, Bound<&'a str>) {
    match (namespace, start) {
        (None, None) => (Bound::Unbounded, Bound::Unbounded),
        (None, Some(start)) => (Bound::Included(start), Bound::Unbounded),
        (Some((first, end)), start) => {
            // `range` panics if the start is past the end.
            let start = start.unwrap_or(first).clamp(first, end);
            (Bound::Included(start), Bound::Excluded(end))
        }
    }
}

/// Returns the first key of a namespace and the first key after it (`0` follows `/` in ASCII).
pub(crate) fn namespace_bounds(namespace: &str) -> (String, String) {
    (format!("{namespace}/"), format!("{namespace}0"))
}
