//! Values with a schema.

use serde_json::{Value as Json, json};

use crate::{Decl, Env, Value};

fn check(schema: &Json, object: &Json, rule: &str) -> Result<bool, String> {
    let decl = Decl::from_schema(schema, false).unwrap();
    let env = Env::new()
        .variable("self", decl.cel_type())
        .variable("oldSelf", decl.cel_type());
    let program = env.compile(rule).map_err(|error| error.to_string())?;
    let value = Value::declared(object, &decl);
    match program.eval(&[("self", value)], 1_000_000).result {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn declared_types_follow_the_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "port": { "x-kubernetes-int-or-string": true },
            "when": { "type": "string", "format": "date-time" },
            "day": { "type": "string", "format": "date" },
            "wait": { "type": "string", "format": "duration" },
            "data": { "type": "string", "format": "byte" },
            "ratio": { "type": "number" },
            "a-b": { "type": "string" },
            "namespace": { "type": "string" },
            "a__b": { "type": "string" },
            "open": { "x-kubernetes-preserve-unknown-fields": true },
            "maybe": { "type": "string", "nullable": true },
            "pod": { "type": "object", "x-kubernetes-embedded-resource": true },
        },
    });
    let object = json!({
        "port": "80%", "when": "2023-01-02T03:04:05Z", "day": "2023-01-02", "wait": "1h",
        "data": "aGk=", "ratio": 1, "a-b": "x", "namespace": "y", "a__b": "z", "open": { "a": 1 },
        "maybe": null, "pod": { "kind": "Pod", "metadata": { "name": "p", "labels": {} } },
    });
    for rule in [
        "type(self.port) == string && self.port.endsWith('%')",
        "self.when.getFullYear() == 2023 && self.when > self.day",
        "self.wait.getMinutes() == 60 && self.data == b'hi' && self.ratio == 1.0",
        "self.namespace == 'y' && has(self.namespace) && self.?namespace.orValue('') == 'y'",
        "self.a__dash__b == 'x' && self.__namespace__ == 'y' && self.a__underscores__b == 'z'",
        "!has(self.maybe) && has(self.port)",
        "self.pod.kind == 'Pod' && self.pod.metadata.name == 'p'",
    ] {
        assert_eq!(check(&schema, &object, rule), Ok(true), "{rule}");
    }
    for (rule, why) in [
        ("self.open.a == 1", "undefined field 'open'"),
        (
            "self.pod.metadata.labels.size() == 0",
            "undefined field 'labels'",
        ),
        (
            "self.prot == 1",
            "ERROR: <input>:1:5: undefined field 'prot'\n | self.prot == 1\n | ....^",
        ),
        (
            "has(self.nope)",
            "ERROR: <input>:1:4: undefined field 'nope'",
        ),
        ("self.maybe == ''", "no such key: maybe"),
        ("self.port > 5", "no such overload"),
    ] {
        let error = check(&schema, &object, rule).unwrap_err();
        assert!(
            error.starts_with(why) || error.contains(why),
            "{rule}: {error}"
        );
    }
}

#[test]
fn list_types_determine_equality_and_concatenation() {
    let list = |kind: &str| {
        json!({
            "type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": {
                "k": { "type": "string" }, "v": { "type": "integer" } } },
        })
    };
    let properties = json!({
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "other": { "type": "array", "items": { "type": "string" } },
        "map": list("map"), "more": list("map"), "atomic": list("atomic"),
    });
    let schema = json!({ "type": "object", "properties": properties });
    let object = json!({
        "set": ["a", "b"], "other": ["b", "a"],
        "map": [{ "k": "x", "v": 1 }, { "k": "y", "v": 2 }],
        "more": [{ "k": "y", "v": 2 }, { "k": "x", "v": 1 }],
        "atomic": [{ "k": "y", "v": 2 }, { "k": "x", "v": 1 }],
    });
    for rule in [
        "self.set == self.other && self.other != ['a', 'b']",
        "dyn(self.map) == dyn(self.more)",
        "(self.set + ['b', 'c']).size() == 3",
        "(self.map + self.map).size() == 2",
        "(self.other + ['b']).size() == 3",
        "self.map.exists(e, e.k == 'x' && e.v == 1)",
    ] {
        assert_eq!(check(&schema, &object, rule), Ok(true), "{rule}");
    }
}

#[test]
fn null_and_set_fields_differ_in_either_order() {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "integer", "nullable": true }, "namespace": { "type": "string", "nullable": true },
    }, "x-kubernetes-preserve-unknown-fields": true });
    let decl = Decl::from_schema(&schema, false).unwrap();
    let env = Env::new()
        .variable("self", decl.cel_type())
        .variable("oldSelf", decl.cel_type());
    let program = env.compile("self == oldSelf").unwrap();
    let same = |a: &Json, b: &Json| {
        let of = |json: &Json| Value::declared(json, &decl);
        let done = program.eval(&[("self", of(a)), ("oldSelf", of(b))], 1_000);
        matches!(done.result, Ok(Value::Bool(true)))
    };
    for (a, b, equal) in [
        (json!({ "a": null }), json!({ "a": 1 }), false),
        (
            json!({ "namespace": null }),
            json!({ "namespace": "x" }),
            false,
        ),
        (json!({ "a": null }), json!({ "a": null }), true),
        (json!({ "open": null }), json!({ "open": 1 }), false),
        (json!({ "open": 1 }), json!({ "open": 1 }), true),
    ] {
        assert_eq!(same(&a, &b), equal, "{a} == {b}");
        assert_eq!(same(&b, &a), equal, "{b} == {a}");
    }
}

#[test]
fn maps_of_any_size_can_be_transformed() {
    let schema = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    let object: serde_json::Map<String, Json> =
        (0..20_000).map(|i| (format!("k{i}"), json!(i))).collect();
    let object = Json::Object(object);
    for rule in [
        "self.transformMap(k, v, v + 1).size() == self.size()",
        "self.transformMap(k, v, v > 9999, v).size() == 10000",
        "self.transformMapEntry(k, v, {v: k}).size() == self.size()",
    ] {
        assert_eq!(check(&schema, &object, rule), Ok(true), "{rule}");
    }
    let rule = "self.transformMapEntry(k, v, {'x': k}).size() == 1";
    let error = check(&schema, &object, rule).unwrap_err();
    assert_eq!(error, "insert failed: key x already exists");
}

/// If a schema declares an embedded resource's type and names, rules see all the metadata that it
/// declares. Otherwise they see only the names.
#[test]
fn declared_metadata_of_embedded_resources_is_visible() {
    let text = json!({ "type": "string" });
    let mut schema = json!({ "type": "object", "properties": { "pod": {
        "type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {
            "kind": text, "apiVersion": text,
            "metadata": { "type": "object",
                "properties": { "name": text, "generateName": text, "namespace": text } },
        },
    } } });
    let object = json!({ "pod": { "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": "p", "namespace": "ns" } } });
    let rule = "self.pod.metadata.namespace == 'ns'";
    assert_eq!(check(&schema, &object, rule), Ok(true));
    schema["properties"]["pod"]["properties"]["kind"] = json!({ "type": "integer" });
    let why = check(&schema, &object, rule).unwrap_err();
    assert!(why.contains("undefined field 'namespace'"), "{why}");
}
