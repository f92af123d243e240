use super::*;

#[test]
fn references_have_no_siblings() {
    let mut schema = json!({"allOf": [{"$ref": "#/components/schemas/a.B"}], "default": {},
            "x-kubernetes-patch-strategy": "retainKeys"});
    downgrade(&mut schema);
    assert_eq!(
        schema,
        json!({"$ref": "#/definitions/a.B", "x-kubernetes-patch-strategy": "retainKeys"})
    );
}

#[test]
fn schema_features_missing_in_v2_are_removed() {
    let mut schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true},
            "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"c": {"type": "string"}}},
            "d": {"anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": true},
            "e": {"type": "array", "items": {"type": "string", "not": {"pattern": "x"}}}}});
    simplify(&mut schema);
    assert_eq!(
        schema,
        json!({"type": "object", "required": ["b"], "properties": {
                "a": {},
                "b": {"x-kubernetes-preserve-unknown-fields": true},
                "d": {"x-kubernetes-int-or-string": true},
                "e": {"type": "array", "items": {"type": "string"}}}})
    );
}
