//! Annotation values as Go encodes them: JSON with fields in struct order.

use serde_json::Value;

/// Fields in the order of the Go structs they belong to.
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

/// Encodes a value with its fields in Go's order.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    // `encoding/json` escapes these for HTML.
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
        // In a LabelSelector, `matchLabels` comes first.
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
