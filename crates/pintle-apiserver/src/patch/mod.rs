//! The four ways of changing part of an object.
//!
//! | content type | module | what it is |
//! |---|---|---|
//! | `application/merge-patch+json` | [`merge`] | a document of changes: null deletes, lists replace |
//! | `application/json-patch+json` | [`json`] | a list of operations on paths |
//! | `application/strategic-merge-patch+json` | [`strategic`] | a merge patch that knows which lists are sets or maps |
//! | `application/apply-patch+yaml` | [`apply`](mod@apply) | all its manager wants, and nothing it wants no more |
//!
//! Everything here is a pure function of the object and the patch. Defaulting, validation and the
//! store come after.

pub(crate) mod apply;
pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;

use serde_json::Value;

use crate::schema::{MAX_DEPTH, depth};

/// Why a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch is not a patch: the client gets 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: the client gets 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch cannot be merged with the object. A kube-apiserver answers 500 without a reason
    /// here, though the fault is the client's.
    #[error("{0}")]
    Unmergeable(String),
    /// The patch asks for too much: the client gets 413.
    #[error("{0}")]
    TooLarge(String),
}

/// A patch may deepen an object step by step: the result is measured, not the patch.
fn bounded(value: &Value) -> Result<(), PatchError> {
    if depth(value) > MAX_DEPTH {
        let why = format!("the patched object nests deeper than {MAX_DEPTH} levels");
        return Err(PatchError::Unprocessable(why));
    }
    Ok(())
}

/// What a value is in the words of Go's decoder.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go prints it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let mut fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_text(value)))
                .collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}
