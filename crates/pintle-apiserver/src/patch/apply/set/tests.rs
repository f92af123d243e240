use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Proves apply/managed-fields.
#[test]
fn sets_round_trip_through_fields_v1() {
    let json = json!({
        "f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}},
        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
    });
    let set = FieldSet::from_json(&json).unwrap();
    assert_eq!(set.to_json(), json);
    assert_eq!(
        set.paths(),
        [
            ".metadata.finalizers",
            ".metadata.finalizers[=\"a/b\"]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].port",
        ]
    );
    assert!(FieldSet::from_json(&json!([])).is_none());
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    let leaf = Just(json!({}));
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        let step = prop_oneof![
            Just("f:a"),
            Just("f:b"),
            Just("v:\"x\""),
            Just("k:{\"n\":1}"),
            Just(".")
        ];
        prop::collection::btree_map(step, inner, 0..3).prop_map(|map| {
            Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
        })
    });
    tree.prop_map(|json| FieldSet::from_json(&json).unwrap())
}

proptest! {
    // Proves apply/managed-fields.
    #[test]
    fn set_operations_obey_their_laws(a in any_set(), b in any_set()) {
        prop_assert_eq!(FieldSet::from_json(&a.to_json()), Some(a.clone()));
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.recursive_difference(&b).intersection(&b).is_empty());
    }
}
