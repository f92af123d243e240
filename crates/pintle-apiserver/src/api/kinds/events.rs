//! Events live for an hour after they were last written.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::api::Api;
use crate::store::{Change, CollectionId, Expect, Object};

/// How long an event is kept, in seconds.
const LIFE: i64 = 3600;

/// When which write of an event is forgotten, oldest first. As long as the events written in one
/// hour: an event that is written again leaves its old entry behind, which then does nothing.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    queue: Mutex<VecDeque<(Timestamp, Arc<str>, u64)>>,
}

impl Api {
    fn is_events(&self, collection: Option<CollectionId>) -> bool {
        collection.is_some() && collection == self.registry.builtin_collection("", "events")
    }

    /// Remembers a write, if it was one of an event.
    pub(crate) fn remember_event(&self, collection: Option<CollectionId>, object: &Object) {
        if self.is_events(collection) {
            let entry = (self.clock.now(), Arc::clone(&object.key), object.revision);
            self.expiry.queue.lock().push_back(entry);
        }
        self.forget_events(collection);
    }

    /// Deletes the events whose time has come, if the collection is theirs.
    pub(crate) fn forget_events(&self, collection: Option<CollectionId>) {
        let (true, Some(collection)) = (self.is_events(collection), collection) else {
            return;
        };
        let now = self.clock.now().as_second();
        loop {
            let next = {
                let mut queue = self.expiry.queue.lock();
                match queue.front() {
                    Some((written, ..)) if written.as_second() + LIFE <= now => queue.pop_front(),
                    _ => None,
                }
            };
            let Some((_, key, revision)) = next else {
                return;
            };
            if let Some(event) = self.store.get(collection, &key)
                && event.revision == revision
            {
                let last = Change::Delete(Arc::clone(&event.content));
                // Somebody was faster: then it lives on or is gone already.
                let _ = self
                    .store
                    .commit(collection, &key, Expect::Revision(revision), last);
            }
        }
    }
}
