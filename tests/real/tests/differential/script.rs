//! The corpus as data: scenarios of requests, one file per area.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

/// Requests that build on each other, in a namespace of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// Unique within its file.
    pub(super) scenario: String,
    pub(super) steps: Vec<Step>,
}

impl Scenario {
    /// All that the requests say themselves, before anything is filled in.
    pub(super) fn script(&self) -> String {
        let said = self.steps.iter().flat_map(|step| {
            let body = step.body.as_ref().map(Value::to_string);
            let bytes = step
                .raw()
                .map(|bytes| String::from_utf8_lossy(&bytes).into());
            [Some(step.request.clone()), body, step.text.clone(), bytes]
                .into_iter()
                .flatten()
                .chain(step.headers.values().cloned())
        });
        said.collect::<Vec<String>>().join("\n")
    }
}

/// One request.
///
/// In every text, `{ns}` stands for the namespace of the scenario, `{id}` for a word no other
/// scenario uses, `{v1}` and the like for the path of a group in the namespace, and any other name
/// in braces for what a former step saved.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// Method and path.
    #[serde(rename = "do")]
    pub(super) request: String,
    /// The lines of the wire contract the request is there for.
    #[serde(default)]
    pub(super) w: String,
    /// The body, sent as JSON.
    pub(super) body: Option<Value>,
    /// The body as it is.
    pub(super) text: Option<String>,
    /// The body in base64, in which nothing is filled in.
    pub(super) bytes: Option<String>,
    /// The content type; without one, `application/json` if there is a body.
    #[serde(rename = "type")]
    pub(super) content_type: Option<String>,
    /// What the client accepts; without one, `application/json`.
    pub(super) accept: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// What to remember of the answer: a name, and a pointer into the body or `header name`.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// How many `x` the text `{fill}` stands for.
    #[serde(default)]
    pub(super) fill: usize,
    /// Asks again until the answer has this code, or holds this pointer, or `pointer=text`.
    pub(super) until: Option<String>,
    /// Reads a watch until so many events have come, and then hangs up. Without it, until its end.
    pub(super) events: Option<usize>,
    /// Sent by somebody the server does not know.
    #[serde(default)]
    pub(super) stranger: bool,
    /// Compares only the part of the body at each of these pointers: for documents with prose. The
    /// real server must have each of them, but none of those after the word `no`.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// Of a list or map at each of those pointers, compares only what has such a name: for lists in
    /// which both servers name things of their own, or of other scenarios. On the real server
    /// something must have one.
    pub(super) names: Option<String>,
    /// Fields of those parts that are not compared, wherever they are: prose.
    #[serde(default)]
    pub(super) without: Vec<String>,
}

impl Step {
    pub(super) fn method(&self) -> &str {
        self.request.split(' ').next().unwrap_or_default()
    }

    /// The body that is no text.
    pub(super) fn raw(&self) -> Option<Vec<u8>> {
        let bytes = self.bytes.as_ref()?;
        Some(
            STANDARD
                .decode(bytes)
                .unwrap_or_else(|why| panic!("{bytes}: {why}")),
        )
    }

    pub(super) fn is_write(&self) -> bool {
        self.method() != "GET"
    }
}

pub(super) fn parse(area: &str, text: &str) -> Vec<Scenario> {
    serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{area}: {why}"))
}

/// What the names in braces stand for.
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
