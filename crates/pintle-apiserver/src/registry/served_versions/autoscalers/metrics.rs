//! Metrics and scaling behavior in `v1` annotations ("old") and `v2` fields ("new").

use serde_json::{Map, Value, json};

use super::items;
use crate::schema::typed::quantity;

/// Copies a value unless it is null.
fn put(into: &mut Map<String, Value>, name: &str, value: &Value) {
    if !value.is_null() {
        into.insert(name.to_owned(), value.clone());
    }
}

/// Returns a quantity that is required in `v1`: zero if it is missing.
fn amount(value: &Value) -> Value {
    match value {
        Value::Null => "0".into(),
        value => value.clone(),
    }
}

/// Returns true if a quantity, given as a string or a number, is zero.
fn is_zero(value: &Value) -> bool {
    let text = match value {
        Value::Null => return true,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    quantity::canonical(&text).is_ok_and(|amount| amount == "0")
}

/// Returns a metric's type, the field that describes its source, and that source.
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

pub(super) fn old_metric(metric: &Value) -> Value {
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

pub(super) fn new_metric(old: &Value) -> Value {
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
            if average.is_null() || !is_zero(value) {
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

/// Returns the `v2` metric identifier: a name and a selector.
fn metric(source: &Value, selector: &str) -> Value {
    let mut metric = Map::new();
    put(&mut metric, "name", &source["metricName"]);
    put(&mut metric, "selector", &source[selector]);
    metric.into()
}

pub(super) fn old_metric_status(status: &Value) -> Value {
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

pub(super) fn new_metric_status(old: &Value) -> Value {
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

/// Upstream encodes the internal Go struct: upper-case field names, and nulls included.
pub(super) fn old_behavior(behavior: &Value) -> Value {
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

/// Reverses [`old_behavior`]: lower-case field names, without nulls.
pub(super) fn new_behavior(old: &Value) -> Value {
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
