//! The ordered log between the reflector and the cache.
//!
//! The classic DeltaFIFO, as most introductions to client-go show it, is a map from keys to deltas
//! plus a queue of keys, and popping returns all deltas of one key. That reorders changes of
//! different objects and merges some away, so the cache it feeds is rarely in a state that the
//! server ever had. client-go replaced it with a plain log, and so does this module: each call of
//! the reflector is one entry, entries come out in the order in which they went in, and nothing is
//! merged.
//!
//! The name, the kinds of deltas and the interface remain: [`DeltaFifo::pop`] yields [`Deltas`],
//! oldest first, which the informer applies to its cache and delivers to its handlers. A list is
//! one entry, so a cache is never half replaced.

use std::{collections::VecDeque, fmt, future::Future, pin::pin};

use tokio::sync::{Notify, watch};

use crate::{
    object::Object,
    reflector::{Sink, Unread},
    sync::{self, Mutex},
};

/// One entry of the log.
#[derive(Debug, Clone)]
pub enum Delta<K> {
    /// The object is new.
    Added(Object<K>),
    /// The object changed.
    Updated(Object<K>),
    /// The object was deleted; this is its last state.
    Deleted(Object<K>),
    /// A complete list.
    Replaced {
        /// The objects, in the order of the list.
        items: Vec<Object<K>>,
        /// Objects in the list that could not be read.
        unread: Vec<Unread>,
        /// The `resourceVersion` of the list.
        resource_version: String,
    },
    /// A resync: every cached object is delivered again.
    Sync,
    /// The watch has reached this `resourceVersion`.
    Bookmark(String),
}

impl<K> Delta<K> {
    /// Returns whether the entry may share a batch with others. An entry that concerns the whole
    /// cache may not.
    fn is_batchable(&self) -> bool {
        !matches!(self, Self::Replaced { .. } | Self::Sync)
    }
}

/// A batch of entries, oldest first.
#[derive(Debug)]
pub struct Deltas<K> {
    /// Either a single [`Delta::Replaced`] or [`Delta::Sync`], or up to a thousand other entries.
    pub entries: Vec<Delta<K>>,
    /// Whether the entries belong to the first list.
    pub initial: bool,
}

/// The error of [`DeltaFifo::pop`] once the log is closed and drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta FIFO is closed and empty")]
pub struct Closed;

/// The largest batch.
const BATCH: usize = 1000;

/// How many entries may be pending before the reflector has to pause.
const BOUND: usize = 2000;

/// The ordered log, with one producer (a reflector) and one consumer (an informer).
///
/// An entry is pending until [`pop`](DeltaFifo::pop) passes it to its callback, and processed when
/// the callback returns. The log has synced once everything up to and including the first list has
/// been processed, and stays synced.
///
/// The lock is free while a callback runs, so the reflector can keep reading. It pauses in
/// [`ready`](DeltaFifo::ready) while 2000 entries are pending. After [`close`](DeltaFifo::close),
/// pending entries can still be popped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::cache::Reader;
/// use pintle::delta_fifo::DeltaFifo;
///
/// let json = br#"{"metadata":{"name":"web-0","namespace":"default","resourceVersion":"7"}}"#;
/// let log = DeltaFifo::<Pod>::new();
/// log.replace(vec![Reader::new().read(json).unwrap()], "9");
/// let first = log.pop(|deltas| deltas.initial).await;
/// assert_eq!(first, Ok(true));
/// assert!(log.has_synced());
/// # }
/// ```
pub struct DeltaFifo<K> {
    state: Mutex<State<K>>,
    filled: Notify,
    emptied: Notify,
    synced: watch::Sender<bool>,
}

