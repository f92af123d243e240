//! The plugin that evaluates validating policies.

use pintle_cel::Value as Cel;
use serde_json::{Value, json};

use super::{
    Bound, Turns,
    compile::{Binding, Policy},
    is_exempt, namespace_object, params,
};
use crate::{
    admission::{
        Plugin, Request, Verdict,
        expression::{BUDGET, CONDITIONS_BUDGET, Inputs, Scope},
        plugins::refused,
        webhook::{Invocation, described, hold, shown},
    },
    api::{Api, ApiError},
    meta::Tree,
};

/// The maximum length of a message that an expression computes, in bytes. Longer ones are ignored.
const MAX_MESSAGE: usize = 5 * 1024;

/// The length to which values of audit annotations are truncated, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;

/// Evaluates validating policies.
#[derive(Debug)]
pub(crate) struct ValidatingPolicies;

impl Plugin for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        !api.policies.phase(false).is_empty() && !is_exempt(request)
    }

    fn validate<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a Tree>,
    ) -> Verdict<'a> {
        Box::pin(run(api, request, object))
    }
}

/// A denial.
#[derive(Debug)]
struct Denied {
    why: String,
    /// Empty for the default reason.
    reason: String,
}

/// The outcome of evaluating a policy with one parameter.
#[derive(Debug, Default)]
struct Outcome {
    /// Failed validations, with their indices.
    failed: Vec<(usize, Denied)>,
    /// Audit annotations, or the error of computing one.
    annotations: Vec<Result<(String, String), String>>,
}

async fn run(api: &Api, request: &Request<'_>, object: Option<&Tree>) -> Result<(), ApiError> {
    let mut denied = None;
    let mut turns = Turns::default();
    for bound in api.policies.phase(false).current().iter() {
        let found = evaluate(api, bound, request, object, &mut turns).await?;
        denied = denied.or(found);
    }
    let Some((message, reason)) = denied else {
        return Ok(());
    };
    let (code, reason) = match reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    Err(refused(request, object, &message).denied_by_policy(code, reason, vec![message]))
}

/// Evaluates one policy. Returns the message and reason of its first denial.
async fn evaluate(
    api: &Api,
    bound: &Bound,
    request: &Request<'_>,
    object: Option<&Tree>,
    turns: &mut Turns,
) -> Result<Option<(String, String)>, ApiError> {
    let policy = &bound.policy;
    let name = &policy.name;
    let misconfigured = |what: &str, binding: Option<&Binding>, why: &str| {
        if policy.ignores_failures {
            return None;
        }
        let by = binding.map_or_else(String::new, |b| format!(" with binding '{}'", b.name));
        let message = format!(
            "ValidatingAdmissionPolicy '{name}'{by} denied request: failed to configure {what}: {why}"
        );
        Some((message, String::new()))
    };
    let matched = policy.constraints.as_ref().map_err(Clone::clone);
    let matched = matched.and_then(|constraints| constraints.matches(api, request, object));
    let resource = match matched {
        Ok(Some(resource)) => resource,
        Ok(None) => return Ok(None),
        Err(why) => return Ok(misconfigured("policy", None, &why)),
    };
    let param_resource = match params::resource(api, policy) {
        Ok(resource) => resource,
        Err(why) => return Ok(misconfigured("policy", None, &why)),
    };
    let invocation = Invocation { resource };
    let mut denied = None;
    let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
    // Converted lazily, once for all bindings.
    let mut inputs = None;
    for binding in &bound.bindings {
        let matched = match &binding.resources {
            None => Ok(true),
            Some(resources) => resources
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|resources| {
                    let matched = resources.matches(api, request, object)?;
                    Ok(matched.is_some())
                }),
        };
        let found = match matched {
            Ok(false) => continue,
            Ok(true) => {
                let namespace = request.namespace.unwrap_or_default();
                params::collect(api, param_resource.as_ref(), binding, namespace).await
            }
            Err(why) => Err(why),
        };
        let params = match found {
            Ok(params) => params,
            Err(why) => {
                denied = denied.or_else(|| misconfigured("binding", Some(binding), &why));
                continue;
            }
        };
        if params.is_empty() {
            continue;
        }
        let inputs = match &inputs {
            Some(inputs) => inputs,
            None => match converted(api, request, &invocation, object).await {
                Ok(converted) => inputs.insert(converted),
                Err(error) => {
                    let why = format!("failed to convert object version: {}", error.message());
                    denied = denied.or_else(|| misconfigured("binding", Some(binding), &why));
                    continue;
                }
            },
        };
        let namespace = namespace_object(api, request)?;
        for params in params {
            turns.next().await;
            let stacks = api.policies.stacks(policy).await;
            let outcome = outcome(policy, inputs, &params.value(), &namespace);
            drop(stacks);
            for (i, failed) in outcome.failed {
                let acted = act(request, policy, binding, i, &failed);
                denied = denied.or(acted);
            }
            for annotation in outcome.annotations {
                match annotation {
                    Ok((key, value)) => collect_annotation(&mut annotations, key, value),
                    Err(why) => {
                        let denial = denial(policy, binding, &why);
                        denied = denied.or(Some((denial, String::new())));
                    }
                }
            }
        }
    }
    for (key, values) in annotations {
        let key = format!("{name}/{key}");
        request.options.audit.annotate(&key, values.join(", "));
    }
    Ok(denied)
}

