//! The store: all objects, one revision counter, and the event log that watches read.
//!
//! Each resource has a [`Collection`]: an ordered persistent map of its current objects plus a log
//! of recent events. A commit takes the write lock, checks the writer's [`Expect`], assigns the
//! next revision and appends to the log. Decoding, validation and encoding happen before the lock
//! is taken, and watchers are woken after it is released. Because a single lock orders all commits,
//! revisions are assigned in the order in which they become visible.
//!
//! Readers take a [`Snapshot`], which is a pointer clone, and never block writers. A past state is
//! the current one with newer events undone, so any revision that the log still covers can be read.
//! A watch is a [`Cursor`]: a revision plus a notification channel. It owns no queue.
//!
//! Logs are bounded twice: each by its number of events, and all of them together by the bytes they
//! retain. Over the byte limit, the oldest event across all resources is dropped first. A cursor
//! that has not read a dropped event gets [`Lost::Compacted`], and its client has to list again.

mod collection;
mod object;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use tokio::sync::watch;

use self::collection::{Collection, undo};
#[cfg(test)]
pub(crate) use self::object::DECODED;
pub(crate) use self::{
    collection::{Event, EventKind, Objects, key_range, namespace_bounds},
    object::{Content, Object, custom_type_prefix, key_of, type_prefix},
};

/// Limits on one batch read from a cursor. A slow watcher retains at most the batch it is sending.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 64 * 1024;

/// Identifies a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectionId(u32);

/// The change that a commit makes to its key.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Arc<Content>),
    /// Removes the object; watchers receive this as its last state.
    Delete(Arc<Content>),
}

/// The state that a writer expects to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// Why a commit did not happen.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The stored object is not the one the writer expected.
    Mismatch,
    /// The resource is no longer served.
    NotServed,
}

/// Why a past state, or the events after it, cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The log starts later; it still covers everything after `floor`.
    Compacted { floor: u64 },
    /// The store has not reached this revision yet.
    Future { current: u64 },
    /// The resource is no longer served.
    NotServed,
}

/// A consistent state of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Objects,
}

#[derive(Debug)]
struct State {
    revision: u64,
    next_id: u32,
    collections: BTreeMap<CollectionId, Collection>,
    /// The total cost of all logs.
    bytes: usize,
    /// The revision of the oldest event of each non-empty log. The first entry is the oldest of
    /// all.
    fronts: BTreeMap<u64, CollectionId>,
    /// States older than this cannot be read, even if the logs still hold the events.
    readable: u64,
}

impl State {
    fn open(&self, id: CollectionId) -> Option<&Collection> {
        self.collections
            .get(&id)
            .filter(|collection| !collection.closed)
    }

    /// Drops closed collections without watchers.
    fn sweep(&mut self) {
        let before = self.collections.len();
        self.collections
            .retain(|_, collection| !collection.closed || collection.changed.receiver_count() > 0);
        if self.collections.len() != before {
            self.recount();
        }
    }

    fn recount(&mut self) {
        self.bytes = self
            .collections
            .values()
            .map(|collection| collection.bytes)
            .sum();
        let fronts = self.collections.iter();
        self.fronts = fronts
            .filter_map(|(id, collection)| Some((collection.oldest()?, *id)))
            .collect();
    }

    fn drop_oldest(&mut self, id: CollectionId) {
        let Some(collection) = self.collections.get_mut(&id) else {
            return;
        };
        if let Some(oldest) = collection.oldest() {
            self.fronts.remove(&oldest);
        }
        let before = collection.bytes;
        collection.drop_oldest();
        self.bytes -= before - collection.bytes;
        if let Some(oldest) = collection.oldest() {
            self.fronts.insert(oldest, id);
        }
    }

    /// Drops events until the logs are within their limits. Never drops the newest event, however
    /// large, because waiting watchers have not read it yet.
    fn trim(&mut self, id: CollectionId, history: History) {
        let is_long = |state: &Self| {
            let collection = state.collections.get(&id);
            collection.is_some_and(|collection| collection.log.len() > history.events)
        };
        while is_long(self) {
            self.drop_oldest(id);
        }
        while self.bytes > history.bytes
            && let Some((oldest, id)) = self.fronts.first_key_value()
            && *oldest != self.revision
        {
            self.drop_oldest(*id);
        }
    }
}

/// A cheaply cloneable handle to the store.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    /// The newest revision; readers wait on it.
    revision: watch::Sender<u64>,
    history: History,
}

