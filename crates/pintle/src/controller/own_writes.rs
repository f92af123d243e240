//! Read your own writes: what each key wrote, until every cache shows it.
//!
//! A reconcile that creates a child, and runs again before the child is in the cache, creates it
//! twice. What a reconcile writes through its [`Context`](super::Context) is therefore recorded here,
//! and the next run of the key waits until the caches of the written kinds have caught up.
//!
//! Writes and caches are matched by group and kind, whatever the Rust type: a created `Pod` is
//! awaited in caches of `Pod`, of its metadata, and of any struct with a few of its fields.
//!
//! A record is dropped once the cache shows the write, whether or not the key runs again. The queue
//! never runs a key twice at a time, so the records of a key have one writer and one reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use futures::future::{BoxFuture, pending, select_all};
use kube::Resource;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::{
    cache::{self, ObjectKey},
    source::Extent,
};

/// A kind, regardless of version and Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// What has to be known of a cache.
pub(super) trait View: Send + Sync {
    /// Returns the `resourceVersion` the cache has reached.
    fn version(&self) -> String;
    /// Returns whether the cache holds the object `key` with this UID.
    fn holds(&self, key: &ObjectKey, uid: &str) -> bool;
    /// Resolves when the cache has changed since the call.
    fn changed(&self) -> BoxFuture<'static, ()>;
}

/// A cache of the controller.
pub(super) struct Watched {
    pub(super) kind: GroupKind,
    /// Which objects of the kind the cache holds.
    pub(super) extent: Extent,
    pub(super) view: Box<dyn View>,
}

/// The writes that caches do not show yet, by the key whose reconcile wrote them.
///
/// Holds at most one version per key and cache, and one entry per deletion.
pub(super) struct OwnWrites {
    /// Records refer to caches by index.
    caches: Vec<Watched>,
    state: Mutex<State>,
    /// Wakes [`forget_seen`](Self::forget_seen) for a record that no change to its cache will.
    recorded: Notify,
    /// The number of keys with records.
    keys: Gauge,
}

/// The records, twice: by the key that wrote, and by the cache that has to show the write.
#[derive(Default)]
struct State {
    by_key: BTreeMap<ObjectKey, BTreeSet<(usize, Awaited)>>,
    /// Within a cache: versions, the oldest first, then deletions.
    by_cache: BTreeMap<usize, BTreeSet<(Awaited, ObjectKey)>>,
}

/// What a cache has to show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    Version(Version),
    Gone { object: ObjectKey, uid: String },
}

/// A `resourceVersion` that can be compared. Shorter numbers are smaller, so the derived order is the
/// order of versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    digits: usize,
    text: String,
}

impl Version {
    /// Returns none for an opaque version, which cannot be awaited.
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

