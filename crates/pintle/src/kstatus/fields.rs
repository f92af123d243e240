//! Reads individual fields of an object.

use serde::Deserialize;
use serde_json::Value;

use super::ObjectStatus;

/// An object as JSON.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Value);

/// A condition, with the fields that all kinds have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Condition {
    pub(super) fn in_progress(&self) -> ObjectStatus {
        ObjectStatus::in_progress(&self.reason, &self.message)
    }

    pub(super) fn failed(&self) -> ObjectStatus {
        ObjectStatus::failed(&self.reason, &self.message)
    }
}

impl<'a> Fields<'a> {
    pub(super) fn text(self, pointer: &str) -> Option<&'a str> {
        let text = self.0.pointer(pointer).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    }

    pub(super) fn integer(self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    /// Returns a number of the status; absent counts as zero.
    pub(super) fn count(self, name: &str) -> i64 {
        let status = self.0.get("status").and_then(|status| status.get(name));
        status.and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn flag(self, pointer: &str) -> bool {
        self.0.pointer(pointer).and_then(Value::as_bool) == Some(true)
    }

    pub(super) fn list(self, pointer: &str) -> &'a [Value] {
        let list = self.0.pointer(pointer).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn conditions(self) -> Result<Vec<Condition>, serde_json::Error> {
        match self.0.pointer("/status/conditions") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(conditions) => Vec::deserialize(conditions),
        }
    }
}
