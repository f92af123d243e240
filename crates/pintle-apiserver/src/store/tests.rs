use serde_json::json;

use super::*;

fn content(n: u64) -> Arc<Content> {
    let serde_json::Value::Object(map) = json!({"metadata": {"name": "x"}, "n": n}) else {
        panic!()
    };
    Arc::new(Content::encode(map, Vec::new()))
}

fn put(store: &Store, collection: CollectionId, key: &str, n: u64) -> u64 {
    let key: Arc<str> = key.into();
    let expect = store
        .get(collection, &key)
        .map_or(Expect::Absent, |o| Expect::Revision(o.revision));
    store
        .commit(collection, &key, expect, Change::Put(content(n)))
        .unwrap()
        .revision
}

#[test]
fn commit_requires_the_expected_state() {
    let store = Store::new(8, usize::MAX);
    let collection = store.open_collection();
    let first = put(&store, collection, "a", 1);
    let rejected = store.commit(
        collection,
        &"a".into(),
        Expect::Absent,
        Change::Put(content(2)),
    );
    assert!(matches!(rejected, Err(Refused::Mismatch)));
    let rejected = store.commit(
        collection,
        &"b".into(),
        Expect::Revision(9),
        Change::Put(content(2)),
    );
    assert!(matches!(rejected, Err(Refused::Mismatch)));
    assert_eq!(
        store.revision(),
        first,
        "a rejected commit does not consume a revision"
    );
}

#[test]
fn past_state_is_read_by_undoing_events() {
    let store = Store::new(3, usize::MAX);
    let collection = store.open_collection();
    put(&store, collection, "a", 1);
    let then = put(&store, collection, "b", 1);
    put(&store, collection, "a", 2);
    let gone = store.get(collection, "b").unwrap();
    store
        .commit(
            collection,
            &"b".into(),
            Expect::Revision(gone.revision),
            Change::Delete(content(1)),
        )
        .unwrap();
    put(&store, collection, "c", 1);

    let past = store.snapshot_at(collection, then).unwrap();
    let names: Vec<&str> = past.objects.keys().map(|key| &**key).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(past.objects.get("a").unwrap().content.same_as(&content(1)));
    assert_eq!(
        store.snapshot_at(collection, then - 1).unwrap_err(),
        Lost::Compacted { floor: then }
    );
    let now = store.revision();
    assert_eq!(
        store.snapshot_at(collection, now + 1).unwrap_err(),
        Lost::Future { current: now }
    );
}

#[test]
fn cursor_sees_every_event_once_in_order() {
    let store = Store::new(1000, usize::MAX);
    let (collection, other) = (store.open_collection(), store.open_collection());
    let start = store.revision();
    let mut cursor = store.cursor(collection, start).unwrap();
    let mut want = Vec::new();
    for n in 0..300 {
        want.push(put(&store, collection, "a", n));
        put(&store, other, "a", n);
    }
    let mut got = Vec::new();
    loop {
        let (events, seen) = cursor.next_batch().unwrap();
        if events.is_empty() {
            assert_eq!(
                seen,
                store.revision(),
                "a bookmark covers other resources' revisions"
            );
            break;
        }
        got.extend(events.iter().map(|event| event.revision()));
    }
    assert_eq!(got, want);
}

#[test]
fn cursor_behind_the_floor_gets_compacted() {
    let store = Store::new(2, usize::MAX);
    let collection = store.open_collection();
    let mut cursor = store.cursor(collection, store.revision()).unwrap();
    for n in 0..3 {
        put(&store, collection, "a", n);
    }
    assert!(matches!(cursor.next_batch(), Err(Lost::Compacted { .. })));
    let mut fresh = store.cursor(collection, store.revision()).unwrap();
    assert!(fresh.next_batch().is_ok());
    assert!(!store.close_collection(collection), "not empty yet");
    let last = store.get(collection, "a").unwrap();
    let gone = Change::Delete(content(2));
    store
        .commit(
            collection,
            &"a".into(),
            Expect::Revision(last.revision),
            gone,
        )
        .unwrap();
    assert!(store.close_collection(collection));
    assert_eq!(fresh.next_batch().unwrap().0.len(), 1);
    assert_eq!(fresh.next_batch().unwrap_err(), Lost::NotServed);
}

