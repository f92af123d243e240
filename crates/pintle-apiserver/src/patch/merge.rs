//! JSON merge patch (RFC 7396).

use serde_json::{Map, Value};

use super::{PatchError, bounded};

/// Applies a merge patch: objects merge field by field, null deletes, anything else replaces.
pub(crate) fn apply(object: &mut Value, patch: Value) -> Result<(), PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            super::json_kind(&patch)
        )));
    }
    bounded(&patch)?;
    merge(object, patch);
    bounded(object)
}

fn merge(target: &mut Value, patch: Value) {
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
            merge(target.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests;
