//! How Pods count: by their requests and limits, until they have finished.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Amounts, Scope, amounts};
use crate::schema::typed::quantity::Amount;

/// The limits that Pods count towards, besides huge pages and extended resources.
const LIMITS: [&str; 11] = [
    "count/pods",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Resources that every container must set if a quota limits them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

/// The prefix of extended resources that request devices of a class.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// The resources that can be set for a Pod as a whole.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

pub(super) fn counts(name: &str) -> bool {
    let extended = name.strip_prefix("requests.").is_some_and(is_extended);
    LIMITS.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || extended
}

/// Returns true for a resource that a device plugin or the devices of a class provide.
fn is_extended(resource: &str) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    !native || resource.starts_with(DEVICE_CLASS)
}

/// Returns what a Pod uses. A Pod that has finished, or whose grace period is over, counts only as
/// an object.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), Amount::of(1))]);
    let finished = matches!(
        pod["status"]["phase"].as_str(),
        Some("Failed" | "Succeeded")
    );
    if finished || is_overdue(&pod["metadata"], now) {
        return usage;
    }
    usage.extend(compute(&requests(pod), &limits(pod)));
    usage
}

/// Returns true if the Pod is being deleted and its grace period is over.
fn is_overdue(metadata: &Value, now: Timestamp) -> bool {
    let at = metadata["deletionTimestamp"].as_str();
    let at = at.and_then(|at| at.parse::<Timestamp>().ok());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    let end = at
        .zip(grace)
        .and_then(|(at, grace)| at.checked_add(SignedDuration::from_secs(grace)).ok());
    end.is_some_and(|end| now > end)
}

/// Returns the usage under every name that a quota can limit it by.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), Amount::of(1))]);
    for (name, amount) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-");
        if native {
            usage.insert(name.clone(), amount.clone());
        }
        if native || is_extended(name) {
            usage.insert(format!("requests.{name}"), amount.clone());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

/// Returns which requests or limits a Pod fails to set although a quota on `names` requires them.
pub(crate) fn unmet(pod: &Value, names: &BTreeSet<&str>) -> Option<String> {
    let spec = &pod["spec"];
    let level = |which: &str| amounts(&spec["resources"][which]);
    if !level("requests").is_empty() || !level("limits").is_empty() {
        return None;
    }
    let required = REQUIRED.iter().filter(|name| names.contains(**name));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let required: Vec<&&str> = required.collect();
    for container in containers(spec, "containers").chain(containers(spec, "initContainers")) {
        let resources = &container["resources"];
        let set = compute(
            &amounts(&resources["requests"]),
            &amounts(&resources["limits"]),
        );
        for name in &required {
            if !set.contains_key(**name) {
                let container = container["name"].as_str().unwrap_or_default();
                missing.entry(name).or_default().insert(container);
            }
        }
    }
    let parts = missing.iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.iter().copied().collect();
        format!("{name} for: {}", containers.join(","))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

fn containers<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    spec[list].as_array().into_iter().flatten()
}

/// Returns what a Pod requests as a whole, including its overhead. A Pod being resized counts with
/// the larger size until the kubelet is done, unless the resize is infeasible.
pub(super) fn requests(pod: &Value) -> Amounts {
    let (spec, infeasible) = (&pod["spec"], is_infeasible(pod));
    let mut total = aggregate(spec, |container, resizes| {
        let wanted = amounts(&container["resources"]["requests"]);
        let status = resizes.then(|| status_of(pod, container)).flatten();
        let Some(status) = status else {
            return wanted;
        };
        let mut held = amounts(&status["resources"]["requests"]);
        raise(&mut held, &amounts(&status["allocatedResources"]));
        if !infeasible {
            raise(&mut held, &wanted);
        }
        held
    });
    set_pod_level(&mut total, spec, "requests", |name| {
        POD_LEVEL.contains(&name) || name.starts_with("hugepages-")
    });
    add(&mut total, &amounts(&spec["overhead"]));
    total
}

/// Returns the limits of a Pod as a whole, including its overhead.
fn limits(pod: &Value) -> Amounts {
    let (spec, infeasible) = (&pod["spec"], is_infeasible(pod));
    let mut total = aggregate(spec, |container, resizes| {
        let wanted = amounts(&container["resources"]["limits"]);
        let status = resizes.then(|| status_of(pod, container)).flatten();
        let Some(status) = status else {
            return wanted;
        };
        let mut held = amounts(&status["resources"]["limits"]);
        if !infeasible {
            raise(&mut held, &wanted);
        }
        held
    });
    set_pod_level(&mut total, spec, "limits", |name| {
        POD_LEVEL.contains(&name) || name.starts_with("hugepages-")
    });
    for (name, amount) in amounts(&spec["overhead"]) {
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(&amount);
        }
    }
    total
}

