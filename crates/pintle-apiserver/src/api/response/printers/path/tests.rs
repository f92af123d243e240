use serde_json::json;

use super::*;

#[test]
fn printer_column_paths_are_supported() {
    let object = json!({"spec": {"n": 3, "list": [{"x": "a"}, {"x": "b"}]},
            "metadata": {"annotations": {"a.b/c": "d"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let text = |path: &str| {
        find(&object, path)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(text(".spec.n"), "3");
    assert_eq!(text("{.spec.list[*].x}"), "\"a\",\"b\"");
    assert_eq!(text(".spec.list[-1].x"), "\"b\"");
    assert_eq!(
        text(r#".status.conditions[?(@.type=="Ready")].status"#),
        "\"True\""
    );
    assert_eq!(text(r".metadata.annotations.a\.b/c"), "\"d\"");
    assert_eq!(text(".metadata.annotations['a.b/c']"), "\"d\"");
    for nothing in [
        ".none",
        ".spec[",
        ".spec.list[9]",
        ".spec..",
        ".spec.list[?(x)]",
    ] {
        assert_eq!(text(nothing), "", "{nothing}");
    }
}
