//! Relists and resyncs: changes that concern every object of the cache.

use std::time::Duration;

use hashbrown::HashSet;
use tokio::time::Instant;

use super::{
    event::{Deleted, Event},
    handler::Notification,
    processor::{Phase, Processor, events_of},
};
use crate::{
    cache::{Replaced, Write},
    object::{Kind, Object, ObjectKey},
    reflector::Unread,
};

/// The shortest resync period.
pub(super) const MIN_RESYNC: Duration = Duration::from_secs(1);

impl<K: Kind> Processor<K> {
    /// Returns the cached states of the objects that a list could not read. Called once everything
    /// before the list is in the cache, because an object that the list names may have arrived just
    /// before it.
    pub(super) fn last_read(&self, unread: &[Unread]) -> impl Iterator<Item = Object<K>> {
        unread.iter().filter_map(|unread| {
            let key = &unread.key;
            let held = self.indexer.get(key.namespace(), key.name());
            held.filter(|held| unread.may_be(held))
        })
    }

    /// Replaces all objects with those of a list.
    pub(super) fn replace(&self, items: Vec<Object<K>>, resource_version: &str, initial: bool) {
        let mut items = items;
        loop {
            let next = self.indexer.build(items, resource_version);
            let distribution = self.distribution.lock();
            match self.indexer.swap(next) {
                Err(again) => items = again,
                Ok(replaced) => {
                    let events = events_of_relist(replaced, initial);
                    distribution.notify(&events);
                    drop(distribution);
                    return;
                }
            }
        }
    }

    /// Replaces the objects of one namespace in one step, without touching the others.
    pub(super) fn replace_within(&self, namespace: &str, items: Vec<Object<K>>, initial: bool) {
        let mut gone = self.indexer.lister().namespace(namespace).list();
        let listed: HashSet<&ObjectKey> = items.iter().map(Object::key).collect();
        gone.retain(|object| !listed.contains(object.key()));
        drop(listed);
        let gone = gone.into_iter().map(Write::Remove);
        let mut writes: Vec<Write<K>> = gone.chain(items.into_iter().map(Write::Put)).collect();
        loop {
            let prepared = self.indexer.prepare(writes);
            let distribution = self.distribution.lock();
            match self.indexer.commit(prepared) {
                Err(again) => writes = again,
                Ok(applied) => {
                    let mut replaced = Replaced {
                        gone: Vec::new(),
                        items: Vec::with_capacity(applied.len()),
                    };
                    for (write, old) in applied {
                        match write {
                            Write::Put(object) => replaced.items.push((old, object)),
                            Write::Remove(_) => replaced.gone.extend(old),
                            Write::Reached(_) => {}
                        }
                    }
                    let events = events_of_relist(replaced, initial);
                    distribution.notify(&events);
                    drop(distribution);
                    return;
                }
            }
        }
    }

    /// Delivers every object again to the handlers that are due.
    pub(super) fn resync(&self) {
        let distribution = self.distribution.lock();
        let now = Instant::now();
        // A tick may be slightly early or late relative to the tick that set the time.
        let tolerance = distribution.check_period.unwrap_or_default() / 10;
        let mut due = distribution.handlers.clone();
        due.retain(|handler| handler.check_resync(now, tolerance));
        if due.is_empty() {
            return;
        }
        let objects = self.indexer.lister().list();
        let events: Vec<Notification<K>> = objects
            .into_iter()
            .map(|object| {
                let event = Event::Updated {
                    old: object.clone(),
                    new: object,
                };
                Notification {
                    event,
                    resync: true,
                }
            })
            .collect();
        for handler in due {
            handler.notify(events.iter());
        }
        drop(distribution);
    }
}

/// Returns the effective resync period of a handler that requests `wanted`.
///
/// Before the start, a shorter period shortens the informer's; later, it is raised to the
/// informer's.
pub(super) fn resync_period(
    wanted: Option<Duration>,
    check_period: &mut Option<Duration>,
    phase: &Phase,
    handler: &str,
) -> Option<Duration> {
    let wanted = wanted.filter(|period| !period.is_zero())?.max(MIN_RESYNC);
    let Some(check) = check_period else {
        tracing::warn!(
            handler,
            ?wanted,
            "informer has no resync period; the handler will not be resynced"
        );
        return None;
    };
    if wanted < *check {
        if matches!(phase, Phase::New) {
            *check = wanted;
        } else {
            tracing::warn!(
                handler,
                ?wanted,
                actual = ?check,
                "resync period raised to that of the running informer"
            );
            return Some(*check);
        }
    }
    Some(wanted)
}

/// Converts a relist into events: first all deletions, then the rest in the list's order.
fn events_of_relist<K>(replaced: Replaced<K>, initial: bool) -> Vec<Notification<K>> {
    let Replaced { gone, mut items } = replaced;
    let mut events = Vec::with_capacity(gone.len() + items.len());
    events.extend(gone.into_iter().map(missed));
    for (old, object) in &mut items {
        if old.as_ref().is_some_and(|old| is_recreated(old, object)) {
            events.extend(old.take().map(missed));
        }
    }
    for (old, object) in items {
        events_of(Write::Put(object), old, initial, &mut events);
    }
    events
}

/// Returns whether a name now belongs to another object.
pub(super) fn is_recreated<K>(old: &Object<K>, new: &Object<K>) -> bool {
    !old.uid().is_empty() && !new.uid().is_empty() && old.uid() != new.uid()
}

/// Returns the event of a deletion whose final state was missed.
pub(super) fn missed<K>(last: Object<K>) -> Notification<K> {
    Event::Deleted(Deleted::missed(last)).into()
}
