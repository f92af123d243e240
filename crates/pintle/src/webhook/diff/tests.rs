use super::*;

#[test]
fn patch_contains_only_fields_the_view_changed() {
    let document = json!({"spec": {"unknown": 1, "list": [1, 2]}, "metadata": {}});
    let before = json!({"spec": {"list": [1, 2], "default": true}, "metadata": {}});
    let after = json!({"spec": {"list": [1], "default": true},
        "metadata": {"labels": {"a/b": "c"}}});
    assert_eq!(
        patch(&document, &before, &after),
        [
            json!({"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}}),
            json!({"op": "replace", "path": "/spec/list", "value": [1]}),
        ]
    );
    assert!(patch(&document, &before, &before).is_empty());
}

#[test]
fn removed_and_escaped_names_are_addressed() {
    let document = json!({"a/b": {"x~y": 1, "z": 2}});
    let after = json!({"a/b": {"z": 3}});
    assert_eq!(
        patch(&document, &document, &after),
        [
            json!({"op": "remove", "path": "/a~1b/x~0y"}),
            json!({"op": "replace", "path": "/a~1b/z", "value": 3}),
        ]
    );
}
