//! Read your own writes: tracks each key's writes until every cache shows them.
//!
//! A reconcile that creates a child, and runs again before the child is in the cache, creates it
//! twice. Writes made through the [`Context`](super::Context) are therefore recorded here, and the
//! next run of the key waits until the caches of the written kinds have caught up.
//!
//! Writes and caches are matched by group and kind, whatever the Rust type: a created `Pod` is
//! awaited in caches of `Pod`, of its metadata, and of any struct with a few of its fields.
//!
//! A cache of several namespaces has a watch for each, and each watch advances independently.
//! Records are therefore per *lane*: a cache, or one namespace of it.
//!
//! A record is dropped once the cache shows the write, whether or not the key runs again. The queue
//! never runs a key concurrently with itself, so no two reconciles use the records of a key at the
//! same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use futures::future::{BoxFuture, pending, select_all};
use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    cache::{self, ObjectKey},
    metrics::Gauge,
};

/// A kind, regardless of version and Rust type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKind {
    group: String,
    kind: String,
}

impl GroupKind {
    pub(super) fn of<K: Resource>(kind: &K::DynamicType) -> Self {
        Self {
            group: K::group(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
        }
    }

    /// Returns whether `K` is this kind.
    pub(super) fn is<K: Resource>(&self, kind: &K::DynamicType) -> bool {
        self.matches(&K::group(kind), &K::kind(kind))
    }

    pub(super) fn matches(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group == group
    }
}

/// A cache, as this module sees it.
pub(super) trait View: Send + Sync {
    /// Returns whether the cache is certain to show every object in `namespace`.
    fn covers(&self, namespace: Option<&str>) -> bool;
    /// Returns whether each namespace reaches versions on its own.
    fn advances_by_namespace(&self) -> bool;
    /// Returns the `resourceVersion` the cache has reached, in `namespace` if each has its own;
    /// `None` if the cache no longer covers the namespace.
    fn version(&self, namespace: Option<&str>) -> Option<String>;
    /// Returns whether the cache holds the object `key` with this UID.
    fn holds(&self, key: &ObjectKey, uid: &str) -> bool;
    /// Resolves when the cache has changed since the call.
    fn changed(&self) -> BoxFuture<'static, ()>;
}

/// A cache of the controller.
pub(super) struct Watched {
    pub(super) kind: GroupKind,
    pub(super) view: Box<dyn View>,
}

/// Something with a single order of versions: a cache, or one of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    /// The index of the cache.
    cache: usize,
    namespace: Option<String>,
}

impl Watched {
    fn lane(&self, number: usize, namespace: Option<&str>) -> Lane {
        let namespace = namespace.filter(|_| self.view.advances_by_namespace());
        Lane {
            cache: number,
            namespace: namespace.map(str::to_owned),
        }
    }

    /// Returns the version that a lane of this cache has reached, or `None` if there is no point in
    /// waiting for it.
    fn reached(&self, lane: &Lane) -> Option<Version> {
        Version::new(&self.view.version(lane.namespace.as_deref())?)
    }
}

/// The writes that caches do not show yet, by the key whose reconcile wrote them.
///
/// Holds at most one version per key and lane, and one entry per deletion.
pub(super) struct OwnWrites {
    /// Records refer to caches by index.
    caches: Vec<Watched>,
    state: Mutex<State>,
    /// Wakes [`forget_seen`](Self::forget_seen) for a record that no change to its cache will.
    recorded: Notify,
    /// The number of keys with records.
    keys: Gauge,
}

/// The records, twice: by the key that wrote, and by the lane that has to show the write.
#[derive(Default)]
struct State {
    by_key: BTreeMap<ObjectKey, BTreeSet<(Lane, Awaited)>>,
    /// Within a lane: versions, the oldest first, then deletions.
    by_lane: BTreeMap<Lane, BTreeSet<(Awaited, ObjectKey)>>,
}

/// A write that a cache has to show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    Version(Version),
    Gone { object: ObjectKey, uid: String },
}

/// A `resourceVersion` that can be compared. Shorter numbers are smaller, so the derived order is
/// the order of versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    digits: usize,
    text: String,
}

impl Version {
    /// Returns `None` for an opaque version, which cannot be awaited.
    fn new(text: &str) -> Option<Self> {
        cache::compare_versions(text, text).ok()?;
        Some(Self {
            digits: text.len(),
            text: text.to_owned(),
        })
    }
}

