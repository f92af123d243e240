//! The plugin that evaluates mutating policies.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Bound, Turns,
    compile::{Binding, Policy},
    is_exempt, namespace_object,
    params::{self, Param},
    patch,
};

use crate::{
    admission::{
        Operation, Plugin, Request, Verdict,
        expression::{CONDITIONS_BUDGET, Inputs, Scope},
        webhook::{Invocation, Rounds, described, hold, shown},
    },
    api::{Api, ApiError},
    meta::Tree,
    registry::Resource,
};

const NAME: &str = "MutatingAdmissionPolicy";

/// Evaluates mutating policies, one after the other.
///
/// If a policy changes the object, the chain runs once more and reapplies the earlier policies with
/// `reinvocationPolicy: IfNeeded`. A policy is never applied for the first time in the second
/// round.
#[derive(Debug)]
pub(crate) struct MutatingPolicies;

impl Plugin for MutatingPolicies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admits(&self, api: &Api, request: &Request<'_>) -> bool {
        !api.policies.phase(true).is_empty()
            && request.operation != Operation::Delete
            && !is_exempt(request)
    }

    fn is_configured_by_users(&self) -> bool {
        true
    }

    fn admit<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a mut Tree>,
    ) -> Verdict<'a> {
        Box::pin(run(api, request, object))
    }
}

/// A policy that applies to a write, with one parameter.
#[derive(Debug)]
struct Applied<'a> {
    policy: &'a Policy,
    binding: &'a Binding,
    resource: Arc<Resource>,
    param: Param,
}

impl Applied<'_> {
    /// Identifies the policy, binding and parameter between the two rounds.
    fn id(&self) -> String {
        let (policy, binding) = (&self.policy.name, &self.binding.name);
        format!("{policy}/{binding}/{}", self.param.key())
    }
}

/// Messages of policies that could not be applied, each with its reason, if there is one.
type Errors = Vec<(String, &'static str)>;

async fn run(api: &Api, request: &Request<'_>, object: Option<&mut Tree>) -> Result<(), ApiError> {
    let Some(object) = object else {
        return Ok(());
    };
    let mut errors = Errors::new();
    let current = api.policies.phase(true).current();
    let mut applied = Vec::new();
    for bound in current.iter() {
        select(api, bound, request, object, &mut applied, &mut errors).await;
    }
    if !applied.is_empty() {
        apply(api, request, object, &applied, &mut errors).await?;
    }
    let Some((first, reason)) = errors.first().cloned() else {
        return Ok(());
    };
    let reason = if reason.is_empty() {
        "Forbidden"
    } else {
        reason
    };
    let causes = errors.into_iter().map(|(message, _)| message).collect();
    let refused = crate::admission::plugins::refused(request, Some(object), "");
    Err(refused
        .with_message(first)
        .denied_by_policy(403, reason, causes))
}

/// Finds the bindings and parameters for which a policy applies.
async fn select<'a>(
    api: &Api,
    bound: &'a Bound,
    request: &Request<'_>,
    object: &Tree,
    applied: &mut Vec<Applied<'a>>,
    errors: &mut Errors,
) {
    let policy = &*bound.policy;
    let mut misconfigured = |binding: Option<&Binding>, why: &str| {
        if policy.ignores_failures {
            return;
        }
        let name = &policy.name;
        errors.push(match binding {
            Some(binding) => {
                let why = format!("failed to configure binding: {why}");
                (denial(policy, binding, &why), "")
            }
            None => (
                format!("policy {name:?} denied request: failed to configure policy: {why}"),
                "",
            ),
        });
    };
    let matched = policy.constraints.as_ref().map_err(Clone::clone);
    let matched = matched.and_then(|constraints| constraints.matches(api, request, Some(object)));
    let resource = match matched {
        Ok(Some(resource)) => resource,
        Ok(None) => return,
        Err(why) => return misconfigured(None, &why),
    };
    let param_resource = match params::resource(api, policy) {
        Ok(resource) => resource,
        Err(why) => return misconfigured(None, &why),
    };
    for binding in &bound.bindings {
        let matched = match &binding.resources {
            None => Ok(true),
            Some(resources) => resources
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|resources| {
                    let matched = resources.matches(api, request, Some(object))?;
                    Ok(matched.is_some())
                }),
        };
        let found = match matched {
            Ok(false) => continue,
            Ok(true) => {
                // A failed conversion counts as an error of the policy, not of its binding.
                let invocation = Invocation {
                    resource: Arc::clone(&resource),
                };
                if !Arc::ptr_eq(&resource, request.resource)
                    && let Err(error) = inputs(api, request, &invocation, object).await
                {
                    misconfigured(None, error.message());
                    continue;
                }
                let namespace = request.namespace.unwrap_or_default();
                params::collect(api, param_resource.as_ref(), binding, namespace).await
            }
            Err(why) => Err(why),
        };
        match found {
            Ok(params) => applied.extend(params.into_iter().map(|param| Applied {
                policy,
                binding,
                resource: Arc::clone(&resource),
                param,
            })),
            Err(why) => misconfigured(Some(binding), &why),
        }
    }
}

