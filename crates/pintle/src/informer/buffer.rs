//! What one handler has still to be told.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::event::{Deleted, Event};
use crate::object::ObjectKey;

/// How a handler's buffer behaves when the handler is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Beyond this many waiting events, events of one object become one: the first old state and
    /// the latest new one; an object that came and went is not told at all; a deletion and what
    /// came after it under the same name stay two. What waits is then bounded by what the handler
    /// has been told and what the cache holds, and nothing is lost that code which looks at states
    /// needs.
    Coalesce {
        /// How many events wait as they are.
        beyond: usize,
    },
    /// Every event is kept, whatever the memory: for handlers that count changes.
    Lossless,
}

impl Default for Backlog {
    /// Coalesces beyond 4096 events.
    fn default() -> Self {
        Self::Coalesce { beyond: 4096 }
    }
}

/// Events in order.
///
/// Plain at first: a queue. Beyond its bound it merges: then it knows for each key where its
/// pending deletion and its pending later event stand, and a new event finds them. Places that
/// merging empties are holes, passed over when popping and swept when they are too many. Drained
/// to half its bound, it is plain again.
pub(super) struct Buffer<K> {
    backlog: Backlog,
    queue: VecDeque<Option<Event<K>>>,
    /// The number of the first place in `queue`.
    first: u64,
    holes: usize,
    /// Initial adds among the events.
    initial: usize,
    merging: Option<HashMap<ObjectKey, Pending>>,
    /// Events merged away so far.
    coalesced: u64,
}

/// Where a key's events stand: the deletion before the later event.
#[derive(Clone, Copy, Default)]
struct Pending {
    gone: Option<u64>,
    live: Option<u64>,
}

impl<K> Buffer<K> {
    pub(super) fn new(backlog: Backlog) -> Self {
        Self {
            backlog,
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
        if let Backlog::Coalesce { beyond } = self.backlog
            && self.queue.len() > beyond
        {
            self.rebuild();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event<K>> {
        let event = loop {
            let place = self.queue.pop_front()?;
            self.first += 1;
            match place {
                Some(event) => break event,
                None => self.holes -= 1,
            }
        };
        self.initial -= usize::from(event.is_initial());
        if let Some(pending) = &mut self.merging {
            let number = self.first - 1;
            if let Some(places) = pending.get_mut(event.key()) {
                let other = |place: Option<u64>| place.filter(|place| *place != number);
                *places = Pending {
                    gone: other(places.gone),
                    live: other(places.live),
                };
                if places.gone.is_none() && places.live.is_none() {
                    pending.remove(event.key());
                }
            }
            let plain = match self.backlog {
                Backlog::Coalesce { beyond } => self.len() <= beyond / 2,
                Backlog::Lossless => true,
            };
            if plain {
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

    /// Merges what is there, or sweeps the holes away.
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

    fn place(&mut self, number: u64) -> Option<&mut Option<Event<K>>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(at)
    }

    fn merge(&mut self, event: Event<K>) {
        let key = event.key().clone();
        let pending = self.merging.as_ref().and_then(|map| map.get(&key)).copied();
        let pending = self.merged(event, pending.unwrap_or_default());
        if let Some(map) = &mut self.merging {
            if pending.gone.is_none() && pending.live.is_none() {
                map.remove(&key);
            } else {
                map.insert(key, pending);
            }
        }
    }

    /// Joins an event to what its key has pending, and says what is pending then.
    fn merged(&mut self, event: Event<K>, pending: Pending) -> Pending {
        match event {
            Event::Deleted(deleted) => self.merge_deletion(deleted, pending),
            event => {
                let Some(live) = pending.live else {
                    return Pending {
                        live: Some(self.append(event)),
                        ..pending
                    };
                };
                if let Some(place) = self.place(live)
                    && let Some(before) = place.take()
                {
                    *place = Some(joined(before, event));
                    self.coalesced += 1;
                }
                pending
            }
        }
    }

    fn merge_deletion(&mut self, deleted: Deleted<K>, pending: Pending) -> Pending {
        let Some(number) = pending.live.or(pending.gone) else {
            let gone = Some(self.append(Event::Deleted(deleted)));
            return Pending { gone, live: None };
        };
        self.coalesced += 1;
        let Some(place) = self.place(number) else {
            return pending;
        };
        let before = place.take();
        let Some(Event::Added { initial, .. }) = before else {
            *place = Some(Event::Deleted(deleted));
            return Pending {
                gone: Some(number),
                live: None,
            };
        };
        // It came and went unseen; the handler's sync must not wait for it.
        self.initial -= usize::from(initial);
        self.holes += 1;
        self.coalesced += 1;
        Pending {
            live: None,
            ..pending
        }
    }
}

/// Two events of one object, neither a deletion, as one.
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
