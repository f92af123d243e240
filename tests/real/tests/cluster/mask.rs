//! Masks values that differ between runs or servers for reasons unrelated to the loops.

use serde_json::{Map, Value, json};

/// Identities, times and write counts.
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

/// Fields of Pods set by admission plugins.
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

/// Masks a value: removes varying fields, replaces template hashes with their index in `hashes`,
/// and the random part of generated names with a star.
pub(super) fn masked(value: Value, hashes: &[String]) -> Value {
    match value {
        Value::Object(mut map) => {
            if let Some(prefix) = generated_from(&map) {
                let name = format!("{prefix}*");
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
            // Conditions are a map by type, so their order does not matter.
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

/// Returns the prefix of a generated name. A `StatefulSet`'s Pods have a prefix, but their names are
/// not generated.
pub(super) fn generated_from(metadata: &Map<String, Value>) -> Option<&str> {
    const RANDOM: usize = 5;
    let prefix = metadata.get("generateName")?.as_str()?;
    let name = metadata.get("name")?.as_str()?;
    let suffix = name.strip_prefix(prefix)?;
    (suffix.len() == RANDOM).then_some(prefix)
}
