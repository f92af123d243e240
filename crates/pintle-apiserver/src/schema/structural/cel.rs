//! Rules in CEL: `x-kubernetes-validations`.
//!
//! Each schema with rules is compiled on its own, without the rules of those below it: so each
//! rule is asked at its place, with the value there before and now, and told with its own path. A
//! rule beyond the [`bounds`] is never parsed.

use std::sync::{Arc, LazyLock};

use kube_cel::{
    CompilationError, CompiledSchema, ErrorKind, RootContext, Validator, compile_schema,
};
use serde_json::{Map, Value, json};

use super::{bounds, lists::OldItems, node::Node};
use crate::schema::field::{FieldError, Path, Reason};

/// The rules of one schema.
#[derive(Clone)]
pub(crate) struct Rules {
    /// `None` if one of them was refused.
    compiled: Option<Arc<CompiledSchema>>,
    refused: Vec<Fault>,
    /// The nesting of the deepest expression.
    pub(super) levels: usize,
}

/// A rule that exceeds a limit or does not compile.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// Its index among the rules of its schema.
    pub(super) rule: usize,
    /// The faulty expression: `rule` or `messageExpression`.
    pub(super) field: &'static str,
    pub(super) why: String,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(Validator::new);

impl Rules {
    /// Compiles the rules of a schema; nothing if it has none.
    pub(super) fn of(schema: &Map<String, Value>, root: bool) -> Option<Self> {
        let rules = schema.get("x-kubernetes-validations")?;
        if rules.as_array().is_none_or(Vec::is_empty) {
            return None;
        }
        let mut alone = Value::Object(schema.clone());
        silence(&mut alone);
        alone["x-kubernetes-validations"] = rules.clone();
        if root && let Some(properties) = properties(&mut alone) {
            // What every object has, rules may look at.
            let text = || json!({ "type": "string" });
            properties.entry("apiVersion").or_insert_with(text);
            properties.entry("kind").or_insert_with(text);
            properties.insert(
                "metadata".into(),
                json!({ "type": "object", "properties": {
                "name": text(), "generateName": text() } }),
            );
        }
        let (levels, mut refused) = bounded(rules);
        let mut compiled = None;
        if refused.is_empty() {
            let stack = levels * bounds::PARSING;
            compiled = bounds::with_stack(stack, || Arc::new(compile_schema(&alone)));
            if compiled.is_none() {
                refused.push(Fault {
                    rule: 0,
                    field: "rule",
                    why: "cannot spawn a thread to compile the rule".to_owned(),
                });
            }
        }
        Some(Self {
            compiled,
            refused,
            levels,
        })
    }

    /// Returns the rules that exceed a limit or do not compile.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let compiled = self.compiled.iter();
        let compiled = compiled.flat_map(|compiled| compiled.validations.iter().enumerate());
        let failed = compiled.filter_map(|(rule, outcome)| {
            let error = outcome.as_ref().err()?;
            let field = match error {
                CompilationError::MessageExpressionParse { .. } => "messageExpression",
                _ => "rule",
            };
            let why = error.to_string();
            Some(Fault { rule, field, why })
        });
        self.refused.iter().cloned().chain(failed).collect()
    }
}

/// Returns the nesting of the deepest expression, and the expressions that exceed a limit.
fn bounded(rules: &Value) -> (usize, Vec<Fault>) {
    let mut deepest = 0;
    let mut refused = Vec::new();
    for (i, rule) in rules.as_array().into_iter().flatten().enumerate() {
        for field in ["rule", "messageExpression"] {
            match bounds::levels(rule[field].as_str().unwrap_or_default()) {
                Ok(levels) => deepest = deepest.max(levels),
                Err(why) => refused.push(Fault {
                    rule: i,
                    field,
                    why,
                }),
            }
        }
    }
    (deepest, refused)
}

