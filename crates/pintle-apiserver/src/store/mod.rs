//! Every object of the server, one revision counter, and the log that watchers follow.
//!
//! A resource is a collection: an ordered persistent map of its current objects and a log of its recent
//! events. A commit takes the lock, checks what the writer believed, takes the next revision, and
//! appends; everything expensive (decoding, validating, encoding) happened before, and waking the
//! watchers happens after. Because one lock orders the commits, revisions are handed out in the
//! order in which they become visible.
//!
//! A reader takes a snapshot, which is a pointer, and never blocks a writer. A state of the past is
//! the current one with the newer events undone, so any revision the log still covers can be read.
//! A watcher is a [`Cursor`]: a revision and the place to wait; it owns no queue.
//!
//! Logs are bounded in two ways: each by its number of events, and all of them together by the bytes
//! they retain. Over the byte limit, the oldest event of all resources is dropped first. A cursor that
//! has not read a dropped event gets [`Lost::Compacted`] and has to list again.

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

/// The limits of one batch of a cursor, in events and bytes. A slow watcher retains no more than the
/// batch it is sending.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 64 * 1024;

/// Names a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectionId(u32);

/// What a commit does to its key.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Arc<Content>),
    /// Removes the object; its last state is told to watchers.
    Delete(Arc<Content>),
}

/// What the writer believes to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// Why a commit did not happen.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The object is another one than the writer believed, or none.
    Mismatch,
    /// The resource is no longer served.
    NotServed,
}

/// Why a state of the past, or what followed it, cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The log starts later; it still covers everything after `floor`.
    Compacted { floor: u64 },
    /// The revision has not been reached.
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
    /// The first revision of each non-empty log; the first entry is the oldest event of all.
    fronts: BTreeMap<u64, CollectionId>,
    /// Older states cannot be read, even if the logs still have the events.
    readable: u64,
}

impl State {
    fn open(&self, id: CollectionId) -> Option<&Collection> {
        self.collections
            .get(&id)
            .filter(|collection| !collection.closed)
    }

    /// Drops closed collections nobody watches any more.
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

    /// Drops events until the logs are within their limits. Never drops the newest event, so that
    /// waiting watchers get it however large it is.
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

/// A handle on the store.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    /// The newest revision, for readers that wait for one.
    revision: watch::Sender<u64>,
    history: History,
}

/// The limits of the logs.
#[derive(Debug, Clone, Copy)]
struct History {
    /// Per resource.
    events: usize,
    /// Of all resources together.
    bytes: usize,
}

impl Store {
    /// An empty store whose logs keep `events` events per resource, and together `bytes` bytes.
    pub(crate) fn new(events: usize, bytes: usize) -> Self {
        // Revision 0 means "any" to clients: the first state of the store is 1.
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

    /// Opens an empty collection.
    pub(crate) fn open_collection(&self) -> CollectionId {
        let mut state = self.shared.state.write();
        state.sweep();
        let id = CollectionId(state.next_id);
        state.next_id += 1;
        // Nothing happened in it before it existed, but an older revision may belong to a
        // predecessor of the same name: those watchers must list again.
        let floor = if state.revision <= 1 {
            0
        } else {
            state.revision
        };
        state.collections.insert(id, Collection::new(floor));
        id
    }

    /// Closes an empty collection: it takes no more commits, and its watches end when they have seen the
    /// last. `false`, and nothing happens, if it still holds an object.
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

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.state.read().revision
    }

    /// The current state of one object.
    pub(crate) fn get(&self, collection: CollectionId, key: &str) -> Option<Arc<Object>> {
        self.shared
            .state
            .read()
            .open(collection)?
            .objects
            .get(key)
            .cloned()
    }

    /// The current state of a resource.
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

    /// The state of a resource as it was at `revision`.
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

    /// Writes, if what is stored is what the writer believes.
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
        // Commits may get here out of order: the newest revision wins.
        wake(&changed, object.revision);
        wake(&self.shared.revision, object.revision);
        Ok(object)
    }

    /// Forgets all events up to `revision` of every resource: pages of older lists, new watches from
    /// before it, and running watches that have not seen one of those events expire.
    pub(crate) fn compact(&self, revision: u64) {
        let mut state = self.shared.state.write();
        let revision = revision.min(state.revision);
        for collection in state.collections.values_mut() {
            collection.compact(revision);
        }
        state.recount();
    }

    /// Makes states before `revision` unreadable: continue tokens for them expire, watches go on.
    pub(crate) fn forget_states(&self, revision: u64) {
        let mut state = self.shared.state.write();
        state.readable = state.readable.max(revision.min(state.revision));
    }

    /// Waits until the store has reached `revision`. Cancel safe.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut seen = self.shared.revision.subscribe();
        // The sender lives as long as `self`: waiting cannot fail.
        let _ = seen.wait_for(|now| *now >= revision).await;
    }

    /// A cursor that will see every event of the collection after `revision`, or be told that it cannot.
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

/// A place in the log of one resource.
#[derive(Debug)]
pub(crate) struct Cursor {
    store: Store,
    collection: CollectionId,
    after: u64,
    /// It came when its revision was forgotten already.
    late: bool,
    changed: watch::Receiver<u64>,
}

impl Cursor {
    /// The next events, oldest first, and the revision up to which nothing else happened to the
    /// resource; no events when there are none yet.
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
            // A cursor may wait for a revision of the future.
            _ => self.after.max(state.revision),
        };
        Ok((events, self.after))
    }

    /// Whether the next events were dropped, so that [`Cursor::next_batch`] will fail.
    pub(crate) fn is_compacted(&self) -> bool {
        let state = self.store.shared.state.read();
        let collection = state.collections.get(&self.collection);
        collection.is_some_and(|collection| self.is_behind(collection))
    }

    fn is_behind(&self, collection: &Collection) -> bool {
        self.late || self.after < collection.dropped
    }

    /// Waits for the next commit; `false` when the resource is no longer served. Cancel safe.
    pub(crate) async fn changed(&mut self) -> bool {
        self.changed.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests;
