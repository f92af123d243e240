use proptest::prelude::*;
use serde_json::json;

use super::*;

fn map_of(keys: &[&str]) -> Node {
    Node {
        list_type: Some("map".to_owned()),
        list_map_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        items: Some(Box::default()),
        ..Node::default()
    }
}

/// Proves errors/depth.
#[test]
fn map_items_are_identified_once() {
    let list: Vec<Value> = (0..5_000).map(|i| json!({ "name": i })).collect();
    let (old, schema) = (Value::Array(list.clone()), map_of(&["name"]));
    IDENTIFIED.set(0);
    let items = OldItems::of(Some(Old {
        value: &old,
        schema: &schema,
    }));
    for item in list.iter().rev() {
        assert_eq!(items.of_item(item).map(|old| old.value), Some(item));
    }
    assert_eq!(IDENTIFIED.get(), 2 * list.len());
}

proptest! {
    /// Proves crd/ratcheting.
    #[test]
    fn item_matches_the_first_with_equal_keys(
        old in items(),
        new in items(),
        keys in prop::sample::subsequence(vec!["a", "b"], 0..=2),
    ) {
        let schema = map_of(&keys);
        let list = Value::Array(old.clone());
        let index = OldItems::of(Some(Old { value: &list, schema: &schema }));
        for item in &new {
            let same = |before: &&Value| keys.iter().all(|key| before.get(key) == item.get(key));
            let found = index.of_item(item).map(|old| old.value);
            prop_assert_eq!(found, old.iter().find(same));
        }
    }
}

fn items() -> impl Strategy<Value = Vec<Value>> {
    let scalar = prop_oneof![
        Just(Value::Null),
        (0..3).prop_map(Value::from),
        Just(json!(1.0)),
        "[,\"a]{0,2}".prop_map(Value::from),
    ];
    let object = prop::collection::btree_map(prop::sample::select(vec!["a", "b"]), scalar, 0..3);
    prop::collection::vec(object.prop_map(|map| json!(map)), 0..6)
}