/// Limits on the event logs.
#[derive(Debug, Clone, Copy)]
struct History {
    /// Per resource.
    events: usize,
    /// Of all resources together.
    bytes: usize,
}

impl Store {
    /// Creates an empty store whose logs hold up to `events` events per resource and `bytes` in
    /// all.
    pub(crate) fn new(events: usize, bytes: usize) -> Self {
        // Clients use revision 0 for "any", so the store starts at 1.
        let state = State {
            revision: 1,
            next_id: 0,
            collections: BTreeMap::new(),
            bytes: 0,
            fronts: BTreeMap::new(),
            readable: 0,
        };
        let history = History {
            events: events.max(1),
            bytes,
        };
        Self {
            shared: Arc::new(Shared {
                state: RwLock::new(state),
                revision: watch::Sender::new(1),
                history,
            }),
        }
    }

    /// Returns a store with the objects and the revision of this one, but without its history:
    /// watches and continue tokens of earlier revisions expire. The objects are shared until they
    /// change.
    pub(crate) fn fork(&self, events: usize, bytes: usize) -> Self {
        let state = self.shared.state.read();
        let revision = state.revision;
        let open = state.collections.iter().filter(|(_, it)| !it.closed);
        let collections = open.map(|(id, it)| (*id, it.fork(revision))).collect();
        let fork = Self::new(events, bytes);
        *fork.shared.state.write() = State {
            revision,
            next_id: state.next_id,
            collections,
            bytes: 0,
            fronts: BTreeMap::new(),
            readable: revision,
        };
        fork.shared.revision.send_replace(revision);
        fork
    }

    /// Opens an empty collection.
    pub(crate) fn open_collection(&self) -> CollectionId {
        let mut state = self.shared.state.write();
        state.sweep();
        let id = CollectionId(state.next_id);
        state.next_id += 1;
        // The collection has no events yet, but older revisions may belong to a predecessor with
        // the same name. Watches from such a revision must list again.
        let floor = if state.revision <= 1 {
            0
        } else {
            state.revision
        };
        state.collections.insert(id, Collection::new(floor));
        id
    }

    /// Closes an empty collection: it rejects further commits, and its watches end after the last
    /// event. Returns `false` and does nothing if the collection still holds an object.
    pub(crate) fn close_collection(&self, id: CollectionId) -> bool {
        let mut state = self.shared.state.write();
        state.sweep();
        let Some(collection) = state.collections.get_mut(&id) else {
            return true;
        };
        if !collection.objects.is_empty() {
            return false;
        }
        collection.closed = true;
        collection.changed.send_modify(|_| {});
        true
    }

