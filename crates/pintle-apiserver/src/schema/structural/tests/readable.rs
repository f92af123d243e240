//! Checks that upstream omits, or skips because it cannot read the schema.

use serde_json::json;

use super::{super::*, schema_errors};

/// An error that makes a schema unreadable as a structural one hides the errors that follow from
/// it.
///
/// Proves crd/validated.
#[test]
fn unreadable_schemas_have_no_other_errors() {
    assert_eq!(
        schema_errors(json!({ "x-kubernetes-preserve-unknown-fields": false })),
        ["s.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"]
    );
    let list = json!({ "type": "object", "properties": { "a": { "type": "array",
        "items": [{ "type": "string" }] }, "b": {} } });
    assert_eq!(
        schema_errors(list),
        ["s.properties[a].items: Forbidden: items must be a schema object and not an array"]
    );
    assert_eq!(
        schema_errors(json!({ "type": "object", "$schema": "x" })),
        ["s: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]
    );
}

/// Proves crd/defaulting.
#[test]
fn defaults_of_int_or_string_values_have_any_type() {
    let any = json!({ "x-kubernetes-int-or-string": true, "default": true });
    let schema = |value: &Value| json!({ "type": "object", "properties": { "a": value } });
    assert!(Structural::check(&schema(&any), "s", false).is_ok());
    let mut narrow = any;
    narrow["anyOf"] = json!([{ "type": "integer" }, { "type": "string" }]);
    assert!(!schema_errors(schema(&narrow)).is_empty());
}
