//! Properties that hold for any configuration.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Data that several managers might apply.
fn any_data() -> impl Strategy<Value = BTreeMap> {
    prop::collection::btree_map("[a-d]", "[x-z]", 0..4)
}
type BTreeMap = std::collections::BTreeMap<String, String>;

/// Containers that several managers might apply.
fn any_spec() -> impl Strategy<Value = Value> {
    let item = (
        "[a-c]",
        prop::option::of("[x-z]"),
        prop::collection::vec(1..4_u16, 0..3),
    );
    prop::collection::vec(item, 0..4).prop_map(|items| {
        let mut seen = BTreeSet::new();
        let unique = items
            .into_iter()
            .filter(|(name, _, _)| seen.insert(name.clone()));
        let containers: Vec<Value> = unique
            .map(|(name, image, ports)| {
                let ports: BTreeSet<u16> = ports.into_iter().collect();
                let ports: Vec<Value> = ports
                    .into_iter()
                    .map(|p| json!({"containerPort": p}))
                    .collect();
                match image {
                    Some(image) => json!({"name": name, "image": image, "ports": ports}),
                    None => json!({"name": name, "ports": ports}),
                }
            })
            .collect();
        json!({"template": {"spec": {"containers": containers}}})
    })
}

proptest! {
    // Proves apply/merging.
    #[test]
    fn apply_is_idempotent(first in any_spec(), second in any_spec()) {
        let reset = FieldSet::default();
        let deploy = shape("apps", "v1", "Deployment");
        let one = apply(None, &deployment(first), deploy, &write("me", "apps/v1", &reset), false).unwrap();
        let two = apply(Some(&one), &deployment(second.clone()), deploy, &write("you", "apps/v1", &reset), true).unwrap();
        let three = apply(Some(&two), &deployment(second), deploy, &write("you", "apps/v1", &reset), false).unwrap();
        prop_assert_eq!(two, three);
    }

    // Proves apply/ownership.
    #[test]
    fn sole_manager_owns_exactly_its_configuration(first in any_spec(), second in any_spec()) {
        let reset = FieldSet::default();
        let deploy = shape("apps", "v1", "Deployment");
        let one = apply(None, &deployment(first), deploy, &write("me", "apps/v1", &reset), false).unwrap();
        let two = apply(Some(&one), &deployment(second.clone()), deploy, &write("me", "apps/v1", &reset), false).unwrap();
        // A sole manager gets exactly what it configures.
        let fresh = apply(None, &deployment(second), deploy, &write("me", "apps/v1", &reset), false).unwrap();
        let plain = |mut object: Value| {
            let ty = kind("apps", "v1", "Deployment").unwrap();
            typed::canonicalize(&mut object, ty).unwrap();
            without_managers(&object)
        };
        prop_assert_eq!(owned(&two, "me"), owned(&fresh, "me"));
        prop_assert_eq!(plain(two), plain(fresh));
    }

    // Proves apply/ownership.
    #[test]
    fn managers_of_different_fields_commute(a in any_data(), b in any_data()) {
        let b: BTreeMap = b.into_iter().filter(|(key, _)| !a.contains_key(key)).collect();
        let go = |live: Option<&Value>, data: &BTreeMap, manager: &str| {
            apply_map(live, json!(data), manager, false).unwrap()
        };
        let ab = go(Some(&go(None, &a, "a")), &b, "b");
        let ba = go(Some(&go(None, &b, "b")), &a, "a");
        let data = |object: &Value| object.get("data").cloned().unwrap_or_else(|| json!({}));
        prop_assert_eq!(data(&ab), data(&ba));
        prop_assert_eq!(owned(&ab, "a"), owned(&ba, "a"));
        prop_assert_eq!(owned(&ab, "b"), owned(&ba, "b"));
    }

    // Proves apply/updates-take-over.
    #[test]
    fn no_op_update_keeps_ownership(data in any_data()) {
        let reset = FieldSet::default();
        let live = apply_map(None, json!(data), "me", false).unwrap();
        let mut new = live.clone();
        update(Some(&live), &mut new, map_shape(), &write("you", "v1", &reset));
        prop_assert_eq!(live, new);
    }

    // Proves apply/request.
    #[test]
    fn arbitrary_configurations_never_panic(live in any_json(), config in any_json(), managed in any_json()) {
        let reset = FieldSet::default();
        for shape in [shape("apps", "v1", "Deployment"), Shape::Open] {
            let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": config});
            let live = json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Apply",
                "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": managed}]}, "spec": live});
            let _ = apply(Some(&live), &config, shape, &write("me", "apps/v1", &reset), true);
            let mut new = config.clone();
            update(Some(&live), &mut new, shape, &write("me", "apps/v1", &reset));
        }
    }
}
