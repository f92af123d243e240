//! The four patch formats.
//!
//! | content type | where | description |
//! |---|---|---|
//! | `application/merge-patch+json` | [`merge()`] | null deletes, lists are replaced |
//! | `application/json-patch+json` | [`json`] | a list of operations on paths |
//! | `application/strategic-merge-patch+json` | [`strategic`] | a merge patch that merges lists by key |
//! | `application/apply-patch+yaml` | [`apply`](mod@apply) | server-side apply: the complete intent of one manager |
//!
//! All of them are pure functions of the object and the patch. Defaulting, validation and storage
//! come later.

pub(crate) mod apply;
pub(crate) mod json;
pub(crate) mod strategic;

use serde_json::{Map, Value};

use crate::schema::{MAX_DEPTH, depth};

/// Why a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The body is not a patch of this format: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not apply to the object: 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch cannot be merged with the object. kube-apiserver returns a bare 500 here, although
    /// the client is at fault.
    #[error("{0}")]
    Unmergeable(String),
    /// The patch exceeds a limit: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch or the patched object is nested too deeply to be stored: 422, with the reason,
    /// because this limit is our own.
    #[error("the patched object nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Applies a JSON merge patch (RFC 7396): objects merge field by field, null deletes, anything else
/// replaces.
pub(crate) fn merge(object: &mut Value, patch: Value) -> Result<(), PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(&patch)
        )));
    }
    bounded(&patch)?;
    merge_value(object, patch);
    bounded(object)
}

fn merge_value(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (name, change) in patch {
        if change.is_null() {
            target.remove(&name);
        } else {
            merge_value(target.entry(name).or_insert(Value::Null), change);
        }
    }
}

/// Checks the nesting of a patch or a patched object. A series of patches could deepen it forever.
fn bounded(value: &Value) -> Result<(), PatchError> {
    if depth(value) > MAX_DEPTH {
        return Err(PatchError::TooDeep);
    }
    Ok(())
}

/// Returns the JSON type of a value as Go's decoder calls it.
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

/// Formats a value as Go prints it.
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

#[cfg(test)]
mod tests;