fn properties(schema: &mut Value) -> Option<&mut Map<String, Value>> {
    let map = schema.as_object_mut()?;
    map.entry("properties")
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Drops all rules of a schema and of those below.
fn silence(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            for (name, value) in map.iter_mut() {
                // What looks like a schema in a default or an example is data.
                if !matches!(name.as_str(), "default" | "example" | "enum") {
                    silence(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(silence),
        _ => {}
    }
}

/// Asks all rules. Rules that do not look back are not asked again of what did not change.
pub(super) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Node,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
        return;
    }
    if let Some(rules) = &schema.compiled {
        ask(value, old, rules, schema, at, errors);
    }
    match value {
        Value::Object(map) => {
            let old = old.and_then(Value::as_object);
            for (name, value) in map {
                let before = old.and_then(|old| old.get(name));
                if let Some(below) = schema.properties.get(name) {
                    validate(value, before, below, &at.child(name), errors);
                } else if let Some(below) = schema.additional_schema() {
                    validate(value, before, below, &at.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.items.as_deref() else {
                return;
            };
            let old = OldItems::of(old, schema);
            for (i, item) in items.iter().enumerate() {
                validate(item, old.of_item(item), below, &at.index(i), errors);
            }
        }
        _ => {}
    }
}

fn ask(
    value: &Value,
    old: Option<&Value>,
    rules: &Rules,
    schema: &Node,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let context = matches!(at, Path::Root)
        .then(|| root_context(value))
        .flatten();
    let Some(compiled) = &rules.compiled else {
        return;
    };
    let asked = VALIDATOR.validate_compiled_with_context(compiled, value, old, context.as_ref());
    let Err(failed) = asked else { return };
    for failure in failed.into_vec() {
        let looks_back = failure.rule.contains("oldSelf");
        if !looks_back && old == Some(value) {
            continue;
        }
        let field = match failure.field_path.trim_start_matches('.') {
            "" => at.to_string(),
            below => at.child(below).to_string(),
        };
        let scalar = !matches!(schema.type_name.as_str(), "object" | "array");
        let shown = scalar.then(|| value.clone());
        let kind = failure.kind;
        let detail = match kind {
            ErrorKind::ValidationFailure => failure.message.trim().to_owned(),
            ErrorKind::EvaluationError => broken(&failure.message, &failure.rule, schema),
            _ => failure.message,
        };
        let reason = match (&kind, failure.reason.as_deref()) {
            (ErrorKind::ValidationFailure, Some("FieldValueForbidden")) => Reason::Forbidden,
            (ErrorKind::ValidationFailure, Some("FieldValueRequired")) => Reason::Required,
            (ErrorKind::ValidationFailure, Some("FieldValueDuplicate")) => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        // A duplicate is told by its value alone.
        let detail = if reason == Reason::Duplicate {
            String::new()
        } else {
            detail
        };
        let value = match kind {
            ErrorKind::ValidationFailure => shown,
            _ => Some(schema.type_name.as_str().into()),
        };
        errors.push(FieldError {
            reason,
            field,
            value,
            detail,
        });
    }
}

/// A rule that could not be answered: why, and which.
fn broken(message: &str, rule: &str, schema: &Node) -> String {
    let why = message
        .strip_prefix("rule evaluation error: ")
        .unwrap_or(message);
    let mut chars = why.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    let why: String = first.into_iter().chain(chars).collect();
    let known = schema.rules.iter().find(|known| known["rule"] == rule);
    let said = known
        .and_then(|known| known.get("message")?.as_str())
        .unwrap_or_default()
        .trim();
    let named = if said.is_empty() { rule.trim() } else { said };
    format!("{why} evaluating rule: {named}")
}

fn root_context(object: &Value) -> Option<RootContext> {
    let api_version = object.get("apiVersion")?.as_str()?;
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Some(RootContext {
        api_version: api_version.to_owned(),
        api_group: group.to_owned(),
        kind: object.get("kind")?.as_str()?.to_owned(),
    })
}
