//! Sends the requests of a scenario to one of the servers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use pintle_apiserver::AuditEvent;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::mask::Mask;
use super::script::{Names, Scenario, Step};

/// The headers that are compared.
const HEADERS: [&str; 11] = [
    "content-type",
    "cache-control",
    "etag",
    "expires",
    "vary",
    "www-authenticate",
    "warning",
    "retry-after",
    "location",
    "allow",
    "accept-patch",
];

/// The prefix of the warnings that only our server sends, about objects without a controller.
const OWN_WARNING: &str = "299 - \"pintle: ";

/// How long to retry a step, and to wait for a response or a watch event.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Where the audit events of a server are.
#[derive(Clone)]
pub(super) enum AuditEvents {
    /// In the log of a kube-apiserver.
    Log(PathBuf),
    /// Those of our server, in order.
    Observed(Arc<Mutex<Vec<AuditEvent>>>),
}

impl AuditEvents {
    /// Returns the annotations of the last request with this URI, or with this audit ID.
    async fn annotations(&self, uri: &str, id: Option<&Value>) -> Option<Map<String, Value>> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let found: Option<Map<String, Value>> = match self {
                Self::Log(path) => {
                    let log = std::fs::read_to_string(path).unwrap_or_default();
                    // The last line may be incomplete.
                    let events = log.lines().rev().map(serde_json::from_str::<Value>);
                    let mut events = events.filter_map(Result::ok);
                    let event = events.find(|event| Some(&event["auditID"]) == id);
                    event.map(|event| match &event["annotations"] {
                        Value::Object(annotations) => annotations.clone(),
                        _ => Map::new(),
                    })
                }
                Self::Observed(events) => {
                    let events = events.lock().unwrap();
                    let mut events = events.iter().rev();
                    let event = events.find(|event| event.request_uri == uri);
                    let annotations = event.map(|event| event.annotations.clone());
                    annotations.map(|all| all.into_iter().map(|(k, v)| (k, v.into())).collect())
                }
            };
            if let Some(found) = found {
                return Some(comparable(&found));
            }
            if tokio::time::Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Renumbers webhooks, which kube-apiserver counts in all configurations of the cluster, in the keys
/// of annotations.
fn renumbered(annotations: &Map<String, Value>) -> Map<String, Value> {
    let place = Regex::new("^(.*(mutation|patch|validating)[.].*_index_)([0-9]+)$").unwrap();
    let part = |key: &str| {
        let found = place.captures(key)?;
        let index: usize = found[3].parse().ok()?;
        Some((found[1].to_owned(), &found[2] == "validating", index))
    };
    let parts = annotations.keys().filter_map(|key| part(key));
    let known: BTreeSet<(bool, usize)> = parts.map(|(_, phase, index)| (phase, index)).collect();
    let renamed = annotations.iter().map(|(key, value)| {
        let key = match part(key) {
            Some((prefix, phase, index)) => {
                let earlier = known.range((phase, 0)..(phase, index)).count();
                format!("{prefix}{earlier}")
            }
            None => key.clone(),
        };
        (key, value.clone())
    });
    renamed.collect()
}

/// Returns the annotations that both servers record, with values that are JSON decoded.
fn comparable(annotations: &Map<String, Value>) -> Map<String, Value> {
    let annotations = renumbered(annotations);
    let only_real = ["authorization.k8s.io/", "apiserver.latency.k8s.io/"];
    let annotations = annotations.into_iter();
    let compared = annotations.filter(|(key, _)| !only_real.iter().any(|it| key.starts_with(it)));
    let decoded = compared.map(|(key, value)| {
        let text = value.as_str().unwrap_or_default();
        let structured = text.starts_with(['{', '[']);
        let value = match serde_json::from_str(text) {
            Ok(decoded) if structured => decoded,
            _ => value,
        };
        (key, value)
    });
    decoded.collect()
}

/// A server and the state of one scenario on it.
pub(super) struct Side {
    audit: AuditEvents,
    client: Client,
    /// A client without credentials.
    anonymous: Client,
    names: Names,
    mask: Mask,
    /// Whether this is the reference, on which every step must succeed as the corpus says.
    is_reference: bool,
}

impl Side {
    /// Creates the reference side.
    pub(super) fn reference(
        clients: [Client; 2],
        audit: AuditEvents,
        namespace: &str,
        scenario: &Scenario,
        names: &[(&str, String)],
    ) -> Self {
        Self {
            is_reference: true,
            ..Self::new(clients, audit, namespace, scenario, names)
        }
    }

