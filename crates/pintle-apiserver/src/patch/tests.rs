use super::*;
use crate::schema::structural::any_json;
use proptest::prelude::*;
use serde_json::json;

/// Proves patch/formats.
#[test]
fn merge_patch_matches_rfc_7396_examples() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": "b"}),
            json!({"b": "c"}),
            json!({"a": "b", "b": "c"}),
        ),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        ),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        ),
        (
            json!({"a": [{"b": "c"}]}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ),
        (
            json!({"e": null}),
            json!({"a": 1}),
            json!({"e": null, "a": 1}),
        ),
        (
            json!([1, 2]),
            json!({"a": "b", "c": null}),
            json!({"a": "b"}),
        ),
        (
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        ),
    ];
    for (mut object, patch, result) in cases {
        merge(&mut object, patch).unwrap();
        assert_eq!(object, result);
    }
}

/// Proves patch/formats.
#[test]
fn patch_must_be_an_object() {
    let mut object = json!({"a": 1});
    let error = merge(&mut object, json!([1])).unwrap_err();
    assert!(matches!(error, PatchError::Malformed(_)));
    assert_eq!(object, json!({"a": 1}));
}

#[test]
fn nesting_is_limited() {
    let mut patch = json!({});
    for _ in 0..200 {
        patch = json!({ "a": patch });
    }
    let error = merge(&mut json!({}), patch).unwrap_err();
    assert_eq!(error, PatchError::TooDeep);
}

proptest! {
    // Proves patch/formats.
    #[test]
    fn merge_is_idempotent(object in any_json(), patch in any_json()) {
        let mut once = object;
        if merge(&mut once, patch.clone()).is_ok() {
            let mut twice = once.clone();
            merge(&mut twice, patch).unwrap();
            prop_assert_eq!(once, twice);
        }
    }

    // Proves patch/formats.
    #[test]
    fn empty_patch_changes_nothing(object in any_json()) {
        if object.is_object() {
            let mut patched = object.clone();
            merge(&mut patched, json!({})).unwrap();
            prop_assert_eq!(object, patched);
        }
    }
}