    /// Records that `key` wrote an object of `kind` in `namespace`, stored as `version`, for the caches
    /// that are certain to show it.
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
            if cache.extent.includes(namespace) {
                self.add(number, |state| state.wrote(key, number, &version));
            }
        }
    }

    /// Records that `key` is about to delete `object`. Called before the request, because the watch may
    /// be faster than the response.
    pub(super) fn deleting(
        &self,
        key: &ObjectKey,
        kind: &GroupKind,
        object: &ObjectKey,
        uid: &str,
    ) {
        for (number, _) in self.caches_of(kind) {
            self.add(number, |state| {
                let awaited = gone(object, uid);
                state.add(key, number, awaited.clone());
                Some(awaited)
            });
        }
    }

    /// Drops the record of a deletion that failed or only marked the object.
    pub(super) fn not_deleted(
        &self,
        key: &ObjectKey,
        kind: &GroupKind,
        object: &ObjectKey,
        uid: &str,
    ) {
        for (number, _) in self.caches_of(kind) {
            self.change(|state| state.remove(key, number, &gone(object, uid)));
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
                .map(|at| self.changed(*at))
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
            for (number, awaited) in state.by_key.remove(key).unwrap_or_default() {
                state.remove_from_cache(number, awaited, key);
            }
        });
    }

    /// Drops records as soon as the caches show them; never returns. Without it, the records of a key
    /// that does not run again would stay.
    pub(super) async fn forget_seen(&self) -> Infallible {
        loop {
            let recorded = self.recorded.notified();
            let awaited = self.awaited();
            // Subscribe before checking, here too.
            let changes: Vec<_> = awaited.iter().map(|number| self.changed(*number)).collect();
            for number in awaited {
                self.sweep(number);
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

    /// Returns the caches that have records.
    fn awaited(&self) -> Vec<usize> {
        self.state.lock().by_cache.keys().copied().collect()
    }

    /// Returns the caches that do not show yet what `key` wrote. Drops the records of the others.
    fn unseen(&self, key: &ObjectKey) -> BTreeSet<usize> {
        let records = self.state.lock().by_key.get(key).cloned();
        let Some(records) = records else {
            return BTreeSet::new();
        };
        let mut unseen = BTreeSet::new();
        for (number, awaited) in records {
            if self.shows(number, &awaited) {
                self.change(|state| state.remove(key, number, &awaited));
            } else {
                unseen.insert(number);
            }
        }
        unseen
    }

    /// Drops the records that a cache shows: versions up to the one it has reached, and deletions one
    /// by one.
    fn sweep(&self, number: usize) {
        let Some(Watched { view, .. }) = self.caches.get(number) else {
            return;
        };
        self.change(|state| {
            let Some(records) = state.by_cache.get(&number) else {
                return;
            };
            let reached = Version::new(&view.version());
            let has_reached =
                |version: &Version| reached.as_ref().is_none_or(|reached| reached >= version);
            let versions = records.iter().take_while(
                |(awaited, _)| matches!(awaited, Awaited::Version(version) if has_reached(version)),
            );
            // Deletions sort after all versions.
            let deletions = records.iter().rev().map_while(|record| match &record.0 {
                Awaited::Gone { object, uid } => Some((record, !view.holds(object, uid))),
                Awaited::Version(_) => None,
            });
            let deletions = deletions.filter_map(|(record, seen)| seen.then_some(record));
            let seen: Vec<_> = versions.chain(deletions).cloned().collect();
            for (awaited, key) in seen {
                state.remove(&key, number, &awaited);
            }
        });
    }

    fn shows(&self, number: usize, awaited: &Awaited) -> bool {
        let Some(Watched { view, .. }) = self.caches.get(number) else {
            return true;
        };
        match awaited {
            // A cache with an opaque version blocks no key.
            Awaited::Version(version) => {
                Version::new(&view.version()).is_none_or(|reached| reached >= *version)
            }
            Awaited::Gone { object, uid } => !view.holds(object, uid),
        }
    }

    fn changed(&self, number: usize) -> BoxFuture<'static, ()> {
        match self.caches.get(number) {
            Some(cache) => cache.view.changed(),
            None => Box::pin(pending()),
        }
    }

    /// Adds a record for a cache, and wakes [`forget_seen`](Self::forget_seen) if nothing else would:
    /// for the first record, because it is not subscribed to the cache yet, and for one that the cache
    /// shows already, because the change it would wake for has passed.
    fn add(&self, number: usize, add: impl FnOnce(&mut State) -> Option<Awaited>) {
        let wake = self.change(|state| {
            let first = !state.by_cache.contains_key(&number);
            let added = add(state);
            added.is_some_and(|awaited| first || self.shows(number, &awaited))
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
    /// Keeps the newest version that a cache has to show for a key. Returns what was added.
    fn wrote(&mut self, key: &ObjectKey, cache: usize, version: &Version) -> Option<Awaited> {
        let records = self.by_key.get(key).into_iter().flatten();
        let known = records
            .into_iter()
            .find_map(|(number, awaited)| match awaited {
                Awaited::Version(known) if *number == cache => Some(known.clone()),
                _ => None,
            });
        if known.as_ref().is_some_and(|known| known >= version) {
            return None;
        }
        let awaited = Awaited::Version(version.clone());
        self.add(key, cache, awaited.clone());
        if let Some(known) = known {
            self.remove(key, cache, &Awaited::Version(known));
        }
        Some(awaited)
    }

    fn add(&mut self, key: &ObjectKey, cache: usize, awaited: Awaited) {
        let records = self.by_cache.entry(cache).or_default();
        records.insert((awaited.clone(), key.clone()));
        let records = self.by_key.entry(key.clone()).or_default();
        records.insert((cache, awaited));
    }

    fn remove(&mut self, key: &ObjectKey, cache: usize, awaited: &Awaited) {
        self.remove_from_cache(cache, awaited.clone(), key);
        if let Some(records) = self.by_key.get_mut(key) {
            records.remove(&(cache, awaited.clone()));
            if records.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    fn remove_from_cache(&mut self, cache: usize, awaited: Awaited, key: &ObjectKey) {
        if let Some(records) = self.by_cache.get_mut(&cache) {
            records.remove(&(awaited, key.clone()));
            if records.is_empty() {
                self.by_cache.remove(&cache);
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
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::core::PartialObjectMeta;

    use super::*;

    /// A version, and the objects with their UIDs.
    type Contents = (String, Vec<(ObjectKey, String)>);

    #[derive(Clone, Default)]
    struct FakeCache(Arc<Mutex<Contents>>, Arc<Notify>, Arc<Calls>);

    /// The number of calls to a cache.
    #[derive(Default)]
    struct Calls {
        version: AtomicUsize,
        changed: AtomicUsize,
    }

    impl FakeCache {
        fn reach(&self, version: &str) {
            version.clone_into(&mut self.0.lock().0);
            self.1.notify_waiters();
        }

        fn hold(&self, objects: &[(&str, &str)]) {
            let objects = objects
                .iter()
                .map(|(name, uid)| (key(name), (*uid).to_owned()));
            self.0.lock().1 = objects.collect();
            self.1.notify_waiters();
        }
    }

    impl View for FakeCache {
        fn version(&self) -> String {
            self.2.version.fetch_add(1, Ordering::Relaxed);
            self.0.lock().0.clone()
        }

        fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
            self.0.lock().1.iter().any(|(k, u)| k == key && u == uid)
        }

        fn changed(&self) -> BoxFuture<'static, ()> {
            self.2.changed.fetch_add(1, Ordering::Relaxed);
            Box::pin(self.1.clone().notified_owned())
        }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("default", name)
    }

    fn pods() -> GroupKind {
        GroupKind::of::<Pod>(&())
    }

    /// A cache of Pods at version 9.
    fn with_pods() -> (FakeCache, OwnWrites) {
        let cache = FakeCache::default();
        cache.reach("9");
        let watched = Watched {
            kind: pods(),
            extent: Extent::All,
            view: Box::new(cache.clone()),
        };
        (cache, OwnWrites::new(vec![watched], Gauge::default()))
    }

    fn wrote(writes: &OwnWrites, name: &str, version: &str) {
        writes.wrote(&key(name), &pods(), Some("default"), version);
    }

    /// Proves controller/read-your-writes.
    #[test]
    fn key_waits_for_its_newest_write_only() {
        let (cache, writes) = with_pods();
        for version in ["10", "12", "11"] {
            wrote(&writes, "a", version);
        }
        assert!(writes.is_seen(&key("b")));
        assert!(!writes.is_seen(&key("a")));
        cache.reach("11");
        assert!(!writes.is_seen(&key("a")), "12 is not in the cache yet");
        cache.reach("12");
        assert!(writes.is_seen(&key("a")));
        assert!(
            writes.state.lock().by_key.is_empty(),
            "the record is dropped"
        );
        assert!(writes.state.lock().by_cache.is_empty());
    }

    /// Proves controller/read-your-writes-bounded, controller/read-your-writes.
    #[test]
    fn opaque_version_or_unwatched_kind_blocks_no_key() {
        let (cache, writes) = with_pods();
        wrote(&writes, "a", "opaque");
        let maps = GroupKind::of::<ConfigMap>(&());
        writes.wrote(&key("a"), &maps, Some("default"), "10");
        assert!(writes.is_seen(&key("a")));
        wrote(&writes, "a", "10");
        cache.reach("opaque");
        assert!(writes.is_seen(&key("a")));
    }

    /// Proves controller/read-your-writes.
    #[test]
    fn deletion_is_seen_once_the_uid_is_gone() {
        let (cache, writes) = with_pods();
        cache.hold(&[("p", "old")]);
        writes.deleting(&key("a"), &pods(), &key("p"), "old");
        assert!(!writes.is_seen(&key("a")));
        cache.hold(&[("p", "new")]);
        assert!(writes.is_seen(&key("a")));
    }

    /// Proves controller/read-your-writes.
    #[test]
    fn failed_deletion_is_not_awaited() {
        let (cache, writes) = with_pods();
        cache.hold(&[("p", "old")]);
        writes.deleting(&key("a"), &pods(), &key("p"), "old");
        writes.not_deleted(&key("a"), &pods(), &key("p"), "old");
        assert!(writes.is_seen(&key("a")));
    }

    #[test]
    fn forget_drops_the_record() {
        let (_cache, writes) = with_pods();
        wrote(&writes, "a", "10");
        writes.forget(&key("a"));
        assert!(writes.is_seen(&key("a")));
        assert!(writes.state.lock().by_cache.is_empty());
    }

    /// Proves controller/read-your-writes.
    #[test]
    fn every_cache_of_a_kind_is_awaited() {
        let (typed, metadata) = (FakeCache::default(), FakeCache::default());
        let watched = |kind, extent, cache: &FakeCache| Watched {
            kind,
            extent,
            view: Box::new(cache.clone()),
        };
        let elsewhere = FakeCache::default();
        elsewhere.reach("1");
        let caches = vec![
            watched(pods(), Extent::All, &typed),
            watched(
                GroupKind::of::<PartialObjectMeta<Pod>>(&()),
                Extent::All,
                &metadata,
            ),
            watched(pods(), Extent::Namespace("other".into()), &elsewhere),
        ];
        let writes = OwnWrites::new(caches, Gauge::default());
        typed.reach("9");
        metadata.reach("9");
        wrote(&writes, "a", "10");
        typed.reach("10");
        assert!(!writes.is_seen(&key("a")));
        metadata.reach("10");
        assert!(writes.is_seen(&key("a")), "the third cache never shows it");
    }

    /// Proves controller/read-your-writes.
    #[tokio::test(start_paused = true)]
    async fn records_are_dropped_once_the_cache_shows_them() {
        let (cache, writes) = with_pods();
        let (writes, keys) = (Arc::new(writes), |writes: &OwnWrites| writes.keys.get());
        let sweeping = writes.clone();
        let sweeping = tokio::spawn(async move { sweeping.forget_seen().await });
        cache.hold(&[("p", "old")]);
        for (name, version) in [("a", "10"), ("b", "12"), ("c", "11")] {
            wrote(&writes, name, version);
        }
        writes.deleting(&key("d"), &pods(), &key("p"), "old");
        let settle = || tokio::time::sleep(std::time::Duration::from_secs(1));
        settle().await;
        assert_eq!(keys(&writes), 4);
        cache.reach("11");
        settle().await;
        assert_eq!(keys(&writes), 2);
        cache.hold(&[]);
        settle().await;
        assert_eq!(keys(&writes), 1);
        cache.reach("12");
        settle().await;
        assert_eq!(keys(&writes), 0);
        wrote(&writes, "e", "12");
        settle().await;
        assert_eq!(keys(&writes), 0, "the cache showed it already");
        sweeping.abort();
    }

    /// Proves controller/read-your-writes.
    #[tokio::test(start_paused = true)]
    async fn sweeping_costs_what_was_seen() {
        let (cache, writes) = with_pods();
        let writes = Arc::new(writes);
        let sweeping = writes.clone();
        let sweeping = tokio::spawn(async move { sweeping.forget_seen().await });
        let settle = || tokio::time::sleep(std::time::Duration::from_secs(1));
        settle().await;
        for n in 10..60 {
            wrote(&writes, &n.to_string(), &n.to_string());
            settle().await;
        }
        // A newer write of a key that waits already is no reason to wake either.
        wrote(&writes, "59", "60");
        settle().await;
        let calls = &cache.2;
        assert_eq!(calls.changed.load(Ordering::Relaxed), 1, "wakes once");
        calls.version.store(0, Ordering::Relaxed);
        cache.reach("39");
        settle().await;
        assert_eq!(writes.keys.get(), 20);
        assert_eq!(calls.version.load(Ordering::Relaxed), 1);
        sweeping.abort();
    }
}
