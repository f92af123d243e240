use serde_json::json;

use super::*;

#[test]
fn finds_duplicate_fields_at_any_depth() {
    let text = br#"{"a":1,"b":[{"c":1},{"c":1,"c":2}],"a":{"d":0,"d":1}}"#;
    let (value, duplicates) = decode(text).unwrap();
    assert_eq!(value, json!({"a": {"d": 1}, "b": [{"c": 1}, {"c": 2}]}));
    assert_eq!(duplicates, ["b[1].c", "a", "a.d"]);
    assert!(decode(br#"{"a":1}"#).unwrap().1.is_empty());
    assert!(decode(b"{} x").is_err());
}

#[test]
fn strict_errors_follow_document_order() {
    let text = br#"{"z":1,"a":[{"y":{"q":1,"q":2}},{"b":1,"b":2}],"z":2,"c":{"x":0},"z":3}"#;
    let unknown = ["a[0].y", "c.x", "gone"].map(str::to_owned);
    assert_eq!(
        strict_errors(text, &unknown),
        [
            "unknown field \"a[0].y\"",
            "duplicate field \"a[1].b\"",
            "duplicate field \"z\"",
            "unknown field \"c.x\"",
            "unknown field \"gone\"",
        ]
    );
}
