//! The plugin that calls mutating webhooks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    call::{Failure, call},
    hook::Hook,
    is_exempt,
    matching::{Invocation, invocation},
    patched::patched,
};
use crate::{
    admission::{Plugin, Request, Verdict},
    api::{Api, ApiError},
    meta::Tree,
};

const NAME: &str = "MutatingAdmissionWebhook";

/// Calls mutating webhooks, one after the other.
///
/// If a webhook changes the object, the chain runs once more and calls earlier webhooks with
/// `reinvocationPolicy: IfNeeded` again. A webhook is never called for the first time in the second
/// round.
#[derive(Debug)]
pub(crate) struct MutatingWebhooks;

/// State that a plugin keeps between the two rounds.
#[derive(Debug, Default)]
pub(in crate::admission) struct Rounds {
    /// The object after the last webhook or policy.
    pub(in crate::admission) output: Option<Tree>,
    /// Webhooks or policies to call again if the object changes.
    pub(in crate::admission) invoked: BTreeSet<String>,
    /// Webhooks or policies to call in the second round.
    pub(in crate::admission) again: BTreeSet<String>,
}

impl Rounds {
    /// Schedules the webhooks or policies to call again, because the object has changed.
    pub(in crate::admission) fn object_changed(&mut self) {
        self.again.append(&mut self.invoked);
    }
}

impl Plugin for MutatingWebhooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admits(&self, api: &Api, request: &Request<'_>) -> bool {
        !api.webhooks.hooks(true).is_empty() && !is_exempt(request)
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

async fn run(
    api: &Api,
    request: &Request<'_>,
    mut object: Option<&mut Tree>,
) -> Result<(), ApiError> {
    let with = |change: &mut dyn FnMut(&mut Rounds)| request.with_state(NAME, |r| change(r));
    if request.is_reinvocation() {
        let mut done = false;
        with(&mut |rounds| {
            if !rounds.invoked.is_empty() && rounds.output.as_ref() != object.as_deref() {
                rounds.object_changed();
            }
            done = rounds.again.is_empty();
        });
        if done {
            return Ok(());
        }
    }
    for (i, hook) in api.webhooks.hooks(true).current().iter().enumerate() {
        let Some(invocation) = invocation(api, hook, request, object.as_deref()).await? else {
            continue;
        };
        let mut skipped = false;
        with(&mut |rounds| {
            skipped = request.is_reinvocation() && !rounds.again.contains(&hook.id);
        });
        if skipped {
            continue;
        }
        let place = format!(
            "webhook.admission.k8s.io/round_{}_index_{i}",
            u8::from(request.is_reinvocation())
        );
        let result = call_one(
            api,
            hook,
            request,
            &invocation,
            object.as_deref_mut(),
            &place,
        );
        let result = result.await;
        annotate(request, hook, &place, matches!(result, Ok(true)));
        if let Ok(true) = result {
            with(&mut Rounds::object_changed);
            request.reinvoke();
        }
        if hook.reinvocable {
            with(&mut |rounds| {
                rounds.invoked.insert(hook.id.clone());
            });
        }
        if let Err(failure) = result
            && let Some(error) =
                failure.verdict(hook, request, &format!("failed-open.mutation.{place}"))
        {
            return Err(error);
        }
    }
    // The output is compared only in a second round that may call a webhook again.
    if !request.is_reinvocation() {
        with(&mut |rounds| {
            if !rounds.invoked.is_empty() {
                rounds.output = object.as_deref().cloned();
            }
        });
    }
    Ok(())
}

/// Notes in the audit event that a webhook was called, and whether it changed the object.
fn annotate(request: &Request<'_>, hook: &Hook, place: &str, mutated: bool) {
    if request.options.audit.is_on() {
        let value = format!("{{{},\"mutated\":{mutated}}}", identity(hook));
        let key = format!("mutation.{place}");
        request.options.audit.annotate(&key, value);
    }
}

/// Returns the first members of an annotation's value, in Kubernetes' order.
fn identity(hook: &Hook) -> String {
    let text = |text: &str| Value::from(text).to_string();
    format!(
        "\"configuration\":{},\"webhook\":{}",
        text(&hook.configuration),
        text(&hook.name)
    )
}

/// Calls one webhook and applies its patch. Returns true if that changed the object.
async fn call_one(
    api: &Api,
    hook: &Hook,
    request: &Request<'_>,
    invocation: &Invocation,
    object: Option<&mut Tree>,
    place: &str,
) -> Result<bool, Failure> {
    let patch = call(api, hook, request, invocation, object.as_deref(), true).await?;
    let Some(patch) = patch else {
        return Ok(false);
    };
    let Some(object) = object else {
        return Err(Failure::Refused(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for \
             this operation",
            hook.name
        ))));
    };
    let operations = &patch.operations;
    let new = patched(api, request, invocation, object, operations).await;
    let new = new.map_err(Failure::Refused)?;
    if request.options.audit.is_on() {
        let value = format!(
            "{{{},\"patch\":{operations},\"patchType\":\"JSONPatch\"}}",
            identity(hook)
        );
        let key = format!("patch.{place}");
        request.options.audit.annotate(&key, value);
    }
    let changed = new != *object;
    *object = new;
    Ok(changed)
}
