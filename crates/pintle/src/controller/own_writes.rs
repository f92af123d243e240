//! Read your own writes: what each key wrote, until every cache has seen it.
//!
//! A reconcile that creates a child and runs again before the child is in the cache creates it
//! twice. So what a reconcile writes through its [`Context`](super::Context) is remembered here, and
//! the next run of that key waits until the caches of the written kinds are as new as its writes.
//!
//! The queue never runs one key twice at a time, so a key's record is written and read by one
//! reconcile at a time.

use std::{any::TypeId, cmp::Ordering, collections::BTreeMap};

use crate::cache::{self, ObjectKey};

/// What one cache can say about itself.
pub(super) trait View {
    /// The version up to which the cache has followed its server.
    fn version(&self) -> String;
    /// Whether the object `uid` is (still) in the cache as `key`.
    fn holds(&self, key: &ObjectKey, uid: &str) -> bool;
}

/// The caches of one controller, by the type they hold.
pub(super) type Views = BTreeMap<TypeId, Box<dyn View + Send + Sync>>;

/// Everything written and not yet seen, by the key whose reconcile wrote it.
///
/// Holds at most one version per key and kind, and one entry per deletion, of the kinds that the
/// controller watches. A key's record goes with its next run; a write to a watched kind causes one.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    by_key: BTreeMap<ObjectKey, Record>,
}

#[derive(Debug, Default)]
struct Record {
    versions: BTreeMap<TypeId, String>,
    deletions: Vec<Deletion>,
}

#[derive(Debug, PartialEq)]
struct Deletion {
    kind: TypeId,
    object: ObjectKey,
    uid: String,
}

impl OwnWrites {
    /// `key` wrote an object of `kind`, which the server stored as `version`.
    ///
    /// A version that cannot be compared is not remembered: nobody could say when it is seen.
    pub(super) fn wrote(&mut self, key: &ObjectKey, kind: TypeId, version: &str) {
        if cache::compare_versions(version, version).is_err() {
            return;
        }
        let versions = &mut self.by_key.entry(key.clone()).or_default().versions;
        match versions.get_mut(&kind) {
            Some(newest) if cache::compare_versions(version, newest) != Ok(Ordering::Greater) => {}
            Some(newest) => version.clone_into(newest),
            None => drop(versions.insert(kind, version.to_owned())),
        }
    }

    /// `key` is about to delete `object`. Said before the request, because the watch may be faster
    /// than the answer.
    pub(super) fn deleting(
        &mut self,
        key: &ObjectKey,
        kind: TypeId,
        object: &ObjectKey,
        uid: &str,
    ) {
        let deletion = Deletion {
            kind,
            object: object.clone(),
            uid: uid.to_owned(),
        };
        self.by_key
            .entry(key.clone())
            .or_default()
            .deletions
            .push(deletion);
    }

    /// The deletion failed, or only marked the object.
    pub(super) fn not_deleted(&mut self, key: &ObjectKey, kind: TypeId, uid: &str) {
        if let Some(record) = self.by_key.get_mut(key) {
            record
                .deletions
                .retain(|deletion| deletion.kind != kind || deletion.uid != uid);
            self.drop_if_empty(key);
        }
    }

    /// The kinds whose views do not show yet what `key` wrote. What is seen is forgotten.
    pub(super) fn unseen(&mut self, key: &ObjectKey, views: &Views) -> Vec<TypeId> {
        let Some(record) = self.by_key.get_mut(key) else {
            return Vec::new();
        };
        record.versions.retain(|kind, version| {
            views.get(kind).is_some_and(|view| {
                cache::compare_versions(&view.version(), version) == Ok(Ordering::Less)
            })
        });
        record.deletions.retain(|deletion| {
            let view = views.get(&deletion.kind);
            view.is_some_and(|view| view.holds(&deletion.object, &deletion.uid))
        });
        let mut kinds: Vec<_> = record.versions.keys().copied().collect();
        kinds.extend(record.deletions.iter().map(|deletion| deletion.kind));
        self.drop_if_empty(key);
        kinds
    }