impl OwnWrites {
    pub(super) fn new(caches: Vec<Watched>, keys: Gauge) -> Self {
        Self {
            caches,
            state: Mutex::default(),
            recorded: Notify::new(),
            keys,
        }
    }

    /// Records that `key` wrote an object of `kind` in `namespace`, stored as `version`, for the
    /// caches that are certain to show it.
    pub(super) fn wrote(
        &self,
        key: &ObjectKey,
        kind: &GroupKind,
        namespace: Option<&str>,
        version: &str,
    ) {
        let Some(version) = Version::new(version) else {
            return;
        };
        for (number, cache) in self.caches_of(kind) {
            if cache.view.covers(namespace) {
                let lane = cache.lane(number, namespace);
                self.add(&lane, |state| state.wrote(key, &lane, &version));
            }
        }
    }

    /// Records that `key` is about to delete `object`. Called before the request, because the watch
    /// may be faster than the response.
    pub(super) fn deleting(
        &self,
        key: &ObjectKey,
        kind: &GroupKind,
        object: &ObjectKey,
        uid: &str,
    ) {
        for (number, cache) in self.caches_of(kind) {
            let lane = cache.lane(number, object.namespace());
            self.add(&lane, |state| {
                let awaited = gone(object, uid);
                state.add(key, &lane, awaited.clone());
                Some(awaited)
            });
        }
    }

    /// Drops the record of a deletion that failed or only marked the object for deletion.
    pub(super) fn not_deleted(
        &self,
        key: &ObjectKey,
        kind: &GroupKind,
        object: &ObjectKey,
        uid: &str,
    ) {
        for (number, cache) in self.caches_of(kind) {
            let lane = cache.lane(number, object.namespace());
            self.change(|state| state.remove(key, &lane, &gone(object, uid)));
        }
    }

    /// Returns whether the caches show everything that `key` wrote.
    pub(super) fn is_seen(&self, key: &ObjectKey) -> bool {
        self.unseen(key).is_empty()
    }

    /// Waits until the caches show everything that `key` wrote. Cancel safe.
    pub(super) async fn seen(&self, key: &ObjectKey) {
        loop {
            // Subscribe before checking, or a change in between is missed.
            let changes: Vec<_> = self
                .unseen(key)
                .iter()
                .map(|cache| self.changed(*cache))
                .collect();
            if changes.is_empty() || self.is_seen(key) {
                return;
            }
            select_all(changes).await;
        }
    }

