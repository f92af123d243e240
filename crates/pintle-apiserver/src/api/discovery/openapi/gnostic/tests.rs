use serde_json::json;

use super::*;

fn encoded(message: &Message, value: &Value) -> Vec<u8> {
    let mut out = Encoder::default();
    out.message(message, value);
    out.0
}

#[test]
fn schemas_are_written_field_by_field() {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/B"}}});
    let wanted = [
        &[0xb2, 0x01, 8, 0x0a, 6][..],
        b"object",
        &[0xca, 0x01, 24, 0x0a, 22, 0x0a, 1],
        b"a",
        &[0x12, 17, 0x0a, 15],
        b"#/definitions/B",
    ]
    .concat();
    assert_eq!(encoded(&SCHEMA, &schema), wanted);
}

#[test]
fn extensions_are_carried_as_yaml() {
    let schema = json!({"x-kubernetes-list-type": "map"});
    let name = b"x-kubernetes-list-type";
    let wanted = [
        &[0xfa, 0x01, 33, 0x0a, 22][..],
        name,
        &[0x12, 7, 0x12, 5],
        b"\"map\"",
    ]
    .concat();
    assert_eq!(encoded(&SCHEMA, &schema), wanted);
}

#[test]
fn parameters_are_encoded_by_location() {
    let query = json!({"name": "force", "in": "query", "type": "boolean"});
    let mut out = Encoder::default();
    out.parameter(&query);
    // Parameter.non_body_parameter, then NonBodyParameter.query_parameter_sub_schema.
    assert_eq!(out.0[0], 0x12);
    assert_eq!(out.0[2], 0x1a);
    let mut out = Encoder::default();
    out.parameter_item(&json!({"$ref": "#/parameters/force"}));
    assert_eq!(out.0[0], 0x12, "ParametersItem.json_reference");
}
