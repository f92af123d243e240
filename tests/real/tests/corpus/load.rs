//! The corpus as `cargo xtask` stores it.

use std::collections::BTreeMap;
use std::io::BufRead as _;

use real_tests::{CORPUS_VARIABLE, from_environment};
use serde_json::{Map, Value, json};

/// A CRD with its samples.
pub(super) struct Definition {
    pub(super) object: Value,
    pub(super) samples: Vec<Value>,
}

/// Reads the CRDs in the order of the file, at most `most` of each module.
pub(super) fn load(most: usize) -> Vec<Definition> {
    let path = from_environment(CORPUS_VARIABLE);
    let file =
        std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<Definition> = Vec::new();
    let mut modules: BTreeMap<String, usize> = BTreeMap::new();
    for line in std::io::BufReader::new(file).lines() {
        let mut line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let object = line["object"].take();
        if object["kind"] == "CustomResourceDefinition" {
            let count = modules.entry(line["module"].to_string()).or_default();
            *count += 1;
            if *count > most {
                continue;
            }
            found.push(Definition {
                object,
                samples: Vec::new(),
            });
        } else if let Some(owner) = found.iter_mut().find(|it| it.defines(&object)) {
            owner.samples.push(object);
        }
    }
    found
}

impl Definition {
    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn group(&self) -> &str {
        self.object["spec"]["group"].as_str().unwrap_or_default()
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = &Value> {
        let all = self.object["spec"]["versions"].as_array();
        all.into_iter().flatten()
    }

    fn defines(&self, object: &Value) -> bool {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        group == self.group() && object["kind"] == self.object["spec"]["names"]["kind"]
    }

    pub(super) fn has_webhook(&self) -> bool {
        self.object["spec"]["conversion"]["strategy"] == "Webhook"
    }

    /// Returns the CRD without its conversion, so that the strategy is `None`.
    pub(super) fn without_webhook(&self) -> Value {
        let mut plain = self.object.clone();
        if let Some(spec) = plain["spec"].as_object_mut() {
            spec.remove("conversion");
        }
        plain
    }

    /// Returns the path of the collection that an object belongs to, in the namespace `default`,
    /// and removes the namespace from the object.
    pub(super) fn collection(&self, version: &str, object: &mut Value) -> String {
        let spec = &self.object["spec"];
        let plural = spec["names"]["plural"].as_str().unwrap_or_default();
        let namespaced = spec["scope"] == "Namespaced";
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("namespace");
        }
        let namespace = if namespaced {
            "namespaces/default/"
        } else {
            ""
        };
        format!("/apis/{}/{version}/{namespace}{plural}", self.group())
    }

    /// Returns the number of rules in all schemas.
    pub(super) fn rules(&self) -> usize {
        fn count(value: &Value) -> usize {
            match value {
                Value::Object(map) => {
                    let here = map
                        .get("x-kubernetes-validations")
                        .and_then(Value::as_array);
                    here.map_or(0, Vec::len) + map.values().map(count).sum::<usize>()
                }
                Value::Array(items) => items.iter().map(count).sum(),
                _ => 0,
            }
        }
        self.versions()
            .map(|version| count(&version["schema"]))
            .sum()
    }

    pub(super) fn has_rules(&self) -> bool {
        self.rules() > 0
    }

    /// Returns copies of the CRD with the limits that bound the cost of its rules removed, and with
    /// looser ones.
    pub(super) fn costly(&self) -> Vec<(&'static str, Value)> {
        let all = ["maxItems", "maxProperties", "maxLength"];
        let changed = |change: &dyn Fn(&mut Map<String, Value>)| {
            let mut definition = self.object.clone();
            for_each_schema(&mut definition["spec"]["versions"], change);
            definition
        };
        vec![
            (
                "unbounded",
                changed(&|schema| {
                    for name in all {
                        schema.remove(name);
                    }
                }),
            ),
            (
                "looser",
                changed(&|schema| {
                    for (name, factor) in all.into_iter().zip([8, 8, 50]) {
                        if let Some(limit) = schema.get_mut(name)
                            && let Some(number) = limit.as_u64()
                        {
                            *limit = json!(number * factor);
                        }
                    }
                }),
            ),
        ]
    }
}

/// Calls a function for every schema of the versions of a CRD.
fn for_each_schema(value: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            if map.get("type").is_some_and(Value::is_string) {
                change(map);
            }
            for value in map.values_mut() {
                for_each_schema(value, change);
            }
        }
        Value::Array(items) => {
            for item in items {
                for_each_schema(item, change);
            }
        }
        _ => {}
    }
}
