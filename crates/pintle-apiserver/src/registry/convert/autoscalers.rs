//! `autoscaling/v1` over the autoscalers of `autoscaling/v2`.
//!
//! The older version knows one metric, the use of the CPU. What else an autoscaler has stands in
//! annotations there, as JSON in the spelling of that version, so that whoever reads and writes the
//! older form loses nothing of the newer one.

use serde_json::{Map, Value, json};

use crate::{
    meta::{self, Tree},
    schema::{builtin, typed},
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// All annotations that stand for fields; two of them only ever did.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
/// The use of the CPU that is aimed at when nothing is said, in percent.
const DEFAULT_USE: i64 = 80;

/// The order in which fields are written in annotations: that of the types they are fields of.
const ORDER: [&str; 37] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetValue",
    "targetAverageUtilization",
    "targetAverageValue",
    "currentValue",
    "currentAverageUtilization",
    "currentAverageValue",
    "container",
    "selector",
    "averageValue",
    "key",
    "operator",
    "values",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// From the newer form to the older one.
pub(super) fn out(mut tree: Tree) -> Tree {
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

/// From the older form to the newer one.
pub(super) fn back(mut tree: Tree) -> Tree {
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
    if let Some(kept) = annotated(&tree, METRICS) {
        let kept = kept.iter().map(new_metric).collect();
        metrics = fitting("spec", "metrics", kept);
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
    if let Some(kept) = annotated(&tree, CURRENT_METRICS) {
        // They know more than the older status.
        let kept = kept.iter().map(new_metric_status).collect();
        current = fitting("status", "currentMetrics", kept);
    }
    if !current.is_empty() {
        status.insert("currentMetrics".into(), current.into());
    }
    if let Some(kept) = annotated(&tree, CONDITIONS) {
        let kept = fitting("status", "conditions", kept);
        status.insert("conditions".into(), kept.into());
    }
    drop_annotations(&mut tree);
    tree.insert("spec".into(), spec.into());
    tree.insert("status".into(), status.into());
    canonical(tree, "v2")
}

fn canonical(tree: Tree, version: &str) -> Tree {
    let mut value = Value::Object(tree);
    if let Some(ty) = builtin::kind("autoscaling", version, "HorizontalPodAutoscaler") {
        // What comes from a checked object fits, and so does what was tried before.
        let _ = typed::canonicalize(&mut value, ty);
    }
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

/// Whether a part of an autoscaler in the newer form can be read.
fn fits(part: &Value) -> bool {
    builtin::kind("autoscaling", "v2", "HorizontalPodAutoscaler")
        .is_some_and(|ty| typed::canonicalize(&mut part.clone(), ty).is_ok())
}

/// The items, or none if one of them cannot be read.
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

/// JSON with its fields in the order clients are used to.
fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    // As it would be safe to put in a web page.
    out.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn write(out: &mut String, value: &Value) {
    let place = |key: &String| ORDER.iter().position(|known| known == key);
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                write(out, item);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::Object(map) if map.keys().any(|key| place(key).is_some()) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(key, _)| place(key).unwrap_or(ORDER.len()));
            for (index, (key, value)) in fields.into_iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(out, value);
            }
            out.push('}');
        }
        // A selector is written with its labels first.
        Value::Object(map) if map.contains_key("matchExpressions") => {
            out.push('{');
            if let Some(labels) = map.get("matchLabels") {
                out.push_str("\"matchLabels\":");
                out.push_str(&labels.to_string());
                out.push(',');
            }
            out.push_str("\"matchExpressions\":");
            write(out, &map["matchExpressions"]);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Moves a value, if it is there.
fn put(into: &mut Map<String, Value>, name: &str, value: &Value) {
    if !value.is_null() {
        into.insert(name.to_owned(), value.clone());
    }
}

/// A quantity that the older form cannot leave out.
fn amount(value: &Value) -> Value {
    match value {
        Value::Null => "0".into(),
        value => value.clone(),
    }
}

/// The kind of a metric, and its part that says more.
fn source(metric: &Value) -> (String, &'static str, &Value) {
    let kind = metric["type"].as_str().unwrap_or_default();
    let field = match kind {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => "external",
    };
    (kind.to_owned(), field, &metric[field])
}

fn old_metric(metric: &Value) -> Value {
    let (kind, field, source) = source(metric);
    if !source.is_object() {
        return json!({"type": kind});
    }
    let (target, name) = (&source["target"], &source["metric"]["name"]);
    let selector = &source["metric"]["selector"];
    let mut old = Map::new();
    match field {
        "object" => {
            put(&mut old, "target", &source["describedObject"]);
            put(&mut old, "metricName", name);
            old.insert("targetValue".into(), amount(&target["value"]));
            put(&mut old, "selector", selector);
            put(&mut old, "averageValue", &target["averageValue"]);
        }
        "pods" => {
            put(&mut old, "metricName", name);
            old.insert("targetAverageValue".into(), amount(&target["averageValue"]));
            put(&mut old, "selector", selector);
        }
        "external" => {
            put(&mut old, "metricName", name);
            put(&mut old, "metricSelector", selector);
            put(&mut old, "targetValue", &target["value"]);
            put(&mut old, "targetAverageValue", &target["averageValue"]);
        }
        _ => {
            put(&mut old, "name", &source["name"]);
            let used = &target["averageUtilization"];
            put(&mut old, "targetAverageUtilization", used);
            put(&mut old, "targetAverageValue", &target["averageValue"]);
            put(&mut old, "container", &source["container"]);
        }
    }
    json!({"type": kind, field: old})
}

fn new_metric(old: &Value) -> Value {
    let (kind, field, source) = source(old);
    if !source.is_object() {
        return json!({"type": kind});
    }
    let mut new = Map::new();
    let mut target = Map::new();
    let average = &source["targetAverageValue"];
    let by = match field {
        "object" => {
            put(&mut new, "describedObject", &source["target"]);
            new.insert("metric".into(), metric(source, "selector"));
            let average = &source["averageValue"];
            let value = &source["targetValue"];
            if average.is_null() || !matches!(value.as_str(), None | Some("0")) {
                put(&mut target, "value", &amount(value));
            }
            put(&mut target, "averageValue", average);
            if average.is_null() {
                "Value"
            } else {
                "AverageValue"
            }
        }
        "pods" => {
            new.insert("metric".into(), metric(source, "selector"));
            target.insert("averageValue".into(), amount(average));
            "AverageValue"
        }
        "external" => {
            new.insert("metric".into(), metric(source, "metricSelector"));
            put(&mut target, "value", &source["targetValue"]);
            put(&mut target, "averageValue", average);
            if source["targetValue"].is_null() {
                "AverageValue"
            } else {
                "Value"
            }
        }
        _ => {
            put(&mut new, "name", &source["name"]);
            put(&mut new, "container", &source["container"]);
            let used = &source["targetAverageUtilization"];
            put(&mut target, "averageUtilization", used);
            put(&mut target, "averageValue", average);
            if used.is_null() {
                "AverageValue"
            } else {
                "Utilization"
            }
        }
    };
    target.insert("type".into(), by.into());
    new.insert("target".into(), target.into());
    json!({"type": kind, field: new})
}

/// What the newer form says of a metric under one name.
fn metric(source: &Value, selector: &str) -> Value {
    let mut metric = Map::new();
    put(&mut metric, "name", &source["metricName"]);
    put(&mut metric, "selector", &source[selector]);
    metric.into()
}

fn old_metric_status(status: &Value) -> Value {
    let (kind, field, source) = source(status);
    if !source.is_object() {
        return json!({"type": kind});
    }
    let (current, name) = (&source["current"], &source["metric"]["name"]);
    let selector = &source["metric"]["selector"];
    let average = &current["averageValue"];
    let mut old = Map::new();
    match field {
        "object" => {
            put(&mut old, "target", &source["describedObject"]);
            put(&mut old, "metricName", name);
            old.insert("currentValue".into(), amount(&current["value"]));
            put(&mut old, "selector", selector);
            put(&mut old, "averageValue", average);
        }
        "pods" => {
            put(&mut old, "metricName", name);
            old.insert("currentAverageValue".into(), amount(average));
            put(&mut old, "selector", selector);
        }
        "external" => {
            put(&mut old, "metricName", name);
            put(&mut old, "metricSelector", selector);
            old.insert("currentValue".into(), amount(&current["value"]));
            put(&mut old, "currentAverageValue", average);
        }
        _ => {
            put(&mut old, "name", &source["name"]);
            let used = &current["averageUtilization"];
            put(&mut old, "currentAverageUtilization", used);
            old.insert("currentAverageValue".into(), amount(average));
            put(&mut old, "container", &source["container"]);
        }
    }
    json!({"type": kind, field: old})
}

fn new_metric_status(old: &Value) -> Value {
    let (kind, field, source) = source(old);
    if !source.is_object() {
        return json!({"type": kind});
    }
    let mut new = Map::new();
    let mut current = Map::new();
    let average = &source["currentAverageValue"];
    match field {
        "object" => {
            put(&mut new, "describedObject", &source["target"]);
            new.insert("metric".into(), metric(source, "selector"));
            current.insert("value".into(), amount(&source["currentValue"]));
            put(&mut current, "averageValue", &source["averageValue"]);
        }
        "pods" => {
            new.insert("metric".into(), metric(source, "selector"));
            current.insert("averageValue".into(), amount(average));
        }
        "external" => {
            new.insert("metric".into(), metric(source, "metricSelector"));
            current.insert("value".into(), amount(&source["currentValue"]));
            put(&mut current, "averageValue", average);
        }
        _ => {
            put(&mut new, "name", &source["name"]);
            put(&mut new, "container", &source["container"]);
            let used = &source["currentAverageUtilization"];
            put(&mut current, "averageUtilization", used);
            current.insert("averageValue".into(), amount(average));
        }
    }
    new.insert("current".into(), current.into());
    json!({"type": kind, field: new})
}

/// The behaviour is written in the spelling of the code, with nothing left out.
fn old_behavior(behavior: &Value) -> Value {
    let rules = |rules: &Value| match rules {
        Value::Object(_) => {
            let policies = items(&rules["policies"]).map(|policy| {
                json!({"Type": policy["type"], "Value": policy["value"],
                    "PeriodSeconds": policy["periodSeconds"]})
            });
            let policies: Vec<Value> = policies.collect();
            json!({"StabilizationWindowSeconds": rules["stabilizationWindowSeconds"],
                "SelectPolicy": rules["selectPolicy"], "Tolerance": rules["tolerance"],
                "Policies": if policies.is_empty() { Value::Null } else { policies.into() }})
        }
        _ => Value::Null,
    };
    json!({"ScaleUp": rules(&behavior["scaleUp"]), "ScaleDown": rules(&behavior["scaleDown"])})
}

/// The same in the spelling of the newer form, without what is left open.
fn new_behavior(old: &Value) -> Value {
    match old {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().into_iter().flat_map(char::to_lowercase);
                (first.chain(letters.clone()).collect(), new_behavior(value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.iter().map(new_behavior).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Tree {
        match value {
            Value::Object(tree) => tree,
            other => panic!("an object, not {other}"),
        }
    }

    fn newer() -> Tree {
        let target = |by: &str, field: &str, value: Value| json!({"type": by, field: value});
        let metric = |name: &str| json!({"name": name, "selector": {"matchLabels": {"name": "x", "a": "b"}}});
        canonical(
            object(json!({
                "metadata": {"name": "h", "annotations": {"own": "kept"}},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                    "minReplicas": 1, "maxReplicas": 3,
                    "metrics": [
                        {"type": "Pods", "pods": {"metric": metric("p"),
                            "target": target("AverageValue", "averageValue", "10".into())}},
                        {"type": "Object", "object": {"metric": {"name": "o"},
                            "describedObject": {"kind": "Service", "name": "s"},
                            "target": target("Value", "value", "1k".into())}},
                        {"type": "External", "external": {"metric": metric("e"),
                            "target": target("AverageValue", "averageValue", "5".into())}},
                        {"type": "ContainerResource", "containerResource": {"name": "memory",
                            "container": "c", "target": target("Utilization", "averageUtilization", 50.into())}},
                        {"type": "Resource", "resource": {"name": "cpu",
                            "target": target("Utilization", "averageUtilization", 60.into())}},
                    ],
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10, "selectPolicy": "Min",
                        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}},
                },
                "status": {"desiredReplicas": 2, "currentReplicas": 1,
                    "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                        "current": {"averageUtilization": 40, "averageValue": "100m"}}}],
                    "conditions": [{"type": "AbleToScale", "status": "True", "message": "a < b",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            })),
            "v2",
        )
    }

    #[test]
    fn there_and_back_is_the_same_autoscaler() {
        let old = out(newer());
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
        assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 40);
        let annotations = &old["metadata"]["annotations"];
        assert_eq!(annotations["own"], "kept");
        assert_eq!(
            annotations[BEHAVIOR],
            "{\"ScaleUp\":null,\"ScaleDown\":{\"StabilizationWindowSeconds\":10,\
             \"SelectPolicy\":\"Min\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":1,\
             \"PeriodSeconds\":15}],\"Tolerance\":null}}"
        );
        assert!(
            annotations[CONDITIONS]
                .as_str()
                .unwrap()
                .contains("a \\u003c b")
        );
        assert_eq!(back(old), newer());
    }

    #[test]
    fn labels_keep_their_order_among_themselves() {
        let old = out(newer());
        let metrics = old["metadata"]["annotations"][METRICS].as_str().unwrap();
        let labels = "\"selector\":{\"matchLabels\":{\"a\":\"b\",\"name\":\"x\"}}";
        assert!(metrics.contains(labels), "{metrics}");
    }

    #[test]
    fn annotations_nobody_can_read_are_dropped() {
        for text in [
            "",
            "{",
            "1",
            "[1]",
            "[{\"type\":\"Pods\",\"pods\":{\"metricName\":1}}]",
        ] {
            let old = object(
                json!({"metadata": {"name": "h", "annotations": {METRICS: text,
                CONDITIONS: text, CURRENT_METRICS: text, BEHAVIOR: text}},
                "spec": {"maxReplicas": 3}}),
            );
            let new = back(old);
            assert_eq!(new["metadata"].get("annotations"), None);
            let metrics = items(&new["spec"]["metrics"]).cloned();
            let metrics: Vec<Value> = metrics.collect();
            assert_eq!(metrics, [cpu_use(80)], "{text}");
            assert_eq!(new["spec"].get("behavior"), None, "{text}");
        }
    }
}
