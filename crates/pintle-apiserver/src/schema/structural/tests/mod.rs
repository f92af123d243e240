#![allow(clippy::needless_pass_by_value)] // Lets tests pass `json!` values directly.

mod patterns;
pub(crate) mod properties;
mod readable;
mod rules;

use serde_json::{Value, json};

use super::*;

fn schema(spec: Value) -> Structural {
    let whole = json!({ "type": "object", "properties": { "spec": spec, "status": {
        "type": "object", "properties": { "ready": { "type": "boolean" } } } } });
    Structural::check(&whole, "s", true).unwrap()
}

fn messages(spec: Value, object: Value) -> Vec<String> {
    let schema = Structural::parse(&json!({ "type": "object", "properties": { "spec": spec } }));
    let errors = schema.unwrap().validate(&json!({ "spec": object }), None);
    errors.iter().map(ToString::to_string).collect()
}

fn schema_errors(schema: Value) -> Vec<String> {
    let errors = Structural::check(&schema, "s", false).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

/// Proves crd/schema.
#[test]
fn violations_have_the_upstream_messages() {
    let cases = [
        (
            json!({"type": "integer"}),
            json!("x"),
            "spec: Invalid value: \"string\": spec in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string"}),
            json!(null),
            "spec: Invalid value: \"null\": spec in body must be of type string: \"null\"",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
            json!(1),
            "spec: Invalid value: 1: spec in body should be less than 1",
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!(0.25),
            "spec: Invalid value: 0.25: spec in body should be greater than or equal to 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "spec: Invalid value: 7: spec in body should be a multiple of 5",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec: Invalid value: \"b\": spec in body should match '^a+$'",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("b"),
            "spec: Invalid value: \"b\": spec in body should be at least 2 chars long",
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("bbb"),
            "spec: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("c"),
            "spec: Invalid value: \"c\": spec in body must be of type ipv4: \"c\"",
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a", "b"]),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
            json!([]),
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            "spec[1]: Invalid value: \"integer\": spec[1] in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            json!({}),
            "spec.a: Required value",
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            "spec: Invalid value: 0: spec in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"k": 1}),
            "spec.k: Invalid value: \"integer\": spec.k in body must be of type string: \"integer\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(5_000_000_000_i64),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec",
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            json!({"a": 1}),
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ),
    ];
    for (spec, value, text) in cases {
        assert_eq!(messages(spec, value), [text]);
    }
}

/// Proves crd/schema.
#[test]
fn valid_values_are_accepted() {
    let cases = [
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("50%")),
        (json!({"x-kubernetes-int-or-string": true}), json!(5)),
        (
            json!({"type": "string", "format": "unheard-of"}),
            json!("x"),
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"a": []}),
        ),
        (json!({"type": "integer", "enum": [1, 2]}), json!(2)),
        // Upstream truncates the fraction before it compares.
        (json!({"type": "number", "enum": [1, 2]}), json!(2.5)),
    ];
    for (spec, value) in cases {
        assert_eq!(messages(spec, value), Vec::<String>::new());
    }
}

/// Proves crd/schema.
#[test]
fn closest_alternative_is_reported() {
    let any = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        messages(any, json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
            "spec.a: Required value",
        ]
    );
    let one = json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        messages(one, json!({"a": 1, "b": 1})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). \
         Found 2 valid alternatives",
        ]
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 5}]});
    assert_eq!(
        messages(all, json!(9)),
        [
            "spec: Invalid value: 9: spec in body should be less than or equal to 5",
            "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
        ]
    );
}

/// Proves crd/pruning.
#[test]
fn unknown_fields_are_pruned_and_reported() {
    let schema = schema(json!({"type": "object", "properties": {
        "known": {"type": "object", "properties": {"a": {"type": "string"}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"shut": {"type": "object"}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object"}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}}},
    }}));
    let mut object = json!({
        "apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"}, "more": 1,
        "spec": {
            "known": {"a": "1", "b": "2"},
            "open": {"x": {"y": 1}, "shut": {"z": 1}},
            "list": [{"a": "1"}, {"c": 3}],
            "map": {"k": {"d": 1}},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"q": 1}, "r": 2},
        },
    });
    let unknown = schema.prune(&mut object);
    assert_eq!(
        unknown,
        [
            "more",
            "spec.known.b",
            "spec.list[1].c",
            "spec.map.k.d",
            "spec.open.shut.z",
            "spec.pod.r",
            "spec.pod.spec.q",
        ]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"},
            "spec": {
                "known": {"a": "1"},
                "open": {"x": {"y": 1}, "shut": {}},
                "list": [{"a": "1"}, {}],
                "map": {"k": {}},
                "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
            },
        })
    );
}

/// Proves crd/defaulting.
#[test]
fn defaults_replace_missing_fields_and_invalid_nulls() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "n": {"type": "string", "default": "x", "nullable": true},
        "gone": {"type": "string"},
        "o": {"type": "object", "default": {}, "properties": {"p": {"type": "integer", "default": 7}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "integer", "default": 1}}}},
    }}));
    let mut object = json!({"spec": {"a": null, "n": null, "gone": null, "l": [{}, {"q": 2}]}});
    schema.prune(&mut object);
    schema.default(&mut object);
    assert_eq!(
        object,
        json!({"spec": {
        "a": "x", "n": null, "o": {"p": 7}, "l": [{"q": 1}, {"q": 2}]}})
    );
}

