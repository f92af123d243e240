//! The inspector's view of a factory's informers: their states as text, and their objects without
//! types.

use std::sync::{Arc, Weak, atomic::Ordering};

use tokio::time::Instant;

use super::{
    factory::{InformerFactory, Shared},
    health::State,
    processor::Feed,
    registry::{Entry, Parts},
};
use crate::object::{Header, Kind, ObjectKey};

/// A weak reference to a factory.
#[derive(Clone)]
pub(crate) struct WeakFactory(Weak<Shared>);

/// The state of one informer.
pub(crate) struct Inspected {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) state: &'static str,
    pub(crate) reason: String,
    pub(crate) objects: usize,
    pub(crate) changes: u64,
    pub(crate) fifo: usize,
    pub(crate) version: String,
    /// The name of each handler and the number of events that wait for it.
    pub(crate) handlers: Vec<(String, usize)>,
}

/// The cache of an informer, without its type.
pub(crate) trait Cached: Send + Sync {
    fn get(&self, key: &ObjectKey) -> Option<Arc<dyn Header>>;
    /// Returns the objects that have an owner with this UID, in `namespace` if it is given.
    fn owned_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>>;
    /// Returns the objects of a namespace, or of all.
    fn list(&self, namespace: Option<&str>) -> Vec<Arc<dyn Header>>;
}

/// A cache of a factory, with the kind of its objects.
pub(crate) struct Cache {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) cached: Arc<dyn Cached>,
}

impl Cache {
    pub(crate) fn group(&self) -> &str {
        let group = self.api_version.split_once('/');
        group.map_or("", |(group, _)| group)
    }
}

impl InformerFactory {
    pub(crate) fn downgrade(&self) -> WeakFactory {
        WeakFactory(Arc::downgrade(&self.shared))
    }
}

impl WeakFactory {
    pub(crate) fn is(&self, other: &InformerFactory) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&other.shared))
    }

    /// Returns the state of each informer in use.
    pub(crate) fn inspect(&self) -> Vec<Inspected> {
        let Some(shared) = self.0.upgrade() else {
            return Vec::new();
        };
        let now = Instant::now();
        let state = shared.state.lock();
        let used = state.entries.iter();
        let used = used.filter(|(_, entry)| entry.usage.strong_count() > 0);
        used.map(|(identity, entry)| {
            let (state, reason) = entry.inspect(now);
            let informer = &entry.informer;
            Inspected {
                name: informer.runner().describe(),
                kind: identity.kind.clone(),
                state,
                reason,
                objects: informer.len(),
                changes: informer.runner().changes.load(Ordering::Relaxed),
                fifo: informer.fifo(),
                version: informer.version(),
                handlers: informer.handlers(),
            }
        })
        .collect()
    }

    /// Returns the caches of the informers in use. Metadata-only caches come last.
    pub(crate) fn caches(&self) -> Vec<Cache> {
        let Some(shared) = self.0.upgrade() else {
            return Vec::new();
        };
        let state = shared.state.lock();
        let used = state.entries.iter();
        let used = used.filter(|(_, entry)| entry.usage.strong_count() > 0);
        let mut caches: Vec<_> = used
            .map(|(identity, entry)| {
                let cache = Cache {
                    api_version: identity.api_version.clone(),
                    kind: identity.kind.clone(),
                    cached: entry.informer.cached(),
                };
                (entry.informer.is_metadata(), cache)
            })
            .collect();
        caches.sort_by_key(|(is_metadata, _)| *is_metadata);
        caches.into_iter().map(|(_, cache)| cache).collect()
    }
}

impl Entry {
    /// Returns the state as one word, and the reason as text.
    fn inspect(&self, now: Instant) -> (&'static str, String) {
        let status = self.informer.runner().status.borrow().to_string();
        match self.state(now) {
            State::Healthy => ("synced", status),
            State::Behind(why) if self.informer.has_synced() => ("behind", why),
            State::Behind(why) => ("syncing", why),
            State::Stopped => ("stopped", status),
            State::Dead(why) => ("dead", why),
        }
    }
}

impl<K: Kind> Parts<K> {
    pub(super) fn waiting(&self) -> usize {
        match &self.processor.feed {
            Feed::One(fifo) => fifo.len(),
            Feed::ByNamespace(_) => 0,
        }
    }

    pub(super) fn pending(&self) -> Vec<(String, usize)> {
        let distribution = self.processor.distribution.lock();
        let handlers = distribution.handlers.clone();
        drop(distribution);
        let handlers = handlers.iter();
        handlers
            .map(|handler| (handler.name.clone(), handler.pending()))
            .collect()
    }
}

/// Reads the cache of an informer without keeping the informer running.
pub(super) struct Reader<K: Kind>(pub(super) Arc<super::processor::Processor<K>>);

impl<K: Kind> Cached for Reader<K> {
    fn get(&self, key: &ObjectKey) -> Option<Arc<dyn Header>> {
        let found = self.0.indexer.get(key.namespace(), key.name())?;
        Some(Arc::new(found))
    }

    fn owned_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>> {
        let mut all = self.list(namespace);
        all.retain(|object| object.owners().iter().any(|owner| owner.uid() == uid));
        all
    }

    fn list(&self, namespace: Option<&str>) -> Vec<Arc<dyn Header>> {
        let lister = self.0.indexer.lister();
        let found = match namespace {
            Some(namespace) => lister.namespace(namespace).list(),
            None => lister.list(),
        };
        let erased = |object| -> Arc<dyn Header> { Arc::new(object) };
        found.into_iter().map(erased).collect()
    }
}
