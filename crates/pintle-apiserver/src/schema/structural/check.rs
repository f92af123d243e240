//! Is this a schema a definition may carry? Asked once, when the definition is written.
//!
//! Two sets of rules. [`structural`]: every value is specified outside of `allOf`, `anyOf`,
//! `oneOf` and `not`, so that pruning and defaulting know each field from its place alone.
//! [`openapi`]: the keywords that are understood, and how they may be combined.

use serde_json::{Map, Value, json};

use super::re2;
use crate::schema::field::{FieldError, Path};

type Schema = Map<String, Value>;

/// Where a schema stands in the structure.
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

/// The schemas named in `properties`, with their names.
fn properties(schema: &Schema) -> impl Iterator<Item = (&String, &Schema)> {
    let all = map(schema, "properties").into_iter().flatten();
    all.filter_map(|(name, schema)| Some((name, schema.as_object()?)))
}

/// The schemas in a list of clauses, with their places.
fn clauses<'a>(schema: &'a Schema, name: &str) -> impl Iterator<Item = (usize, &'a Schema)> {
    let all = list(schema, name).iter().enumerate();
    all.filter_map(|(i, schema)| Some((i, schema.as_object()?)))
}

/// Faults against the structural rules, sorted by their text.
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

/// The one way of naming types inside `anyOf` that is allowed.
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

/// `kind` and `apiVersion` are strings; `metadata` is what it is everywhere, and a schema may
/// narrow only its names.
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
        && let Err(why) = re2::compile(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(at.child("pattern"), pattern, why));
    }
}

/// A clause may narrow values; it may not say anything about the structure.
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

/// Whatever a clause speaks of is specified in the structure too.
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

/// What holds on the way down through a schema.
#[derive(Clone, Copy)]
struct Context<'a> {
    /// Why defaults are not allowed here, if they are not.
    no_defaults: Option<&'a str>,
    inside_metadata: bool,
}

/// Faults against the rules for keywords.
pub(super) fn openapi(schema: &Schema, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let context = Context {
        no_defaults: None,
        inside_metadata: false,
    };
    keywords(schema, true, context, at, &mut errors);
    errors
}

fn keywords(
    schema: &Schema,
    root: bool,
    context: Context<'_>,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    standard(schema, context, at, errors);
    if flag(schema, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes \
                   quadratic";
        errors.push(FieldError::forbidden(at.child("uniqueItems"), why));
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|v| !v.is_null()) {
        let here = at.child("additionalProperties");
        let named = map(schema, "properties").is_some_and(|all| !all.is_empty());
        if named && *additional != json!(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(here, why));
        }
        if let Some(below) = additional.as_object() {
            let mut context = context;
            if context.inside_metadata {
                let why = "inside additionalProperties applying to object metadata";
                context.no_defaults = Some(why);
            }
            keywords(below, false, context, &here, errors);
        }
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    for (name, property) in properties(schema) {
        let mut context = context;
        let why = format!("in top-level {name}");
        if (root || embedded) && super::prune::META_FIELDS.contains(&name.as_str()) {
            context.inside_metadata = true;
            if root {
                context.no_defaults = Some(&why);
            }
        }
        keywords(
            property,
            false,
            context,
            &at.child("properties").key(name),
            errors,
        );
    }
    if let Some(not) = map(schema, "not") {
        keywords(not, false, context, &at.child("not"), errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (i, clause) in clauses(schema, name) {
            keywords(clause, false, context, &at.child(name).index(i), errors);
        }
    }
    if let Some(items) = map(schema, "items") {
        keywords(items, false, context, &at.child("items"), errors);
    }
    extensions(schema, at, errors);
    map_list(schema, at, errors);
    rules(schema, at, errors);
}

/// Keywords that are refused wherever they stand.
fn standard(schema: &Schema, context: Context<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let type_name = text(schema, "type");
    let types = ["array", "boolean", "integer", "number", "object", "string"];
    if !type_name.is_empty() && !types.contains(&type_name) {
        errors.push(FieldError::not_supported(
            at.child("type"),
            type_name,
            &types,
        ));
    }
    let mut forbid = |set: bool, name: &str, why: &str| {
        if set {
            errors.push(FieldError::forbidden(at.child(name), why));
        }
    };
    if let Some(why) = context.no_defaults {
        forbid(
            present(schema, "default"),
            "default",
            &format!("must not be set {why}"),
        );
    }
    for name in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
    ] {
        let set = match schema.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(all)) if name != "dependencies" => !all.is_empty(),
            Some(_) => true,
        };
        forbid(set, name, &format!("{name} is not supported"));
    }
    forbid(present(schema, "$ref"), "$ref", "$ref is not supported");
    let null = "type cannot be set to null, use nullable as an alternative";
    forbid(type_name == "null", "type", null);
    let items = "items must be a schema object and not an array";
    forbid(
        schema.get("items").is_some_and(Value::is_array),
        "items",
        items,
    );
    let embedded = "x-kubernetes-embedded-resource";
    let nested = context.inside_metadata && flag(schema, embedded);
    forbid(nested, embedded, "must not be used inside of resource meta");
}

