//! `autoscaling/v1` over `autoscaling/v2` for `HorizontalPodAutoscaler`.
//!
//! `v1` has a single metric, CPU utilization. All other `v2` fields are carried in annotations, as
//! JSON with `v1` field names, so a client that reads and writes `v1` loses nothing.

mod metrics;
#[cfg(test)]
mod tests;
mod text;

use serde_json::{Value, json};

use self::{
    metrics::{
        new_behavior, new_metric, new_metric_status, old_behavior, old_metric, old_metric_status,
    },
    text::text,
};
use crate::{
    meta::{self, Tree},
    schema::{builtin, typed},
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// All annotations that carry `v2` fields. The last two are only dropped, never written.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
/// The default target CPU utilization, in percent.
const DEFAULT_USE: i64 = 80;

/// Converts `v2` to `v1`.
pub(super) fn to_v1(mut tree: Tree) -> Tree {
    drop_annotations(&mut tree);
    let spec = tree.get("spec").cloned().unwrap_or_default();
    let status = tree.get("status").cloned().unwrap_or_default();
    let (cpu, others): (Vec<&Value>, Vec<&Value>) =
        items(&spec["metrics"]).partition(|metric| is_cpu_use(metric));
    let mut old = pick(&spec, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    if let Some(metric) = cpu.first() {
        let wanted = &metric["resource"]["target"]["averageUtilization"];
        old.insert("targetCPUUtilizationPercentage".into(), wanted.clone());
    }
    let mut old_status = pick(
        &status,
        &[
            "observedGeneration",
            "lastScaleTime",
            "currentReplicas",
            "desiredReplicas",
        ],
    );
    let current = items(&status["currentMetrics"])
        .filter(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu");
    for metric in current {
        let used = &metric["resource"]["current"]["averageUtilization"];
        if used.is_i64() {
            old_status.insert("currentCPUUtilizationPercentage".into(), used.clone());
        }
    }
    let others: Vec<Value> = others.into_iter().map(old_metric).collect();
    annotate(&mut tree, METRICS, others);
    let current = items(&status["currentMetrics"]).map(old_metric_status);
    annotate(&mut tree, CURRENT_METRICS, current.collect());
    let conditions = items(&status["conditions"]).map(|condition| {
        let mut condition = condition.clone();
        if condition.get("lastTransitionTime").is_none() {
            condition["lastTransitionTime"] = Value::Null;
        }
        condition
    });
    annotate(&mut tree, CONDITIONS, conditions.collect());
    if spec["behavior"].is_object() {
        let behavior = old_behavior(&spec["behavior"]);
        annotation(&mut tree, BEHAVIOR, &behavior);
    }
    tree.insert("spec".into(), old.into());
    tree.insert("status".into(), old_status.into());
    canonical(tree, "v1")
}

/// Converts `v1` to `v2`.
pub(super) fn to_v2(mut tree: Tree) -> Tree {
    let old = tree.get("spec").cloned().unwrap_or_default();
    let old_status = tree.get("status").cloned().unwrap_or_default();
    let mut spec = pick(&old, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    let mut status = pick(
        &old_status,
        &[
            "observedGeneration",
            "lastScaleTime",
            "currentReplicas",
            "desiredReplicas",
        ],
    );
    let mut metrics = Vec::new();
    if let Some(items) = annotated(&tree, METRICS) {
        let items = items.iter().map(new_metric).collect();
        metrics = fitting("spec", "metrics", items);
    }
    match old["targetCPUUtilizationPercentage"].as_i64() {
        Some(wanted) => metrics.push(cpu_use(wanted)),
        None if metrics.is_empty() => metrics.push(cpu_use(DEFAULT_USE)),
        None => {}
    }
    spec.insert("metrics".into(), metrics.into());
    let behavior = read(&tree, BEHAVIOR).map(|behavior| new_behavior(&behavior));
    let behavior = behavior.filter(|behavior| {
        let some = behavior.as_object().is_some_and(|rules| !rules.is_empty());
        some && fits(&json!({"spec": {"behavior": behavior}}))
    });
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    let mut current = Vec::new();
    if let Some(used) = old_status["currentCPUUtilizationPercentage"].as_i64() {
        current.push(json!({"type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": used}}}));
    }
    if let Some(items) = annotated(&tree, CURRENT_METRICS) {
        // The annotation carries more than the `v1` status, so it wins.
        let items = items.iter().map(new_metric_status).collect();
        current = fitting("status", "currentMetrics", items);
    }
    if !current.is_empty() {
        status.insert("currentMetrics".into(), current.into());
    }
    if let Some(items) = annotated(&tree, CONDITIONS) {
        let items = fitting("status", "conditions", items);
        status.insert("conditions".into(), items.into());
    }
    drop_annotations(&mut tree);
    tree.insert("spec".into(), spec.into());
    tree.insert("status".into(), status.into());
    canonical(tree, "v2")
}

fn canonical(tree: Tree, version: &str) -> Tree {
    let mut value = Value::Object(tree);
    if let Some(ty) = builtin::kind("autoscaling", version, "HorizontalPodAutoscaler") {
        // Fields come from a valid object or were checked with `fits`, so this cannot fail.
        let _ = typed::canonicalize(&mut value, ty);
    }
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

/// Returns true if part of a `v2` object decodes.
fn fits(part: &Value) -> bool {
    builtin::kind("autoscaling", "v2", "HorizontalPodAutoscaler")
        .is_some_and(|ty| typed::canonicalize(&mut part.clone(), ty).is_ok())
}

/// Returns the items, or none of them if any does not decode.
fn fitting(part: &str, field: &str, items: Vec<Value>) -> Vec<Value> {
    if fits(&json!({part: {field: items}})) {
        items
    } else {
        Vec::new()
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pick(from: &Value, fields: &[&str]) -> Tree {
    let found = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), from.get(*field)?.clone())));
    found.collect()
}

fn is_cpu_use(metric: &Value) -> bool {
    let resource = &metric["resource"];
    metric["type"] == "Resource"
        && resource["name"] == "cpu"
        && resource["target"]["averageUtilization"].is_i64()
}

fn cpu_use(wanted: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": wanted}}})
}

fn drop_annotations(tree: &mut Tree) {
    let Some(Value::Object(metadata)) = tree.get_mut("metadata") else {
        return;
    };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn annotate(tree: &mut Tree, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        annotation(tree, name, &items.into());
    }
}

fn annotation(tree: &mut Tree, name: &str, value: &Value) {
    let annotations = meta::metadata(tree)
        .entry("annotations")
        .or_insert_with(|| json!({}));
    annotations[name] = text(value).into();
}

fn read(tree: &Tree, name: &str) -> Option<Value> {
    let text = tree.get("metadata")?.get("annotations")?.get(name)?;
    serde_json::from_str(text.as_str()?).ok()
}

fn annotated(tree: &Tree, name: &str) -> Option<Vec<Value>> {
    match read(tree, name)? {
        Value::Array(items) if items.iter().all(Value::is_object) => Some(items),
        _ => None,
    }
}
