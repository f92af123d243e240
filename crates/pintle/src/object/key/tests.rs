use super::*;

/// Proves cache/keys.
#[test]
fn key_displays_and_parses_as_namespace_and_name() {
    for (key, text) in [
        (ObjectKey::namespaced("default", "web-0"), "default/web-0"),
        (ObjectKey::cluster("node-1"), "node-1"),
        (ObjectKey::new(Some(""), "node-1"), "node-1"),
    ] {
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse::<ObjectKey>().unwrap(), key);
    }
    for text in ["", "a/b/c", "/a", "a/", "/"] {
        assert!(text.parse::<ObjectKey>().is_err(), "{text:?} parsed");
    }
}

#[test]
fn keys_sort_by_namespace_then_name() {
    let mut keys: Vec<ObjectKey> = ["b/a", "a/z", "zz", "a-b/a"]
        .map(|k| k.parse().unwrap())
        .into();
    keys.sort();
    let sorted: Vec<_> = keys.iter().map(ObjectKey::as_str).collect();
    assert_eq!(sorted, ["zz", "a/z", "a-b/a", "b/a"]);
}
