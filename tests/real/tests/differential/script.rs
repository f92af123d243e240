//! The format of the corpus.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

/// Requests that depend on each other and share a namespace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// Unique within its file.
    pub(super) scenario: String,
    pub(super) steps: Vec<Step>,
}

impl Scenario {
    /// Returns the text of all requests, before placeholders are replaced.
    pub(super) fn script(&self) -> String {
        let texts = self.steps.iter().flat_map(|step| {
            let body = step.body.as_ref().map(Value::to_string);
            let bytes = step
                .raw()
                .map(|bytes| String::from_utf8_lossy(&bytes).into());
            [Some(step.request.clone()), body, step.text.clone(), bytes]
                .into_iter()
                .flatten()
                .chain(step.headers.values().cloned())
        });
        texts.collect::<Vec<String>>().join("\n")
    }
}

/// One request.
///
/// Any string may contain placeholders: `{ns}` is the namespace of the scenario, `{id}` an ID
/// unique to it, `{v1}` and the like the path of a group in the namespace, `{hook}` and `{ca}` the
/// URL and the CA bundle of the webhook program, `{stopped}` a webhook URL on which nothing
/// listens, and any other name a value saved by an earlier step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// Method and path.
    #[serde(rename = "do")]
    pub(super) request: String,
    /// The guarantees that the request covers.
    #[serde(default)]
    pub(super) w: String,
    /// The body, sent as JSON.
    pub(super) body: Option<Value>,
    /// The body, sent verbatim.
    pub(super) text: Option<String>,
    /// The body in base64, without placeholders.
    pub(super) bytes: Option<String>,
    /// The content type. Default: `application/json` if there is a body.
    #[serde(rename = "type")]
    pub(super) content_type: Option<String>,
    /// The `Accept` header. Default: `application/json`.
    pub(super) accept: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Values to save: a name, and a pointer into the body or `header name`.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// The number of `x` that replace `{fill}`.
    #[serde(default)]
    pub(super) fill: usize,
    /// Repeats the request until the response has this code, a value at this pointer, or, for
    /// `pointer=value`, this value.
    pub(super) until: Option<String>,
    /// The number of watch events to read. Default: until the watch ends.
    pub(super) events: Option<usize>,
    /// Whether to send the request without credentials.
    #[serde(default)]
    pub(super) anonymous: bool,
    /// Compares only these parts of the body, given as pointers. On the real server each must
    /// exist, or be absent if marked with `no`.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// Compares only entries whose name matches, for lists or maps that also contain entries of the
    /// server itself or of other scenarios. On the real server at least one must match.
    pub(super) names: Option<String>,
    /// Compares the annotations of the audit event too, except those about authorization and latency,
    /// which our server does not record. kube-apiserver logs requests for core objects whose path
    /// ends in the name `audited`.
    #[serde(default)]
    pub(super) audit: bool,
    /// Fields to ignore at any depth, such as descriptions.
    #[serde(default)]
    pub(super) without: Vec<String>,
}

impl Step {
    pub(super) fn method(&self) -> &str {
        self.request.split(' ').next().unwrap_or_default()
    }

    /// Decodes the binary body.
    pub(super) fn raw(&self) -> Option<Vec<u8>> {
        let bytes = self.bytes.as_ref()?;
        Some(
            STANDARD
                .decode(bytes)
                .unwrap_or_else(|error| panic!("{bytes}: {error}")),
        )
    }

    pub(super) fn is_write(&self) -> bool {
        self.method() != "GET"
    }
}

pub(super) fn parse(area: &str, text: &str) -> Vec<Scenario> {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{area}: {error}"))
}

/// The values of placeholders.
#[derive(Debug, Clone)]
pub(super) struct Names(pub(super) BTreeMap<String, String>);

impl Names {
    pub(super) fn of(namespace: &str) -> Self {
        let group = |group: &str| format!("/apis/{group}/namespaces/{namespace}");
        let names = [
            ("ns", namespace.to_owned()),
            ("id", namespace.to_owned()),
            ("v1", format!("/api/v1/namespaces/{namespace}")),
            ("apps", group("apps/v1")),
            ("batch", group("batch/v1")),
            ("policy", group("policy/v1")),
            ("rbac", group("rbac.authorization.k8s.io/v1")),
            ("leases", group("coordination.k8s.io/v1") + "/leases"),
            (
                "foos",
                group(&format!("{namespace}.example.com/v1")) + "/foos",
            ),
            (
                "crds",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            ),
        ];
        Self(names.map(|(name, text)| (name.to_owned(), text)).into())
    }

    pub(super) fn fill_in(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.0 {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }

    pub(super) fn fill_in_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_in(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill_in_value(item)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| (self.fill_in(key), self.fill_in_value(value)))
                .collect(),
            other => other.clone(),
        }
    }
}
