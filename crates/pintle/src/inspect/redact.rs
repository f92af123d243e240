//! Removes secrets before anything leaves the process.
//!
//! Three places hold them: the data of Secrets, annotations and environment variables whose names say
//! so, and tokens inside any text, such as an error message. What is removed is replaced by
//! [`HIDDEN`], so that a reader sees that something is there.

use serde_json::{Map, Value};

/// Stands for a value that is not shown.
pub(super) const HIDDEN: &str = "(hidden)";

/// Words in the name of an annotation or variable that mark its value as a secret.
const SECRET_WORDS: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "apikey",
    "api-key",
    "api_key",
    "private",
];

/// Annotations that hold a copy of the object.
const COPIES: [&str; 1] = ["kubectl.kubernetes.io/last-applied-configuration"];

/// Removes secrets and `managedFields` from an object. `kind` is that of the object, because the items
/// of a list do not state it.
pub(super) fn object(kind: &str, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if kind == "Secret" {
        for field in ["data", "stringData"] {
            if let Some(Value::Object(data)) = fields.get_mut(field) {
                data.values_mut().for_each(hide);
            }
        }
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    fields.values_mut().for_each(walk);
}

fn hide(value: &mut Value) {
    *value = Value::from(HIDDEN);
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                for (name, value) in annotations {
                    if is_secret(name) || COPIES.contains(&name.as_str()) {
                        hide(value);
                    }
                }
            }
            hide_variable(fields);
            fields.values_mut().for_each(walk);
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::String(own) => {
            if let Some(clean) = without_tokens(own) {
                *own = clean;
            }
        }
        _ => {}
    }
}

/// Hides the value of an environment variable, `{name, value}`.
fn hide_variable(fields: &mut Map<String, Value>) {
    let name = fields.get("name").and_then(Value::as_str);
    if name.is_some_and(is_secret)
        && let Some(value) = fields.get_mut("value")
    {
        hide(value);
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Removes tokens from a text.
pub(super) fn text(text: &str) -> String {
    without_tokens(text).unwrap_or_else(|| text.to_owned())
}

/// Returns the text without bearer tokens and JSON web tokens; `None` if it has none.
fn without_tokens(text: &str) -> Option<String> {
    if !text.contains("eyJ") && !text.contains("earer ") {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut hide_next = false;
    let mut changed = false;
    for part in text.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        let jwt = word.find("eyJ").filter(|at| {
            let token = &word[*at..];
            token.len() > 20 && token.contains('.')
        });
        let from = if hide_next { Some(0) } else { jwt };
        match from {
            Some(at) if !word.is_empty() => {
                clean.push_str(&word[..at]);
                clean.push_str(HIDDEN);
                clean.push_str(&part[word.len()..]);
                changed = true;
            }
            _ => clean.push_str(part),
        }
        hide_next = word.ends_with("earer");
    }
    changed.then_some(clean)
}

#[cfg(test)]
mod tests;
