//! Updates of definitions that are invalid already, and what Kubernetes 1.36 answers.

use serde_json::{Value, json};

use super::super::check_update;

fn definition(versions: Value) -> Value {
    let mut definition = json!({
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" },
            "conversion": { "strategy": "None" },
        },
        "status": { "storedVersions": ["v1"] },
    });
    definition["spec"]["versions"] = versions;
    definition
}

fn version(name: &str, schema: Value) -> Value {
    let mut version =
        json!({ "name": name, "served": true, "storage": name == "v1", "schema": {} });
    version["schema"]["openAPIV3Schema"] = schema;
    version
}

/// A definition whose only version has these properties.
fn with(properties: Value) -> Value {
    let mut schema = json!({ "type": "object" });
    schema["properties"] = properties;
    definition(json!([version("v1", schema)]))
}

fn errors(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (new.as_object().unwrap(), old.as_object().unwrap());
    check_update(new, old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Proves crd/ratcheting.
#[test]
fn kinds_of_errors_in_the_stored_schema_are_tolerated() {
    const AT: &str = "spec.validation.openAPIV3Schema.properties[bad]";
    let set =
        |items: Value| json!({ "type": "array", "x-kubernetes-list-type": "set", "items": items });
    let keyed = |items: Value| {
        json!({ "type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"], "items": items })
    };
    let key = |schema: Value| json!({ "type": "object", "properties": { "key": schema } });
    let needed = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                  required property";
    let mut nullable = key(json!({ "type": "string", "default": "x" }));
    nullable["nullable"] = true.into();
    for (bad, wanted) in [
        (
            json!({ "type": "bogus" }),
            ".type: Unsupported value: \"bogus\": supported values: \"array\", \"boolean\", \
             \"integer\", \"number\", \"object\", \"string\""
                .to_owned(),
        ),
        (
            json!({ "type": "object", "default": { "more": 1 } }),
            ".default: Invalid value: {\"more\":1}: must not have unknown fields".to_owned(),
        ),
        (
            set(json!({ "type": "object" })),
            ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list \
             with x-kubernetes-list-type=set"
                .to_owned(),
        ),
        (
            set(json!({ "type": "string", "nullable": true })),
            ".items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"
                .to_owned(),
        ),
        (
            keyed(nullable),
            ".items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map"
                .to_owned(),
        ),
        (
            keyed(key(json!({ "type": "string" }))),
            format!(".items.properties[key].default: Required value: {needed}"),
        ),
    ] {
        let good = with(json!({ "good": { "type": "string" } }));
        let old = with(json!({ "bad": bad }));
        let new = with(json!({ "bad": bad, "good": { "type": "string" } }));
        assert_eq!(errors(&new, &good), [format!("{AT}{wanted}")]);
        // The rule no longer applies to any schema of the definition.
        assert_eq!(errors(&new, &old), Vec::<String>::new(), "{bad}");
        let elsewhere = with(json!({ "other": bad, "bad": bad }));
        assert_eq!(errors(&elsewhere, &old), Vec::<String>::new(), "{bad}");
    }
}

/// Proves crd/ratcheting.
#[test]
fn other_errors_in_the_stored_schema_are_not_tolerated() {
    for (bad, wanted) in [
        (
            json!({ "type": "string", "default": 1 }),
            "must be of type string",
        ),
        (json!({ "type": "array" }), "items: Required value"),
        (
            json!({ "type": "object", "uniqueItems": true }),
            "uniqueItems: Forbidden",
        ),
        (
            json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self.nope" }] }),
            "compilation failed",
        ),
    ] {
        let old = with(json!({ "bad": bad }));
        let found = errors(&old, &old);
        assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
    }
}

/// Proves crd/ratcheting.
#[test]
fn rules_of_an_unchanged_schema_may_cost_too_much() {
    let costly = |first: &str| {
        let rule = format!("self.contains('{first}') || self.contains('y')");
        let item = json!({ "type": "string", "x-kubernetes-validations": [{ "rule": rule }] });
        json!({ "type": "object", "properties": {
            "list": { "type": "array", "maxItems": 60, "items": item },
        } })
    };
    let exceeded = |at: &str| {
        format!(
            "{at}.openAPIV3Schema.properties[list].items.x-kubernetes-validations[0].rule: \
             Forbidden: estimated rule cost exceeds budget by factor of 3.8x (try simplifying the \
             rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings \
             are declared)"
        )
    };
    let old = definition(json!([version("v1", costly("x"))]));
    let mut new = old.clone();
    new["spec"]["names"]["shortNames"] = json!(["f"]);
    assert_eq!(errors(&new, &old), Vec::<String>::new());
    let changed = definition(json!([version("v1", costly("z"))]));
    assert_eq!(errors(&changed, &old), [exceeded("spec.validation")]);
    // Each version counts for itself; a new one may have the schema that all had.
    let two = |second| definition(json!([version("v1", costly("x")), version("v2", second)]));
    let z = exceeded("spec.versions[1].schema");
    assert_eq!(errors(&two(costly("z")), &old), [z.as_str()]);
    assert_eq!(errors(&two(costly("x")), &old), Vec::<String>::new());
    let plain = json!({ "type": "object" });
    let versions = [
        version("v1", costly("x")),
        version("v2", plain.clone()),
        version("v3", costly("x")),
    ];
    let three = definition(json!(versions));
    let found = errors(&three, &two(plain));
    assert_eq!(found, [exceeded("spec.versions[2].schema")]);
}

/// Proves crd/ratcheting.
#[test]
fn missing_schemas_stay_missing_where_nothing_is_pruned() {
    let open = json!({ "type": "object" });
    let without = json!({ "name": "v2", "served": false, "storage": false });
    let mut served = without.clone();
    served["served"] = true.into();
    let old = definition(json!([version("v1", open.clone()), without]));
    assert_eq!(errors(&old, &old), Vec::<String>::new());
    let place = "spec.versions[1].schema.openAPIV3Schema: Required value";
    let full = definition(json!([
        version("v1", open.clone()),
        version("v2", open.clone())
    ]));
    assert_eq!(errors(&old, &full), [place]);
    let new = definition(json!([version("v1", open), served]));
    let why = "because otherwise all fields are pruned";
    assert_eq!(errors(&new, &old), [format!("{place}: {why}")]);
}

/// Proves crd/ratcheting.
#[test]
fn definitions_that_preserve_everything_may_stay_so() {
    let free = |properties: Value| {
        let mut definition = with(properties);
        definition["spec"]["preserveUnknownFields"] = true.into();
        definition
    };
    let untyped = json!({ "a": {} });
    let needed = "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be \
                  empty for specified object fields";
    assert_eq!(
        errors(&free(untyped.clone()), &free(untyped.clone())),
        Vec::<String>::new()
    );
    // It must become structural to be pruned, or to use what needs that.
    assert_eq!(
        errors(&with(untyped.clone()), &free(untyped.clone())),
        [needed]
    );
    let extended = json!({ "a": {}, "b": { "x-kubernetes-int-or-string": true } });
    assert_eq!(errors(&free(extended), &free(untyped.clone())), [needed]);
    assert_eq!(
        errors(
            &free(untyped.clone()),
            &free(json!({ "a": { "type": "string" } }))
        ),
        [needed]
    );
    let cannot = "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
                  x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    let typed = json!({ "a": { "type": "string" } });
    assert_eq!(errors(&free(typed.clone()), &with(typed)), [cannot]);
}

/// Proves crd/ratcheting.
#[test]
fn unknown_review_versions_may_stay_unknown() {
    let reviews = |versions: Value| {
        let mut definition = with(json!({}));
        let url = "https://example.com";
        definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
            "clientConfig": { "url": url }, "conversionReviewVersions": versions } });
        definition
    };
    let wrong = |version: &str| {
        format!(
            "spec.conversion.conversionReviewVersions: Invalid value: [\"{version}\"]: must include \
             at least one of v1, v1beta1"
        )
    };
    let (old, new) = (reviews(json!(["v0"])), reviews(json!(["v9"])));
    assert_eq!(errors(&new, &old), Vec::<String>::new());
    assert_eq!(errors(&new, &reviews(json!(["v1", "v0"]))), [wrong("v9")]);
    assert_eq!(errors(&new, &with(json!({}))), [wrong("v9")]);
}

