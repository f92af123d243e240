//! Applies the mutations of a `MutatingAdmissionPolicy`.

use pintle_cel::Value as Cel;
use serde_json::{Value, json};

use super::compile::Mutation;
use crate::{
    admission::{
        Request,
        expression::{BUDGET, Expression, Scope},
        webhook::{Invocation, patched_object, shown},
    },
    api::{Api, ApiError},
    meta::Tree,
    patch::{self, PatchError, apply},
    schema::builtin,
};

/// Evaluates a mutation and returns the mutated object. Acquires a permit from `stacks` before
/// evaluating and holds it until the expression has run. The inner error is subject to the failure
/// policy; the outer error rejects the write.
pub(super) async fn patched(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    object: &Tree,
    mutation: &Mutation,
    stacks: impl Future,
    scope: impl Fn(u64) -> Scope,
) -> Result<Result<Tree, String>, ApiError> {
    let evaluate = |expression: &Expression| match &expression.program {
        Ok(_) => scope(BUDGET).evaluate(expression).and_then(|result| result),
        Err(why) => Err(why.clone()),
    };
    let mut value = shown(api, request, invocation, Some(object)).await?;
    let stacks = stacks.await;
    let changed = match mutation {
        Mutation::Apply(expression) => {
            let config = evaluate(expression).and_then(|config| configuration(&config));
            drop(stacks);
            let config = match config {
                Ok(config) => config,
                Err(why) => return Ok(Err(why)),
            };
            merged(request, invocation, &value, config)
        }
        Mutation::JsonPatch(expression) => {
            let operations = evaluate(expression).and_then(|patch| operations(&patch));
            drop(stacks);
            let operations = match operations {
                Ok(operations) => operations,
                Err(why) => return Ok(Err(why)),
            };
            match patch::json::apply(&mut value, &operations) {
                Ok(()) => Ok(value),
                // A failed `test` operation means that the patch does not apply.
                Err(error) if is_failed_test(&error) => return Ok(Ok(object.clone())),
                Err(error) => Err(format!("JSON Patch: {error}")),
            }
        }
    };
    match changed {
        Ok(value) => Ok(Ok(patched_object(api, request, invocation, value).await?)),
        Err(why) => Ok(Err(why)),
    }
}

fn is_failed_test(error: &PatchError) -> bool {
    matches!(error, PatchError::Unprocessable(why) if why.contains("test failed"))
}

/// Returns the apply configuration that an expression built.
fn configuration(built: &Cel) -> Result<Value, String> {
    built
        .check_message_names()
        .map_err(|why| format!("type mismatch: {why}"))?;
    built.to_json()
}

/// Merges an apply configuration into an object, without recording who owns its fields.
fn merged(
    request: &Request<'_>,
    invocation: &Invocation,
    object: &Value,
    mut config: Value,
) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    let shape = match request.exchanged {
        Some(kind) => builtin::kind(kind.group, kind.version, kind.kind)
            .map_or(apply::Shape::Open, apply::Shape::Builtin),
        None => invocation.resource.served_shape(),
    };
    apply::merge_config(object, &config, shape)
        .map_err(|why| format!("error applying patch: {why}"))
}

/// Returns the JSON patch that an expression built.
fn operations(built: &Cel) -> Result<Value, String> {
    let Cel::List(list) = built else {
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array, got {}",
            built.type_name()
        ));
    };
    let operations = list.items().iter().map(|item| {
        let Cel::Message(operation) = item else {
            return Err(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, \
                 got element of {}",
                item.type_name()
            ));
        };
        let text = |field: &str| match operation.field(field) {
            Some(Cel::String(text)) => text.to_string(),
            _ => String::new(),
        };
        let mut result = json!({"op": text("op"), "path": text("path")});
        if !text("from").is_empty() {
            result["from"] = text("from").into();
        }
        if let Some(value) = operation.field("value") {
            value
                .check_message_names()
                .map_err(|why| format!("type mismatch: {why}"))?;
            result["value"] = value.to_json().map_err(|why| {
                format!(
                    "JSONPath valueExpression evaluated to a type that could not marshal to JSON: \
                     {why}"
                )
            })?;
        }
        Ok(result)
    });
    operations.collect()
}