    /// Drops all records of `key`.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.change(|state| {
            for (lane, awaited) in state.by_key.remove(key).unwrap_or_default() {
                state.remove_from_lane(&lane, awaited, key);
            }
        });
    }

    /// Drops records as soon as the caches show them; never returns. Without it, the records of a
    /// key that does not run again would never be dropped.
    pub(super) async fn forget_seen(&self) -> Infallible {
        loop {
            let recorded = self.recorded.notified();
            let awaited = self.awaited();
            // Subscribe before checking, as in `seen`.
            let caches: BTreeSet<usize> = awaited.iter().map(|lane| lane.cache).collect();
            let changes: Vec<_> = caches.iter().map(|cache| self.changed(*cache)).collect();
            for lane in awaited {
                self.sweep(&lane);
            }
            let changed = async {
                if changes.is_empty() {
                    pending::<()>().await;
                } else {
                    select_all(changes).await;
                }
            };
            tokio::select! {
                biased;
                () = recorded => {}
                () = changed => {}
            }
        }
    }

    fn caches_of(&self, kind: &GroupKind) -> impl Iterator<Item = (usize, &Watched)> {
        let caches = self.caches.iter().enumerate();
        caches.filter(move |(_, cache)| cache.kind == *kind)
    }

    /// Returns the lanes that have records.
    fn awaited(&self) -> Vec<Lane> {
        self.state.lock().by_lane.keys().cloned().collect()
    }

    /// Returns the caches that do not show yet what `key` wrote. Drops the records of the others.
    fn unseen(&self, key: &ObjectKey) -> BTreeSet<usize> {
        let records = self.state.lock().by_key.get(key).cloned();
        let Some(records) = records else {
            return BTreeSet::new();
        };
        let mut unseen = BTreeSet::new();
        for (lane, awaited) in records {
            if self.shows(&lane, &awaited) {
                self.change(|state| state.remove(key, &lane, &awaited));
            } else {
                unseen.insert(lane.cache);
            }
        }
        unseen
    }

    /// Drops the records that a lane shows: versions up to the one it has reached, and deletions
    /// one by one.
    fn sweep(&self, lane: &Lane) {
        let Some(cache) = self.caches.get(lane.cache) else {
            return;
        };
        self.change(|state| {
            let Some(records) = state.by_lane.get(lane) else {
                return;
            };
            let reached = cache.reached(lane);
            let has_reached =
                |version: &Version| reached.as_ref().is_none_or(|reached| reached >= version);
            let versions = records.iter().take_while(
                |(awaited, _)| matches!(awaited, Awaited::Version(version) if has_reached(version)),
            );
            // Deletions sort after all versions.
            let deletions = records.iter().rev().map_while(|record| match &record.0 {
                Awaited::Gone { object, uid } => Some((record, !cache.view.holds(object, uid))),
                Awaited::Version(_) => None,
            });
            let deletions = deletions.filter_map(|(record, seen)| seen.then_some(record));
            let seen: Vec<_> = versions.chain(deletions).cloned().collect();
            for (awaited, key) in seen {
                state.remove(&key, lane, &awaited);
            }
        });
    }

    fn shows(&self, lane: &Lane, awaited: &Awaited) -> bool {
        let Some(cache) = self.caches.get(lane.cache) else {
            return true;
        };
        match awaited {
            // A cache with an opaque version blocks no key.
            Awaited::Version(version) => cache
                .reached(lane)
                .is_none_or(|reached| reached >= *version),
            Awaited::Gone { object, uid } => !cache.view.holds(object, uid),
        }
    }

    fn changed(&self, number: usize) -> BoxFuture<'static, ()> {
        match self.caches.get(number) {
            Some(cache) => cache.view.changed(),
            None => Box::pin(pending()),
        }
    }

    /// Adds a record for a lane, and wakes [`forget_seen`](Self::forget_seen) if nothing else
    /// would: for the first record, because it is not subscribed to the cache yet, and for one that
    /// the cache shows already, because the change it would wake for has passed.
    fn add(&self, lane: &Lane, add: impl FnOnce(&mut State) -> Option<Awaited>) {
        let wake = self.change(|state| {
            let first = !state.by_lane.contains_key(lane);
            let added = add(state);
            added.is_some_and(|awaited| first || self.shows(lane, &awaited))
        });
        if wake {
            self.recorded.notify_one();
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let keys = i64::try_from(state.by_key.len()).unwrap_or(i64::MAX);
        self.keys.set(keys);
        changed
    }
}

impl State {
    /// Keeps the newest version that a lane has to show for a key. Returns the record that was
    /// added.
    fn wrote(&mut self, key: &ObjectKey, lane: &Lane, version: &Version) -> Option<Awaited> {
        let records = self.by_key.get(key).into_iter().flatten();
        let known = records
            .into_iter()
            .find_map(|(other, awaited)| match awaited {
                Awaited::Version(known) if other == lane => Some(known.clone()),
                _ => None,
            });
        if known.as_ref().is_some_and(|known| known >= version) {
            return None;
        }
        let awaited = Awaited::Version(version.clone());
        self.add(key, lane, awaited.clone());
        if let Some(known) = known {
            self.remove(key, lane, &Awaited::Version(known));
        }
        Some(awaited)
    }

    fn add(&mut self, key: &ObjectKey, lane: &Lane, awaited: Awaited) {
        let records = self.by_lane.entry(lane.clone()).or_default();
        records.insert((awaited.clone(), key.clone()));
        let records = self.by_key.entry(key.clone()).or_default();
        records.insert((lane.clone(), awaited));
    }

    fn remove(&mut self, key: &ObjectKey, lane: &Lane, awaited: &Awaited) {
        self.remove_from_lane(lane, awaited.clone(), key);
        if let Some(records) = self.by_key.get_mut(key) {
            records.remove(&(lane.clone(), awaited.clone()));
            if records.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    fn remove_from_lane(&mut self, lane: &Lane, awaited: Awaited, key: &ObjectKey) {
        if let Some(records) = self.by_lane.get_mut(lane) {
            records.remove(&(awaited, key.clone()));
            if records.is_empty() {
                self.by_lane.remove(lane);
            }
        }
    }
}

fn gone(object: &ObjectKey, uid: &str) -> Awaited {
    Awaited::Gone {
        object: object.clone(),
        uid: uid.to_owned(),
    }
}

#[cfg(test)]
mod tests;
