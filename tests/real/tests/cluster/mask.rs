//! What differs from run to run, or by what only one side has, and says nothing about the loops.

use serde_json::{Value, json};

/// Identities, times, and how often something was written.
const VARYING: [&str; 10] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "observedGeneration",
    "managedFields",
    "lastUpdateTime",
    "lastTransitionTime",
    "namespace",
];

/// What admission adds to a Pod, which is no loop's doing.
const ADMITTED: [&str; 8] = [
    "volumes",
    "volumeMounts",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
    "preemptionPolicy",
    "priority",
    "enableServiceLinks",
];

/// The object without all that; template hashes are numbered in the order of `hashes`, and names the
/// server made up end in a star.
pub(super) fn masked(value: Value, hashes: &[String]) -> Value {
    match value {
        Value::Object(mut map) => {
            if let Some(made_up) = map.get("generateName").and_then(Value::as_str) {
                let name = format!("{made_up}*");
                map.insert("name".into(), json!(name));
            }
            let varies = |key: &str| VARYING.contains(&key) || ADMITTED.contains(&key);
            map.into_iter()
                .filter(|(key, _)| !varies(key))
                .map(|(key, value)| (key, masked(value, hashes)))
                .collect()
        }
        Value::Array(values) => {
            let mut values: Vec<Value> = values
                .into_iter()
                .map(|value| masked(value, hashes))
                .collect();
            // Conditions are a map by type; their order says nothing.
            if values.iter().all(|value| value["type"].is_string()) {
                values.sort_by_key(|value| value["type"].to_string());
            }
            values.into()
        }
        Value::String(mut text) => {
            for (index, hash) in hashes.iter().enumerate() {
                text = text.replace(hash, &format!("HASH-{index}"));
            }
            text.into()
        }
        other => other,
    }
}
