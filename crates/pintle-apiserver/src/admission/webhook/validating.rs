//! The plugin that calls validating webhooks.

use futures::future::join_all;

use super::{call::call, is_exempt, matching::invocation};
use crate::{
    admission::{Plugin, Request, Verdict},
    api::{Api, ApiError},
    meta::Tree,
};

/// Calls validating webhooks concurrently.
#[derive(Debug)]
pub(crate) struct ValidatingWebhooks;

impl Plugin for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        !api.webhooks.hooks(false).is_empty() && !is_exempt(request)
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

async fn run(api: &Api, request: &Request<'_>, object: Option<&Tree>) -> Result<(), ApiError> {
    let hooks = api.webhooks.hooks(false).current();
    let mut wanted = Vec::new();
    for hook in hooks.iter() {
        if let Some(invocation) = invocation(api, hook, request, object).await? {
            wanted.push((hook, invocation));
        }
    }
    let calls = wanted
        .iter()
        .enumerate()
        .map(|(i, (hook, invocation))| async move {
            let called = call(api, hook, request, invocation, object, false).await;
            let failure = called.err()?;
            let place =
                format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{i}");
            failure.verdict(hook, request, &place)
        });
    // All are awaited, and the first in order decides, so that the result does not depend on which
    // webhook is faster.
    match join_all(calls).await.into_iter().flatten().next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
