//! `LimitRanger`: defaults and limits for the resources of Pods and volume claims.

use serde_json::{Value, json};

use super::{refused, tree_value};
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
    quota::{Amounts, amounts, specified_by_pod},
    schema::typed::quantity::Amount,
};

/// Records on a Pod which defaults were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Debug)]
pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admits(&self, api: &Api, request: &Request<'_>) -> bool {
        request.is_for("", "pods") && applies(api, request)
    }

    fn mutate(&self, api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
        for range in ranges(api, request) {
            set_defaults(pod, &range);
        }
        Ok(())
    }

    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        let limited = request.is_for("", "pods") || request.is_for("", "persistentvolumeclaims");
        limited && applies(api, request)
    }

    fn check(&self, api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
        check(api, request, object)
    }
}

fn applies(api: &Api, request: &Request<'_>) -> bool {
    let pods = request.resource.plural == "pods";
    let wanted = match (request.sub, request.operation) {
        ("", Operation::Create) => true,
        // Only a resize can change the resources of a Pod.
        ("", Operation::Update) => !pods,
        ("resize", Operation::Update) => pods,
        _ => false,
    };
    wanted && request.old.is_none_or(|old| !meta::is_deleting(old)) && any(api)
}

/// Returns true if any limit range exists.
fn any(api: &Api) -> bool {
    let collection = api.registry.builtin_collection("", "limitranges");
    collection.is_some_and(|collection| !api.store.is_empty(collection))
}

/// Returns the limit ranges of the namespace.
fn ranges(api: &Api, request: &Request<'_>) -> Vec<Value> {
    super::in_namespace(api, "limitranges", request.namespace.unwrap_or_default())
        .map(|range| Value::Object(range.decode()))
        .collect()
}

fn limits<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = range["spec"]["limits"].as_array().into_iter().flatten();
    limits.filter(move |limit| limit["type"] == kind)
}

/// Sets the defaults of a limit range on containers that do not set their own.
fn set_defaults(pod: &mut Tree, range: &Value) {
    let (mut requests, mut maxima) = (Tree::new(), Tree::new());
    for limit in limits(range, "Container") {
        let list = |name: &str| limit[name].as_object().cloned().unwrap_or_default();
        requests.extend(list("defaultRequest"));
        maxima.extend(list("default"));
    }
    let mut notes = Vec::new();
    for (list, what) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let spec = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
        for container in spec.and_then(Value::as_array_mut).into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (which, defaults, word) in [
                ("requests", &requests, "request"),
                ("limits", &maxima, "limit"),
            ] {
                let set = merge(&mut container["resources"], which, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    let note = format!("LimitRanger plugin set: {}", notes.join("; "));
    let annotations = meta::metadata(pod)
        .entry("annotations")
        .or_insert_with(|| json!({}));
    annotations[ANNOTATION] = note.into();
}

/// Adds missing defaults to requests or limits, and returns the names of those it added.
fn merge(resources: &mut Value, which: &str, defaults: &Tree) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    if !resources[which].is_object() {
        resources[which] = json!({});
    }
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if resources[which][name].is_null() {
            resources[which][name] = amount.clone();
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

fn check(api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
    let value = tree_value(object);
    for range in ranges(api, request) {
        let errors = match request.resource.plural.as_str() {
            "pods" => pod_errors(&value, &range),
            _ => claim_errors(&value, &range),
        };
        let why = match errors.len() {
            0 => continue,
            1 => errors.concat(),
            _ => format!("[{}]", errors.join(", ")),
        };
        return Err(refused(request, Some(object), &why));
    }
    Ok(())
}

fn pod_errors(pod: &Value, range: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut errors = Vec::new();
    for limit in limits(range, "Container") {
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array().into_iter().flatten() {
                let of = |which: &str| amounts(&container["resources"][which]);
                compare(limit, &of("requests"), &of("limits"), &mut errors);
            }
        }
    }
    for limit in limits(range, "Pod") {
        let total = |which: &str| specified_by_pod(spec, which);
        compare(limit, &total("requests"), &total("limits"), &mut errors);
    }
    dedupe(errors)
}

fn claim_errors(claim: &Value, range: &Value) -> Vec<String> {
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    let mut errors = Vec::new();
    for limit in limits(range, "PersistentVolumeClaim") {
        let kind = "PersistentVolumeClaim";
        for (name, least) in amounts(&limit["min"]) {
            errors.extend(too_little(kind, &name, &least, &requests, &Amounts::new()));
        }
        for (name, most) in amounts(&limit["max"]) {
            let head = format!("maximum {name} usage per {kind} is {most}");
            match requests.get(&name) {
                None => errors.push(format!("{head}.  No request is specified")),
                Some(found) if *found > most => {
                    errors.push(format!("{head}, but request is {found}"));
                }
                Some(_) => {}
            }
        }
    }
    dedupe(errors)
}

/// Like upstream's aggregate, shows each error once.
fn dedupe(errors: Vec<String>) -> Vec<String> {
    let mut unique = Vec::new();
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    unique
}

/// Compares requests and limits with one limit of a range.
fn compare(limit: &Value, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    let kind = limit["type"].as_str().unwrap_or_default();
    for (name, least) in amounts(&limit["min"]) {
        errors.extend(too_little(kind, &name, &least, requests, limits));
    }
    for (name, most) in amounts(&limit["max"]) {
        let head = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => errors.push(format!("{head}.  No limit is specified")),
            (Some(found), _) if *found > most => {
                errors.push(format!("{head}, but limit is {found}"));
            }
            (_, Some(found)) if *found > most => {
                errors.push(format!("{head}, but request is {found}"));
            }
            _ => {}
        }
    }
    for (name, most) in amounts(&limit["maxLimitRequestRatio"]) {
        let head = format!("{name} max limit to request ratio per {kind} is {most}");
        let set = |list: &Amounts| list.get(&name).cloned().filter(|a| !a.is_zero());
        let (Some(request), Some(limit)) = (set(requests), set(limits)) else {
            let what = if set(requests).is_none() {
                "request"
            } else {
                "limit"
            };
            errors.push(format!("{head}, but no {what} is specified or {what} is 0"));
            continue;
        };
        if let Some(ratio) = limit.ratio(&request).filter(|ratio| *ratio > most.as_f64()) {
            errors.push(format!("{head}, but provided ratio is {ratio:.6}"));
        }
    }
}

fn too_little(
    kind: &str,
    name: &str,
    least: &Amount,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let head = format!("minimum {name} usage per {kind} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{head}.  No request is specified")),
        (Some(found), _) if found < least => Some(format!("{head}, but request is {found}")),
        (_, Some(found)) if found < least => Some(format!("{head}, but limit is {found}")),
        _ => None,
    }
}