    /// Gives up waiting for what `key` wrote.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.by_key.remove(key);
    }

    fn drop_if_empty(&mut self, key: &ObjectKey) {
        let empty = |record: &Record| record.versions.is_empty() && record.deletions.is_empty();
        if self.by_key.get(key).is_some_and(empty) {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A version, and the objects that are there with their UIDs.
    type Contents = (String, Vec<(ObjectKey, String)>);

    #[derive(Clone, Default)]
    struct FakeCache(Arc<Mutex<Contents>>);

    impl View for FakeCache {
        fn version(&self) -> String {
            self.0.lock().unwrap().0.clone()
        }

        fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
            self.0
                .lock()
                .unwrap()
                .1
                .iter()
                .any(|(k, u)| k == key && u == uid)
        }
    }

    struct Pods;
    struct Maps;

    fn is_seen(writes: &mut OwnWrites, key: &ObjectKey, views: &Views) -> bool {
        writes.unseen(key, views).is_empty()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("default", name)
    }

    fn views(pods: &FakeCache) -> Views {
        let mut views = Views::new();
        views.insert(TypeId::of::<Pods>(), Box::new(pods.clone()));
        views
    }

    /// Proves N-3.
    #[test]
    fn a_key_waits_for_its_newest_write_and_no_other_key_does() {
        let (pods, mut writes) = (FakeCache::default(), OwnWrites::default());
        let views = views(&pods);
        pods.0.lock().unwrap().0 = "9".into();
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "10");
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "12");
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "11");
        assert!(is_seen(&mut writes, &key("b"), &views));
        assert!(!is_seen(&mut writes, &key("a"), &views));
        pods.0.lock().unwrap().0 = "11".into();
        assert!(
            !is_seen(&mut writes, &key("a"), &views),
            "12 is not in the cache yet"
        );
        pods.0.lock().unwrap().0 = "12".into();
        assert!(is_seen(&mut writes, &key("a"), &views));
        assert!(writes.by_key.is_empty(), "what is seen is forgotten");
    }

    /// Proves N-2, N-3.
    #[test]
    fn an_opaque_version_or_a_kind_without_cache_holds_nobody_up() {
        let (pods, mut writes) = (FakeCache::default(), OwnWrites::default());
        let views = views(&pods);
        pods.0.lock().unwrap().0 = "9".into();
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "opaque");
        writes.wrote(&key("a"), TypeId::of::<Maps>(), "10");
        assert!(is_seen(&mut writes, &key("a"), &views));
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "10");
        pods.0.lock().unwrap().0 = "opaque".into();
        assert!(is_seen(&mut writes, &key("a"), &views));
    }

    /// Proves N-4.
    #[test]
    fn a_deletion_is_seen_when_the_uid_is_gone_whatever_took_its_name() {
        let (pods, mut writes) = (FakeCache::default(), OwnWrites::default());
        let views = views(&pods);
        pods.0.lock().unwrap().1 = vec![(key("p"), "old".into())];
        writes.deleting(&key("a"), TypeId::of::<Pods>(), &key("p"), "old");
        assert!(!is_seen(&mut writes, &key("a"), &views));
        pods.0.lock().unwrap().1 = vec![(key("p"), "new".into())];
        assert!(is_seen(&mut writes, &key("a"), &views));
    }

    /// Proves N-4.
    #[test]
    fn a_deletion_that_failed_is_not_waited_for() {
        let (pods, mut writes) = (FakeCache::default(), OwnWrites::default());
        let views = views(&pods);
        pods.0.lock().unwrap().1 = vec![(key("p"), "old".into())];
        writes.deleting(&key("a"), TypeId::of::<Pods>(), &key("p"), "old");
        writes.not_deleted(&key("a"), TypeId::of::<Pods>(), "old");
        assert!(is_seen(&mut writes, &key("a"), &views));
    }

    #[test]
    fn giving_up_frees_the_record() {
        let (pods, mut writes) = (FakeCache::default(), OwnWrites::default());
        pods.0.lock().unwrap().0 = "1".into();
        writes.wrote(&key("a"), TypeId::of::<Pods>(), "10");
        writes.forget(&key("a"));
        assert!(is_seen(&mut writes, &key("a"), &views(&pods)));
    }
}