/// Converts the objects of a request to the version that a policy matches.
async fn converted(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    object: Option<&Tree>,
) -> Result<Inputs, ApiError> {
    let new = shown(api, request, invocation, object).await?;
    let old = shown(api, request, invocation, request.old).await?;
    let described = described(request, invocation);
    Ok(Inputs::new(api, request, &new, &old, &described))
}

fn denial(policy: &Policy, binding: &Binding, why: &str) -> String {
    let (policy, binding) = (&policy.name, &binding.name);
    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}")
}

fn collect_annotation(all: &mut Vec<(String, Vec<String>)>, key: String, mut value: String) {
    if value.len() > MAX_ANNOTATION {
        let mut end = MAX_ANNOTATION;
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
    }
    match all.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => all.push((key, vec![value])),
    }
}

/// Performs the validation actions of a binding. Returns the message and reason if the request is
/// denied.
fn act(
    request: &Request<'_>,
    policy: &Policy,
    binding: &Binding,
    index: usize,
    failed: &Denied,
) -> Option<(String, String)> {
    let mut denied = None;
    for action in &binding.actions {
        match action.as_str() {
            "Deny" => {
                let message = denial(policy, binding, &failed.why);
                denied = Some((message, failed.reason.clone()));
            }
            "Warn" => request.options.warnings.add(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                policy.name, binding.name, failed.why
            )),
            "Audit" => {
                let key = "validation.policy.admission.k8s.io/validation_failure";
                let failure = failure(binding, index, &failed.why);
                request.options.audit.annotate(key, failure);
            }
            _ => {}
        }
    }
    denied
}

/// Describes a failed validation for the audit log, with the fields in Kubernetes' order.
fn failure(binding: &Binding, index: usize, why: &str) -> String {
    let (why, policy) = (json!(why), json!(binding.policy));
    let (name, actions) = (json!(binding.name), json!(binding.actions));
    format!(
        r#"[{{"message":{why},"policy":{policy},"binding":{name},"expressionIndex":{index},"validationActions":{actions}}}]"#
    )
}