#[test]
fn range_past_the_namespace_is_empty() {
    let store = Store::new(2, usize::MAX);
    let collection = store.open_collection();
    put(&store, collection, "b/x", 1);
    let objects = store.snapshot(collection).unwrap().objects;
    for (namespace, start, count) in [
        ("b", "a/x", 1),
        ("b", "b/x", 1),
        ("b", "b/y", 0),
        ("b", "c/x", 0),
        ("a", "c/x", 0),
    ] {
        let bounds = namespace_bounds(namespace);
        let range = key_range(Some(&bounds), Some(start));
        let found = objects.range::<str, _>(range).count();
        assert_eq!(found, count, "{namespace} from {start}");
    }
}

/// Returns content of about `bytes` bytes.
fn sized(bytes: usize) -> Arc<Content> {
    let serde_json::Value::Object(map) = json!({"metadata": {"name": "x"}, "n": "x".repeat(bytes)})
    else {
        panic!()
    };
    Arc::new(Content::encode(map, Vec::new()))
}

fn put_sized(store: &Store, collection: CollectionId, key: &str, bytes: usize) {
    let key: Arc<str> = key.into();
    let found = store.get(collection, &key);
    let expect = found.map_or(Expect::Absent, |o| Expect::Revision(o.revision));
    let put = Change::Put(sized(bytes));
    store.commit(collection, &key, expect, put).unwrap();
}

/// Proves watch/expired.
#[test]
fn logs_stay_within_their_byte_limit() {
    let room = 100_000;
    let store = Store::new(1000, room);
    let (small, large) = (store.open_collection(), store.open_collection());
    put_sized(&store, small, "first", 10);
    let held = |store: &Store| {
        let state = store.shared.state.read();
        let logs = state
            .collections
            .values()
            .flat_map(|collection| &collection.log);
        let cost = logs.clone().map(|event| event.cost()).sum::<usize>();
        assert_eq!(state.bytes, cost);
        assert_eq!(
            state.fronts.len(),
            state
                .collections
                .values()
                .filter(|t| !t.log.is_empty())
                .count()
        );
        (cost, logs.count())
    };
    for i in 0..200 {
        put_sized(&store, large, "a", 5_000 + i);
        put_sized(&store, small, &format!("s{i}"), 10);
        let (cost, _) = held(&store);
        assert!(cost <= room, "{cost} after {i}");
    }
    // The oldest events are dropped first, regardless of resource.
    let state = store.shared.state.read();
    let oldest = |id| state.collections[&id].oldest().unwrap();
    assert!(oldest(small).abs_diff(oldest(large)) <= 2);
    drop(state);
    // An event that exceeds the limit on its own is retained until the next one.
    put_sized(&store, large, "a", 2 * room);
    assert_eq!(held(&store).1, 1);
    put_sized(&store, small, "last", 10);
    assert_eq!(held(&store).1, 1);
    store.compact(store.revision());
    assert_eq!(held(&store), (0, 0));
}

/// Proves watch/expired.
#[test]
fn cursor_reads_large_events_one_at_a_time() {
    let store = Store::new(1000, usize::MAX);
    let collection = store.open_collection();
    let mut cursor = store.cursor(collection, store.revision()).unwrap();
    for i in 0..4 {
        put_sized(&store, collection, &format!("k{i}"), BATCH_BYTES);
    }
    let mut sizes = Vec::new();
    loop {
        let (events, _) = cursor.next_batch().unwrap();
        if events.is_empty() {
            break;
        }
        sizes.push(events.len());
    }
    assert_eq!(sizes, [1, 1, 1, 1]);
}
