use super::*;
use crate::schema::structural::any_json;
use proptest::prelude::*;
use serde_json::json;

/// Proves patch/formats.
#[test]
fn operations_apply_in_order() {
    let mut object = json!({"a": {"b": [1, 2]}, "x/y": {"~": 1}});
    let patch = json!([
        {"op": "test", "path": "/a/b/0", "value": 1},
        {"op": "test", "path": "/nothing", "value": null},
        {"op": "add", "path": "/a/b/-", "value": 3},
        {"op": "remove", "path": "/a/b/0"},
        {"op": "replace", "path": "/a/b/-1", "value": 4},
        {"op": "replace", "path": "/fresh", "value": true},
        {"op": "copy", "from": "/a/b", "path": "/c"},
        {"op": "move", "from": "/a", "path": "/d"},
        {"op": "remove", "path": "/x~1y/~0"},
    ]);
    apply(&mut object, &patch).unwrap();
    let result = json!({"c": [2, 4], "d": {"b": [2, 4]}, "fresh": true, "x/y": {}});
    assert_eq!(object, result);
}

/// Proves patch/formats.
#[test]
fn failed_patch_leaves_the_object_unchanged() {
    let before = json!({"a": 1, "l": []});
    let mut object = before.clone();
    for malformed in [json!({}), json!([1]), json!("x")] {
        let error = apply(&mut object, &malformed).unwrap_err();
        assert!(matches!(error, PatchError::Malformed(_)), "{error}");
    }
    let cases = [
        (
            json!({"op": "test", "path": "/a", "value": 2}),
            "testing value /a failed: test failed",
        ),
        (
            json!({"op": "remove", "path": "/b"}),
            "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            json!({"op": "add", "path": "/b/c", "value": 1}),
            "add operation does not apply: doc is missing path: \"/b/c\": missing value",
        ),
        (
            json!({"op": "add", "path": "/l/1", "value": 1}),
            "error in add for path: '/l/1': Unable to access invalid index: 1: \
                 invalid index referenced",
        ),
        (
            json!({"op": "twist", "path": "/a"}),
            "Unexpected kind: twist",
        ),
    ];
    for (operation, text) in cases {
        let fine = json!({"op": "add", "path": "/c", "value": 1});
        let error = apply(&mut object, &json!([fine, operation])).unwrap_err();
        assert_eq!(error, PatchError::Unprocessable(text.into()));
    }
    assert_eq!(object, before);
}

/// Proves wire/size-limits.
#[test]
fn number_of_operations_is_limited() {
    let test = json!({"op": "test", "path": "/a", "value": 1});
    let mut object = json!({"a": 1});
    apply(
        &mut object,
        &Value::from(vec![test.clone(); MAX_OPERATIONS]),
    )
    .unwrap();
    let error = apply(&mut object, &Value::from(vec![test; MAX_OPERATIONS + 1])).unwrap_err();
    assert!(matches!(error, PatchError::TooLarge(_)));
}

#[test]
fn nesting_and_copied_bytes_are_limited() {
    let deeper = json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a/a"}]);
    let deeper: Value = (0..400).map(|i| deeper[i % 2].clone()).collect();
    let error = apply(&mut json!({"a": {}}), &deeper).unwrap_err();
    assert_eq!(error, PatchError::TooDeep);
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let error = apply(&mut json!({"a": [1]}), &Value::from(vec![double; 40])).unwrap_err();
    assert!(matches!(error, PatchError::Unprocessable(_)));
}

#[test]
fn shifted_list_items_are_limited() {
    let list = json!({"a": vec![0; 20_000]});
    for operation in [
        json!({"op": "add", "path": "/a/0", "value": 1}),
        json!({"op": "remove", "path": "/a/0"}),
        json!({"op": "move", "from": "/a/0", "path": "/a/1"}),
        json!({"op": "copy", "from": "/a/0", "path": "/a/0"}),
    ] {
        let few = Value::from(vec![operation.clone(); 100]);
        apply(&mut list.clone(), &few).unwrap();
        let many = Value::from(vec![operation; MAX_OPERATIONS]);
        let error = apply(&mut list.clone(), &many).unwrap_err();
        assert!(matches!(error, PatchError::TooLarge(_)), "{error}");
    }
}

proptest! {
    // Proves patch/formats.
    #[test]
    fn arbitrary_patches_apply_or_change_nothing(
        mut object in any_json(),
        op in prop_oneof!["add", "remove", "replace", "move", "copy", "test", "other"],
        path in "(/[a-d0-2~-]{0,2}){0,3}",
        from in "(/[a-d0-2~-]{0,2}){0,3}",
        value in any_json(),
    ) {
        let patch = json!([{"op": op, "path": path, "from": from, "value": value}]);
        let before = object.clone();
        if apply(&mut object, &patch).is_err() {
            prop_assert_eq!(object, before);
        }
    }
}
