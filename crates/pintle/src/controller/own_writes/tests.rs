use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::PartialObjectMeta;

use super::*;

/// A cache's `resourceVersion`, and the keys and UIDs of its objects.
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
    fn covers(&self, _namespace: Option<&str>) -> bool {
        true
    }

    fn advances_by_namespace(&self) -> bool {
        false
    }

    fn version(&self, _namespace: Option<&str>) -> Option<String> {
        self.2.version.fetch_add(1, Ordering::Relaxed);
        Some(self.0.lock().0.clone())
    }

    fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
        self.0.lock().1.iter().any(|(k, u)| k == key && u == uid)
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        self.2.changed.fetch_add(1, Ordering::Relaxed);
        Box::pin(self.1.clone().notified_owned())
    }
}

/// A cache of several namespaces, each at its version.
#[derive(Clone, Default)]
struct Namespaced(Arc<Mutex<BTreeMap<String, String>>>, Arc<Notify>);

impl Namespaced {
    fn of(versions: &[(&str, &str)]) -> Self {
        let cache = Self::default();
        for (namespace, version) in versions {
            cache.reach(namespace, version);
        }
        cache
    }

    fn reach(&self, namespace: &str, version: &str) {
        let mut versions = self.0.lock();
        versions.insert(namespace.to_owned(), version.to_owned());
        self.1.notify_waiters();
    }
}

impl View for Namespaced {
    fn covers(&self, namespace: Option<&str>) -> bool {
        namespace.is_some_and(|namespace| self.0.lock().contains_key(namespace))
    }

    fn advances_by_namespace(&self) -> bool {
        true
    }

    fn version(&self, namespace: Option<&str>) -> Option<String> {
        self.0.lock().get(namespace?).cloned()
    }

    fn holds(&self, _: &ObjectKey, _: &str) -> bool {
        false
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.1.clone().notified_owned())
    }
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn each_namespace_of_a_cache_is_awaited_separately() {
    let cache = Namespaced::of(&[("blue", "9"), ("green", "9")]);
    let view = Box::new(cache.clone());
    let kind = pods();
    let writes = OwnWrites::new(vec![Watched { kind, view }], Gauge::default());
    let wrote = |namespace, version| writes.wrote(&key("a"), &pods(), Some(namespace), version);
    wrote("blue", "10");
    cache.reach("green", "99");
    assert!(!writes.is_seen(&key("a")), "another namespace is ahead");
    cache.reach("blue", "10");
    assert!(writes.is_seen(&key("a")));
    wrote("blue", "100");
    wrote("green", "101");
    cache.reach("blue", "100");
    assert!(
        !writes.is_seen(&key("a")),
        "the write in the other namespace is not cached yet"
    );
    cache.0.lock().remove("green");
    assert!(
        writes.is_seen(&key("a")),
        "a namespace that left is not awaited"
    );
    assert!(writes.state.lock().by_lane.is_empty());
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
    assert!(writes.state.lock().by_lane.is_empty());
}

/// Proves controller/read-your-writes.
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
    assert!(writes.state.lock().by_lane.is_empty());
}

/// Proves controller/read-your-writes.
#[test]
fn every_cache_of_a_kind_is_awaited() {
    let (typed, metadata) = (FakeCache::default(), FakeCache::default());
    let watched = |kind, view: Box<dyn View>| Watched { kind, view };
    let metadata_of_pods = GroupKind::of::<PartialObjectMeta<Pod>>(&());
    let caches = vec![
        watched(pods(), Box::new(typed.clone())),
        watched(metadata_of_pods, Box::new(metadata.clone())),
        watched(pods(), Box::new(Namespaced::of(&[("other", "1")]))),
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
async fn sweep_visits_only_seen_records() {
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
    // A newer write of a key that is already waiting does not wake the task either.
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
