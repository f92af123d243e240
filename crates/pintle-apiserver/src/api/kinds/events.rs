//! Events: they expire an hour after they were last written.
//!
//! There is no background task. Each write and each list of events also deletes the events that
//! have expired. These deletions are not requests, so [`Points`](crate::Points) do not see them.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::Kind;
use crate::{
    api::Api,
    meta::NameRule,
    registry::served_versions::Conversion,
    store::{Change, Expect, Object},
};

/// How long an event lives after its last write, in seconds.
const TTL: i64 = 3600;

/// The writes of events, oldest first.
///
/// Holds the writes of one hour. An event that is written again leaves its old entry behind, which
/// no longer matches when it expires.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    queue: Mutex<VecDeque<(Timestamp, Arc<str>, u64)>>,
}

/// `events` of the core group.
#[derive(Debug)]
pub(super) struct CoreEvents;

impl Kind for CoreEvents {
    fn before_list(&self, api: &Api) {
        api.expire_events();
    }

    fn after_write(&self, api: &Api, object: &Object) {
        api.record_event(object);
    }
}

/// `events.k8s.io/events`: the events of the core group under other field names.
#[derive(Debug)]
pub(super) struct Events;

impl Kind for Events {
    fn before_list(&self, api: &Api) {
        api.expire_events();
    }

    /// Accepts any stored name: the event may have been created through `v1`, which does not
    /// validate names.
    fn name_rule(&self, stored: bool) -> Option<NameRule> {
        stored.then_some(NameRule::PathSegment)
    }

    fn conversion(&self, _version: &str) -> Option<Conversion> {
        Some(Conversion::Events)
    }

    /// Names the core group: events are validated in their stored form.
    fn error_group(&self) -> Option<&'static str> {
        Some("")
    }

    fn after_write(&self, api: &Api, object: &Object) {
        api.record_event(object);
    }
}

impl Api {
    fn record_event(&self, object: &Object) {
        let entry = (self.clock.now(), Arc::clone(&object.key), object.revision);
        self.expiry.queue.lock().push_back(entry);
        self.expire_events();
    }

    fn expire_events(&self) {
        let Some(collection) = self.registry.builtin_collection("", "events") else {
            return;
        };
        let now = self.clock.now().as_second();
        loop {
            let next = {
                let mut queue = self.expiry.queue.lock();
                match queue.front() {
                    Some((written, ..)) if written.as_second() + TTL <= now => queue.pop_front(),
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
                // On a mismatch the event was rewritten or deleted; nothing to do.
                let _ = self
                    .store
                    .commit(collection, &key, Expect::Revision(revision), last);
            }
        }
    }
}