/// Returns the `requests` or `limits` that a Pod specifies as a whole, without its overhead.
pub(crate) fn specified(spec: &Value, which: &str) -> Amounts {
    let mut total = aggregate(spec, |container, _| amounts(&container["resources"][which]));
    set_pod_level(&mut total, spec, which, |name| POD_LEVEL.contains(&name));
    total
}

/// Returns the status of a container, if it reports resources.
fn status_of<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let status = &pod["status"];
    let all = containers(status, "initContainerStatuses");
    let mut all = containers(status, "containerStatuses").chain(all);
    all.find(|status| status["name"] == container["name"] && status["resources"].is_object())
}

/// Returns true if the node can never hold the size that a Pod requests.
fn is_infeasible(pod: &Value) -> bool {
    let mut conditions = containers(&pod["status"], "conditions");
    let pending = conditions.find(|condition| condition["type"] == "PodResizePending");
    pending.is_some_and(|condition| condition["reason"] == "Infeasible")
}

/// Replaces totals with the amounts set at pod level.
fn set_pod_level(total: &mut Amounts, spec: &Value, which: &str, applies: fn(&str) -> bool) {
    let set = amounts(&spec["resources"][which]);
    total.extend(set.into_iter().filter(|(name, _)| applies(name)));
}

/// Adds up containers and sidecars, then raises each amount at least to the peak of initialization.
/// `of` is called with each container and whether it can be resized.
fn aggregate(spec: &Value, of: impl Fn(&Value, bool) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in containers(spec, "containers") {
        add(&mut total, &of(container, true));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in containers(spec, "initContainers") {
        let is_sidecar = container["restartPolicy"] == "Always";
        let mut own = of(container, is_sidecar);
        if is_sidecar {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut most, &own);
    }
    raise(&mut total, &most);
    total
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total
            .get(name)
            .map_or_else(|| amount.clone(), |sum| sum.plus(amount));
        total.insert(name.clone(), sum);
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        if total.get(name).is_none_or(|found| amount > found) {
            total.insert(name.clone(), amount.clone());
        }
    }
}

/// Returns true if a Pod meets a requirement of a quota.
pub(super) fn is_in(scope: &Scope, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let is_terminating = || {
        spec["activeDeadlineSeconds"]
            .as_i64()
            .is_some_and(|s| s >= 0)
    };
    match scope.name.as_str() {
        "Terminating" => is_terminating(),
        "NotTerminating" => !is_terminating(),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => scope.selects(spec["priorityClassName"].as_str().unwrap_or_default()),
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod["status"]["qosClass"].as_str().filter(|c| !c.is_empty()) {
        return class == "BestEffort";
    }
    let spec = &pod["spec"];
    let all = containers(spec, "containers").chain(containers(spec, "initContainers"));
    let mut all = all.chain([spec]);
    !all.any(|container| {
        ["requests", "limits"].iter().any(|which| {
            let set = amounts(&container["resources"][*which]);
            POD_LEVEL
                .iter()
                .any(|name| set.get(*name).is_some_and(|amount| !amount.is_zero()))
        })
    })
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"]
            .as_array()
            .is_some_and(|names| !names.is_empty())
            || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|which| {
        let terms = |list: &str| {
            affinity[*which][list]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        terms("requiredDuringSchedulingIgnoredDuringExecution")
            .iter()
            .any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| crosses(&term["podAffinityTerm"]))
    })
}