fn denial(policy: &Policy, binding: &Binding, why: &str) -> String {
    let (policy, binding) = (&policy.name, &binding.name);
    format!("policy '{policy}' with binding '{binding}' denied request: {why}")
}

/// Applies policies in order.
async fn apply(
    api: &Api,
    request: &Request<'_>,
    object: &mut Tree,
    all: &[Applied<'_>],
    errors: &mut Errors,
) -> Result<(), ApiError> {
    let with = |change: &mut dyn FnMut(&mut Rounds)| request.with_state(NAME, |r| change(r));
    if request.is_reinvocation() {
        with(&mut |rounds| {
            if rounds.output.as_ref() != Some(&*object) {
                rounds.object_changed();
            }
        });
    }
    let namespace = namespace_object(api, request)?;
    let mut turns = Turns::default();
    for applied in all {
        turns.next().await;
        let params = applied.param.value();
        let mut fails = |why: &str| {
            if !applied.policy.ignores_failures {
                errors.push((denial(applied.policy, applied.binding, why), "Invalid"));
            }
        };
        match conditions_hold(api, request, object, applied, &params).await? {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                fails(&why);
                continue;
            }
        }
        let id = applied.id();
        let mut skipped = false;
        with(&mut |rounds| {
            skipped = request.is_reinvocation() && !rounds.again.contains(&id);
        });
        if skipped {
            continue;
        }
        let before = object.clone();
        for mutation in &applied.policy.mutations {
            let invocation = Invocation {
                resource: Arc::clone(&applied.resource),
            };
            let inputs = inputs(api, request, &invocation, object).await?;
            let scope = |budget: u64| {
                let scope = Scope::new(&inputs, budget).with_authorizer(&inputs);
                let scope = scope.with_namespace(&namespace).with_params(&params);
                scope.with_variables(&applied.policy.variables)
            };
            let stacks = api.policies.stacks(applied.policy);
            let patched =
                patch::patched(api, request, &invocation, object, mutation, stacks, scope);
            match patched.await? {
                Ok(new) => *object = new,
                Err(why) => fails(&why),
            }
        }
        if before != *object {
            with(&mut Rounds::object_changed);
            request.reinvoke();
        }
        if applied.policy.reinvocable {
            with(&mut |rounds| {
                rounds.invoked.insert(id.clone());
            });
        }
    }
    if !request.is_reinvocation() {
        with(&mut |rounds| rounds.output = Some(object.clone()));
    }
    Ok(())
}

async fn inputs(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    object: &Tree,
) -> Result<Inputs, ApiError> {
    let new = shown(api, request, invocation, Some(object)).await?;
    let old = shown(api, request, invocation, request.old).await?;
    let described = described(request, invocation);
    Ok(Inputs::new(api, request, &new, &old, &described))
}

async fn conditions_hold(
    api: &Api,
    request: &Request<'_>,
    object: &Tree,
    applied: &Applied<'_>,
    params: &Value,
) -> Result<Result<bool, String>, ApiError> {
    let policy = applied.policy;
    if policy.conditions.is_empty() {
        return Ok(Ok(true));
    }
    let invocation = Invocation {
        resource: Arc::clone(&applied.resource),
    };
    let inputs = inputs(api, request, &invocation, object).await?;
    let scope = Scope::new(&inputs, CONDITIONS_BUDGET).with_authorizer(&inputs);
    let scope = scope.with_params(params);
    let _stacks = api.policies.stacks(policy).await;
    let held = hold(&policy.conditions, scope.with_variables(&policy.variables));
    Ok(match held {
        Err(_) if policy.ignores_failures => Ok(false),
        held => held,
    })
}