/// Proves crd/ratcheting.
#[test]
fn too_many_selectable_fields_may_stay_unchanged() {
    let names = |count: usize| (0..count).map(|i| format!("f{i}"));
    let schema = |count: usize| {
        let fields = names(count).map(|name| (name, json!({ "type": "string" })));
        let fields: serde_json::Map<String, Value> = fields.collect();
        json!({ "type": "object", "properties": fields })
    };
    let crowded = |name: &str, count: usize| {
        let mut version = version(name, schema(12));
        let paths = names(count).map(|name| json!({ "jsonPath": format!(".{name}") }));
        version["selectableFields"] = paths.collect();
        version
    };
    let many = |at: &str, count: usize| {
        format!("{at}.selectableFields: Too many: {count}: must have at most 8 items")
    };
    let old = definition(json!([crowded("v1", 9)]));
    assert_eq!(errors(&old, &old), Vec::<String>::new());
    let more = definition(json!([crowded("v1", 10)]));
    assert_eq!(errors(&more, &old), [many("spec", 10)]);
    let plain = definition(json!([version("v1", schema(12))]));
    assert_eq!(errors(&old, &plain), [many("spec", 9)]);
    let two = definition(json!([crowded("v1", 9), version("v2", schema(3))]));
    assert_eq!(errors(&two, &two), Vec::<String>::new());
}
