use super::*;
use serde_json::json;

#[test]
fn paths_format_as_in_kubernetes() {
    let spec = Path::Root.child("spec").to_string();
    assert_eq!(spec, "spec");
    let root = Path::Root;
    let list = root.child("containers");
    let item = list.index(2);
    let map = item.child("labels");
    assert_eq!(map.key("a/b").to_string(), "containers[2].labels[a/b]");
    assert_eq!(root.to_string(), "<nil>");
}

/// Proves errors/status-reasons.
#[test]
fn messages_match_kubernetes() {
    let cases = [
        (FieldError::required("a", ""), "a: Required value"),
        (
            FieldError::invalid("a", "x\"y", "no"),
            "a: Invalid value: \"x\\\"y\": no",
        ),
        (
            FieldError::invalid("a", json!({"b": 1}), "no"),
            "a: Invalid value: {\"b\":1}: no",
        ),
        (
            FieldError::invalid("a", 1e21, "no"),
            "a: Invalid value: 1e+21: no",
        ),
        (
            FieldError::not_supported("a", "z", &["x", "y"]),
            "a: Unsupported value: \"z\": supported values: \"x\", \"y\"",
        ),
        (
            FieldError::too_long("a", 1),
            "a: Too long: may not be more than 1 byte",
        ),
        (
            FieldError::too_many("a", 3, 2),
            "a: Too many: 3: must have at most 2 items",
        ),
        (
            FieldError::duplicate("a[1]", "z"),
            "a[1]: Duplicate value: \"z\"",
        ),
        (FieldError::forbidden("a", "no"), "a: Forbidden: no"),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn aggregate_uses_brackets_and_drops_repeats() {
    let a = FieldError::required("a", "");
    let b = FieldError::required("b", "");
    assert_eq!(aggregate(std::slice::from_ref(&a)), "a: Required value");
    assert_eq!(
        aggregate(&[a.clone(), b, a]),
        "[a: Required value, b: Required value]"
    );
}
