//! Checks the schema of a CRD when the CRD is written.
//!
//! There are two sets of rules. [`structural`] requires that every value is specified outside of
//! `allOf`, `anyOf`, `oneOf` and `not`, so that pruning and defaulting depend only on a field's
//! path. [`openapi`] checks which keywords are used and how they are combined.

mod keywords;

use serde_json::{Map, Value, json};

pub(super) use self::keywords::openapi;
pub(crate) use self::keywords::{has_invalid_type, has_loose_keys, has_open_set};
use crate::schema::field::{FieldError, Path};

type Schema = Map<String, Value>;

/// The position of a schema in the structure.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn text<'a>(schema: &'a Schema, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Schema, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(schema: &'a Schema, name: &str) -> &'a [Value] {
    schema
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn map<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    schema.get(name).and_then(Value::as_object)
}

fn present(schema: &Schema, name: &str) -> bool {
    schema.get(name).is_some_and(|value| !value.is_null())
}

/// Iterates over the schemas in `properties` by name.
fn properties(schema: &Schema) -> impl Iterator<Item = (&String, &Schema)> {
    let all = map(schema, "properties").into_iter().flatten();
    all.filter_map(|(name, schema)| Some((name, schema.as_object()?)))
}

/// Iterates over the schemas in a list of clauses by index.
fn clauses<'a>(schema: &'a Schema, name: &str) -> impl Iterator<Item = (usize, &'a Schema)> {
    let all = list(schema, name).iter().enumerate();
    all.filter_map(|(i, schema)| Some((i, schema.as_object()?)))
}

/// Returns why a schema cannot be read as a structural one. Upstream then skips the checks that
/// need one, and reports this only if it finds nothing else.
pub(super) fn unreadable(schema: &Schema) -> Option<&'static str> {
    let is_set = |name: &str| match schema.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(all)) if name != "additionalItems" => !all.is_empty(),
        Some(_) => true,
    };
    for (name, why) in [
        ("id", "OpenAPIV3Schema 'id' is not supported"),
        ("$schema", "OpenAPIV3Schema 'schema' is not supported"),
        ("$ref", "OpenAPIV3Schema '$ref' is not supported"),
        (
            "patternProperties",
            "OpenAPIV3Schema 'patternProperties' is not supported",
        ),
        (
            "dependencies",
            "OpenAPIV3Schema 'dependencies' is not supported",
        ),
        (
            "additionalItems",
            "OpenAPIV3Schema 'additionalItems' is not supported",
        ),
        (
            "definitions",
            "OpenAPIV3Schema 'definitions' is not supported",
        ),
    ] {
        if is_set(name) {
            return Some(why);
        }
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
        );
    }
    if !list(schema, "items").is_empty() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array");
    }
    let clauses = ["allOf", "anyOf", "oneOf"].into_iter();
    let clauses = clauses.flat_map(|name| self::clauses(schema, name).map(|(_, clause)| clause));
    let single = ["not", "items", "additionalProperties"].into_iter();
    let single = single.filter_map(|name| map(schema, name));
    let mut below = clauses
        .chain(single)
        .chain(properties(schema).map(|(_, schema)| schema));
    below.find_map(unreadable)
}

/// Checks the structural rules. Errors are sorted by their text.
pub(super) fn structural(schema: &Schema, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, at, &mut errors);
    complete(schema, Some(schema), at, at, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn invariants(schema: &Schema, level: Level, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let type_name = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserve = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    if type_name == "array" && !present(schema, "items") {
        errors.push(FieldError::required(at.child("items"), "must be specified"));
    }
    if let Some(items) = map(schema, "items") {
        invariants(items, Level::Item, &at.child("items"), errors);
    }
    for (name, property) in properties(schema) {
        invariants(
            property,
            Level::Field,
            &at.child("properties").key(name),
            errors,
        );
    }
    if present(schema, "additionalProperties") {
        let here = at.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(here, "must not be used at the root"));
        }
        if let Some(below) = map(schema, "additionalProperties") {
            invariants(below, Level::Field, &here, errors);
        }
        if embedded {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(here, why));
        }
    }
    if int_or_string {
        for (set, name) in [
            (preserve, "x-kubernetes-preserve-unknown-fields"),
            (embedded, "x-kubernetes-embedded-resource"),
        ] {
            if set {
                let why = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(at.child(name), true, why));
            }
        }
    }
    let first = list(schema, "allOf").first().and_then(Value::as_object);
    let skip_any_of = is_int_or_string(schema);
    let skip_first = first.is_some_and(is_int_or_string);
    value_rules(schema, skip_any_of, skip_first, at, errors);
    type_rules(schema, level, at, errors);
    metadata_rules(schema, level, at, errors);
    if embedded && !preserve && map(schema, "properties").is_none_or(Map::is_empty) {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at.child("properties"), why));
    }
}

/// Returns true if `anyOf` lists an integer and a string: the only clause that may contain types.
fn is_int_or_string(schema: &Schema) -> bool {
    schema.get("anyOf") == Some(&json!([{ "type": "integer" }, { "type": "string" }]))
}

fn type_rules(schema: &Schema, level: Level, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let type_name = text(schema, "type");
    let here = at.child("type");
    let open = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if flag(schema, "x-kubernetes-embedded-resource") && type_name != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match type_name {
            "" => FieldError::required(here, why),
            other => FieldError::invalid(here, other, why),
        });
    } else if type_name.is_empty() && !open {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(here, why));
    }
    if level == Level::Root && !type_name.is_empty() && type_name != "object" {
        errors.push(FieldError::invalid(
            here,
            type_name,
            "must be object at the root",
        ));
    }
}

