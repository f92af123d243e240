//! Pod failure policies and success policies.

use k8s_openapi::api::{
    batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule},
    core::v1::{ContainerStatus, Pod},
};

use super::{indexes::Indexes, spec};
use crate::meta;

/// The effect of a Pod's failure on its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts towards the back-off limits.
    Count,
    /// It does not count.
    Ignore,
    /// It fails the index of the Pod.
    FailIndex,
    /// It fails the Job, with this message.
    FailJob(String),
}

/// Returns the action of the first rule of the Job's policy that matches the failed Pod.
pub(super) fn failure(job: &Job, pod: &Pod) -> Failure {
    let policy = spec(job).and_then(|spec| spec.pod_failure_policy.as_ref());
    let rules = policy.iter().flat_map(|policy| &policy.rules);
    for (index, rule) in rules.enumerate() {
        let Some(cause) = cause(rule, pod) else {
            continue;
        };
        match rule.action.as_str() {
            "Ignore" => return Failure::Ignore,
            "FailIndex" => return Failure::FailIndex,
            "Count" => return Failure::Count,
            "FailJob" => {
                let message = format!("{cause} matching FailJob rule at index {index}");
                return Failure::FailJob(message);
            }
            _ => {}
        }
    }
    Failure::Count
}

/// Returns why the rule matches the Pod, in upstream's words.
fn cause(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", meta::name(&pod.metadata));
    let status = pod.status.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let statuses = status.container_statuses.iter().flatten();
        let mut statuses = statuses.chain(status.init_container_statuses.iter().flatten());
        return statuses.find_map(|container| {
            let code = matching_code(codes, container)?;
            let container = &container.name;
            Some(format!(
                "Container {container} for pod {name} failed with exit code {code}"
            ))
        });
    }
    let patterns = rule.on_pod_conditions.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let matched = conditions.find(|condition| {
        patterns.iter().any(|pattern| {
            let wanted = pattern.status.as_deref().unwrap_or("True");
            pattern.type_ == condition.type_ && wanted == condition.status
        })
    })?;
    Some(format!("Pod {name} has condition {}", matched.type_))
}

fn matching_code(
    rule: &PodFailurePolicyOnExitCodesRequirement,
    container: &ContainerStatus,
) -> Option<i32> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let named = rule.container_name.as_ref();
    if code == 0 || named.is_some_and(|name| *name != container.name) {
        return None;
    }
    let is_listed = rule.values.contains(&code);
    let matches = match rule.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    matches.then_some(code)
}

/// Returns the message of the first rule of the Job's success policy that the succeeded indexes
/// meet.
pub(super) fn success(job: &Job, succeeded: &Indexes) -> Option<String> {
    let spec = spec(job)?;
    let policy = spec.success_policy.as_ref()?;
    let completions = spec.completions.unwrap_or_default();
    if succeeded.is_empty() {
        return None;
    }
    let is_met = |rule: &k8s_openapi::api::batch::v1::SuccessPolicyRule| {
        let Some(indexes) = &rule.succeeded_indexes else {
            return rule
                .succeeded_count
                .is_some_and(|count| succeeded.len() >= count);
        };
        let required = Indexes::parse(indexes, completions);
        let met = required.overlap(succeeded);
        !required.is_empty()
            && (met == required.len() || rule.succeeded_count.is_some_and(|count| met >= count))
    };
    let index = policy.rules.iter().position(is_met)?;
    Some(format!("Matched rules at index {index}"))
}
