//! Admission reviews: the requests of the API server, and the responses of webhooks.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An admission request: an operation that the API server sends for review.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Admission<K> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The name of the object; empty if the API server will generate it.
    pub name: String,
    /// The namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The name of the user.
    pub user: String,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The new object; `None` for a delete.
    pub object: Option<K>,
    /// The stored object; `None` for a create or a connect.
    pub old_object: Option<K>,
    /// The whole `request` of the `AdmissionReview`.
    pub request: Value,
    remarks: Remarks,
}

/// What a webhook adds to its response besides the verdict.
#[derive(Debug, Clone, Default)]
pub(super) struct Remarks(Arc<Mutex<Added>>);

#[derive(Debug, Default)]
struct Added {
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl Remarks {
    /// Adds the remarks to a response.
    pub(super) fn add_to(&self, response: &mut Value) {
        let added = self.0.lock();
        response["warnings"] = json!(added.warnings);
        response["auditAnnotations"] = json!(added.annotations);
    }
}

impl<K: DeserializeOwned> Admission<K> {
    /// Decodes the `request` of a review.
    pub(super) fn read(request: Value) -> Result<Self, serde_json::Error> {
        let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
        let object = |field: &str| match &request[field] {
            Value::Null => Ok(None),
            value => K::deserialize(value).map(Some),
        };
        Ok(Self {
            operation: text("operation"),
            name: text("name"),
            namespace: text("namespace"),
            subresource: text("subResource"),
            user: request["userInfo"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            dry_run: request["dryRun"] == true,
            object: object("object")?,
            old_object: object("oldObject")?,
            remarks: Remarks::default(),
            request,
        })
    }
}

impl<K> Admission<K> {
    /// Adds a warning, which the API server returns to its client.
    pub fn warn(&self, warning: impl Into<String>) {
        self.remarks.0.lock().warnings.push(warning.into());
    }

    /// Adds an annotation to the audit event of the request. The API server prefixes the key with
    /// the name of the webhook and a slash.
    pub fn audit_annotation(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut added = self.remarks.0.lock();
        added.annotations.insert(key.into(), value.into());
    }

    pub(super) fn remarks(&self) -> Remarks {
        self.remarks.clone()
    }
}

/// A denial. The API server prefixes its message with `admission webhook "…" denied the request: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denied {
    message: String,
    code: u16,
    reason: String,
}

impl Denied {
    /// Denies a request with 403 `Forbidden`.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 403,
            reason: "Forbidden".to_owned(),
        }
    }

    /// Denies a request with 422 `Invalid`, as for an object that violates its schema.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: 422,
            reason: "Invalid".to_owned(),
            ..Self::new(message)
        }
    }

    pub(super) fn response(&self) -> Value {
        json!({"allowed": false, "status": {"status": "Failure", "message": self.message,
            "code": self.code, "reason": self.reason}})
    }
}
