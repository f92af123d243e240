//! Removes secrets before anything leaves the process.
//!
//! Three places hold them: the data and annotations of Secrets, also of Secrets inside other
//! objects; annotations and environment variables whose names suggest a secret; and any text, such
//! as an error message, which may hold tokens and the values that the server rejected. What is
//! removed is replaced by [`HIDDEN`], so that a reader sees that something is there.

use serde_json::{Map, Value};

/// Replaces a hidden value.
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

/// Parts of the names of annotations that hold a copy of the object: those of kubectl and its
/// imitators, kopf, kapp, Rancher and Cluster API.
const COPIES: [&str; 5] = [
    "last-applied",
    "last-handled-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
    "cluster.x-k8s.io/conversion-data",
];

/// What precedes a value of the object in the API server's messages.
const REFUSED: [&str; 3] = [
    "Invalid value: ",
    "Duplicate value: ",
    "Unsupported value: ",
];

/// What precedes a bearer token.
const BEARER: &[u8] = b"bearer";

/// The longest rejected value that is shown, in bytes.
const MAX_VALUE: usize = 100;

/// Removes secrets and `managedFields` from an object. The caller passes its `kind`, because the
/// items of a list do not state it.
pub(super) fn object(kind: &str, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if kind == "Secret" {
        hide_secret(fields);
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    walk(object);
}

/// Hides the data of a Secret and its annotations, in which tools keep copies of the data.
fn hide_secret(secret: &mut Map<String, Value>) {
    for field in ["data", "stringData"] {
        if let Some(data) = secret.get_mut(field) {
            hide_all(data);
        }
    }
    if let Some(Value::Object(metadata)) = secret.get_mut("metadata")
        && let Some(annotations) = metadata.get_mut("annotations")
    {
        hide_all(annotations);
    }
}

/// Hides the values of a map. A value that should be a map but is not is hidden as a whole.
fn hide_all(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null => {}
        other => hide(other),
    }
}

fn hide(value: &mut Value) {
    *value = Value::from(HIDDEN);
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                for (name, value) in annotations {
                    if is_secret(name) || COPIES.iter().any(|copy| name.contains(copy)) {
                        hide(value);
                    }
                }
            }
            if fields.get("kind").is_some_and(|kind| kind == "Secret") {
                hide_secret(fields);
            }
            hide_variable(fields);
            fields.values_mut().for_each(walk);
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::String(own) => {
            if let Some(clean) = clean(own) {
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

/// Returns `text` without tokens and rejected values.
pub(super) fn text(text: &str) -> String {
    clean(text).unwrap_or_else(|| text.to_owned())
}

/// Returns the text without secrets; `None` if it has none.
fn clean(text: &str) -> Option<String> {
    match without_values(text) {
        Some(short) => Some(without_tokens(&short).unwrap_or(short)),
        None => without_tokens(text),
    }
}

/// Returns the text up to the first rejected value that has to be hidden; `None` if all can be
/// shown.
///
/// The text does not show where a value ends, because the value may contain anything that can
/// follow it. So only short words and short quoted strings are shown; anything else is hidden along
/// with the rest of the text.
fn without_values(text: &str) -> Option<String> {
    let begins = REFUSED.iter().flat_map(|before| {
        let found = text.match_indices(before);
        found.map(|(at, before)| at + before.len())
    });
    let hidden = begins.filter(|at| !is_plain_value(&text[*at..])).min()?;
    Some(format!("{}{HIDDEN}", &text[..hidden]))
}

/// Returns whether `text` starts with a value that can be shown: a word or a quoted string.
fn is_plain_value(text: &str) -> bool {
    let length = match text.strip_prefix('"') {
        // A string that starts like JSON or a list may be a copy of an object.
        Some(quoted) if quoted.trim_start().starts_with(['{', '[']) => None,
        Some(quoted) => quoted_length(quoted),
        None => {
            let is_plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
            let length = text.find(|c| !is_plain(c)).unwrap_or(text.len());
            let after = &text[length..];
            let mut ends = [": ", ", ", "]"].iter();
            let ends = after.is_empty() || ends.any(|end| after.starts_with(end));
            (length > 0 && ends).then_some(length)
        }
    };
    length.is_some_and(|length| length <= MAX_VALUE)
}

/// Returns the length of a string up to its closing quote; `None` if it does not end.
fn quoted_length(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// Returns the text without bearer tokens and JSON web tokens; `None` if it has none.
fn without_tokens(text: &str) -> Option<String> {
    let has_bearer = || {
        let mut parts = text.as_bytes().windows(BEARER.len());
        parts.any(|part| part.eq_ignore_ascii_case(BEARER))
    };
    if !text.contains("eyJ") && !has_bearer() {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut hide_next = false;
    let mut changed = false;
    for part in text.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        // Several spaces in a row separate empty words.
        if word.is_empty() {
            clean.push_str(part);
            continue;
        }
        let jwt = word.find("eyJ").filter(|at| {
            let token = &word[*at..];
            token.len() > 20 && token.contains('.')
        });
        match if hide_next { Some(0) } else { jwt } {
            Some(at) => {
                clean.push_str(&word[..at]);
                clean.push_str(HIDDEN);
                clean.push_str(&part[word.len()..]);
                changed = true;
            }
            None => clean.push_str(part),
        }
        let scheme = word.trim_end_matches([':', '=']).as_bytes();
        let tail = scheme.len().checked_sub(BEARER.len());
        hide_next = tail.is_some_and(|at| scheme[at..].eq_ignore_ascii_case(BEARER));
    }
    changed.then_some(clean)
}

#[cfg(test)]
mod tests;
