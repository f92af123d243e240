//! CEL rules: `x-kubernetes-validations`.
//!
//! The rules of each schema are compiled separately from those of its subschemas, so that each rule
//! is evaluated at its own path with the old and new value there. Rules that exceed the [`bounds`]
//! are never parsed.

use std::sync::{Arc, LazyLock};

use kube_cel::{
    CompilationError, CompiledSchema, ErrorKind, RootContext, Validator, compile_schema,
};
use serde_json::{Map, Value, json};

use super::{bounds, lists::OldItems, node::Node};
use crate::schema::field::{FieldError, Path, Reason};

/// The compiled rules of one schema.
#[derive(Clone)]
pub(crate) struct Rules {
    /// `None` if one of the rules was rejected.
    compiled: Option<Arc<CompiledSchema>>,
    rejected: Vec<RuleError>,
    /// The nesting of the deepest expression.
    pub(super) levels: usize,
}

/// A rule that exceeds a limit or does not compile.
#[derive(Debug, Clone)]
pub(super) struct RuleError {
    /// Its index among the rules of its schema.
    pub(super) rule: usize,
    /// The offending expression: `rule` or `messageExpression`.
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
    /// Compiles the rules of a schema. Returns `None` if it has none.
    pub(super) fn of(schema: &Map<String, Value>, root: bool) -> Option<Self> {
        let rules = schema.get("x-kubernetes-validations")?;
        if rules.as_array().is_none_or(Vec::is_empty) {
            return None;
        }
        let mut alone = Value::Object(schema.clone());
        remove_rules(&mut alone);
        alone["x-kubernetes-validations"] = rules.clone();
        if root && let Some(properties) = properties(&mut alone) {
            // Rules at the root may use the type and the names of the object.
            let text = || json!({ "type": "string" });
            properties.entry("apiVersion").or_insert_with(text);
            properties.entry("kind").or_insert_with(text);
            properties.insert(
                "metadata".into(),
                json!({ "type": "object", "properties": {
                "name": text(), "generateName": text() } }),
            );
        }
        let (levels, mut rejected) = bounded(rules);
        let mut compiled = None;
        if rejected.is_empty() {
            let stack = levels * bounds::PARSING;
            compiled = bounds::with_stack(stack, || Arc::new(compile_schema(&alone)));
            if compiled.is_none() {
                rejected.push(RuleError {
                    rule: 0,
                    field: "rule",
                    why: "cannot spawn a thread to compile the rule".to_owned(),
                });
            }
        }
        Some(Self {
            compiled,
            rejected,
            levels,
        })
    }

    /// Returns the rules that exceed a limit or do not compile.
    pub(super) fn errors(&self) -> Vec<RuleError> {
        let compiled = self.compiled.iter();
        let compiled = compiled.flat_map(|compiled| compiled.validations.iter().enumerate());
        let failed = compiled.filter_map(|(rule, outcome)| {
            let error = outcome.as_ref().err()?;
            let field = match error {
                CompilationError::MessageExpressionParse { .. } => "messageExpression",
                _ => "rule",
            };
            let why = error.to_string();
            Some(RuleError { rule, field, why })
        });
        self.rejected.iter().cloned().chain(failed).collect()
    }
}

/// Returns the nesting of the deepest expression, and the expressions that exceed a limit.
fn bounded(rules: &Value) -> (usize, Vec<RuleError>) {
    let mut deepest = 0;
    let mut rejected = Vec::new();
    for (i, rule) in rules.as_array().into_iter().flatten().enumerate() {
        for field in ["rule", "messageExpression"] {
            match bounds::levels(rule[field].as_str().unwrap_or_default()) {
                Ok(levels) => deepest = deepest.max(levels),
                Err(why) => rejected.push(RuleError {
                    rule: i,
                    field,
                    why,
                }),
            }
        }
    }
    (deepest, rejected)
}

fn properties(schema: &mut Value) -> Option<&mut Map<String, Value>> {
    let map = schema.as_object_mut()?;
    map.entry("properties")
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Removes all rules from a schema and its subschemas.
fn remove_rules(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            for (name, value) in map.iter_mut() {
                // Values that look like schemas in these keywords are data.
                if !matches!(name.as_str(), "default" | "example" | "enum") {
                    remove_rules(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        _ => {}
    }
}

/// Evaluates all rules. Rules without `oldSelf` are not re-evaluated for unchanged values.
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
        evaluate(value, old, rules, schema, at, errors);
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

fn evaluate(
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
    let result = VALIDATOR.validate_compiled_with_context(compiled, value, old, context.as_ref());
    let Err(failed) = result else { return };
    for failure in failed.into_vec() {
        let is_transition = failure.rule.contains("oldSelf");
        if !is_transition && old == Some(value) {
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
            ErrorKind::EvaluationError => evaluation_error(&failure.message, &failure.rule, schema),
            _ => failure.message,
        };
        let reason = match (&kind, failure.reason.as_deref()) {
            (ErrorKind::ValidationFailure, Some("FieldValueForbidden")) => Reason::Forbidden,
            (ErrorKind::ValidationFailure, Some("FieldValueRequired")) => Reason::Required,
            (ErrorKind::ValidationFailure, Some("FieldValueDuplicate")) => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        // Kubernetes reports a duplicate by its value alone.
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

/// Formats an evaluation error as Kubernetes does: the cause and the rule.
fn evaluation_error(message: &str, rule: &str, schema: &Node) -> String {
    let why = message
        .strip_prefix("rule evaluation error: ")
        .unwrap_or(message);
    let mut chars = why.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    let why: String = first.into_iter().chain(chars).collect();
    let known = schema.rules.iter().find(|known| known["rule"] == rule);
    let text = known
        .and_then(|known| known.get("message")?.as_str())
        .unwrap_or_default()
        .trim();
    let named = if text.is_empty() { rule.trim() } else { text };
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
