//! Patterns of strings.

use serde_json::{Value, json};

use super::{messages, schema_errors};

fn spec(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

fn whole(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

/// Proves cel/patterns.
#[test]
fn patterns_match_as_in_go() {
    for (pattern, text) in [
        ("^{{.*}}$", "{{name}}"),
        (r"^\${[A-Z_]+}$", "${HOME}"),
        (r"^\<a\>$", "<a>"),
        (r"^[\p{L}\p{N} ]{1,128}$", "größe 1"),
        (r"^[^\0]$", "a"),
    ] {
        assert_eq!(messages(spec(pattern), json!(text)), [""; 0], "{pattern}");
    }
    assert_eq!(
        messages(spec(r"^\w$"), json!("é")),
        ["spec: Invalid value: \"é\": spec in body should match '^\\w$'"]
    );
    assert_eq!(
        schema_errors(whole(json!({ "a": spec("^(?!x)") }))),
        [
            "s.properties[a].pattern: Invalid value: \"^(?!x)\": must be a valid regular expression, \
             but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?!`"
        ]
    );
}

/// Proves cel/patterns.
#[test]
fn patterns_of_a_schema_are_bounded_together() {
    let property = |i: usize| (format!("a{i}"), spec(r"\p{L}{80}"));
    let few: serde_json::Map<String, Value> = (0..10).map(property).collect();
    assert!(super::Structural::check(&whole(few.into()), "s", false).is_ok());
    let many: serde_json::Map<String, Value> = (0..10_000).map(property).collect();
    assert_eq!(
        schema_errors(whole(many.into())),
        [
            "s: Invalid value: \"\": patterns are too large: compiled, they must not exceed 64 MiB \
             together"
        ]
    );
}
