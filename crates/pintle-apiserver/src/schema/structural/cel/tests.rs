//! Rules of whole schemas: what is rejected when the CRD is written, and when an object is.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::{Node, Structural};

fn check(schema: &Value) -> Vec<String> {
    match Structural::check(schema, "s", false) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn object(properties: &Value) -> Value {
    json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": properties } } })
}

fn spec_rule(properties: &Value, rule: &Value) -> Value {
    let mut schema = object(properties);
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([rule]);
    schema
}

/// Proves crd/rules.
#[test]
fn misspelled_field_is_rejected_with_the_rule() {
    let properties = json!({ "replicas": { "type": "integer" } });
    let errors = check(&spec_rule(
        &properties,
        &json!({ "rule": "self.replcias > 1" }),
    ));
    assert_eq!(
        errors,
        [
            "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: \
          {\"Rule\":\"self.replcias \\u003e 1\",\"Message\":\"\",\"MessageExpression\":\"\",\
          \"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: \
          <input>:1:5: undefined field 'replcias'\n | self.replcias > 1\n | ....^"
        ]
    );
    let errors = check(&spec_rule(&properties, &json!({ "rule": "self.replicas" })));
    assert!(
        errors[0].ends_with(": cel expression must evaluate to a bool"),
        "{errors:?}"
    );
    let rule = json!({ "rule": "true", "messageExpression": "self.replicas" });
    let errors = check(&spec_rule(&properties, &rule));
    assert!(
        errors[0].ends_with(": messageExpression must evaluate to a string"),
        "{errors:?}"
    );
}

/// Proves crd/rules.
#[test]
fn expensive_rules_are_rejected_when_the_crd_is_written() {
    let list = |limit: Option<u64>| {
        let mut list = json!({ "type": "array", "items": { "type": "string" } });
        if let Some(limit) = limit {
            list["maxItems"] = limit.into();
            list["items"]["maxLength"] = 10.into();
        }
        json!({ "list": list })
    };
    let rule = json!({ "rule": "self.list.all(x, self.list.all(y, x != y || x == y))" });
    let errors = check(&spec_rule(&list(None), &rule));
    assert_eq!(errors.len(), 3, "{errors:?}");
    let hint = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
                arrays, maps, and strings are declared)";
    assert_eq!(
        errors,
        [
            format!(
                "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost \
                 exceeds budget by factor of more than 100x {hint}"
            ),
            "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: contributed to \
             estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                .to_owned(),
            format!(
                "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire \
                 OpenAPIv3 schema exceeds budget by factor of more than 100x {hint}"
            ),
        ]
    );
    assert_eq!(
        check(&spec_rule(&list(Some(20)), &rule)),
        Vec::<String>::new()
    );
}

