use serde_json::{Value, json};

use super::*;
use crate::store::Content;

const V2: &str = "example.com/v2";

fn object(revision: u64, bytes: usize) -> Arc<Object> {
    let Value::Object(tree) = json!({"metadata": {"name": "a"}, "spec": "x".repeat(bytes)}) else {
        panic!()
    };
    Arc::new(Object {
        key: "default/a".into(),
        revision,
        content: Arc::new(Content::encode(tree, Vec::new())),
    })
}

/// Proves conversion/reads.
#[test]
fn states_of_one_revision_are_distinguished() {
    let mut cache = Cache::default();
    // A dry run, for example, shows a state that has no revision of its own.
    let (stored, unstored, converted) = (object(7, 1), object(7, 2), object(7, 3));
    cache.put(1, V2, &stored, &converted);
    assert!(cache.get(1, V2, &stored).is_some());
    assert!(cache.get(1, V2, &unstored).is_none());
    assert!(cache.get(2, V2, &stored).is_none());
    assert!(cache.get(1, "example.com/v3", &stored).is_none());
}

/// Proves conversion/reads.
#[test]
fn oldest_objects_make_room_for_new_ones() {
    let mut cache = Cache::default();
    let converted = object(0, 1);
    let small: Vec<_> = (0..=MAX_OBJECTS as u64).map(|i| object(i, 1)).collect();
    for object in &small {
        cache.put(1, V2, object, &converted);
    }
    assert_eq!(cache.objects.len(), MAX_OBJECTS);
    assert!(cache.get(1, V2, &small[0]).is_none());
    assert!(cache.get(1, V2, &small[1]).is_some());
    let large: Vec<_> = (0..20).map(|i| object(i, 1024 * 1024)).collect();
    for object in &large {
        cache.put(1, V2, object, &converted);
        assert!(cache.bytes <= MAX_BYTES);
    }
    assert!(cache.get(1, V2, &large[0]).is_none());
    assert!(cache.get(1, V2, &large[19]).is_some());
}
