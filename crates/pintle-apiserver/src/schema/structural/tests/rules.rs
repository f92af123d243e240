//! Validation rules in CEL.

use serde_json::{Value, json};

use super::{super::*, schema, schema_errors};

fn validate(schema: &Structural, object: &Value, old: Option<&Value>) -> Vec<String> {
    schema
        .validate(object, old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Proves crd/ratcheting.
#[test]
fn rule_failures_have_path_reason_and_message() {
    let schema = schema(json!({"type": "object",
    "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "message": "min must not exceed max"},
        {"rule": "!has(self.name) || self.name != 'root'", "fieldPath": ".name", "reason": "FieldValueForbidden",
         "messageExpression": "'not ' + self.name"},
        {"rule": "self.min >= 0"},
    ],
    "properties": {
        "min": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "must be even"}]},
        "max": {"type": "integer"}, "name": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self.startsWith('a')", "message": "must start with a"}]}},
        "list": {"type": "array", "items": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "message": "must be positive"}]}},
    }}));
    assert_eq!(
        validate(&schema, &json!({"spec": {"max": 4}}), None)[0],
        "spec: Invalid value: \"object\": no such key: min evaluating rule: min must not exceed max",
    );
    assert_eq!(
        validate(&schema, &json!({"spec": {"min": 2, "max": 4}}), None),
        Vec::<String>::new()
    );
    assert_eq!(
        validate(
            &schema,
            &json!({"spec": {"min": 3, "max": 1, "name": "root"}}),
            None
        ),
        [
            "spec: Invalid value: min must not exceed max",
            "spec.name: Forbidden: not root",
            "spec.min: Invalid value: 3: must be even",
        ]
    );
    assert_eq!(
        validate(
            &schema,
            &json!({"spec": {"min": -2, "max": 1, "map": {"k": "b"}, "list": [1, 0]}}),
            None
        ),
        [
            "spec: Invalid value: failed rule: self.min >= 0",
            "spec.list[1]: Invalid value: 0: must be positive",
            "spec.map[k]: Invalid value: \"b\": must start with a",
        ]
    );
}

/// Proves crd/ratcheting.
#[test]
fn transition_rules_run_only_on_update() {
    let schema = schema(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        "late": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5", "message": "too big"}]}}}));
    let before = json!({"spec": {"fixed": "a", "late": 9}});
    assert!(validate(&schema, &json!({"spec": {"fixed": "a", "late": 1}}), None).is_empty());
    assert_eq!(
        validate(
            &schema,
            &json!({"spec": {"fixed": "b", "late": 9}}),
            Some(&before)
        ),
        ["spec.fixed: Invalid value: \"b\": is immutable"]
    );
}

/// Proves crd/ratcheting.
#[test]
fn rules_are_skipped_for_invalid_objects() {
    let schema = schema(
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.a > 0"}]}),
    );
    assert_eq!(
        validate(&schema, &json!({"spec": {}}), None),
        [
            "spec.a: Required value",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was \
         invalid; correct the existing errors to complete validation",
        ]
    );
}

/// Proves crd/ratcheting.
#[test]
fn rule_that_does_not_compile_is_rejected() {
    let errors = schema_errors(
        json!({"type": "object", "properties": {"a": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self >"}]}}}),
    );
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with(
            "s.properties[a].x-kubernetes-validations[0].rule: Invalid value: \
             {\"Rule\":\"self \\u003e\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\
             \"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:7: \
             Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', "
        ),
        "{}",
        errors[0]
    );
}

/// Proves crd/ratcheting.
#[test]
fn root_rules_see_the_object_name() {
    let schema = Structural::check(&json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a')", "message": "name"}],
        "properties": {"spec": {"type": "object"}}}), "s", true).unwrap();
    let object =
        |name: &str| json!({"apiVersion": "e.x/v1", "kind": "K", "metadata": {"name": name}});
    assert!(validate(&schema, &object("ab"), None).is_empty());
    assert_eq!(
        validate(&schema, &object("b"), None),
        ["<nil>: Invalid value: name"]
    );
}
