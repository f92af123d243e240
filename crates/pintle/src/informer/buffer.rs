//! The events that wait for one handler.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::event::{Deleted, Event};
use crate::object::ObjectKey;

/// The waiting events of one handler, in order.
///
/// A lossless buffer is a plain queue. A coalescing buffer is plain up to its bound. Beyond that it
/// merges: for each key it records the positions of the pending deletion and of the event after it,
/// and merges new events into these. Merging leaves holes, which `pop` skips and which are swept
/// when there are too many. Once drained to half its bound, the buffer is plain again.
///
/// Merging turns the events of one object into one with the first old and the latest new state. An
/// object that was created and deleted in the meantime is not reported at all, and a deletion stays
/// separate from later events of the same name. The buffer is then bounded by the objects that the
/// handler knows plus those in the cache, and a handler that applies every event ends up with the
/// right state.
pub(super) struct Buffer<K> {
    /// The number of events beyond which events are merged; `None` means never.
    coalesce_beyond: Option<usize>,
    queue: VecDeque<Option<Event<K>>>,
    /// The position of the first slot in `queue`.
    first: u64,
    holes: usize,
    /// The number of initial additions among the events.
    initial: usize,
    merging: Option<HashMap<ObjectKey, Pending>>,
    /// The number of events merged away so far.
    coalesced: u64,
}

/// The positions of a key's events: a deletion, and an event after it.
#[derive(Clone, Copy, Default)]
struct Pending {
    gone: Option<u64>,
    live: Option<u64>,
}

impl<K> Buffer<K> {
    pub(super) fn new(coalesce_beyond: Option<usize>) -> Self {
        Self {
            coalesce_beyond,
            queue: VecDeque::new(),
            first: 0,
            holes: 0,
            initial: 0,
            merging: None,
            coalesced: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.holes
    }

    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    pub(super) fn push(&mut self, event: Event<K>) {
        if self.merging.is_some() {
            self.merge(event);
            if self.holes > self.len() + 64 {
                self.rebuild();
            }
            return;
        }
        self.append(event);
        if self
            .coalesce_beyond
            .is_some_and(|bound| self.queue.len() > bound)
        {
            self.rebuild();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event<K>> {
        let event = loop {
            let slot = self.queue.pop_front()?;
            self.first += 1;
            match slot {
                Some(event) => break event,
                None => self.holes -= 1,
            }
        };
        self.initial -= usize::from(event.is_initial());
        if let Some(pending) = &mut self.merging {
            let popped = self.first - 1;
            if let Some(positions) = pending.get_mut(event.key()) {
                let other = |position: Option<u64>| position.filter(|position| *position != popped);
                *positions = Pending {
                    gone: other(positions.gone),
                    live: other(positions.live),
                };
                if positions.gone.is_none() && positions.live.is_none() {
                    pending.remove(event.key());
                }
            }
            let drained = |bound| self.len() <= bound / 2;
            if self.coalesce_beyond.is_none_or(drained) {
                self.merging = None;
            }
        }
        if self.queue.is_empty() && self.queue.capacity() > 4096 {
            self.queue.shrink_to(64);
        }
        Some(event)
    }

    fn append(&mut self, event: Event<K>) -> u64 {
        self.initial += usize::from(event.is_initial());
        self.queue.push_back(Some(event));
        self.first + self.queue.len() as u64 - 1
    }

    /// Merges the waiting events, or sweeps the holes.
    fn rebuild(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        self.first = 0;
        self.holes = 0;
        self.initial = 0;
        self.merging = Some(HashMap::with_capacity(queue.len()));
        for event in queue.into_iter().flatten() {
            self.merge(event);
        }
    }

    fn slot(&mut self, position: u64) -> Option<&mut Option<Event<K>>> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }

    fn merge(&mut self, event: Event<K>) {
        let key = event.key().clone();
        let pending = self.merging.as_ref().and_then(|map| map.get(&key)).copied();
        let pending = self.join(event, pending.unwrap_or_default());
        if let Some(map) = &mut self.merging {
            if pending.gone.is_none() && pending.live.is_none() {
                map.remove(&key);
            } else {
                map.insert(key, pending);
            }
        }
    }

    /// Merges an event into the pending ones of its key and returns the result.
    fn join(&mut self, event: Event<K>, pending: Pending) -> Pending {
        match event {
            Event::Deleted(deleted) => self.merge_deletion(deleted, pending),
            event => {
                let Some(live) = pending.live else {
                    return Pending {
                        live: Some(self.append(event)),
                        ..pending
                    };
                };
                if let Some(slot) = self.slot(live)
                    && let Some(before) = slot.take()
                {
                    *slot = Some(joined(before, event));
                    self.coalesced += 1;
                }
                pending
            }
        }
    }

    fn merge_deletion(&mut self, deleted: Deleted<K>, pending: Pending) -> Pending {
        let Some(position) = pending.live.or(pending.gone) else {
            let gone = Some(self.append(Event::Deleted(deleted)));
            return Pending { gone, live: None };
        };
        self.coalesced += 1;
        let Some(slot) = self.slot(position) else {
            return pending;
        };
        let before = slot.take();
        let Some(Event::Added { initial, .. }) = before else {
            *slot = Some(Event::Deleted(deleted));
            return Pending {
                gone: Some(position),
                live: None,
            };
        };
        // Created and deleted unseen: the handler's sync must not wait for it.
        self.initial -= usize::from(initial);
        self.holes += 1;
        self.coalesced += 1;
        Pending {
            live: None,
            ..pending
        }
    }
}

/// Merges two events of one object, neither of them a deletion.
fn joined<K>(before: Event<K>, after: Event<K>) -> Event<K> {
    let object = match after {
        Event::Added { object, .. } | Event::Updated { new: object, .. } => object,
        Event::Deleted(_) => return after,
    };
    match before {
        Event::Added { initial, .. } => Event::Added { object, initial },
        Event::Updated { old, .. } => Event::Updated { old, new: object },
        Event::Deleted(_) => Event::Added {
            object,
            initial: false,
        },
    }
}

#[cfg(test)]
mod tests;
