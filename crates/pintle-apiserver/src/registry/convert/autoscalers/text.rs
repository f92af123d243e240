//! How annotations are written: as JSON, letter by letter as clients know it.

use serde_json::Value;

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

/// JSON with its fields in the order clients are used to.
pub(super) fn text(value: &Value) -> String {
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
