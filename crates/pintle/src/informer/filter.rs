//! A handler that is told of some objects only.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::HashSet;

use super::{
    event::{Deleted, Event},
    handler::Handler,
};
use crate::object::{Object, ObjectKey};

type Predicate<K> = dyn FnMut(&Object<K>) -> bool + Send;

/// Turns the events of all objects into those of the objects that match.
///
/// An object that begins to match is added, one that ceases to is deleted. Which objects the
/// handler has been told of is remembered, so a deletion needs no predicate: it is told exactly if
/// the object was, whatever its last state looks like.
pub(super) struct Filter<K> {
    predicate: Box<Predicate<K>>,
    told: HashSet<ObjectKey>,
}

impl<K> Filter<K> {
    pub(super) fn new(predicate: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        Self {
            predicate: Box::new(predicate),
            told: HashSet::new(),
        }
    }

    pub(super) fn pass(&mut self, event: Event<K>, handler: &Handler<K>) -> Option<Event<K>> {
        match event {
            Event::Added { object, initial } => {
                let matches = self.matches(&object, handler);
                self.tell(object.key(), matches)
                    .then_some(Event::Added { object, initial })
            }
            Event::Updated { old, new } => {
                let before = self.told.contains(new.key());
                let matches = self.matches(&new, handler);
                self.tell(new.key(), matches);
                match (before, matches) {
                    (true, true) => Some(Event::Updated { old, new }),
                    (false, true) => Some(Event::Added {
                        object: new,
                        initial: false,
                    }),
                    (true, false) => Some(Event::Deleted(Deleted {
                        key: old.key().clone(),
                        last: Some(old),
                        exact: true,
                    })),
                    (false, false) => None,
                }
            }
            Event::Deleted(deleted) => self
                .told
                .remove(&deleted.key)
                .then_some(Event::Deleted(deleted)),
        }
    }

    fn tell(&mut self, key: &ObjectKey, matches: bool) -> bool {
        if matches {
            self.told.insert(key.clone());
        } else {
            self.told.remove(key);
        }
        matches
    }

    /// A predicate that panics is taken for a match: better told than lost.
    fn matches(&mut self, object: &Object<K>, handler: &Handler<K>) -> bool {
        let predicate = &mut self.predicate;
        catch_unwind(AssertUnwindSafe(|| predicate(object))).unwrap_or_else(|panic| {
            handler.panicked("a handler's filter", panic.as_ref());
            true
        })
    }
}
