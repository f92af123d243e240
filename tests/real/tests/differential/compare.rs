//! Compares two responses field by field.

use serde_json::{Value, json};

/// The maximum length of a value in a report.
const MAX_SHOWN: usize = 600;

/// A difference between two responses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// A JSON pointer into the response, such as `/headers/…` or `/body/…`, or `/code=` and our
    /// code.
    pub(crate) path: String,
    pub(crate) real: Option<Value>,
    pub(crate) ours: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |value: &Option<Value>| match value {
            None => "nothing".to_owned(),
            Some(value) => value.to_string().chars().take(MAX_SHOWN).collect(),
        };
        writeln!(f, "  {}", self.path)?;
        writeln!(f, "    real: {}", show(&self.real))?;
        write!(f, "    ours: {}", show(&self.ours))
    }
}

/// Returns all differences. Responses with different codes have one difference, because their
/// bodies are not comparable.
pub(crate) fn differences(real: &Value, ours: &Value) -> Vec<Difference> {
    if real["code"] != ours["code"] {
        let both = |response: &Value| Some(json!([response["code"], response["body"]]));
        return vec![Difference {
            path: format!("/code={}", ours["code"]),
            real: both(real),
            ours: both(ours),
        }];
    }
    let mut found = Vec::new();
    walk(String::new(), Some(real), Some(ours), &mut found);
    found
}

fn walk(path: String, real: Option<&Value>, ours: Option<&Value>, found: &mut Vec<Difference>) {
    match (real, ours) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                walk(format!("{path}/{escaped}"), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(format!("{path}/{index}"), a.get(index), b.get(index), found);
            }
        }
        (real, ours) if real == ours => {}
        (real, ours) => found.push(Difference {
            path,
            real: real.cloned(),
            ours: ours.cloned(),
        }),
    }
}

/// An accepted difference: `area/scenario/step path ours reason`.
///
/// `ours` is our value there, so that an entry accepts no other difference: the word `nothing` or
/// JSON. A string matches any value that contains it. After a path with our code there is no value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) step: String,
    pub(crate) path: String,
    ours: Option<Value>,
}

impl Accepted {
    /// Returns whether the entry accepts a difference.
    pub(crate) fn matches(&self, step: &str, difference: &Difference) -> bool {
        let alike = match (&self.ours, &difference.ours) {
            _ if is_code(&self.path) => true,
            (Some(Value::String(part)), Some(Value::String(text))) => text.contains(part.as_str()),
            (accepted, ours) => accepted == ours,
        };
        alike && self.step == step && self.path == difference.path
    }
}

fn is_code(path: &str) -> bool {
    path.starts_with("/code=")
}

/// Parses `accepted.txt`. Lines that start with `#` are comments.
pub(crate) fn accepted(text: &str) -> Vec<Accepted> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let mut next = || parts.next().unwrap_or_default().trim().to_owned();
            let (step, path, rest) = (next(), next(), next());
            assert!(path.starts_with('/'), "no path: {line}");
            assert!(!path.contains('*'), "no wildcards: {line}");
            let (ours, reason) = if is_code(&path) {
                (None, rest.as_str())
            } else {
                ours(&rest).unwrap_or_else(|| panic!("no value of ours: {line}"))
            };
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            Accepted { step, path, ours }
        })
        .collect()
}

/// Parses our value. Returns it with the rest of the line.
fn ours(text: &str) -> Option<(Option<Value>, &str)> {
    if let Some(rest) = text.strip_prefix("nothing ") {
        return Some((None, rest));
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let rest = &text[values.byte_offset()..];
    // The empty string would match any string.
    (value != "").then_some((Some(value), rest))
}

#[cfg(test)]
mod tests;
