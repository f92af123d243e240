//! A parsed schema as a tree.

use std::collections::BTreeMap;

use pintle_cel::{Decls, Pattern};
use serde_json::{Map, Value};

use super::cel::Rules;
use crate::schema::MAX_DEPTH;
use crate::schema::field::{FieldError, Path};

/// One schema. Also used for the clauses in `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Clone, Default)]
// Each flag is a keyword of the schema language.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Node {
    pub(crate) type_name: String,
    pub(crate) format: String,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,

    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Box<Node>>,

    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    /// Whether this schema or any below it describes an embedded resource.
    pub(crate) has_embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: Option<String>,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: Option<String>,
    pub(crate) rules: Vec<Value>,
    pub(crate) compiled: Option<Rules>,
    /// Whether this schema or any below it has rules.
    pub(crate) has_rules: bool,

    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    /// A pattern, or why it is not valid. An invalid one rejects every string, as upstream does.
    pub(crate) pattern: Option<Result<Pattern, (String, String)>>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

/// The value of `additionalProperties`.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    Bool(bool),
    Schema(Box<Node>),
}

impl Node {
    /// Returns the schema of property `name`, falling back to `additionalProperties`.
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties
            .get(name)
            .or_else(|| self.additional_schema())
    }

    /// Returns the estimated size of all compiled patterns of this schema and those below it.
    pub(crate) fn pattern_size(&self) -> usize {
        let own = match &self.pattern {
            Some(Ok(pattern)) => pattern.size(),
            _ => 0,
        };
        let below = self
            .properties
            .values()
            .chain(self.items.as_deref())
            .chain(self.additional_schema())
            .chain(self.not.as_deref())
            .chain(&self.all_of)
            .chain(&self.any_of)
            .chain(&self.one_of);
        below.fold(own, |sum, node| sum.saturating_add(node.pattern_size()))
    }

    pub(crate) fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(node)) => Some(node),
            _ => None,
        }
    }

    /// Parses a schema and those below it. `decls` holds the types that rules see, which are shared
    /// between levels.
    pub(crate) fn parse<'a>(
        schema: &'a Value,
        path: &Path<'_>,
        depth: usize,
        decls: &mut Decls<'a>,
        errors: &mut Vec<FieldError>,
    ) -> Self {
        let Value::Object(map) = schema else {
            errors.push(FieldError::invalid(
                path,
                schema.clone(),
                "must be an object",
            ));
            return Self::default();
        };
        if depth > MAX_DEPTH {
            errors.push(FieldError::invalid(path, "", "is nested too deeply"));
            return Self::default();
        }
        let mut node = Self::default();
        node.read_scalars(map);
        node.read_tree(map, path, depth, decls, errors);
        node.compiled = Rules::of(map, &node, depth == 1, decls);
        let below = || {
            let lists = node.items.as_deref().into_iter();
            node.properties
                .values()
                .chain(lists)
                .chain(node.additional_schema())
        };
        let has_rules = node.compiled.is_some() || below().any(|below| below.has_rules);
        let has_embedded = node.embedded || below().any(|below| below.has_embedded);
        (node.has_rules, node.has_embedded) = (has_rules, has_embedded);
        node
    }

    fn read_scalars(&mut self, map: &Map<String, Value>) {
        self.type_name = text(map, "type");
        self.format = text(map, "format");
        self.nullable = flag(map, "nullable");
        self.default = map.get("default").filter(|v| !v.is_null()).cloned();
        self.preserve_unknown = flag(map, "x-kubernetes-preserve-unknown-fields");
        self.embedded = flag(map, "x-kubernetes-embedded-resource");
        self.int_or_string = flag(map, "x-kubernetes-int-or-string");
        self.list_type = option_text(map, "x-kubernetes-list-type");
        self.list_map_keys = texts(map, "x-kubernetes-list-map-keys");
        self.map_type = option_text(map, "x-kubernetes-map-type");
        self.rules = list(map, "x-kubernetes-validations").to_vec();
        self.maximum = map.get("maximum").and_then(Value::as_f64);
        self.exclusive_maximum = flag(map, "exclusiveMaximum");
        self.minimum = map.get("minimum").and_then(Value::as_f64);
        self.exclusive_minimum = flag(map, "exclusiveMinimum");
        self.multiple_of = map.get("multipleOf").and_then(Value::as_f64);
        self.max_length = map.get("maxLength").and_then(Value::as_i64);
        self.min_length = map.get("minLength").and_then(Value::as_i64);
        self.max_items = map.get("maxItems").and_then(Value::as_i64);
        self.min_items = map.get("minItems").and_then(Value::as_i64);
        self.max_properties = map.get("maxProperties").and_then(Value::as_i64);
        self.min_properties = map.get("minProperties").and_then(Value::as_i64);
        self.required = texts(map, "required");
        self.allowed = list(map, "enum").to_vec();
        let pattern = text(map, "pattern");
        if !pattern.is_empty() {
            self.pattern = Some(Pattern::parse(pattern.as_str()).map_err(|why| (pattern, why)));
        }
    }

    fn read_tree<'a>(
        &mut self,
        map: &'a Map<String, Value>,
        path: &Path<'_>,
        depth: usize,
        decls: &mut Decls<'a>,
        errors: &mut Vec<FieldError>,
    ) {
        if let Some(Value::Object(properties)) = map.get("properties") {
            let at = path.child("properties");
            for (name, schema) in properties {
                let node = Self::parse(schema, &at.key(name), depth + 1, decls, errors);
                self.properties.insert(name.clone(), node);
            }
        }
        self.additional = match map.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Some(Additional::Bool(*allowed)),
            Some(schema @ Value::Object(_)) => {
                let at = path.child("additionalProperties");
                let node = Self::parse(schema, &at, depth + 1, decls, errors);
                Some(Additional::Schema(Box::new(node)))
            }
            _ => None,
        };
        if let Some(schema @ Value::Object(_)) = map.get("items") {
            let at = path.child("items");
            self.items = Some(Box::new(Self::parse(schema, &at, depth + 1, decls, errors)));
        }
        if let Some(schema @ Value::Object(_)) = map.get("not") {
            let at = path.child("not");
            self.not = Some(Box::new(Self::parse(schema, &at, depth + 1, decls, errors)));
        }
        let mut clauses = |name: &str| -> Vec<Self> {
            let at = path.child(name);
            let each = list(map, name).iter().enumerate();
            each.map(|(i, schema)| Self::parse(schema, &at.index(i), depth + 1, decls, errors))
                .collect()
        };
        self.all_of = clauses("allOf");
        self.any_of = clauses("anyOf");
        self.one_of = clauses("oneOf");
    }
}

fn text(map: &Map<String, Value>, name: &str) -> String {
    option_text(map, name).unwrap_or_default()
}

fn option_text(map: &Map<String, Value>, name: &str) -> Option<String> {
    map.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn flag(map: &Map<String, Value>, name: &str) -> bool {
    map.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(map: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    map.get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn texts(map: &Map<String, Value>, name: &str) -> Vec<String> {
    list(map, name)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
