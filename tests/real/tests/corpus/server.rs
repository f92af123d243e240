//! Sends requests to one of the servers and makes the responses comparable.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// How long to wait for a CRD to be established and served.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The prefix of the warnings that only our server sends.
const OWN_WARNING: &str = "299 - \"pintle: ";

/// Part of the message about a rule that makes a schema too expensive.
const CONTRIBUTED: &str = "contributed to estimated rule cost total";

pub(super) struct Server {
    client: Client,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, body.to_string().into_bytes()).await
    }

    /// Like [`post`](Self::post), but waits until the resource is served.
    pub(super) async fn post_when_served(&self, path: &str, body: &Value) -> Answer {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let answer = self.post(path, body).await;
            let missing = answer.code == 404 || answer.code >= 500;
            if !missing || tokio::time::Instant::now() > deadline {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn delete(&self, path: &str) {
        self.send("DELETE", path, Vec::new()).await;
    }

    /// Returns a CRD once it is established, or when its names are refused. Another controller of
    /// kube-apiserver adds the condition of protected groups, before or after that.
    pub(super) async fn established(&self, path: &str) -> Answer {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let answer = self.send("GET", path, Vec::new()).await;
            let conditions = answer.body["status"]["conditions"].as_array();
            let conditions = || conditions.into_iter().flatten();
            let group = answer.body["spec"]["group"].as_str().unwrap_or_default();
            let is_protected = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
            let judged =
                conditions().any(|it| it["type"] == "KubernetesAPIApprovalPolicyConformant");
            let done = conditions().any(|it| {
                (it["type"] == "Established" && it["status"] == "True")
                    || (it["type"] == "NamesAccepted" && it["status"] == "False")
            });
            if done && (judged || !is_protected) || tokio::time::Instant::now() > deadline {
                return answer.without_managers();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Answer {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        let response = match tokio::time::timeout(TIMEOUT, self.client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Answer::failed(&error.to_string()),
            Err(_) => return Answer::failed("timed out"),
        };
        let code = response.status().as_u16();
        let mut warnings: Vec<String> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .filter(|value| !value.starts_with(OWN_WARNING))
            .collect();
        warnings.sort();
        match response.into_body().collect().await {
            Ok(collected) => Answer {
                code,
                warnings,
                body: serde_json::from_slice(&collected.to_bytes()).unwrap_or_default(),
            },
            Err(error) => Answer::failed(&error.to_string()),
        }
    }
}

impl Answer {
    fn failed(error: &str) -> Self {
        Self {
            code: 0,
            warnings: Vec::new(),
            body: error.into(),
        }
    }

    /// Removes `managedFields`, which differ because controllers of kube-apiserver write the
    /// status.
    fn without_managers(mut self) -> Self {
        let metadata = self.body.get_mut("metadata");
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self
    }

    /// Returns the parts that must be equal. kube-apiserver reports the problems of an object in
    /// random order.
    pub(super) fn compared(&self) -> Value {
        let mut body = self.body.clone();
        if let Some(metadata) = body.get_mut("metadata") {
            mask(metadata);
        }
        let conditions = body.pointer_mut("/status/conditions");
        let conditions = conditions.and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if let Some(time) = condition.get_mut("lastTransitionTime") {
                *time = "<time>".into();
            }
        }
        // Several controllers of kube-apiserver add conditions to a CRD, in any order.
        let conditions = body.pointer_mut("/status/conditions");
        if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
            conditions.sort_by_key(|it| it["type"].to_string());
        }
        if body["kind"] == "Status" {
            let causes = body.pointer_mut("/details/causes");
            if let Some(causes) = causes.and_then(Value::as_array_mut) {
                for cause in causes.iter_mut() {
                    // If several rules have the same cost, kube-apiserver names an arbitrary one.
                    if cause["message"]
                        .as_str()
                        .is_some_and(|it| it.contains(CONTRIBUTED))
                    {
                        cause["field"] = "<rule>".into();
                    }
                }
                causes.sort_by_key(Value::to_string);
            }
            if let Some(message) = body["message"].as_str() {
                body["message"] = sorted(message);
            }
        }
        json!({ "code": self.code, "warnings": self.warnings, "body": body })
    }
}

/// Replaces what differs between any two servers.
fn mask(metadata: &mut Value) {
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        if let Some(value) = metadata.get_mut(field) {
            *value = format!("<{field}>").into();
        }
    }
    let managers = metadata.get_mut("managedFields");
    for manager in managers.and_then(Value::as_array_mut).into_iter().flatten() {
        manager["time"] = "<time>".into();
    }
}

/// Splits a message with several problems into its sorted parts.
fn sorted(message: &str) -> Value {
    let Some((head, list)) = message.split_once(": [") else {
        return message.into();
    };
    let list = list.strip_suffix(']').unwrap_or(list);
    let mut parts: Vec<&str> = list
        .split(", ")
        .map(|it| {
            if it.contains(CONTRIBUTED) {
                CONTRIBUTED
            } else {
                it
            }
        })
        .collect();
    parts.sort_unstable();
    json!([head, parts])
}
