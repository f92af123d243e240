//! `PodSecurity`: the labels of a namespace select the Pod Security Standard its Pods must meet.
//!
//! ```text
//! Pod                 ─► enforce: denied    audit: annotation   warn: warning
//! workload            ─►                    audit: annotation   warn: warning
//! Namespace           ─► labels are valid; a stricter level warns about existing Pods
//! ```
//!
//! [`policy`] reads the labels, [`standards`] lists the checks of each level and version, and
//! [`checks`] implements them.

mod checks;
mod policy;
mod standards;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use self::{
    checks::{Pod, Violation},
    policy::{Level, PREFIX, Policy, Standard},
    standards::violations,
};
use super::in_namespace;
use crate::{
    admission::{Operation, Plugin, Request, Verdict, verdict},
    api::{Api, ApiError},
    meta::Tree,
    schema::field::{FieldError, aggregate},
    store::Object,
};

/// The maximum number of existing Pods to check against a stricter level.
const MAX_PODS: usize = 3000;

/// The maximum time to spend checking existing Pods against a stricter level.
const MAX_TIME: Duration = Duration::from_secs(1);

/// How many Pods to check before yielding to other tasks.
const BATCH: usize = 64;

/// Checks Pods, and the templates of workloads, against the standard of their namespace.
#[derive(Debug)]
pub(crate) struct PodSecurity;

/// Subresources of Pods that do not affect Pod security.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// Returns the path of the Pod template in kinds that have one.
fn template_of(group: &str, plural: &str) -> Option<&'static [&'static str]> {
    Some(match (group, plural) {
        ("", "podtemplates") => &["template"],
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => &["spec", "template"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
        _ => return None,
    })
}

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        let (group, plural) = (&*request.resource.group, &*request.resource.plural);
        let concerned = match (group, plural) {
            ("", "pods") => !IGNORED.contains(&request.sub),
            ("", "namespaces") => return is_write(request) && request.sub.is_empty(),
            _ => request.sub.is_empty() && template_of(group, plural).is_some(),
        };
        // A namespace without these labels allows everything.
        concerned
            && is_write(request)
            && (request.options.audit.is_on() || is_labelled(api, request))
    }

    fn validate<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a Tree>,
    ) -> Verdict<'a> {
        let Some(object) = object else {
            return verdict(Ok(()));
        };
        if request.is_for("", "namespaces") {
            return Box::pin(namespace(api, request, object));
        }
        verdict(if request.is_for("", "pods") {
            pod(api, request, object)
        } else {
            workload(api, request, object);
            Ok(())
        })
    }
}

fn is_write(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update)
}

/// Returns the namespace of a request.
fn namespace_of(api: &Api, request: &Request<'_>) -> Option<Arc<Object>> {
    let namespaces = api.registry.builtin_collection("", "namespaces")?;
    api.store.get(namespaces, request.namespace?)
}

/// Returns true if a request's namespace has a Pod Security label.
fn is_labelled(api: &Api, request: &Request<'_>) -> bool {
    let namespace = namespace_of(api, request);
    namespace.is_some_and(|namespace| {
        let mut labels = namespace.header().labels.keys();
        labels.any(|label| label.starts_with(PREFIX))
    })
}

/// Returns the policy of a request's namespace, and the errors in its labels.
fn policy_of(api: &Api, request: &Request<'_>) -> (Policy, Vec<FieldError>) {
    let namespace = namespace_of(api, request);
    let labels = namespace
        .as_ref()
        .map(|namespace| &namespace.header().labels);
    Policy::of(|label| Some(labels?.get(label)?.as_str()))
}

/// Joins violations, with their details if `detailed`.
fn described(violations: &[Violation], detailed: bool) -> String {
    let each = violations.iter().map(|violation| match &violation.detail {
        detail if detailed && !detail.is_empty() => format!("{} ({detail})", violation.reason),
        _ => violation.reason.clone(),
    });
    each.collect::<Vec<String>>().join(", ")
}

/// Enforces the policy on a Pod, and adds audit annotations and warnings.
fn pod(api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
    let (policy, errors) = policy_of(api, request);
    if errors.is_empty() && policy.is_privileged() {
        annotate(request, "enforce-policy", "privileged:latest".to_owned());
        return Ok(());
    }
    let new = Value::Object(object.clone());
    let old = request.old.cloned().map(Value::Object);
    if request.operation == Operation::Update
        && old.is_some_and(|old| !is_significant(&new["spec"], &old["spec"]))
    {
        return Ok(());
    }
    let pod = pod_of(&new);
    annotate_errors(request, &errors);
    annotate(request, "enforce-policy", policy.enforce.to_string());
    let found = violations(policy.enforce, &pod);
    audit(request, &policy, &pod);
    if found.is_empty() {
        warn(request, &policy, &pod);
        return Ok(());
    }
    let why = format!(
        "violates PodSecurity \"{}\": {}",
        policy.enforce,
        described(&found, true)
    );
    Err(request.forbidden(Some(object), &why))
}

/// Audits and warns about the Pods that a workload would create. Only Pods themselves are denied.
fn workload(api: &Api, request: &Request<'_>, object: &Tree) {
    let resource = request.resource;
    let (policy, errors) = policy_of(api, request);
    let path = template_of(&resource.group, &resource.plural);
    let mut path = path.into_iter().flatten();
    let top = path.next().and_then(|field| object.get(*field));
    let template = path.fold(top, |at, field| at?.get(*field));
    let Some(template) = template.filter(|template| template.is_object()) else {
        return;
    };
    let pod = pod_of(template);
    annotate_errors(request, &errors);
    audit(request, &policy, &pod);
    warn(request, &policy, &pod);
}

