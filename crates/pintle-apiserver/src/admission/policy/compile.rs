//! Compiles stored policies and bindings.

use std::sync::Arc;

use pintle_cel::{Record, Type};
use serde_json::Value;

use super::matching::MatchResources;
use crate::admission::expression::{Compiler, Expression, Optional};

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// The spec it was compiled from.
    pub(super) spec: Value,
    pub(super) ignores_failures: bool,
    /// The error is reported for every write.
    pub(super) constraints: Result<MatchResources, String>,
    /// The `apiVersion` and kind of parameters.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) conditions: Vec<Expression>,
    pub(super) variables: Arc<Vec<(Arc<str>, Expression)>>,
    pub(super) validations: Vec<Validation>,
    /// Keys and values of audit annotations.
    pub(super) annotations: Vec<(String, Expression)>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) reinvocable: bool,
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    /// Empty if the policy sets none.
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) enum Mutation {
    Apply(Expression),
    JsonPatch(Expression),
}

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// `None` if it restricts nothing.
    pub(super) resources: Option<Result<MatchResources, String>>,
    /// Null if it names no parameters.
    pub(super) param_ref: Value,
    pub(super) actions: Vec<String>,
}

/// The type of an apply configuration.
pub(crate) fn apply_type() -> Type {
    Record::new("Object", []).into()
}

/// The type of a JSON patch.
pub(crate) fn json_patch_type() -> Type {
    Type::list(Record::new("JSONPatch", []).into())
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Policy {
    pub(super) fn compile(name: &str, spec: &Value, mutating: bool) -> Self {
        let param_kind = spec["paramKind"].is_object().then(|| {
            let kind = &spec["paramKind"];
            (
                text(kind, "apiVersion").to_owned(),
                text(kind, "kind").to_owned(),
            )
        });
        let optional = Optional {
            params: param_kind.is_some(),
            authorizer: true,
            patch_types: false,
        };
        let mut compiler = Compiler::composed();
        let variables = items(&spec["variables"]).map(|variable| {
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            let expression = Expression {
                source: source.to_owned(),
                program: compiler.variable(name, source, optional),
            };
            (Arc::from(name), expression)
        });
        let variables = Arc::new(variables.collect());
        let compile = |source: &str, optional: Optional, returns: &[Type]| {
            compiler.expression(source, optional, returns)
        };
        let conditions = items(&spec["matchConditions"]);
        let conditions = conditions
            .map(|condition| compile(text(condition, "expression"), optional, &[Type::Bool]));
        let validations = items(&spec["validations"]).map(|validation| {
            let message = text(validation, "messageExpression");
            let no_authorizer = Optional {
                authorizer: false,
                ..optional
            };
            Validation {
                expression: compile(text(validation, "expression"), optional, &[Type::Bool]),
                message: text(validation, "message").to_owned(),
                message_expression: (!message.is_empty())
                    .then(|| compile(message, no_authorizer, &[Type::String])),
                reason: text(validation, "reason").to_owned(),
            }
        });
        let annotations = items(&spec["auditAnnotations"]).map(|annotation| {
            let value = text(annotation, "valueExpression");
            let value = compile(value, optional, &[Type::String, Type::Null]);
            (text(annotation, "key").to_owned(), value)
        });
        let mutations = items(&spec["mutations"]).map(|mutation| {
            let optional = Optional {
                patch_types: true,
                ..optional
            };
            let source = |field: &str| text(&mutation[field], "expression").to_owned();
            if mutation["patchType"] == "JSONPatch" {
                let source = source("jsonPatch");
                Mutation::JsonPatch(compile(&source, optional, &[json_patch_type()]))
            } else {
                let source = source("applyConfiguration");
                Mutation::Apply(compile(&source, optional, &[apply_type()]))
            }
        });
        Self {
            name: name.to_owned(),
            ignores_failures: spec["failurePolicy"] == "Ignore",
            constraints: MatchResources::read(&spec["matchConstraints"]),
            conditions: conditions.collect(),
            validations: validations.collect(),
            annotations: annotations.collect(),
            mutations: mutations.collect(),
            reinvocable: mutating && spec["reinvocationPolicy"] == "IfNeeded",
            spec: spec.clone(),
            param_kind,
            variables,
        }
    }
}

impl Binding {
    pub(super) fn read(name: &str, spec: &Value) -> Self {
        let resources = &spec["matchResources"];
        let actions = items(&spec["validationActions"]);
        Self {
            name: name.to_owned(),
            policy: text(spec, "policyName").to_owned(),
            resources: resources
                .is_object()
                .then(|| MatchResources::read(resources)),
            param_ref: spec["paramRef"].clone(),
            actions: actions
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        }
    }
}
