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
    /// has been told and what the cache holds, and a handler that keeps a picture of its own ends
    /// with the right one. A handler that wakes somebody who reads the cache needs every event: the
    /// cache is ahead of it, and somebody may have acted on a state that was never told.
    Coalesce {
        /// How many events wait as they are.
        beyond: usize,
    },
    /// Every event is kept, whatever the memory: for handlers that count changes, or that feed a
    /// queue, which forgets repeats itself.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        informer::tests::line,
        testing::{Thing, object},
    };

    fn added(key: &str, uid: &str, version: u64) -> Event<Thing> {
        Event::Added {
            object: object(key, uid, version, "x"),
            initial: false,
        }
    }

    fn updated(key: &str, uid: &str, from: u64, to: u64) -> Event<Thing> {
        Event::Updated {
            old: object(key, uid, from, "x"),
            new: object(key, uid, to, "x"),
        }
    }

    fn deleted(key: &str, uid: &str, version: u64) -> Event<Thing> {
        let last = Some(object(key, uid, version, "x"));
        Event::Deleted(Deleted {
            key: key.parse().unwrap(),
            last,
            exact: true,
        })
    }

    fn drain(buffer: &mut Buffer<Thing>) -> Vec<String> {
        std::iter::from_fn(|| buffer.pop())
            .map(|event| line(&event))
            .collect()
    }

    /// What a buffer that merges from the start makes of `events`.
    fn merged(events: Vec<Event<Thing>>) -> Vec<String> {
        let mut buffer = Buffer::new(Backlog::Coalesce { beyond: 0 });
        for event in events {
            buffer.push(event);
        }
        drain(&mut buffer)
    }

    /// Proves informer/coalescing.
    #[test]
    fn events_of_one_object_become_one() {
        let of = |events| merged(events);
        assert_eq!(
            of(vec![added("n/a", "u", 1), updated("n/a", "u", 1, 2)]),
            ["+ n/a 2"]
        );
        assert_eq!(
            of(vec![
                updated("n/a", "u", 1, 2),
                updated("n/b", "v", 3, 4),
                updated("n/a", "u", 2, 5)
            ]),
            ["= n/a 1→5", "= n/b 3→4"]
        );
        assert_eq!(
            of(vec![updated("n/a", "u", 1, 2), deleted("n/a", "u", 3)]),
            ["- n/a 3"]
        );
        assert!(of(vec![added("n/a", "u", 1), deleted("n/a", "u", 2)]).is_empty());
        assert_eq!(
            of(vec![deleted("n/a", "u", 2), deleted("n/a", "u", 3)]),
            ["- n/a 3"]
        );
    }

    /// Proves informer/coalescing.
    #[test]
    fn a_deletion_and_what_came_after_it_stay_two() {
        let gone_and_back = vec![
            updated("n/a", "u", 1, 2),
            deleted("n/a", "u", 3),
            added("n/a", "v", 4),
            updated("n/a", "v", 4, 5),
        ];
        assert_eq!(merged(gone_and_back.clone()), ["- n/a 3", "+ n/a 5"]);
        let mut gone_again = gone_and_back;
        gone_again.push(deleted("n/a", "v", 6));
        assert_eq!(
            merged(gone_again.clone()),
            ["- n/a 3"],
            "the successor was never told"
        );
        gone_again.push(added("n/a", "w", 7));
        assert_eq!(merged(gone_again), ["- n/a 3", "+ n/a 7"]);
    }

    /// Proves informer/registration-synced.
    #[test]
    fn an_initial_object_that_went_unseen_does_not_hold_up_the_sync() {
        let mut buffer = Buffer::new(Backlog::Coalesce { beyond: 0 });
        for key in ["n/a", "n/b"] {
            buffer.push(Event::Added {
                object: object(key, "u", 1, "x"),
                initial: true,
            });
        }
        buffer.push(updated("n/b", "u", 1, 2));
        assert_eq!(buffer.initial(), 2);
        buffer.push(deleted("n/a", "u", 3));
        assert_eq!(buffer.initial(), 1);
        assert_eq!(drain(&mut buffer), ["+* n/b 2"]);
        assert_eq!(buffer.initial(), 0);
    }

    /// Proves informer/coalescing.
    #[test]
    fn nothing_is_merged_before_the_bound_or_ever_without_one() {
        for backlog in [Backlog::Coalesce { beyond: 3 }, Backlog::Lossless] {
            let mut buffer = Buffer::new(backlog);
            for version in 1..4 {
                buffer.push(updated("n/a", "u", version, version + 1));
            }
            assert_eq!(buffer.len(), 3);
        }
        let mut lossless = Buffer::new(Backlog::Lossless);
        for version in 0..10_000 {
            lossless.push(updated("n/a", "u", version, version + 1));
        }
        assert_eq!((lossless.len(), lossless.coalesced()), (10_000, 0));
    }

    /// Proves informer/coalescing.
    #[test]
    fn what_waits_is_bounded_by_the_objects_there_are() {
        let mut buffer = Buffer::new(Backlog::Coalesce { beyond: 10 });
        for version in 0..10_000 {
            let key = format!("n/{}", version % 4);
            buffer.push(updated(&key, "u", version, version + 4));
            // Objects that come and go leave nothing, not even their places.
            buffer.push(added("n/passing", "p", version));
            buffer.push(deleted("n/passing", "p", version));
        }
        assert!(buffer.len() <= 11, "{} events wait", buffer.len());
        assert!(
            buffer.queue.len() < 200,
            "{} places are held",
            buffer.queue.len()
        );
        let told = drain(&mut buffer);
        assert!(told.contains(&"= n/3 3→10003".to_owned()), "{told:?}");
        assert_eq!(told.len(), 4);
    }

    /// One object's life as a handler sees it, for the property below.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Change(u8),
        Delete(u8),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..5_u8).prop_map(Step::Change),
            2 => (0..5_u8).prop_map(Step::Delete),
            2 => Just(Step::Pop),
        ]
    }

    proptest! {
        // Proves informer/coalescing.
        #[test]
        fn a_slow_handler_ends_with_the_view_of_a_quick_one(
            steps in proptest::collection::vec(step(), 0..200), beyond in 0usize..12,
        ) {
            let mut buffer = Buffer::new(Backlog::Coalesce { beyond });
            let mut server: [Option<(String, u64)>; 5] = Default::default();
            let mut view = std::collections::BTreeMap::<ObjectKey, (String, u64)>::new();
            let mut version = 0;
            let check = |view: &mut std::collections::BTreeMap<_, _>, event: Event<Thing>| {
                let state = |object: &crate::object::Object<Thing>| {
                    (object.uid().to_owned(), object.resource_version().parse::<u64>().unwrap())
                };
                let key = event.key().clone();
                match &event {
                    Event::Added { object, .. } => {
                        prop_assert!(view.insert(key, state(object)).is_none(), "added twice");
                    }
                    Event::Updated { old, new } => {
                        prop_assert_eq!(view.insert(key, state(new)), Some(state(old)));
                    }
                    Event::Deleted(_) => prop_assert!(view.remove(&key).is_some(), "unknown"),
                }
                Ok(())
            };
            for step in steps {
                version += 1;
                match step {
                    Step::Change(n) => {
                        let key = format!("n/{n}");
                        let slot = &mut server[n as usize];
                        buffer.push(if let Some((uid, old)) = slot.clone() {
                            *slot = Some((uid.clone(), version));
                            updated(&key, &uid, old, version)
                        } else {
                            let uid = format!("u{version}");
                            *slot = Some((uid.clone(), version));
                            added(&key, &uid, version)
                        });
                    }
                    Step::Delete(n) => {
                        if let Some((uid, _)) = server[n as usize].take() {
                            buffer.push(deleted(&format!("n/{n}"), &uid, version));
                        }
                    }
                    Step::Pop => {
                        if let Some(event) = buffer.pop() {
                            check(&mut view, event)?;
                        }
                    }
                }
                prop_assert!(buffer.len() <= beyond.max(10) + 1);
            }
            while let Some(event) = buffer.pop() {
                check(&mut view, event)?;
            }
            let expected: std::collections::BTreeMap<_, _> = server.iter().enumerate()
                .filter_map(|(n, state)| Some((format!("n/{n}").parse().unwrap(), state.clone()?)))
                .collect();
            prop_assert_eq!(view, expected);
        }
    }
}
