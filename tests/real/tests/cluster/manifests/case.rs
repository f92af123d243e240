//! The format of the manifests.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// A file of cases about one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The kinds that are compared.
    pub(super) kinds: Vec<String>,
    /// Fields of every object of a kind, unless the object sets them. `null` removes a field.
    #[serde(default)]
    defaults: BTreeMap<String, Value>,
    /// What every case creates first.
    #[serde(default)]
    pub(super) each: Vec<Value>,
    pub(super) cases: Vec<Case>,
}

/// A case: objects in their own namespace, and what becomes of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[serde(rename = "case")]
    pub(super) name: String,
    /// What the kubelet does with Pods.
    #[serde(default)]
    pub(super) pods: Kubelet,
    #[serde(default)]
    pub(super) create: Vec<Value>,
    /// Parts of objects, by kind and name, that both sides must reach before they are compared.
    /// `null` means that the object must not exist. A number, by kind, is how many objects exist.
    #[serde(default)]
    pub(super) expect: BTreeMap<String, Value>,
    /// Further steps.
    #[serde(default)]
    pub(super) then: Vec<Step>,
    /// Differences that are not compared.
    #[serde(default)]
    pub(super) accept: Vec<Accepted>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Step {
    pub(super) create: Vec<Value>,
    /// Merge patches by kind and name.
    pub(super) patch: BTreeMap<String, Value>,
    /// Merge patches of the subresource `status`.
    pub(super) status: BTreeMap<String, Value>,
    /// Merge patches of the subresource `approval`.
    pub(super) approval: BTreeMap<String, Value>,
    /// The propagation policies of deletions, by kind and name.
    pub(super) delete: BTreeMap<String, String>,
    /// Replaces the behaviour of the kubelet.
    pub(super) pods: Option<Kubelet>,
    pub(super) expect: BTreeMap<String, Value>,
}

/// A field that differs, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accepted {
    pub(super) kind: String,
    /// A pointer into the object.
    pub(super) field: String,
    #[allow(dead_code, reason = "documents the case")]
    because: String,
}

/// What the kubelet does with Pods. There is no kubelet, so the test plays it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Kubelet {
    All(String),
    Some(Vec<Rule>),
}

impl Default for Kubelet {
    fn default() -> Self {
        Self::All("ready".to_owned())
    }
}

/// What happens to the Pods with these labels. The first matching rule applies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(rename = "do")]
    action: String,
}

/// What a kubelet reports about a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Nothing,
    Ready,
    Unready,
    Exit(i32),
}

impl Kubelet {
    pub(super) fn report(&self, labels: &Value) -> Report {
        let action = match self {
            Self::All(action) => action,
            Self::Some(rules) => {
                let matches = |rule: &&Rule| {
                    let mut wanted = rule.labels.iter();
                    wanted.all(|(key, value)| labels[key] == **value)
                };
                match rules.iter().find(matches) {
                    Some(rule) => &rule.action,
                    None => return Report::Nothing,
                }
            }
        };
        match action.split_once(' ') {
            Some(("exit", code)) => Report::Exit(code.parse().unwrap()),
            None if action == "ready" => Report::Ready,
            None if action == "unready" => Report::Unready,
            None if action == "nothing" => Report::Nothing,
            _ => panic!("unknown action {action:?}"),
        }
    }
}

/// Overlays `over` on `under`; `null` removes a field.
fn overlay(under: &Value, over: &Value) -> Value {
    let (Value::Object(below), Value::Object(above)) = (under, over) else {
        return over.clone();
    };
    let mut merged = below.clone();
    for (key, value) in above {
        if value.is_null() {
            merged.remove(key);
        } else {
            let below = below.get(key).unwrap_or(&Value::Null);
            merged.insert(key.clone(), overlay(below, value));
        }
    }
    merged.into()
}

impl File {
    /// Reads a file of the directory `manifests`.
    pub(super) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let path = path.join(name).with_extension("yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = serde_saphyr::from_str(&text);
        parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Adds the defaults of its kind to an object of a case, and replaces `{ns}` with the
    /// namespace.
    pub(super) fn complete(&self, object: &Value, namespace: &str) -> Value {
        let kind = object["kind"].as_str().unwrap();
        let defaults = self.defaults.get(kind).cloned();
        let mut object = overlay(&defaults.unwrap_or_else(|| json!({})), object);
        if let Some(name) = object.as_object_mut().and_then(|it| it.remove("name")) {
            object["metadata"]["name"] = name;
        }
        placed(&object, namespace)
    }
}

/// Replaces `{ns}` in a value with the namespace.
pub(super) fn placed(value: &Value, namespace: &str) -> Value {
    let text = value.to_string().replace("{ns}", namespace);
    serde_json::from_str(&text).unwrap()
}

/// Returns whether `actual` has everything that `expected` has, in any order. `*` is any value
/// but null.
pub(super) fn has(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(any), _) if any == "*" => !actual.is_null(),
        (Value::Object(expected), _) => expected
            .iter()
            .all(|(key, value)| has(value, actual.get(key).unwrap_or(&Value::Null))),
        (Value::Array(expected), Value::Array(actual)) => expected
            .iter()
            .all(|one| actual.iter().any(|other| has(one, other))),
        _ => expected == actual,
    }
}