/// Checks that `kind` and `apiVersion` are strings and `metadata` is an object. Its fields are
/// predefined: at the root, a schema may only restrict `name` and `generateName`.
fn metadata_rules(schema: &Schema, level: Level, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let resource = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let below = at.child("properties");
    if resource {
        for name in ["kind", "apiVersion"] {
            let property = map(schema, "properties").and_then(|all| all.get(name));
            let type_name = property.and_then(Value::as_object).map(|p| text(p, "type"));
            if let Some(type_name) = type_name.filter(|&name| name != "string") {
                let here = below.key(name);
                errors.push(FieldError::invalid(
                    here.child("type"),
                    type_name,
                    "must be string",
                ));
            }
        }
    }
    let metadata = map(schema, "properties").and_then(|all| map(all, "metadata"));
    let Some(metadata) = metadata else { return };
    let here = below.key("metadata");
    if resource && text(metadata, "type") != "object" {
        let found = text(metadata, "type");
        errors.push(FieldError::invalid(
            here.child("type"),
            found,
            "must be object",
        ));
    }
    if level != Level::Root {
        return;
    }
    let names_only = map(metadata, "properties").is_none_or(|all| {
        all.keys()
            .all(|name| name == "name" || name == "generateName")
    });
    let narrow = metadata.iter().all(|(name, value)| match name.as_str() {
        "type" | "default" => true,
        "properties" => names_only,
        _ => value.is_null() || *value == json!(false) || *value == json!(""),
    });
    if !narrow {
        let why = "must not specify anything other than name and generateName, \
                   but metadata is implicitly specified";
        errors.push(FieldError::forbidden(here, why));
    }
}

fn value_rules(
    schema: &Schema,
    skip_any_of: bool,
    skip_first: bool,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (i, clause) in clauses(schema, "anyOf") {
            nested(clause, false, &at.child("anyOf").index(i), errors);
        }
    }
    for (i, clause) in clauses(schema, "allOf") {
        nested(
            clause,
            skip_first && i == 0,
            &at.child("allOf").index(i),
            errors,
        );
    }
    for (i, clause) in clauses(schema, "oneOf") {
        nested(clause, false, &at.child("oneOf").index(i), errors);
    }
    if let Some(clause) = map(schema, "not") {
        nested(clause, false, &at.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(why) = pintle_cel::Pattern::parse(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(at.child("pattern"), pattern, why));
    }
}

/// Checks that a clause only restricts values and does not define structure.
fn nested(clause: &Schema, skip_any_of: bool, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    value_rules(clause, skip_any_of, false, at, errors);
    if let Some(items) = map(clause, "items") {
        nested(items, false, &at.child("items"), errors);
    }
    for (name, property) in properties(clause) {
        nested(property, false, &at.child("properties").key(name), errors);
    }
    let mut forbid = |set: bool, name: &str, state: &str| {
        if set {
            let why = format!("must be {state} to be structural");
            errors.push(FieldError::forbidden(at.child(name), why));
        }
    };
    let additional = clause.get("additionalProperties").unwrap_or(&Value::Null);
    forbid(!text(clause, "type").is_empty(), "type", "empty");
    let narrowed = additional.is_object() || *additional == json!(true);
    forbid(narrowed, "additionalProperties", "undefined");
    forbid(present(clause, "default"), "default", "undefined");
    forbid(!text(clause, "title").is_empty(), "title", "empty");
    forbid(
        !text(clause, "description").is_empty(),
        "description",
        "empty",
    );
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        forbid(flag(clause, name), name, "false");
    }
    let keys = "x-kubernetes-list-map-keys";
    forbid(!list(clause, keys).is_empty(), keys, "empty");
    for name in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        forbid(present(clause, name), name, "undefined");
    }
    let rules = "x-kubernetes-validations";
    forbid(!list(clause, rules).is_empty(), rules, "empty");
    if map(clause, "properties").is_some_and(|all| all.contains_key("metadata")) {
        let here = at.child("properties");
        let why = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(here.key("metadata"), why));
    }
}

/// Checks that everything a clause mentions is also specified in the structure.
fn complete(
    clause: &Schema,
    schema: Option<&Schema>,
    at: &Path<'_>,
    said_at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = map(clause, "not") {
        complete_clause(not, schema, at, &said_at.child("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (i, clause) in clauses(clause, name) {
            complete_clause(clause, schema, at, &said_at.child(name).index(i), errors);
        }
    }
}

fn complete_clause(
    clause: &Schema,
    schema: Option<&Schema>,
    at: &Path<'_>,
    said_at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(
            at,
            format!("because it is defined in {said_at}"),
        ));
        return;
    };
    complete(clause, Some(schema), at, said_at, errors);
    if let Some(items) = map(clause, "items") {
        let (at, said_at) = (at.child("items"), said_at.child("items"));
        complete_clause(items, map(schema, "items"), &at, &said_at, errors);
    }
    let (here, said) = (at.child("properties"), said_at.child("properties"));
    for (name, property) in properties(clause) {
        let specified = map(schema, "properties").and_then(|all| map(all, name));
        complete_clause(
            property,
            specified,
            &here.key(name),
            &said.key(name),
            errors,
        );
    }
}