fn extensions(schema: &Schema, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&json!(false)) {
        errors.push(FieldError::invalid(
            at.child(preserve),
            false,
            "must be true or undefined",
        ));
    }
    let type_name = text(schema, "type");
    for (name, wanted, known) in [
        (
            "x-kubernetes-map-type",
            "object",
            &["atomic", "granular"][..],
        ),
        (
            "x-kubernetes-list-type",
            "array",
            &["atomic", "set", "map"][..],
        ),
    ] {
        let Some(value) = schema.get(name).and_then(Value::as_str) else {
            continue;
        };
        if type_name != wanted {
            let why = format!("must be {wanted} if {name} is specified");
            errors.push(match type_name {
                "" => FieldError::required(at.child("type"), why),
                other => FieldError::invalid(at.child("type"), other, why),
            });
        }
        if !known.contains(&value) {
            errors.push(FieldError::not_supported(at.child(name), value, known));
        }
    }
    if text(schema, "x-kubernetes-list-type") == "set"
        && type_name == "array"
        && let Some(items) = map(schema, "items")
    {
        let here = at.child("items");
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let list_type = items
            .get("x-kubernetes-list-type")
            .cloned()
            .unwrap_or_default();
        let map_type = text(items, "x-kubernetes-map-type");
        match text(items, "type") {
            "array" if !list_type.is_null() && list_type != "atomic" => {
                let here = here.child("x-kubernetes-list-type");
                errors.push(FieldError::invalid(here, list_type, why));
            }
            "object" if map_type != "atomic" => {
                let here = here.child("x-kubernetes-map-type");
                errors.push(FieldError::invalid(here, list_type, why));
            }
            _ => {}
        }
    }
}

/// A list of type `map` names keys that every item has.
fn map_list(schema: &Schema, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let keys_at = at.child("x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let here = at.child("x-kubernetes-list-type");
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            "" => FieldError::required(here, why),
            other => FieldError::invalid(here, other, why),
        });
    }
    let items = map(schema, "items");
    let items_at = at.child("items");
    if list_type == "map" {
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(keys_at, why));
        }
        match items {
            None => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                errors.push(FieldError::required(items_at, why));
            }
            Some(items) if text(items, "type") != "object" => {
                let why = "must be object if parent array's x-kubernetes-list-type is map";
                let found = text(items, "type");
                errors.push(FieldError::invalid(items_at.child("type"), found, why));
            }
            Some(items) => map_keys(items, keys, &items_at, &keys_at, errors),
        }
    }
    let Some(items) = items.filter(|_| matches!(list_type, "set" | "map")) else {
        return;
    };
    if flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(items_at.child("nullable"), why));
    }
    if list_type == "map" {
        for key in keys.iter().filter_map(Value::as_str) {
            let property = map(items, "properties").and_then(|all| map(all, key));
            let Some(property) = property else { continue };
            let below = items_at.child("properties");
            let here = below.key(key);
            let required = list(items, "required").iter().any(|name| name == key);
            if !required && !present(property, "default") {
                let why = "this property is in x-kubernetes-list-map-keys, \
                           so it must have a default or be a required property";
                errors.push(FieldError::required(here.child("default"), why));
            }
            if flag(property, "nullable") {
                let why = "this property is in x-kubernetes-list-map-keys, \
                           so it cannot be nullable";
                errors.push(FieldError::forbidden(here.child("nullable"), why));
            }
        }
    }
}

fn map_keys(
    items: &Schema,
    keys: &[Value],
    items_at: &Path<'_>,
    keys_at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let below = items_at.child("properties");
    for (i, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match map(items, "properties").and_then(|all| map(all, name)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let here = below.key(name);
                let found = text(items, "type");
                errors.push(FieldError::invalid(here.child("type"), found, why));
            }
            Some(_) => {}
            None => {
                let why = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_at, keys.to_vec(), why));
            }
        }
        if keys[..i].contains(key) {
            let why = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_at, keys.to_vec(), why));
        }
    }
}

/// How rules in CEL are written down; what they say is checked elsewhere.
fn rules(schema: &Schema, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let reasons = [
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    let rules_at = at.child("x-kubernetes-validations");
    for (i, rule) in clauses(schema, "x-kubernetes-validations") {
        let at = rules_at.index(i);
        let broken = |text: &str| text.contains(['\n', '\r']);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let blank = message.trim().is_empty();
        if expression.is_empty() {
            errors.push(FieldError::required(
                at.child("rule"),
                "rule is not specified",
            ));
        } else if !message.is_empty() && blank {
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(at.child("message"), message, why));
        } else if broken(message.trim()) {
            let why = "must not contain line breaks";
            errors.push(FieldError::invalid(at.child("message"), message, why));
        } else if broken(expression) && blank {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(at.child("message"), why));
        }
        let computed = text(rule, "messageExpression");
        if !computed.is_empty() && computed.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(at.child("messageExpression"), why));
        }
        let reason = text(rule, "reason");
        if !reason.is_empty() && !reasons.contains(&reason) {
            errors.push(FieldError::not_supported(
                at.child("reason"),
                reason,
                &reasons,
            ));
        }
        let field = text(rule, "fieldPath");
        let here = at.child("fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            errors.push(FieldError::invalid(
                here,
                field,
                "must be non-empty if specified",
            ));
        }
        if broken(field) {
            errors.push(FieldError::invalid(
                here,
                field,
                "must not contain line breaks",
            ));
        }
    }
}
