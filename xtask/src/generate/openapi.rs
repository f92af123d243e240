//! The component schemas of all documents, and lookups in them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Every component schema that is served, by name.
pub(super) struct Schemas {
    pub(super) all: BTreeMap<String, Value>,
}

impl Schemas {
    pub(super) fn of(documents: &[Value]) -> Self {
        let mut all = BTreeMap::new();
        for document in documents {
            let schemas = document
                .pointer("/components/schemas")
                .and_then(Value::as_object);
            for (name, schema) in schemas.into_iter().flatten() {
                all.insert(name.clone(), schema.clone());
            }
        }
        Self { all }
    }

    pub(super) fn property(&self, schema: &str, name: &str) -> Option<&Value> {
        self.all.get(schema)?.get("properties")?.get(name)
    }

    pub(super) fn required(&self, schema: &str, name: &str) -> bool {
        let required = self
            .all
            .get(schema)
            .and_then(|schema| schema.get("required"));
        let required = required.and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|required| required == name))
    }
}

/// Returns what the schema of a property adds to its type, as `key=value` words.
pub(super) fn extras(property: &Value) -> Vec<String> {
    let mut words = Vec::new();
    let texts = |value: &Value| -> String {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(",")
    };
    for (short, key) in [
        ("lt", "x-kubernetes-list-type"),
        ("mt", "x-kubernetes-map-type"),
        ("ps", "x-kubernetes-patch-strategy"),
        ("pk", "x-kubernetes-patch-merge-key"),
    ] {
        if let Some(value) = property.get(key).and_then(Value::as_str) {
            words.push(format!("{short}={value}"));
        }
    }
    if let Some(keys) = property.get("x-kubernetes-list-map-keys") {
        words.push(format!("lk={}", texts(keys)));
    }
    if let Some(allowed) = property.get("enum") {
        words.push(format!("en={}", texts(allowed)));
    }
    if let Some(allowed) = property.pointer("/items/enum") {
        words.push(format!("ie={}", texts(allowed)));
    }
    if let Some(default) = property.get("default") {
        words.push(format!("df={default}"));
    }
    words
}
