//! Masks values that servers generate.
//!
//! The n-th UID of a scenario becomes `<uid-n>` on both servers, so that the comparison still
//! notices a wrong UID. The same applies to the resourceVersions of objects. Times and the
//! resourceVersions of lists are only compared by format.
//!
//! Values that the scenario itself sends are not masked: UIDs, addresses, ports and
//! resourceVersions in its script, and times more than a day from now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use real_tests::{is_about_now, is_in_a_year};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

macro_rules! regex {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap());
    };
}

regex!(
    UID,
    "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
);
regex!(TIME, r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z");
regex!(
    VERSION,
    r"(?i)(resource ?version: |current: |ResourceVersion in (?:the precondition|record|precondition|object meta):? \(?)(\d+)"
);
regex!(SENT_VERSION, r#"resourceVersion(?:=|":")(\d+)"#);
regex!(ADDRESS, r"\b10\.\d+\.\d+\.\d+\b");
regex!(HASH, "hash=[0-9A-F]{16,}");
regex!(TAG, "^\"[0-9A-F]{16,}\"$");
regex!(AGE, r"^(\d+[smhdy])+$");
regex!(GENERATED, "^[bcdfghjklmnpqrstvwxz2456789]{5}$");

/// The generated values a scenario has seen on one server.
#[derive(Debug)]
pub(super) struct Mask {
    namespace: String,
    /// The text of the scenario, before saved values are inserted.
    script: String,
    /// The resourceVersions that the scenario sends.
    sent_versions: BTreeSet<String>,
    uids: Vec<String>,
    versions: Vec<String>,
    /// Generated names and their masks.
    generated: Vec<(String, String)>,
}

impl Mask {
    pub(super) fn new(namespace: &str, script: &str) -> Self {
        let versions = SENT_VERSION.captures_iter(script);
        Self {
            namespace: namespace.to_owned(),
            sent_versions: versions.map(|found| found[1].to_owned()).collect(),
            script: script.to_owned(),
            uids: Vec::new(),
            versions: Vec::new(),
            generated: Vec::new(),
        }
    }

    pub(super) fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => {
                let normalized = self.normalize(&text);
                self.text(&normalized).into()
            }
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => self.object(map).into(),
            other => other,
        }
    }

    fn object(&mut self, mut map: Map<String, Value>) -> Map<String, Value> {
        let is_object = map.contains_key("uid") && map.contains_key("name");
        if let Some(Value::String(version)) = map.get("resourceVersion")
            && version.parse::<u64>().is_ok_and(|version| version > 0)
            && !self.sent_versions.contains(version)
        {
            let masked = if is_object {
                ordinal(&mut self.versions, version, "version")
            } else {
                "<version>".to_owned()
            };
            map.insert("resourceVersion".into(), masked.into());
        }
        if let Some(Value::String(token)) = map.get("continue") {
            map.insert("continue".into(), page(token));
        }
        if let (Some(Value::String(prefix)), Some(Value::String(name))) =
            (map.get("generateName"), map.get("name"))
            && let Some(rest) = name.strip_prefix(prefix.as_str())
            && GENERATED.is_match(rest)
        {
            let masked = format!("{prefix}<generated>");
            self.generated.push((name.clone(), masked));
        }
        if let Some(Value::Array(entries)) = map.get_mut("managedFields") {
            // Sorted by time on the server, and a second may pass between two requests.
            entries.sort_by_key(|entry| {
                ["operation", "manager", "subresource", "apiVersion"]
                    .map(|key| entry[key].to_string())
            });
        }
        let causes = map
            .get("details")
            .and_then(|details| details["causes"].as_array());
        if causes.is_some_and(|causes| causes.len() > 1)
            && let Some(Value::String(message)) = map.get("message")
            && let Some((start, list)) = message.split_once(" is invalid: [")
            && lists(list, causes.into_iter().flatten())
        {
            // The message repeats the causes in any order, and the causes are compared.
            let masked = format!("{start} is invalid: <causes>");
            map.insert("message".into(), masked.into());
        }
        if let Some(Value::Array(causes)) = map.get_mut("causes") {
            // Errors of map values have no order.
            causes.sort_by_key(ToString::to_string);
        }
        if let Some(Value::Array(columns)) = map.get_mut("columnDefinitions") {
            // Our tables have no descriptions.
            for column in columns.iter_mut().filter_map(Value::as_object_mut) {
                column.remove("description");
            }
        }
        if let Some(Value::Array(cells)) = map.get_mut("cells") {
            for cell in cells.iter_mut() {
                if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                    *cell = "<age>".into();
                }
            }
        }
        for port in ["nodePort", "healthCheckNodePort"] {
            let number = map.get(port).and_then(Value::as_u64).unwrap_or(0);
            if number >= 30000 && !self.script.contains(&number.to_string()) {
                map.insert(port.into(), "<port>".into());
            }
        }
        // Visit fields in key order, so that UIDs are numbered alike on both servers.
        let sorted: BTreeMap<String, Value> = map.into_iter().collect();
        sorted
            .into_iter()
            .map(|(key, value)| (self.text(&key), self.value(value)))
            .collect()
    }

    /// Normalizes the field order of JSON in an "Invalid value" message.
    fn normalize(&mut self, text: &str) -> String {
        const BEFORE: &str = "Invalid value: ";
        let Some(at) = text.find(BEFORE).map(|at| at + BEFORE.len()) else {
            return text.to_owned();
        };
        let (start, rest) = text.split_at(at);
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let shown = match values.next() {
            Some(Ok(Value::String(quoted))) => serde_json::from_str(&quoted).ok(),
            Some(Ok(value)) => Some(value),
            _ => None,
        };
        let end = &rest[values.byte_offset()..];
        match shown {
            Some(value @ (Value::Object(_) | Value::Array(_))) => {
                format!("{start}{}{end}", self.value(value))
            }
            _ => text.to_owned(),
        }
    }

    /// Masks headers.
    pub(super) fn headers(&mut self, mut headers: Map<String, Value>) -> Value {
        if let Some(Value::String(tag)) = headers.get("etag")
            && TAG.is_match(tag)
        {
            headers.insert("etag".into(), "<tag>".into());
        }
        if let Some(Value::String(time)) = headers.get("expires")
            && is_in_a_year(time)
        {
            headers.insert("expires".into(), "<in a year>".into());
        }
        self.value(headers.into())
    }

    pub(super) fn text(&mut self, text: &str) -> String {
        let text = text.replace(&self.namespace, "{ns}");
        let generated = self.generated.iter();
        let text = generated.fold(text, |text, (name, mask)| text.replace(name, mask));
        let (uids, script) = (&mut self.uids, &self.script);
        let text = UID.replace_all(&text, |found: &Captures<'_>| {
            if script.contains(&found[0]) {
                return found[0].to_owned();
            }
            ordinal(uids, &found[0], "uid")
        });
        let text = TIME.replace_all(&text, |found: &Captures<'_>| match found.get(1) {
            _ if !is_about_now(&found[0]) => found[0].to_owned(),
            Some(fraction) => format!("<time with {} digits>", fraction.len() - 1),
            None => "<time>".to_owned(),
        });
        let text = VERSION.replace_all(&text, |found: &Captures<'_>| {
            let sent = self.sent_versions.contains(&found[2]);
            let version = if sent { &found[2] } else { "<version>" };
            format!("{}{version}", &found[1])
        });
        let text = HASH.replace_all(&text, "hash=<hash>");
        let text = ADDRESS.replace_all(&text, |found: &Captures<'_>| {
            let sent = script.contains(&found[0]);
            let address = if sent { &found[0] } else { "<address>" };
            address.to_owned()
        });
        text.into_owned()
    }
}

