//! Events live for an hour after they were last written.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::api::Api;
use crate::store::{Change, Expect, Object, TableId};

/// How long an event is kept, in seconds.
const LIFE: i64 = 3600;

/// When which write of an event is forgotten, oldest first. As long as the events written in one
/// hour: an event that is written again leaves its old entry behind, which then does nothing.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    queue: Mutex<VecDeque<(Timestamp, Arc<str>, u64)>>,
}

impl Api {
    fn is_events(&self, table: Option<TableId>) -> bool {
        table.is_some() && table == self.registry.builtin_table("", "events")
    }

    /// Remembers a write, if it was one of an event.
    pub(crate) fn remember_event(&self, table: Option<TableId>, object: &Object) {
        if self.is_events(table) {
            let entry = (self.clock.now(), Arc::clone(&object.key), object.revision);
            self.expiry.queue.lock().push_back(entry);
        }
        self.forget_events(table);
    }

    /// Deletes the events whose time has come, if the table is theirs.
    pub(crate) fn forget_events(&self, table: Option<TableId>) {
        let (true, Some(table)) = (self.is_events(table), table) else {
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
            if let Some(event) = self.store.get(table, &key)
                && event.revision == revision
            {
                let last = Change::Delete(Arc::clone(&event.content));
                // Somebody was faster: then it lives on or is gone already.
                let _ = self
                    .store
                    .commit(table, &key, Expect::Revision(revision), last);
            }
        }
    }
}