/// Proves crd/schema.
#[test]
fn duplicates_in_sets_and_maps_are_rejected() {
    let schema = schema(json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
    }}));
    let bad = json!({"spec": {"set": ["a", "b", "a", "a"], "map": [{"k": "1"}, {"k": "1"}]}});
    let errors: Vec<_> = schema
        .validate(&bad, None)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        errors,
        [
            "spec.map[1]: Duplicate value: {\"k\":\"1\"}",
            "spec.set[2]: Duplicate value: \"a\"",
        ]
    );
    assert!(
        schema.validate(&bad, Some(&bad)).is_empty(),
        "existing duplicates are tolerated"
    );
}

/// Proves crd/ratcheting.
#[test]
fn existing_violation_does_not_block_other_changes() {
    let schema = schema(json!({"type": "object", "properties": {
        "old": {"type": "integer", "maximum": 1},
        "new": {"type": "integer", "maximum": 1},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
    }}));
    let before = json!({"spec": {"old": 9, "new": 1, "map": [{"k": "a", "v": 9}]}});
    let after =
        json!({"spec": {"old": 9, "new": 0, "map": [{"k": "b", "v": 1}, {"k": "a", "v": 9}]}});
    assert!(schema.validate(&after, Some(&before)).is_empty());
    let worse = json!({"spec": {"old": 9, "new": 5}});
    assert_eq!(schema.validate(&worse, Some(&before)).len(), 1);
}

/// Proves crd/schema.
#[test]
fn status_is_validated_at_its_own_path() {
    let schema = schema(json!({"type": "object"}));
    let bad = json!({"spec": 1, "status": {"ready": "yes"}});
    let errors: Vec<_> = schema
        .validate_status(&bad, None, Vec::new())
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        errors,
        [
            "status.ready: Invalid value: \"string\": ready in body must be of type boolean: \"string\"",
        ]
    );
}

/// Proves crd/validated.
#[test]
fn schemas_that_are_not_structural_are_rejected() {
    let cases = [
        (
            json!({}),
            "s.type: Required value: must not be empty at the root",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            "s.type: Invalid value: \"array\": must be object at the root",
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            "s.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            "s.properties[a].items: Required value: must be specified",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "s.additionalProperties: Forbidden: must not be used at the root",
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]}),
            "s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}},
            "not": {"properties": {"a": {"type": "string"}}}}),
            "s.not.properties[a].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            "s.properties[metadata]: Forbidden: must not specify anything other than name and \
          generateName, but metadata is implicitly specified",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": true}}}),
            "s.properties[a].properties: Required value: must not be empty if \
          x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "strange"}}}),
            "s.properties[a].type: Unsupported value: \"strange\": supported values: \"array\", \
          \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            "s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "default": {"b": 1}}}}),
            "s.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
            "s.properties[a].items.properties[k].default: Required value: this property is in \
          x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}}}),
            "s.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the \
          runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}},
            "additionalProperties": {"type": "string"}}}}),
            "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are \
          mutual exclusive",
        ),
    ];
    for (schema, text) in cases {
        assert_eq!(schema_errors(schema), [text]);
    }
}

/// Proves crd/validated.
#[test]
fn int_or_string_may_list_its_types() {
    for property in [
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
    ] {
        let schema = schema(json!({"type": "object", "properties": {"p": property}}));
        assert!(
            schema
                .validate(&json!({"spec": {"p": "10%"}}), None)
                .is_empty()
        );
        assert!(
            schema
                .validate(&json!({"spec": {"p": 10}}), None)
                .is_empty()
        );
        assert!(
            !schema
                .validate(&json!({"spec": {"p": []}}), None)
                .is_empty()
        );
    }
}

/// Proves crd/pruning.
#[test]
fn embedded_resource_needs_a_type() {
    let schema = schema(
        json!({"type": "object", "properties": {"pod": {"type": "object",
        "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}),
    );
    let errors = schema.validate(&json!({"spec": {"pod": {"kind": "Pod"}}}), None);
    assert_eq!(errors[0].to_string(), "spec.pod.apiVersion: Required value");
}

/// Proves crd/schema.
#[test]
fn lengths_count_characters_and_bounds_may_be_exclusive() {
    let text = json!({"type": "string", "maxLength": 3, "minLength": 3});
    assert!(messages(text.clone(), json!("äöü")).is_empty());
    assert_eq!(messages(text, json!("äö")).len(), 1);
    let above = json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true});
    assert!(messages(above.clone(), json!(2)).is_empty());
    assert_eq!(
        messages(above, json!(1)),
        ["spec: Invalid value: 1: spec in body should be greater than 1"]
    );
}

/// Proves crd/defaulting.
#[test]
fn values_of_maps_and_items_get_defaults() {
    let below = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 1}}});
    let schema = schema(json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": below},
        "list": {"type": "array", "items": below},
    }}));
    let mut object = json!({"spec": {"map": {"a": {}, "b": {"n": 2}}, "list": [{}]}});
    assert!(schema.default(&mut object));
    let filled = json!({"map": {"a": {"n": 1}, "b": {"n": 2}}, "list": [{"n": 1}]});
    assert_eq!(object["spec"], filled);
}

#[test]
fn numbers_fit_into_floats_after_rounding() {
    let schema = schema(json!({ "type": "object", "properties": {
        "n": { "type": "number", "format": "float" } } }));
    let errors = |n: f64| schema.validate(&json!({ "spec": { "n": n } }), None).len();
    assert_eq!(errors(3.402_823_5e38), 0);
    assert_eq!(errors(3.402_824e38), 1);
}
