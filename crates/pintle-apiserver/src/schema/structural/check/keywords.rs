//! Which keywords a schema may use and how they may be combined.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Schema, clauses, flag, list, map, present, properties, text};
use crate::schema::field::{FieldError, Path};
use crate::schema::structural::{Node, Tolerated, cel, internal, prune::META_FIELDS};

/// What a schema inherits from the schemas above it.
#[derive(Clone, Copy)]
struct Context<'a> {
    /// Why defaults are forbidden here, if they are.
    no_defaults: Option<&'a str>,
    inside_metadata: bool,
    /// The parsed form of the schema, outside of clauses.
    node: Option<&'a Node>,
    tolerated: Tolerated,
}

impl<'a> Context<'a> {
    /// Returns the context of a schema below.
    fn of(self, below: impl FnOnce(&'a Node) -> Option<&'a Node>) -> Self {
        let node = self.node.and_then(below);
        Self { node, ..self }
    }
}

/// Checks the use of keywords.
pub(in super::super) fn openapi(
    schema: &Schema,
    node: &Node,
    at: &Path<'_>,
    tolerated: Tolerated,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let context = Context {
        no_defaults: None,
        inside_metadata: false,
        node: Some(node),
        tolerated,
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
            let mut context = context.of(Node::additional_schema);
            if context.inside_metadata {
                let why = "inside additionalProperties applying to object metadata";
                context.no_defaults = Some(why);
            }
            keywords(below, false, context, &here, errors);
        }
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    for (name, property) in properties(schema) {
        let mut context = context.of(|node| node.properties.get(name));
        let why = format!("in top-level {name}");
        if (root || embedded) && META_FIELDS.contains(&name.as_str()) {
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
        keywords(not, false, context.of(|_| None), &at.child("not"), errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (i, clause) in clauses(schema, name) {
            let at = at.child(name);
            keywords(clause, false, context.of(|_| None), &at.index(i), errors);
        }
    }
    if let Some(items) = map(schema, "items") {
        let context = context.of(|node| node.items.as_deref());
        keywords(items, false, context, &at.child("items"), errors);
    }
    extensions(schema, context.tolerated, at, errors);
    map_list(schema, at, errors);
    if !context.tolerated.keys {
        item_nulls(schema, at, errors);
    }
    rules(schema, context.node, at, errors);
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Returns whether the type of a schema is not one of OpenAPI.
pub(crate) fn has_invalid_type(schema: &Schema) -> bool {
    let type_name = text(schema, "type");
    !type_name.is_empty() && !TYPES.contains(&type_name)
}

/// Rejects unsupported keywords.
fn standard(schema: &Schema, context: Context<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let type_name = text(schema, "type");
    if !context.tolerated.types && has_invalid_type(schema) {
        errors.push(FieldError::not_supported(
            at.child("type"),
            type_name,
            &TYPES,
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

fn extensions(schema: &Schema, tolerated: Tolerated, at: &Path<'_>, errors: &mut Vec<FieldError>) {
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
    if !tolerated.sets
        && type_name == "array"
        && let Some((name, list_type)) = open_set(schema)
    {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let here = at.child("items");
        errors.push(FieldError::invalid(here.child(name), list_type, why));
    }
}

/// Returns whether a schema is a set whose items are not atomic.
pub(crate) fn has_open_set(schema: &Schema) -> bool {
    open_set(schema).is_some()
}

/// Returns the keyword of a set's items that is not `atomic`, and the type of list that they are.
fn open_set(schema: &Schema) -> Option<(&'static str, Value)> {
    if text(schema, "x-kubernetes-list-type") != "set" {
        return None;
    }
    let items = map(schema, "items")?;
    let (list_name, map_name) = ("x-kubernetes-list-type", "x-kubernetes-map-type");
    let list_type = items.get(list_name).cloned().unwrap_or_default();
    match text(items, "type") {
        "array" if !list_type.is_null() && list_type != "atomic" => Some((list_name, list_type)),
        "object" if text(items, map_name) != "atomic" => Some((map_name, list_type)),
        _ => None,
    }
}

/// Checks that a list of type `map` names keys that every item has, and that items of a `set` or
/// `map` are not nullable.
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
            None => errors.push(
                if let Some(several @ Value::Array(_)) = schema.get("items") {
                    let why = "must only have a single schema if x-kubernetes-list-type is map";
                    let shown = internal::items(several).unwrap_or_else(|| several.to_string());
                    FieldError::shown(items_at, &shown, why)
                } else {
                    let why = "must have a schema if x-kubernetes-list-type is map";
                    FieldError::required(items_at, why)
                },
            ),
            Some(items) if text(items, "type") != "object" => {
                let why = "must be object if parent array's x-kubernetes-list-type is map";
                let found = text(items, "type");
                errors.push(FieldError::invalid(items_at.child("type"), found, why));
            }
            Some(items) => map_keys(items, keys, &items_at, &keys_at, errors),
        }
    }
}

/// Returns whether the items of a list, or their keys, can be null or missing.
pub(crate) fn has_loose_keys(schema: &Schema) -> bool {
    let mut errors = Vec::new();
    item_nulls(schema, &Path::Root, &mut errors);
    !errors.is_empty()
}

/// Checks that the items of sets and maps are never null, and that each has its keys.
fn item_nulls(schema: &Schema, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let items_at = at.child("items");
    let items = map(schema, "items").filter(|_| matches!(list_type, "set" | "map"));
    let Some(items) = items else {
        return;
    };
    if flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(items_at.child("nullable"), why));
    }
    if list_type == "map" {
        let all_required: BTreeSet<&str> = list(items, "required")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for key in keys.iter().filter_map(Value::as_str) {
            let property = map(items, "properties").and_then(|all| map(all, key));
            let Some(property) = property else { continue };
            let below = items_at.child("properties");
            let here = below.key(key);
            if !all_required.contains(key) && !present(property, "default") {
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
    // As upstream, each of these errors lists all keys, so their number is reduced if there are
    // many keys.
    const MOST_KEYS: usize = 100_000;
    let before = errors.len();
    let below = items_at.child("properties");
    let mut seen = BTreeSet::new();
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        if (errors.len() - before) * keys.len() > MOST_KEYS {
            return;
        }
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
        if !seen.insert(name) {
            let why = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_at, keys.to_vec(), why));
        }
    }
}

/// Checks the form of CEL rules; compiling them comes later.
fn rules(schema: &Schema, node: Option<&Node>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
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
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(here, field, why));
        }
        if broken(field) {
            let why = "must not contain line breaks";
            errors.push(FieldError::invalid(here, field, why));
        }
        if !field.is_empty() && node.is_some_and(|node| cel::normalize(field, node).is_err()) {
            errors.push(FieldError::invalid(here, field, "must be a valid path"));
        }
    }
}
