//! The decoded views that stay in memory between reads.
//!
//! Decoding is most of the cost of reading an object, and reads come in bursts: a predicate, a
//! mapping function and several reconciles read the same object within seconds. But decoded objects
//! take about five times the memory of their JSON, so an informer cannot keep them all. It keeps
//! those that were read recently, up to a number of bytes.
//!
//! This is the CLOCK algorithm. A hit only sets a bit; to make room, a hand goes round the views
//! and drops those that were not read since it last passed. The size of a view is an estimate from
//! the size of its JSON.
//!
//! An object has a weak reference to its entry, so eviction does not touch the object, and an
//! object that is dropped takes its entry along. Dropping a view can run user code, so none is
//! dropped under a lock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

/// The bytes of views that an informer keeps by default.
pub(super) const DEFAULT_LIMIT: usize = 1 << 20;

/// How many bytes a byte of JSON takes when decoded, in addition to the size of the type: strings
/// and maps are allocated one by one. A rounded average of Pods.
const BYTES_PER_JSON_BYTE: usize = 5;

/// The views kept for the objects of one informer.
pub(super) struct Views<K> {
    limit: usize,
    kept: Mutex<Kept<K>>,
}

struct Kept<K> {
    slots: Vec<Option<Arc<Entry<K>>>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
}

/// A decoded view and its place.
pub(super) struct Entry<K> {
    view: Arc<K>,
    bytes: usize,
    slot: usize,
    /// Whether the view was read since the hand last passed.
    read: AtomicBool,
}

/// Estimates the memory of a view decoded from `json` bytes.
fn size_of_view<K>(json: usize) -> usize {
    size_of::<K>() + BYTES_PER_JSON_BYTE.saturating_mul(json)
}

impl<K> Entry<K> {
    /// Returns the view and protects it from the next pass of the hand.
    pub(super) fn read(&self) -> Arc<K> {
        self.read.store(true, Ordering::Relaxed);
        self.view.clone()
    }
}

impl<K> Views<K> {
    pub(super) fn new(limit: usize) -> Self {
        let kept = Kept {
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
        };
        Self {
            limit,
            kept: Mutex::new(kept),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Drops views until one decoded from `json` bytes fits.
    pub(super) fn make_room(&self, json: usize) {
        let room = self.limit.saturating_sub(size_of_view::<K>(json));
        while let Some(evicted) = self.kept.lock().evict_beyond(room) {
            // Here, after the lock is released.
            drop(evicted);
        }
    }

    /// Keeps a view decoded from `json` bytes, after [`make_room`](Self::make_room).
    ///
    /// A view that exceeds the limit by itself is kept alone, so that the handlers of one event
    /// share it. Threads that decode concurrently can exceed the limit by one view each.
    pub(super) fn keep(&self, view: Arc<K>, json: usize) -> Arc<Entry<K>> {
        self.kept.lock().add(view, size_of_view::<K>(json))
    }

    /// Returns how many views are kept, and their bytes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.slots.iter().flatten().count(), kept.bytes)
    }

    /// Removes an entry that is no longer needed, unless it was evicted.
    pub(super) fn remove(&self, entry: &Arc<Entry<K>>) {
        let mut kept = self.kept.lock();
        if let Some(Some(found)) = kept.slots.get(entry.slot)
            && Arc::ptr_eq(found, entry)
        {
            // The caller's reference outlives this one, so no view is dropped under the lock.
            kept.clear(entry.slot);
        }
    }
}

impl<K> Kept<K> {
    fn add(&mut self, view: Arc<K>, bytes: usize) -> Arc<Entry<K>> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let entry = Arc::new(Entry {
            view,
            bytes,
            slot,
            read: AtomicBool::new(false),
        });
        self.slots[slot] = Some(entry.clone());
        self.bytes += bytes;
        entry
    }

    fn clear(&mut self, slot: usize) -> Option<Arc<Entry<K>>> {
        let entry = self.slots[slot].take()?;
        self.bytes -= entry.bytes;
        self.free.push(slot);
        Some(entry)
    }

    /// Removes the next entry that was not read since the hand last passed, if the entries take
    /// more than `bytes`.
    fn evict_beyond(&mut self, bytes: usize) -> Option<Arc<Entry<K>>> {
        if self.bytes <= bytes {
            return None;
        }
        // The first round may do no more than reset the bits.
        for _ in 0..2 * self.slots.len() {
            let slot = self.hand;
            self.hand = (slot + 1) % self.slots.len();
            if let Some(entry) = &self.slots[slot]
                && !entry.read.swap(false, Ordering::Relaxed)
            {
                return self.clear(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