#[test]
fn transition_rules_need_a_correlatable_old_self() {
    let item = json!({ "type": "string", "maxLength": 10,
        "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] });
    let list = json!({ "list": { "type": "array", "maxItems": 5, "items": item } });
    let errors = check(&object(&list));
    assert_eq!(
        errors,
        [
            "s.properties[spec].properties[list].items.x-kubernetes-validations[0].rule: Invalid \
          value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the \
          schema within s.properties[spec].properties[list]"
        ]
    );
    let properties = json!({ "n": { "type": "integer" } });
    let errors = check(&spec_rule(
        &properties,
        &json!({ "rule": "true", "optionalOldSelf": true }),
    ));
    assert_eq!(
        errors,
        [
            "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may \
          not be set if oldSelf is not used in rule"
        ]
    );
}

fn validate(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = Structural::check(schema, "s", false).unwrap();
    schema
        .validate(object, old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn optional_old_self_runs_on_create() {
    let rule = json!({ "rule": "oldSelf.hasValue() || self.n == 0", "optionalOldSelf": true,
        "message": "must start at 0" });
    let schema = spec_rule(&json!({ "n": { "type": "integer" } }), &rule);
    let spec = |n: i64| json!({ "spec": { "n": n } });
    assert_eq!(
        validate(&schema, &spec(1), None),
        ["spec: Invalid value: must start at 0"]
    );
    assert!(validate(&schema, &spec(0), None).is_empty());
    assert!(validate(&schema, &spec(1), Some(&spec(0))).is_empty());
}

/// Proves cel/budget.
#[test]
fn rules_of_an_object_share_a_budget() {
    let item = json!({ "type": "string", "maxLength": 2 });
    let list = json!({ "list": { "type": "array", "maxItems": 500, "items": item } });
    let rule = json!({ "rule": "self.list.all(x, self.list.all(y, x == y))" });
    let schema = spec_rule(&list, &rule);
    let items: Vec<&str> = vec!["ab"; 500];
    assert_eq!(
        validate(&schema, &json!({ "spec": { "list": items } }), None),
        [
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no \
          further validation rules will be run due to call cost exceeds limit for rule: \
          self.list.all(x, self.list.all(y, x == y))"
        ]
    );
}

#[test]
fn type_error_at_runtime_names_the_rule() {
    let properties = json!({ "port": { "x-kubernetes-int-or-string": true } });
    let schema = spec_rule(&properties, &json!({ "rule": "self.port < 10" }));
    assert!(validate(&schema, &json!({ "spec": { "port": 1 } }), None).is_empty());
    assert_eq!(
        validate(&schema, &json!({ "spec": { "port": "1" } }), None),
        [
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a \
          supported operator, function or macro signature for rule: self.port < 10"
        ]
    );
}

#[test]
fn field_paths_must_name_a_field() {
    let properties = json!({ "a.b": { "type": "integer" },
        "m": { "type": "object", "additionalProperties": { "type": "integer" } } });
    let rule = |path: &str| json!({ "rule": "false", "fieldPath": path });
    let errors = check(&spec_rule(&properties, &rule(".nope")));
    assert_eq!(
        errors,
        [
            "s.properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: \".nope\": must \
          be a valid path"
        ]
    );
    for (path, field) in [
        ("['a.b']", "spec.a.b"),
        (".m['k']", "spec.m[k]"),
        (".m", "spec.m"),
    ] {
        let schema = spec_rule(&properties, &rule(path));
        let errors = validate(&schema, &json!({ "spec": {} }), None);
        assert_eq!(
            errors,
            [format!("{field}: Invalid value: failed rule: false")]
        );
    }
}

/// Proves cel/constants.
#[test]
fn constants_that_cannot_be_evaluated_are_rejected() {
    let properties = json!({ "s": { "type": "string" } });
    let rule = json!({ "rule": "self.s.find('[') == ''" });
    let errors = check(&spec_rule(&properties, &rule));
    assert!(
        errors[0].ends_with(
            ": program instantiation failed: error parsing regexp: missing closing ]: `[`"
        ),
        "{errors:?}"
    );
    let rule = json!({ "rule": "true", "messageExpression": "string(int('x'))" });
    let errors = check(&spec_rule(&properties, &rule));
    assert!(
        errors[0].ends_with(
            ": messageExpression instantiation failed: type conversion error from 'string' to 'int'"
        ),
        "{errors:?}"
    );
}

#[test]
fn message_expression_sees_plain_old_self() {
    let rule = json!({ "rule": "oldSelf.hasValue() ? self.n >= oldSelf.value().n : self.n > 5",
        "optionalOldSelf": true, "message": "static",
        "messageExpression": "'was ' + string(oldSelf.orValue(self).n)" });
    let schema = spec_rule(&json!({ "n": { "type": "integer" } }), &rule);
    let schema = Structural::parse(&schema).unwrap();
    let (new, old) = (json!({ "spec": { "n": 1 } }), json!({ "spec": { "n": 3 } }));
    for old in [None, Some(&old)] {
        let errors = schema.validate(&new, old);
        assert_eq!(errors[0].detail, "static", "{old:?}");
    }
}

#[test]
fn null_does_not_pass_for_an_immutable_value() {
    let properties = json!({ "a": { "type": "integer", "nullable": true } });
    let schema = spec_rule(&properties, &json!({ "rule": "self == oldSelf" }));
    let schema = Structural::check(&schema, "s", false).unwrap();
    let (new, old) = (
        json!({ "spec": { "a": null } }),
        json!({ "spec": { "a": 1 } }),
    );
    assert_eq!(schema.validate(&new, Some(&old)).len(), 1);
    assert_eq!(schema.validate(&old, Some(&new)).len(), 1);
}

/// Without sharing, each level with rules would convert the schemas of all levels below it again.
#[test]
fn levels_share_the_types_below_them() {
    let fields = (0..2_000).map(|i| (format!("f{i}"), json!({ "type": "string" })));
    let mut schema = json!({ "type": "object", "properties": fields.collect::<Map<_, _>>() });
    for _ in 0..40 {
        schema = json!({ "type": "object", "properties": { "below": schema } });
        schema["x-kubernetes-validations"] = json!([{ "rule": "has(self.below)" }]);
    }
    let parsed = Structural::check(&schema, "s", false).unwrap();
    let mut node = &parsed.root;
    while let Some(below) = node.properties.get("below") {
        let decl = |node: &Node| node.compiled.as_ref().and_then(|rules| rules.decl.clone());
        if let (Some(own), Some(inner)) = (decl(node), decl(below)) {
            assert!(Arc::ptr_eq(own.property("below").unwrap(), &inner));
        }
        node = below;
    }
    assert_eq!(node.properties.len(), 2_000);
}

/// Proves crd/rules.
#[test]
fn wrong_field_path_is_reported_with_other_rule_errors() {
    let properties = json!({ "n": { "type": "integer" } });
    let mut schema = spec_rule(&properties, &json!({ "rule": "true", "fieldPath": ".m" }));
    let rules = schema["properties"]["spec"]["x-kubernetes-validations"].as_array_mut();
    rules
        .unwrap()
        .push(json!({ "rule": "true", "fieldPath": "  " }));
    let errors = check(&schema);
    let at = "s.properties[spec].x-kubernetes-validations";
    assert!(
        errors.contains(&format!(
            "{at}[0].fieldPath: Invalid value: \".m\": must be a valid path"
        )),
        "{errors:?}"
    );
    assert!(
        errors.contains(&format!(
            "{at}[1].fieldPath: Invalid value: \"  \": must be non-empty if specified"
        )),
        "{errors:?}"
    );
}

/// Proves crd/rules.
#[test]
fn transition_rules_are_rejected_below_maps_of_unknown_type() {
    let field = json!({ "type": "string", "maxLength": 9,
        "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] });
    let map = json!({ "m": { "type": "object", "properties": { "f": field },
        "x-kubernetes-map-type": "future" } });
    let errors = check(&object(&map));
    assert!(
        errors.iter().any(|error| error.ends_with(
            "oldSelf cannot be used on the uncorrelatable portion of the schema within \
             s.properties[spec].properties[m]"
        )),
        "{errors:?}"
    );
}

/// Proves crd/rules.
#[test]
fn rules_with_invalid_fields_are_not_compiled() {
    let properties = json!({ "n": { "type": "integer" } });
    let rule = json!({ "rule": "self.nope", "messageExpression": "  " });
    let errors = check(&spec_rule(&properties, &rule));
    assert_eq!(
        errors,
        [
            "s.properties[spec].x-kubernetes-validations[0].messageExpression: Required value: \
             messageExpression must be non-empty if specified"
        ]
    );
}
