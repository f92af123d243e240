//! `RuntimeClass`: a Pod gets the overhead and the scheduling constraints of the class it names,
//! which must exist.

use serde_json::{Value, json};

use super::{cluster_object, refused};
use crate::{
    admission::{Plugin, Request},
    api::{Api, ApiError},
    meta::Tree,
    quota::amounts,
};

#[derive(Debug)]
pub(crate) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn mutate(&self, api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
        set(api, request, pod)
    }

    fn validates(&self, _: &Api, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn check(&self, api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
        check(api, request, pod)
    }
}

/// Returns the class that a Pod names.
fn class(api: &Api, request: &Request<'_>, pod: &Tree) -> Result<Option<Value>, ApiError> {
    let name = pod
        .get("spec")
        .and_then(|spec| spec["runtimeClassName"].as_str());
    let Some(name) = name else {
        return Ok(None);
    };
    let class = cluster_object(api, "node.k8s.io", "runtimeclasses", name);
    class.map(Some).ok_or_else(|| {
        let why = format!("pod rejected: RuntimeClass {name:?} not found");
        refused(request, Some(pod), &why)
    })
}

fn set(api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
    let Some(class) = class(api, request, pod)? else {
        return Ok(());
    };
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let overhead = &class["overhead"]["podFixed"];
    let own = amounts(&spec["overhead"]);
    if class["overhead"].is_object() && !own.is_empty() && own != amounts(overhead) {
        let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(refused(request, Some(pod), why));
    }
    let selector = class["scheduling"]["nodeSelector"].as_object();
    for (key, value) in selector.into_iter().flatten() {
        let own = &spec["nodeSelector"][key];
        if !own.is_null() && own != value {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (theirs, own) = (text(value), text(own));
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {theirs}; \
                 pod.spec.nodeSelector[{key}] = {own}"
            );
            return Err(refused(request, Some(pod), &why));
        }
    }
    let Some(spec) = pod.get_mut("spec") else {
        return Ok(());
    };
    if overhead.is_object() {
        spec["overhead"] = overhead.clone();
    }
    for (key, value) in selector.into_iter().flatten() {
        if !spec["nodeSelector"].is_object() {
            spec["nodeSelector"] = json!({});
        }
        spec["nodeSelector"][key] = value.clone();
    }
    if let Some(tolerations) = class["scheduling"]["tolerations"].as_array()
        && !tolerations.is_empty()
    {
        let own = spec["tolerations"].as_array().cloned().unwrap_or_default();
        spec["tolerations"] = merged(own, tolerations).into();
    }
    Ok(())
}

/// Merges two lists of tolerations. A toleration that another one covers is dropped.
fn merged(mut all: Vec<Value>, more: &[Value]) -> Vec<Value> {
    all.extend_from_slice(more);
    let mut merged: Vec<Value> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        // Of equal tolerations, the first is kept.
        let mut later = all[i + 1..].iter().filter(|other| *other != one);
        if !merged.iter().any(|other| covers(other, one)) && !later.any(|other| covers(other, one))
        {
            merged.push(one.clone());
        }
    }
    merged
}

/// Returns true if a toleration tolerates everything that another does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |toleration: &Value, field: &str| -> String {
        toleration[field].as_str().unwrap_or_default().to_owned()
    };
    let same = |field: &str| text(wide, field) == text(narrow, field);
    let (operator, effect) = (text(wide, "operator"), text(wide, "effect"));
    let exists = operator == "Exists";
    if wide == narrow {
        return true;
    }
    let any_key = exists && text(wide, "key").is_empty();
    let ends_sooner = effect == "NoExecute"
        && wide["tolerationSeconds"].as_i64().is_some_and(|seconds| {
            let other = narrow["tolerationSeconds"].as_i64();
            other.is_none_or(|other| other > seconds)
        });
    if !(same("key") || any_key) || !(same("effect") || effect.is_empty()) || ends_sooner {
        return false;
    }
    match operator.as_str() {
        "Equal" | "" => text(narrow, "operator") == "Equal" && same("value"),
        _ => exists,
    }
}

fn check(api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
    let class = class(api, request, pod)?.unwrap_or_default();
    let overhead = pod
        .get("spec")
        .map_or(&Value::Null, |spec| &spec["overhead"]);
    let why = if class["overhead"].is_object() {
        if amounts(overhead) == amounts(&class["overhead"]["podFixed"]) {
            return Ok(());
        }
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    } else if overhead.is_null() {
        return Ok(());
    } else {
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    };
    Err(refused(request, Some(pod), why))
}
