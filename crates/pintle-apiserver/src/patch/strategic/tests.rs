use super::*;
use crate::schema::builtin::kind;
use crate::schema::structural::any_json;
use proptest::prelude::*;
use serde_json::json;

fn pod(spec: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut object = json!({ "spec": spec });
    apply(
        &mut object,
        json!({ "spec": patch }),
        kind("", "v1", "Pod").unwrap(),
    )?;
    Ok(object["spec"].take())
}

/// Proves patch/formats.
#[test]
fn lists_merge_by_key_as_sets_or_are_replaced() {
    let before =
        json!({"containers": [{"name": "a", "args": ["x", "y"], "image": "1"}, {"name": "b"}]});
    let patch = json!({"containers": [{"name": "a", "args": ["z"], "image": null}, {"name": "c"}]});
    let after = json!({"containers": [{"name": "a", "args": ["z"]}, {"name": "c"}, {"name": "b"}]});
    assert_eq!(pod(&before, &patch).unwrap(), after);

    let mut object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"finalizers": ["b", "c"]}});
    apply(&mut object, patch, kind("", "v1", "Pod").unwrap()).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["a", "b", "c"]));
}

/// Proves patch/formats.
#[test]
fn replace_strategy_replaces_the_map() {
    let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "minAvailable": 1}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}});
    apply(
        &mut object,
        patch,
        kind("policy", "v1", "PodDisruptionBudget").unwrap(),
    )
    .unwrap();
    assert_eq!(
        object,
        json!({"spec": {"selector": {"matchLabels": {"b": "2"}}, "minAvailable": 1}})
    );
}

/// Proves patch/formats.
#[test]
fn directives_delete_replace_retain_and_order() {
    let before = json!({
        "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
        "nodeSelector": {"x": "1"},
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    });
    let cases = [
        (
            json!({"containers": [{"$patch": "delete", "name": "b"}]}),
            "/containers",
            json!([{"name": "a"}, {"name": "c"}]),
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            "/containers",
            json!([{"name": "z"}]),
        ),
        (
            json!({"nodeSelector": {"$patch": "replace", "y": "2"}}),
            "/nodeSelector",
            json!({"y": "2"}),
        ),
        (
            json!({"nodeSelector": {"$patch": "delete"}}),
            "/nodeSelector",
            json!({}),
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "d"}],
            "containers": [{"name": "d"}]}),
            "/containers",
            json!([{"name": "b"}, {"name": "c"}, {"name": "a"}, {"name": "d"}]),
        ),
        (
            json!({"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v",
            "hostPath": {"path": "/x"}}]}),
            "/volumes",
            json!([{"name": "v", "hostPath": {"path": "/x"}}]),
        ),
    ];
    for (patch, path, wanted) in cases {
        let after = pod(&before, &patch).unwrap();
        assert_eq!(after.pointer(path).unwrap(), &wanted, "{patch}");
    }
    let mut object = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"],
        "$setElementOrder/finalizers": ["c", "a"]}});
    apply(&mut object, patch, kind("", "v1", "Pod").unwrap()).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["c", "a"]));
}

/// Proves patch/formats.
#[test]
fn unmergeable_patches_get_upstream_messages() {
    let before = json!({"containers": [{"name": "a"}], "nodeSelector": {}});
    let cases = [
        (
            json!({"containers": [{"image": "x"}]}),
            PatchError::Unmergeable(
                "map: map[image:x] does not contain declared merge key: name".into(),
            ),
        ),
        (
            json!({"nodeSelector": {"$patch": "merge"}}),
            PatchError::Unmergeable("unknown patch type: merge in map: map[$patch:merge]".into()),
        ),
        (
            json!({"nodeSelector": {"$retainKeys": ["a"], "b": "1"}}),
            PatchError::Malformed("invalid patch format of retainKeys".into()),
        ),
        (
            json!({"containers": ["x"]}),
            PatchError::Unmergeable(
                "list element types are not identical: [[map[name:a]] [x]]".into(),
            ),
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "z"}], "containers": [{"name": "a"}]}),
            PatchError::Unmergeable(
                "The order in patch list:\n[map[name:a]]\n doesn't match \
            $setElementOrder list:\n[map[name:z]]\n"
                    .into(),
            ),
        ),
    ];
    for (patch, error) in cases {
        assert_eq!(pod(&before, &patch), Err(error));
    }
}

/// Proves patch/formats.
#[test]
fn ports_merge_by_number_alone() {
    let before = json!({"containers": [{"name": "a", "ports": [
        {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]}]});
    let patch = json!({"containers": [{"name": "a", "ports": [
        {"containerPort": 53, "name": "dns"}]}]});
    let after = pod(&before, &patch).unwrap();
    assert_eq!(
        after["containers"][0]["ports"],
        json!([
        {"containerPort": 53, "protocol": "UDP", "name": "dns"},
        {"containerPort": 53, "protocol": "TCP"}])
    );
}

/// Typical patches: containers by name, and labels.
fn any_patch() -> impl Strategy<Value = Value> {
    let container = ("[a-c]", prop::option::of("[x-z]")).prop_map(|(name, image)| match image {
        Some(image) => json!({"name": name, "image": image}),
        None => json!({"name": name, "$patch": "delete"}),
    });
    let labels = prop::collection::btree_map("[a-c]", prop::option::of("[x-z]"), 0..3);
    (prop::collection::vec(container, 0..4), labels).prop_map(|(containers, labels)| {
        let mut seen = BTreeSet::new();
        let unique: Vec<Value> = containers
            .into_iter()
            .filter(|c| seen.insert(c["name"].to_string()))
            .collect();
        json!({"metadata": {"labels": labels}, "spec": {"containers": unique}})
    })
}

proptest! {
    // Proves patch/formats.
    #[test]
    fn merge_is_idempotent(first in any_patch(), patch in any_patch()) {
        let ty = kind("", "v1", "Pod").unwrap();
        let mut object = json!({});
        apply(&mut object, first, ty).unwrap();
        apply(&mut object, patch.clone(), ty).unwrap();
        let once = object.clone();
        apply(&mut object, patch, ty).unwrap();
        prop_assert_eq!(once, object);
    }

    // Proves patch/formats.
    #[test]
    fn empty_patch_changes_nothing(object in any_json()) {
        if object.is_object() {
            let mut patched = object.clone();
            apply(&mut patched, json!({}), kind("", "v1", "Pod").unwrap()).unwrap();
            prop_assert_eq!(object, patched);
        }
    }

    // Proves patch/formats.
    #[test]
    fn arbitrary_patches_never_panic(spec in any_json(), patch in any_json(), meta in any_json()) {
        let _ = pod(&spec, &patch);
        let order = json!({"$setElementOrder/containers": patch, "containers": meta,
            "$retainKeys": meta, "$deleteFromPrimitiveList/containers": patch});
        let _ = pod(&spec, &order);
    }
}