impl<K> DeltaFifo<K> {
    /// Returns an empty log.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State::new(BOUND)),
            filled: Notify::new(),
            emptied: Notify::new(),
            synced: watch::Sender::new(false),
        }
    }

    fn push(&self, delta: Delta<K>) {
        self.state.lock().push(delta);
        sync::yield_point();
        self.filled.notify_one();
    }

    /// Appends an added object.
    pub fn add(&self, object: Object<K>) {
        self.push(Delta::Added(object));
    }

    /// Appends an updated object.
    pub fn update(&self, object: Object<K>) {
        self.push(Delta::Updated(object));
    }

    /// Appends a deleted object, in its last state.
    pub fn delete(&self, object: Object<K>) {
        self.push(Delta::Deleted(object));
    }

    /// Appends a complete list as one entry.
    pub fn replace(&self, items: Vec<Object<K>>, resource_version: &str) {
        self.replace_with_unread(items, Vec::new(), resource_version);
    }

    /// Appends a complete list as one entry, with objects in it that could not be read.
    pub(crate) fn replace_with_unread(
        &self,
        items: Vec<Object<K>>,
        unread: Vec<Unread>,
        resource_version: &str,
    ) {
        self.push(Delta::Replaced {
            items,
            unread,
            resource_version: resource_version.to_owned(),
        });
    }

    /// Appends the `resourceVersion` that the watch has reached.
    pub fn bookmark(&self, resource_version: &str) {
        self.push(Delta::Bookmark(resource_version.to_owned()));
    }

    /// Appends a request to deliver every cached object again.
    pub fn resync(&self) {
        self.push(Delta::Sync);
    }

    /// Returns the number of pending entries.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Returns whether no entry is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the first list has been processed.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns a receiver that turns true when the first list has been processed.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Closes the log. Pending entries can still be popped.
    pub fn close(&self) {
        self.state.lock().close();
        sync::yield_point();
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }

    /// Waits while too many entries are pending. Returns immediately once the log is closed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn ready(&self) {
        // Fast path: the reflector calls this before each entry, and there is almost always room.
        if self.state.lock().has_room() {
            return;
        }
        loop {
            let mut emptied = pin!(self.emptied.notified());
            // Register before checking, or a concurrent pop would be missed.
            emptied.as_mut().enable();
            if self.state.lock().has_room() {
                return;
            }
            emptied.await;
        }
    }

    /// Waits for the next entries and passes them to `process`, without holding the lock.
    ///
    /// There may be only one consumer.
    ///
    /// # Errors
    ///
    /// Fails once the log is closed and drained.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: entries are removed only in the poll that calls `process`, which
    /// runs to its end.
    pub async fn pop<R>(&self, process: impl FnOnce(Deltas<K>) -> R) -> Result<R, Closed> {
        let deltas = loop {
            let filled = self.filled.notified();
            let next = self.state.lock().take();
            match next {
                Ok(Some(deltas)) => break deltas,
                Ok(None) => filled.await,
                Err(closed) => return Err(closed),
            }
        };
        self.emptied.notify_waiters();
        let count = deltas.entries.len();
        let result = process(deltas);
        if self.state.lock().processed(count) {
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
        }
        Ok(result)
    }
}

impl<K: Send + Sync + 'static> Sink<K> for DeltaFifo<K> {
    fn replace(&self, items: Vec<Object<K>>, resource_version: &str) {
        self.replace(items, resource_version);
    }

    fn replace_with_unread(
        &self,
        items: Vec<Object<K>>,
        unread: Vec<Unread>,
        resource_version: &str,
    ) {
        self.replace_with_unread(items, unread, resource_version);
    }

    fn add(&self, object: Object<K>) {
        self.add(object);
    }

    fn update(&self, object: Object<K>) {
        self.update(object);
    }

    fn delete(&self, object: Object<K>) {
        self.delete(object);
    }

    fn bookmark(&self, resource_version: &str) {
        self.bookmark(resource_version);
    }

    fn resync(&self) {
        self.resync();
    }

    fn ready(&self) -> impl Future<Output = ()> + Send {
        self.ready()
    }
}

impl<K> Default for DeltaFifo<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("len", &self.len())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}

/// The state of the log, without locks or tasks.
struct State<K> {
    entries: VecDeque<Delta<K>>,
    bound: usize,
    closed: bool,
    /// Whether any object or list was ever appended.
    populated: bool,
    /// How many entries, up to and including the first list, are not processed yet.
    initial_left: usize,
}

impl<K> State<K> {
    fn new(bound: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bound,
            closed: false,
            populated: false,
            initial_left: 0,
        }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn has_room(&self) -> bool {
        self.closed || self.entries.len() < self.bound
    }

    fn close(&mut self) {
        self.closed = true;
    }

    /// Appends an entry, even when closed, because closing cannot interrupt a reflector in the
    /// middle of a call.
    fn push(&mut self, delta: Delta<K>) {
        let counts = !matches!(delta, Delta::Sync | Delta::Bookmark(_));
        let first_list = matches!(delta, Delta::Replaced { .. }) && !self.populated;
        self.entries.push_back(delta);
        self.populated |= counts;
        if first_list {
            self.initial_left = self.entries.len();
        }
    }

    fn synced(&self) -> bool {
        self.populated && self.initial_left == 0
    }

    /// Removes the next batch. Returns `None` if no entry is pending, and an error if the log is
    /// closed as well.
    fn take(&mut self) -> Result<Option<Deltas<K>>, Closed> {
        if self.entries.is_empty() {
            return if self.closed { Err(Closed) } else { Ok(None) };
        }
        let initial = !self.synced();
        // A list is never batched, so no batch spans the end of the first list.
        let batch = self
            .entries
            .iter()
            .take(BATCH)
            .take_while(|delta| delta.is_batchable())
            .count();
        let entries = self.entries.drain(..batch.max(1)).collect();
        if self.entries.is_empty() && self.entries.capacity() > 4 * BATCH {
            self.entries.shrink_to(BATCH);
        }
        Ok(Some(Deltas { entries, initial }))
    }

    /// Records that `count` entries were processed. Returns whether the log has synced.
    fn processed(&mut self, count: usize) -> bool {
        self.initial_left = self.initial_left.saturating_sub(count);
        self.synced()
    }

    /// Returns the allocated capacity.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.entries.capacity()
    }
}

#[cfg(test)]
mod tests;