/// Evaluates a policy with one parameter.
fn outcome(policy: &Policy, inputs: &Inputs, params: &Value, namespace: &Value) -> Outcome {
    let mut outcome = Outcome::default();
    let fails = |outcome: Outcome, why: String| {
        let reason = String::new();
        let failed = (!policy.ignores_failures).then_some((0, Denied { why, reason }));
        Outcome {
            failed: failed.into_iter().collect(),
            ..outcome
        }
    };
    let scope = |budget: u64, authorizer: bool, in_namespace: bool| {
        let mut scope = Scope::new(inputs, budget);
        if authorizer {
            scope = scope.with_authorizer(inputs);
        }
        if in_namespace {
            scope = scope.with_namespace(namespace);
        }
        scope.with_params(params).with_variables(&policy.variables)
    };
    if !policy.conditions.is_empty() {
        match hold(&policy.conditions, scope(CONDITIONS_BUDGET, true, false)) {
            Ok(true) => {}
            Ok(false) => return outcome,
            // With `failurePolicy: Ignore`, a condition that fails to evaluate does not match.
            Err(_) if policy.ignores_failures => return outcome,
            Err(why) => return fails(outcome, why),
        }
    }
    let mut validating = scope(BUDGET, true, true);
    let mut results = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        match validating.evaluate(&validation.expression) {
            Ok(result) => results.push(result),
            Err(why) => return fails(outcome, why),
        }
    }
    let messages = messages(policy, scope(validating.left(), false, true));
    for (i, (validation, result)) in policy.validations.iter().zip(results).enumerate() {
        let message = messages.as_ref().map(|messages| &messages[i]);
        let (why, reason) = match (result, message) {
            (Err(_), _) | (_, Err(_)) if policy.ignores_failures => continue,
            (Err(why), _) => (why, ""),
            (_, Err(why)) => (format!("failed messageExpression: {why}"), ""),
            (Ok(Cel::Bool(true)), _) => continue,
            (Ok(_), Ok(message)) => {
                let own = [message.as_str(), validation.message.trim()];
                let own = own.into_iter().find(|message| !message.is_empty());
                let source = validation.expression.source.trim();
                let why = own.map_or_else(|| format!("failed expression: {source}"), str::to_owned);
                (why, &*validation.reason)
            }
        };
        let reason = reason.to_owned();
        outcome.failed.push((i, Denied { why, reason }));
    }
    annotate(policy, scope(BUDGET, false, true), &mut outcome, fails)
}

/// Evaluates the message expressions of all validations. A message that is missing or cannot be
/// used is empty. Fails if the expressions exceed the budget.
fn messages(policy: &Policy, mut scope: Scope) -> Result<Vec<String>, String> {
    let mut messages = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        let Some(expression) = &validation.message_expression else {
            messages.push(String::new());
            continue;
        };
        let message = match scope.evaluate(expression)? {
            Ok(Cel::String(message)) => message.trim().to_owned(),
            Ok(_) => String::new(),
            Err(why) => {
                tracing::debug!(policy = policy.name, why, "message expression failed");
                String::new()
            }
        };
        let usable = message.len() <= MAX_MESSAGE && !message.contains('\n');
        messages.push(if usable { message } else { String::new() });
    }
    Ok(messages)
}

fn annotate(
    policy: &Policy,
    mut scope: Scope,
    outcome: &mut Outcome,
    fails: impl Fn(Outcome, String) -> Outcome,
) -> Outcome {
    let mut outcome = std::mem::take(outcome);
    let mut results = Vec::with_capacity(policy.annotations.len());
    for (key, expression) in &policy.annotations {
        match scope.evaluate(expression) {
            Ok(result) => results.push((key, expression, result)),
            Err(why) => return fails(Outcome::default(), why),
        }
    }
    for (key, expression, result) in results {
        let annotation = match result {
            Ok(Cel::String(value)) if value.trim().is_empty() => continue,
            Ok(Cel::String(value)) => Ok((key.clone(), value.trim().to_owned())),
            Ok(Cel::Null) => continue,
            Err(_) if policy.ignores_failures => continue,
            Err(why) => Err(why),
            Ok(other) => Err(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must \
                 be either string or null.",
                expression.source,
                other.type_name()
            )),
        };
        outcome.annotations.push(annotation);
    }
    outcome
}
