use super::*;

#[test]
fn mistyped_parts_are_rejected() {
    let body = json!({"kind": "Foo", "metadata": {"uid": null}});
    for part in ["/kind", "/metadata/uid", "no /metadata/name", "no /knid"] {
        assert!(is_as_expected(part, &body), "{part}");
    }
    for part in ["/knid", "kind", "/metadata/name", "no /kind", "not /kind"] {
        assert!(!is_as_expected(part, &body), "{part}");
    }
}

#[test]
fn mistyped_names_match_nothing() {
    let list = json!([{"name": "apps"}, {"metadata": {"name": "batch"}}, "core"]);
    let map = json!({"apps": 1, "batch": 2});
    let left = |value: &Value, names: &str| named(value.clone(), &Regex::new(names).unwrap());
    assert_eq!(left(&map, "^a"), json!({"apps": 1}));
    assert_eq!(left(&list, "^(batch|core)$").as_object().unwrap().len(), 2);
    for value in [&list, &map] {
        assert!(!is_empty(&left(value, "^apps$")));
        assert!(is_empty(&left(value, "^app$")), "{value}");
    }
    assert!(
        !is_empty(&left(&"APIGroupList".into(), "^app$")),
        "strings have no names"
    );
}
