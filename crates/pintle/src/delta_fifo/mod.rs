//! The ordered log between the network and the cache.
//!
//! Every introduction to informers shows a DeltaFIFO: a map from key to a pile of deltas, and a
//! queue of keys; popping hands over all deltas of one key, oldest first. That form reorders
//! changes of different objects and merges some away, so the cache it feeds is rarely in a state
//! that the server ever had. client-go gave it up for a plain log, and this is one: each call of
//! the reflector is one entry, entries come out in the order they went in, nothing is merged.
//!
//! What is kept is the name, the kinds of deltas, and the hand-over: [`DeltaFifo::pop`] yields
//! [`Deltas`], oldest first, which the informer applies to its cache and tells its handlers. A
//! list is one entry, so a cache is never half relisted.

mod state;

use std::{fmt, future::Future, pin::pin};

use tokio::sync::{Notify, watch};

use self::state::State;
use crate::{
    object::Object,
    reflector::{Sink, Unread},
    sync::{self, Mutex},
};

/// One entry of the log.
#[derive(Debug, Clone)]
pub enum Delta<K> {
    /// The server says the object is new.
    Added(Object<K>),
    /// The server says the object changed.
    Updated(Object<K>),
    /// The server says the object is gone; this is its last state.
    Deleted(Object<K>),
    /// These are all objects there are.
    Replaced {
        /// The objects, in the order of the list.
        items: Vec<Object<K>>,
        /// Objects that are there too but could not be read.
        unread: Vec<Unread>,
        /// The version of the list.
        resource_version: String,
    },
    /// Everything is to be told once more.
    Sync,
    /// Nothing changed up to this version.
    Bookmark(String),
}

impl<K> Delta<K> {
    /// Whether the entry can be applied together with its neighbours. One that concerns the whole
    /// cache stands alone.
    fn joins(&self) -> bool {
        !matches!(self, Self::Replaced { .. } | Self::Sync)
    }
}

/// Entries handed over together, oldest first.
#[derive(Debug)]
pub struct Deltas<K> {
    /// Either one [`Delta::Replaced`] or [`Delta::Sync`], or up to a thousand of the others.
    pub entries: Vec<Delta<K>>,
    /// Whether they belong to the first list.
    pub initial: bool,
}

/// The log is closed and everything in it was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta FIFO is closed and empty")]
pub struct Closed;

/// How many entries may wait before the reflector is asked to pause.
const BOUND: usize = 2000;

/// The ordered log. One reflector fills it, one informer empties it.
///
/// An entry moves: waiting → handed to the callback of [`pop`](DeltaFifo::pop) → processed, when
/// the callback has returned. The log has synced when everything that was there right after the
/// first list is processed, and stays so.
///
/// The lock is free while a callback runs, so the reflector goes on reading; it pauses by
/// [`ready`](DeltaFifo::ready) while 2000 entries wait. Closing lets what is there still be taken
/// out.
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
    /// An empty log.
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
        sync::turn();
        self.filled.notify_one();
    }

    /// Enters an object that is new.
    pub fn add(&self, object: Object<K>) {
        self.push(Delta::Added(object));
    }

    /// Enters an object that changed.
    pub fn update(&self, object: Object<K>) {
        self.push(Delta::Updated(object));
    }

    /// Enters an object that is gone, with its last state.
    pub fn delete(&self, object: Object<K>) {
        self.push(Delta::Deleted(object));
    }

    /// Enters a whole list as one entry.
    pub fn replace(&self, items: Vec<Object<K>>, resource_version: &str) {
        self.replace_with_unread(items, Vec::new(), resource_version);
    }

    /// Enters a whole list as one entry, with objects that are there too but could not be read.
    pub fn replace_with_unread(
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

    /// Enters a version up to which nothing changed.
    pub fn bookmark(&self, resource_version: &str) {
        self.push(Delta::Bookmark(resource_version.to_owned()));
    }

    /// Enters the wish to be told everything once more.
    pub fn resync(&self) {
        self.push(Delta::Sync);
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has been processed.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Tells when the first list has been processed.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Ends the log: what is there can still be taken out.
    pub fn close(&self) {
        self.state.lock().close();
        sync::turn();
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }

    /// Waits while too many entries are waiting. Does not wait once the log is closed.
    ///
    /// Cancel safe.
    pub async fn ready(&self) {
        // Asked before each entry, and nearly always so.
        if self.state.lock().has_room() {
            return;
        }
        loop {
            let mut emptied = pin!(self.emptied.notified());
            // Listening starts before looking, or room made in between would be missed.
            emptied.as_mut().enable();
            if self.state.lock().has_room() {
                return;
            }
            emptied.await;
        }
    }

    /// Waits for the next entries and hands them to `process`; the log's lock is free meanwhile.
    ///
    /// One consumer only. Cancel safe: nothing is taken out before `process` is called, and
    /// `process` is not interrupted.
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

#[cfg(test)]
mod tests;