    pub(super) fn new(
        [client, anonymous]: [Client; 2],
        audit: AuditEvents,
        namespace: &str,
        scenario: &Scenario,
        names: &[(&str, String)],
    ) -> Self {
        let mut all = Names::of(namespace);
        let more = names.iter().cloned();
        all.0
            .extend(more.map(|(name, value)| (name.to_owned(), value)));
        Self {
            is_reference: false,
            audit,
            client,
            anonymous,
            names: all,
            mask: Mask::new(namespace, &scenario.script()),
        }
    }

    /// Runs a step and returns the masked response.
    pub(super) async fn run(&mut self, step: &Step) -> Value {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        let raw = loop {
            let raw = self.send(step).await;
            match &step.until {
                Some(until) if !reached(until, &raw) => {
                    if tokio::time::Instant::now() > deadline {
                        self.must(false, step, "`until` was not reached");
                        break raw;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                _ => break raw,
            }
        };
        for (name, place) in &step.save {
            let value = match place.strip_prefix("header ") {
                Some(header) => raw.headers.get(header).cloned(),
                None => raw.body.pointer(place).cloned(),
            };
            self.must(value.is_some(), step, "the value to save is missing");
            let text = match value {
                Some(Value::String(text)) => text,
                Some(other) => other.to_string(),
                None => format!("<no {name}>"),
            };
            self.names.0.insert(name.clone(), text);
        }
        self.must(raw.code != 0, step, "no response");
        let silent = raw.body.get("silent watch").is_some();
        self.must(!silent, step, "too few watch events");
        let audited = if step.audit {
            let text = self.names.fill_in(&step.request);
            let uri = text.split_once(' ').map_or("", |(_, uri)| uri);
            let id = raw.headers.get("audit-id");
            let annotations = self.audit.annotations(uri, id).await;
            self.must(annotations.is_some(), step, "no audit event");
            self.mask.value(json!({ "annotations": annotations }))
        } else {
            Value::Null
        };
        let mut masked = self.masked(step, raw);
        masked["audit"] = audited;
        masked
    }

    /// Panics if a condition does not hold on the reference. A step that fails the same way on both
    /// servers would compare nothing.
    fn must(&self, holds: bool, step: &Step, problem: &str) {
        assert!(
            holds || !self.is_reference,
            "{} on the real server: {problem}",
            step.request
        );
    }

    fn masked(&mut self, step: &Step, raw: Raw) -> Value {
        let headers: Map<String, Value> = raw
            .headers
            .into_iter()
            .filter(|(name, _)| HEADERS.contains(&name.as_str()))
            .collect();
        let body = if step.only.is_empty() {
            let all = step.names.is_none() && step.without.is_empty();
            self.must(all, step, "`names` and `without` require `only`");
            raw.body
        } else {
            for part in &step.only {
                let found = is_as_expected(&self.names.fill_in(part), &raw.body);
                self.must(found, step, &format!("expected {part} in {}", raw.body));
            }
            let names = step.names.as_ref().map(|names| Regex::new(names).unwrap());
            let part = |pointer: &String| {
                let (pointer, _) = split_part(pointer);
                let found = raw.body.pointer(&self.names.fill_in(pointer)).cloned();
                let found = without(&step.without, found.unwrap_or_default());
                let found = match &names {
                    Some(names) => {
                        let found = named(found, names);
                        self.must(
                            !is_empty(&found),
                            step,
                            &format!("nothing at {pointer} matches `names`"),
                        );
                        found
                    }
                    None => found,
                };
                (pointer.to_owned(), found)
            };
            let parts: Map<String, Value> = step.only.iter().map(part).collect();
            parts.into()
        };
        json!({
            "code": raw.code,
            "headers": self.mask.headers(headers),
            "body": self.mask.value(body),
        })
    }

    async fn send(&self, step: &Step) -> Raw {
        let request = self.request(step);
        let client = if step.anonymous {
            &self.anonymous
        } else {
            &self.client
        };
        let sent = tokio::time::timeout(TIMEOUT, client.send(request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Raw::failed(&format!("{error}")),
            Err(_) => return Raw::failed("timed out"),
        };
        let code = response.status().as_u16();
        let mut headers = Map::new();
        for (name, value) in response.headers() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            if name == "warning" && value.starts_with(OWN_WARNING) {
                continue;
            }
            match headers.get_mut(name.as_str()) {
                Some(Value::Array(values)) => values.push(value.into()),
                Some(first) => *first = json!([first.clone(), value]),
                None => {
                    headers.insert(name.as_str().to_owned(), value.into());
                }
            }
        }
        let watch = code == 200 && step.request.contains("watch=");
        let body = if watch {
            events(response.into_body(), step.events).await
        } else {
            let yaml = headers.get("content-type") == Some(&"application/yaml".into());
            match response.into_body().collect().await {
                Ok(collected) if yaml => {
                    let parsed = serde_saphyr::from_slice(&collected.to_bytes());
                    parsed.unwrap_or_else(|error| json!({ "broken YAML": error.to_string() }))
                }
                Ok(collected) => parsed(&collected.to_bytes()),
                Err(error) => json!({ "broken body": error.to_string() }),
            }
        };
        Raw {
            code,
            headers,
            body,
        }
    }

    fn request(&self, step: &Step) -> http::Request<Body> {
        let text = self.names.fill_in(&step.request);
        let (method, path) = text.split_once(' ').unwrap_or((&text, "/"));
        let body = match (&step.body, &step.text) {
            (Some(value), _) => self.names.fill_in_value(value).to_string().into_bytes(),
            (_, Some(text)) => self.names.fill_in(text).into_bytes(),
            _ => step.raw().unwrap_or_default(),
        };
        let body = if step.fill > 0 {
            let text = String::from_utf8_lossy(&body);
            text.replace("{fill}", &"x".repeat(step.fill)).into_bytes()
        } else {
            body
        };
        let accept = step.accept.as_deref().unwrap_or("application/json");
        let mut request = http::Request::builder()
            .method(method)
            .uri(path.replace(' ', "%20"))
            .header("user-agent", "differential/1.0")
            .header("accept", accept);
        match step.content_type.as_deref() {
            Some("none") => {}
            Some(other) => request = request.header("content-type", other),
            None if body.is_empty() => {}
            None => request = request.header("content-type", "application/json"),
        }
        for (name, value) in &step.headers {
            request = request.header(name, self.names.fill_in(value));
        }
        request.body(Body::from(body)).unwrap()
    }
}

/// An unmasked response.
struct Raw {
    code: u16,
    headers: Map<String, Value>,
    body: Value,
}

impl Raw {
    fn failed(error: &str) -> Self {
        Self {
            code: 0,
            headers: Map::new(),
            body: error.into(),
        }
    }
}

fn reached(until: &str, raw: &Raw) -> bool {
    if let Ok(code) = until.parse::<u16>() {
        return raw.code == code;
    }
    match until.split_once('=') {
        Some((pointer, expected)) => {
            let found = raw.body.pointer(pointer);
            found.is_some_and(|found| match found {
                Value::String(text) => text == expected,
                other => serde_json::from_str(expected).is_ok_and(|it: Value| it == *other),
            })
        }
        None => raw.body.pointer(until).is_some(),
    }
}

/// Returns the pointer of a part and whether it must exist.
fn split_part(part: &str) -> (&str, bool) {
    match part.strip_prefix("no ") {
        Some(pointer) => (pointer, false),
        None => (part, true),
    }
}

/// Returns whether a body has a part, or lacks one marked with `no`.
fn is_as_expected(part: &str, body: &Value) -> bool {
    let (pointer, exists) = split_part(part);
    body.pointer(pointer).is_some() == exists
}

/// Removes fields at any depth.
fn without(fields: &[String], value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| !fields.contains(key))
            .map(|(key, value)| (key, without(fields, value)))
            .collect(),
        Value::Array(items) => items
            .into_iter()
            .map(|item| without(fields, item))
            .collect(),
        other => other,
    }
}

/// Returns whether nothing is left to compare.
fn is_empty(part: &Value) -> bool {
    part.as_object().is_some_and(Map::is_empty)
}

/// Returns the entries of a list or map whose name matches, by name.
fn named(value: Value, names: &Regex) -> Value {
    let entries: Vec<(String, Value)> = match value {
        Value::Object(map) => map.into_iter().collect(),
        Value::Array(items) => items.into_iter().map(|item| (name(&item), item)).collect(),
        other => return other,
    };
    let entries = entries.into_iter();
    entries.filter(|(name, _)| names.is_match(name)).collect()
}

/// Returns the name of a list item.
fn name(item: &Value) -> String {
    let places = [item, &item["name"], &item["metadata"]["name"]];
    let name = places.into_iter().find_map(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn parsed(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

/// Reads watch events until there are enough or the watch ends.
async fn events(body: Body, enough: Option<usize>) -> Value {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let enough = enough.unwrap_or(usize::MAX);
    let lines = |bytes: &[u8]| bytes.split(|b| *b == b'\n').count() - 1;
    while lines(&bytes) < enough {
        match tokio::time::timeout(TIMEOUT, stream.next()).await {
            Ok(Some(Ok(chunk))) => bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            Ok(Some(Err(error))) => return json!({ "broken watch": error.to_string() }),
            Err(_) => return json!({ "silent watch": parsed_lines(&bytes) }),
        }
    }
    parsed_lines(&bytes).into_iter().take(enough).collect()
}

fn parsed_lines(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map(parsed).collect()
}

#[cfg(test)]
mod tests;