fn pod_of(object: &Value) -> Pod<'_> {
    Pod {
        annotations: &object["metadata"]["annotations"],
        spec: &object["spec"],
    }
}

fn annotate(request: &Request<'_>, key: &str, value: String) {
    let audit = &request.options.audit;
    audit.annotate(&format!("{PREFIX}{key}"), value);
}

fn annotate_errors(request: &Request<'_>, errors: &[FieldError]) {
    if !errors.is_empty() {
        let why = aggregate(errors);
        annotate(request, "error", format!("Failed to parse policy: {why}"));
    }
}

fn would_violate(standard: Standard, pod: &Pod<'_>) -> Option<String> {
    let found = violations(standard, pod);
    let described = described(&found, true);
    let text = || format!("would violate PodSecurity \"{standard}\": {described}");
    (!found.is_empty()).then(text)
}

fn audit(request: &Request<'_>, policy: &Policy, pod: &Pod<'_>) {
    if request.options.audit.is_on()
        && let Some(text) = would_violate(policy.audit, pod)
    {
        annotate(request, "audit-violations", text);
    }
}

fn warn(request: &Request<'_>, policy: &Policy, pod: &Pod<'_>) {
    if let Some(text) = would_violate(policy.warn, pod) {
        request.options.warnings.add(text);
    }
}

/// Returns true if an update of a Pod changes an image or adds a container. The other fields that
/// affect Pod security are immutable.
fn is_significant(new: &Value, old: &Value) -> bool {
    let list = |spec: &Value, field: &str| spec[field].as_array().cloned().unwrap_or_default();
    for field in ["containers", "initContainers"] {
        let (new, old) = (list(new, field), list(old, field));
        let mut pairs = new.iter().zip(&old);
        if new.len() != old.len() || pairs.any(|(new, old)| new["image"] != old["image"]) {
            return true;
        }
    }
    let old = list(old, "ephemeralContainers");
    list(new, "ephemeralContainers").iter().any(|new| {
        let before = old.iter().find(|old| old["name"] == new["name"]);
        before.is_none_or(|old| old["image"] != new["image"])
    })
}

/// Requires valid labels, and warns about existing Pods that violate a stricter level.
async fn namespace(api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
    let policy = |object: &Tree| {
        let labels = object.get("metadata").and_then(|meta| meta.get("labels"));
        Policy::of(|label| labels?.get(label)?.as_str())
    };
    let (new, errors) = policy(object);
    let old = request.old.map(policy);
    let known = old.as_ref().is_some_and(|(_, known)| *known == errors);
    if !errors.is_empty() && !known {
        return Err(ApiError::invalid("", "Namespace", request.name, errors));
    }
    let Some((old, _)) = old else {
        return Ok(());
    };
    let (new, old) = (new.enforce, old.enforce);
    let relaxed = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || relaxed {
        return Ok(());
    }
    for warning in existing_pods(api, request.name, new).await {
        request.options.warnings.add(warning);
    }
    Ok(())
}

/// Returns the UID of a Pod's controller.
fn controller_of(pod: &Object) -> Option<String> {
    if !pod.content.mentions("\"controller\":true") {
        return None;
    }
    let tree = Value::Object(pod.decode());
    let owners = tree["metadata"]["ownerReferences"].as_array();
    let controller = owners?.iter().find(|owner| owner["controller"] == true)?;
    Some(controller["uid"].as_str()?.to_owned())
}

/// Returns warnings about the Pods of a namespace that do not meet a standard.
async fn existing_pods(api: &Api, namespace: &str, standard: Standard) -> Vec<String> {
    let deadline = Instant::now() + MAX_TIME;
    // One Pod of each controller first: the others probably look the same.
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    let mut controllers = BTreeSet::new();
    for (i, pod) in in_namespace(api, "pods", namespace).enumerate() {
        if i % BATCH == BATCH - 1 {
            tokio::task::yield_now().await;
        }
        if controller_of(&pod).is_none_or(|uid| controllers.insert(uid)) {
            first.push(pod);
        } else {
            rest.push(pod);
        }
    }
    let total = first.len() + rest.len();
    let mut checked = 0;
    // The first name and the number of Pods with the same violations.
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in first.into_iter().chain(rest).take(MAX_PODS) {
        let tree = Value::Object(pod.decode());
        let reasons = violations(standard, &pod_of(&tree));
        if !reasons.is_empty() {
            let entry = found.entry(described(&reasons, false));
            let (name, count) = entry.or_insert_with(|| (pod.name().to_owned(), 0));
            *count += 1;
            if pod.name() < name.as_str() {
                pod.name().clone_into(name);
            }
        }
        checked += 1;
        if checked % BATCH == 0 {
            tokio::task::yield_now().await;
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} \
             existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \
             \"{standard}\""
        ));
    }
    let pods = found.into_iter().map(|(why, (name, count))| match count {
        1 => format!("{name}: {why}"),
        2 => format!("{name} (and 1 other pod): {why}"),
        _ => format!("{name} (and {} other pods): {why}", count - 1),
    });
    let mut pods: Vec<String> = pods.collect();
    pods.sort();
    warnings.extend(pods);
    warnings
}
