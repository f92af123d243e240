//! Properties of schemas that hold for any object.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

/// Generates arbitrary JSON, a few levels deep, with names that collide with schema keywords and
/// with the fields of the schema below.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-d]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let name = prop_oneof![
            "[a-d]",
            Just("type".into()),
            Just("properties".into()),
            Just("items".into()),
            Just("default".into()),
            Just("spec".into()),
            Just("enum".into())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn rich() -> Structural {
    Structural::parse(&json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "b": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "c": {"type": "integer", "default": 1}}}},
        "c": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "pattern": "a"}},
        "d": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "a": {"x-kubernetes-int-or-string": true}}},
    }})).unwrap()
}

proptest! {
    // Proves crd/pruning, crd/defaulting.
    #[test]
    fn pruning_and_defaulting_are_idempotent(object in any_json()) {
        let schema = rich();
        let mut once = object;
        schema.prune(&mut once);
        schema.default(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        schema.default(&mut twice);
        prop_assert_eq!(once, twice);
    }

    // Proves crd/pruning, crd/defaulting.
    #[test]
    fn pruned_and_defaulted_objects_do_not_change(object in any_json()) {
        let schema = rich();
        let mut changed = object.clone();
        schema.prune(&mut changed);
        schema.default(&mut changed);
        prop_assert_eq!(schema.is_settled(&object), changed == object);
        prop_assert!(schema.is_settled(&changed));
    }

    // Proves crd/ratcheting.
    #[test]
    fn unchanged_object_of_specified_fields_is_accepted(object in any_json()) {
        let schema = rich();
        let mut object = object;
        if let Value::Object(map) = &mut object {
            // `d` may hold fields that are not specified.
            map.remove("d");
        }
        schema.prune(&mut object);
        prop_assert!(schema.validate(&object, Some(&object)).is_empty());
    }

    // Proves crd/validated.
    #[test]
    fn arbitrary_schemas_never_panic(definition in any_json(), object in any_json()) {
        if let Ok(schema) = Structural::check(&definition, "s", true) {
            let mut object = object;
            schema.prune(&mut object);
            schema.default(&mut object);
            schema.validate(&object, None);
        }
    }
}
