//! Checks the types in the response of a webhook.

use serde_json::Value;

use crate::patch::json_kind;

/// Checks the types of a `response`'s fields. Errors match upstream's decoder.
///
/// Reading a response only field by field could mistake it for a verdict: `"allowed": "true"` is
/// not a denial, and a patch that is not encoded is not "no patch".
pub(super) fn check_types(response: &Value) -> Result<(), String> {
    let Value::Object(fields) = response else {
        return match response {
            Value::Null => Ok(()),
            other => Err(format!(
                "json: cannot unmarshal {} into Go struct field AdmissionReview.response of type \
                 v1.AdmissionResponse",
                json_kind(other)
            )),
        };
    };
    for (name, value) in fields {
        let wrong = |found: &Value, ty: &str| {
            Err(format!(
                "json: cannot unmarshal {} into Go struct field AdmissionResponse.response.{name} \
                 of type {ty}",
                json_kind(found)
            ))
        };
        // Null leaves a field unset, whatever its type.
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("uid", found) if !found.is_string() => return wrong(found, "types.UID"),
            ("allowed", found) if !found.is_boolean() => return wrong(found, "bool"),
            ("status", found) if !found.is_object() => return wrong(found, "v1.Status"),
            ("patchType", found) if !found.is_string() => return wrong(found, "v1.PatchType"),
            // Bytes may be a list of numbers in Go; no webhook sends that, and nothing here reads
            // it.
            ("patch", Value::Array(list)) => {
                if let Some(first) = list.first() {
                    return wrong(first, "uint8");
                }
            }
            ("patch", found) if !found.is_string() => return wrong(found, "[]uint8"),
            ("warnings", Value::Array(list)) => {
                if let Some(found) = list.iter().find(|item| !is_text(item)) {
                    return wrong(found, "string");
                }
            }
            ("warnings", found) => return wrong(found, "[]string"),
            ("auditAnnotations", Value::Object(map)) => {
                if let Some(found) = map.values().find(|item| !is_text(item)) {
                    return wrong(found, "string");
                }
            }
            ("auditAnnotations", found) => return wrong(found, "map[string]string"),
            _ => {}
        }
    }
    Ok(())
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Null)
}