fn ordinal(seen: &mut Vec<String>, value: &str, what: &str) -> String {
    let at = seen.iter().position(|other| other == value);
    let at = at.unwrap_or_else(|| {
        seen.push(value.to_owned());
        seen.len() - 1
    });
    format!("<{what}-{}>", at + 1)
}

/// Returns whether a list of errors contains each of the causes and nothing else.
fn lists<'a>(list: &str, causes: impl Iterator<Item = &'a Value>) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut errors: Vec<String> = causes
        .map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"])))
        .collect();
    // Longest first, because one may be a prefix of another. The message has no duplicates.
    errors.sort_by_key(|error| std::cmp::Reverse(error.len()));
    errors.dedup();
    let rest = errors.iter().try_fold(list.to_owned(), |rest, error| {
        rest.contains(error).then(|| rest.replacen(error, "", 1))
    });
    rest.is_some_and(|rest| rest.replace(", ", "") == "]")
}

/// Decodes a continue token and masks its resourceVersion.
fn page(token: &str) -> Value {
    let decoded = URL_SAFE_NO_PAD.decode(token).ok();
    let decoded = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    match decoded {
        Some(mut page) => {
            if page["rv"].as_i64().unwrap_or(-1) > 0 {
                page["rv"] = "<version>".into();
            }
            page
        }
        None => token.into(),
    }
}

#[cfg(test)]
mod tests;
