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

/// Proves errors/depth.
#[test]
fn rules_of_all_defaults_share_one_budget() {
    let property = json!({"type": "object", "default": {"list": [1, 2, 3, 4]}, "properties": {
        "list": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
            {"rule": "self.all(a, self.all(b, a + b != 0))"}]}}});
    let properties: serde_json::Map<String, Value> = (0..50)
        .map(|i| (format!("p{i}"), property.clone()))
        .collect();
    let schema = json!({"type": "object", "properties": properties});
    let schema = Structural::parse(&schema).unwrap();
    for (budget, expected) in [(1_000, 1), (1_000_000, 0)] {
        let errors = defaults::check(&schema.root, &Path::At("s"), budget, true);
        assert_eq!(errors.len(), expected, "{errors:?}");
        let why = "running out of cost budget";
        assert!(
            errors.iter().all(|it| it.to_string().contains(why)),
            "{errors:?}"
        );
    }
}

/// Proves crd/ratcheting.
#[test]
fn unchanged_values_do_not_excuse_transition_rules() {
    let schema = schema(json!({"type": "object", "properties": {
        "turn": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self > oldSelf", "message": "must grow"},
            {"rule": "self > 5", "message": "must be large"},
        ]},
    }}));
    let object = json!({"spec": {"turn": 1}});
    assert_eq!(
        validate(&schema, &object, Some(&object)),
        ["spec.turn: Invalid value: 1: must grow"]
    );
}

/// Rules on `kind` and `apiVersion` are not ratcheted: an unchanged value still has to satisfy
/// them.
///
/// Proves crd/ratcheting.
#[test]
fn rules_on_the_type_of_an_object_always_apply() {
    let rule = json!([{"rule": "self == 'Other'", "message": "must be another"}]);
    let of = |name: &str| {
        let property = json!({"type": "string", "x-kubernetes-validations": rule});
        Structural::parse(&json!({"type": "object", "properties": {name: property}})).unwrap()
    };
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "other": "x"});
    for (name, count) in [("kind", 1), ("apiVersion", 1), ("other", 0)] {
        let errors = validate(&of(name), &object, Some(&object));
        assert_eq!(errors.len(), count, "{name}: {errors:?}");
    }
}

#[test]
fn computed_messages_have_a_limit() {
    let schema = schema(
        json!({"type": "object", "properties": {"text": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.text == ''", "message": "must be empty",
            "messageExpression": "self.text"}]}),
    );
    let message =
        |text: String| validate(&schema, &json!({"spec": {"text": text}}), None).remove(0);
    let (longest, longer) = ("a".repeat(5 * 1024), "a".repeat(5 * 1024 + 1));
    assert_eq!(
        message(longest.clone()),
        format!("spec: Invalid value: {longest}")
    );
    assert_eq!(message(longer), "spec: Invalid value: must be empty");
    assert_eq!(message("a\nb".into()), "spec: Invalid value: must be empty");
}

/// Proves crd/rules.
#[test]
fn rules_in_nested_lists_run_for_every_item() {
    let check = |outer: u32, inner: u32| {
        let item = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
        let inner = json!({"type": "array", "maxItems": inner, "items": item});
        let outer = json!({"type": "array", "maxItems": outer, "items": inner});
        let schema = json!({"type": "object", "properties": {"spec": outer}});
        Structural::check(&schema, "s", false)
    };
    assert!(check(1_000, 1_000).is_ok());
    let errors = check(10_000, 1_000).unwrap_err();
    let error = errors[0].to_string();
    assert!(
        error.contains("estimated rule cost exceeds budget"),
        "{error}"
    );
}