    /// Returns the newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.state.read().revision
    }

    /// Returns the current state of one object.
    pub(crate) fn get(&self, collection: CollectionId, key: &str) -> Option<Arc<Object>> {
        self.shared
            .state
            .read()
            .open(collection)?
            .objects
            .get(key)
            .cloned()
    }

    /// Returns true if the resource has no objects.
    pub(crate) fn is_empty(&self, collection: CollectionId) -> bool {
        let state = self.shared.state.read();
        let collection = state.open(collection);
        collection.is_none_or(|collection| collection.objects.is_empty())
    }

    /// Returns the current state of a resource.
    pub(crate) fn snapshot(&self, collection: CollectionId) -> Result<Snapshot, Lost> {
        let state = self.shared.state.read();
        let objects = state
            .open(collection)
            .ok_or(Lost::NotServed)?
            .objects
            .clone();
        Ok(Snapshot {
            revision: state.revision,
            objects,
        })
    }

    /// Returns the state of a resource at `revision`.
    pub(crate) fn snapshot_at(
        &self,
        collection: CollectionId,
        revision: u64,
    ) -> Result<Snapshot, Lost> {
        let (objects, newer) = {
            let state = self.shared.state.read();
            let collection = state.open(collection).ok_or(Lost::NotServed)?;
            if revision > state.revision {
                return Err(Lost::Future {
                    current: state.revision,
                });
            }
            let floor = collection.floor.max(state.readable);
            if revision < floor {
                return Err(Lost::Compacted { floor });
            }
            (
                collection.objects.clone(),
                collection.newest_first(revision),
            )
        };
        Ok(Snapshot {
            revision,
            objects: undo(objects, &newer),
        })
    }

    /// Commits a change if the stored object is the one the writer expects.
    pub(crate) fn commit(
        &self,
        id: CollectionId,
        key: &Arc<str>,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, Refused> {
        let (object, changed) = {
            let mut state = self.shared.state.write();
            let revision = state.revision + 1;
            let collection = state
                .collections
                .get_mut(&id)
                .filter(|collection| !collection.closed);
            let collection = collection.ok_or(Refused::NotServed)?;
            let current = collection.objects.get(key);
            let found = current.map_or(Expect::Absent, |object| Expect::Revision(object.revision));
            if found != expect {
                return Err(Refused::Mismatch);
            }
            let before = collection.bytes;
            let object = collection.apply(key, change, revision);
            let (after, oldest) = (collection.bytes, collection.oldest());
            let changed = collection.changed.clone();
            state.revision = revision;
            state.bytes += after - before;
            state.fronts.extend(oldest.map(|oldest| (oldest, id)));
            state.trim(id, self.shared.history);
            (object, changed)
        };
        // Concurrent commits may get here out of order; `wake` only ever moves forward.
        wake(&changed, object.revision);
        wake(&self.shared.revision, object.revision);
        Ok(object)
    }

    /// Drops all events up to `revision`, as an etcd compaction does. Continue tokens and watches
    /// that start before it expire, and so do running watches that have not read one of those
    /// events.
    pub(crate) fn compact(&self, revision: u64) {
        let mut state = self.shared.state.write();
        let revision = revision.min(state.revision);
        for collection in state.collections.values_mut() {
            collection.compact(revision);
        }
        state.recount();
    }

    /// Makes states before `revision` unreadable: their continue tokens expire, but watches
    /// continue.
    pub(crate) fn forget_states(&self, revision: u64) {
        let mut state = self.shared.state.write();
        state.readable = state.readable.max(revision.min(state.revision));
    }

    /// Waits until the store has reached `revision`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut seen = self.shared.revision.subscribe();
        // `self` holds the sender, so waiting cannot fail.
        let _ = seen.wait_for(|now| *now >= revision).await;
    }

    /// Returns a cursor over every event of the collection after `revision`.
    pub(crate) fn cursor(&self, id: CollectionId, revision: u64) -> Result<Cursor, Lost> {
        let state = self.shared.state.read();
        let collection = state.open(id).ok_or(Lost::NotServed)?;
        Ok(Cursor {
            store: self.clone(),
            collection: id,
            after: revision,
            late: revision < collection.floor,
            changed: collection.changed.subscribe(),
        })
    }
}

fn wake(sender: &watch::Sender<u64>, revision: u64) {
    sender.send_if_modified(|newest| {
        let newer = revision > *newest;
        if newer {
            *newest = revision;
        }
        newer
    });
}

/// A position in the event log of one resource.
#[derive(Debug)]
pub(crate) struct Cursor {
    store: Store,
    collection: CollectionId,
    after: u64,
    /// The starting revision was already compacted when the cursor was created.
    late: bool,
    changed: watch::Receiver<u64>,
}

impl Cursor {
    /// Returns the next events, oldest first, and the revision up to which they are complete. The
    /// events are empty if there are none yet.
    pub(crate) fn next_batch(&mut self) -> Result<(Vec<Arc<Event>>, u64), Lost> {
        self.changed.mark_unchanged();
        let state = self.store.shared.state.read();
        let collection = state
            .collections
            .get(&self.collection)
            .ok_or(Lost::NotServed)?;
        if self.is_behind(collection) {
            return Err(Lost::Compacted {
                floor: collection.floor,
            });
        }
        let (events, more) = collection.events_after(self.after, BATCH, BATCH_BYTES);
        if events.is_empty() && collection.closed {
            return Err(Lost::NotServed);
        }
        self.after = match events.last() {
            Some(last) if more => last.revision(),
            // A cursor may start at a future revision.
            _ => self.after.max(state.revision),
        };
        Ok((events, self.after))
    }

    /// Returns true if the next events were dropped, so that [`Cursor::next_batch`] will fail.
    pub(crate) fn is_compacted(&self) -> bool {
        let state = self.store.shared.state.read();
        let collection = state.collections.get(&self.collection);
        collection.is_some_and(|collection| self.is_behind(collection))
    }

    fn is_behind(&self, collection: &Collection) -> bool {
        self.late || self.after < collection.dropped
    }

    /// Waits for the next commit, or until the collection is closed. Returns `false` if the
    /// collection no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn changed(&mut self) -> bool {
        self.changed.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests;
