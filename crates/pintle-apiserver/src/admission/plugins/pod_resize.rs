//! `PodResizeValidator`: the node of a resized Pod runs Linux and is large enough.

use serde_json::Value;

use super::{cluster_object, refused};
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
    quota::{Amounts, amounts, specified_by_pod, units},
};

/// The label with a node's operating system.
const OS: &str = "kubernetes.io/os";

#[derive(Debug)]
pub(crate) struct PodResize;

impl Plugin for PodResize {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn validates(&self, _: &Api, request: &Request<'_>) -> bool {
        request.operation == Operation::Update
            && request.sub == "resize"
            && request.is_for("", "pods")
    }

    fn check(&self, api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let name = spec["nodeName"].as_str().unwrap_or_default();
        // Without a change of the generation, the spec is the same.
        let is_same = |old: &Tree| meta::generation(old) == meta::generation(pod);
        if name.is_empty() || request.old.is_none_or(is_same) {
            return Ok(());
        }
        let Some(node) = cluster_object(api, "", "nodes", name) else {
            let why = format!("node {name:?} not found");
            return Err(refused(request, Some(pod), &why));
        };
        let problem = unsupported(name, &node)
            .map(|why| ("UnsupportedPlatform", why))
            .or_else(|| Some(("NodeCapacity", too_large(spec, &node)?)));
        problem.map_or(Ok(()), |(reason, why)| {
            Err(refused(request, Some(pod), &why).because(reason))
        })
    }
}

fn unsupported(name: &str, node: &Value) -> Option<String> {
    let os = node["metadata"]["labels"].get(OS)?.as_str()?;
    (os != "linux")
        .then(|| format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}"))
}

/// Returns why a node can never run the Pod.
fn too_large(spec: &Value, node: &Value) -> Option<String> {
    let (requests, overhead) = (
        specified_by_pod(spec, "requests"),
        amounts(&spec["overhead"]),
    );
    let allocatable = amounts(&node["status"]["allocatable"]);
    let problems = ["cpu", "memory"].into_iter().filter_map(|name| {
        let of = |amounts: &Amounts| amounts.get(name).cloned().unwrap_or_default();
        let requested = of(&requests).plus(&of(&overhead));
        let available = of(&allocatable);
        (requested > available).then(|| {
            let (requested, available) = (units(name, &requested), units(name, &available));
            format!("{name}, requested: {requested}, allocatable: {available}")
        })
    });
    let problems: Vec<String> = problems.collect();
    (!problems.is_empty()).then(|| {
        let problems = problems.join("; ");
        format!("node didn't have enough allocatable resources: {problems}")
    })
}
