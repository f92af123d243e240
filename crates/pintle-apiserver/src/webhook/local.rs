//! Webhooks in this process, and the types they exchange.

use std::{fmt, future::Future, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::CallError;

/// A closure that responds to admission reviews.
type Admit = dyn Fn(AdmissionRequest) -> BoxFuture<'static, AdmissionResponse> + Send + Sync;

/// A closure that responds to conversion reviews.
type Convert =
    dyn Fn(ConversionRequest) -> BoxFuture<'static, Result<Vec<Value>, String>> + Send + Sync;

/// A webhook that is a closure.
#[derive(Clone)]
pub(crate) enum LocalWebhook {
    Admission(Arc<Admit>),
    Conversion(Arc<Convert>),
}

impl fmt::Debug for LocalWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admission(_) => "Admission",
            Self::Conversion(_) => "Conversion",
        })
    }
}

impl LocalWebhook {
    pub(crate) fn admission<F, R>(handler: F) -> Self
    where
        F: Fn(AdmissionRequest) -> R + Send + Sync + 'static,
        R: Future<Output = AdmissionResponse> + Send + 'static,
    {
        Self::Admission(Arc::new(move |request| Box::pin(handler(request))))
    }

    pub(crate) fn conversion<F, R>(handler: F) -> Self
    where
        F: Fn(ConversionRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Value>, String>> + Send + 'static,
    {
        Self::Conversion(Arc::new(move |request| Box::pin(handler(request))))
    }

    /// Handles a review in its own task, so that a panic becomes an error and a webhook that writes
    /// to this server does not grow the stack.
    pub(super) async fn call(&self, mut review: Value) -> Result<Value, CallError> {
        let this = self.clone();
        let answered = AbortOnDropHandle::new(tokio::spawn(async move {
            let request = review["request"].take();
            let uid = request["uid"].clone();
            review["response"] = match this {
                Self::Admission(handler) => handler(AdmissionRequest(request)).await.review(&uid),
                Self::Conversion(handler) => {
                    converted(&uid, handler(ConversionRequest(request)).await)
                }
            };
            if let Value::Object(review) = &mut review {
                review.remove("request");
            }
            review
        }));
        answered.await.map_err(|error| {
            let why = if error.is_panic() {
                "the webhook panicked"
            } else {
                "the webhook was cancelled"
            };
            CallError::Local(why.to_owned())
        })
    }
}

fn converted(uid: &Value, result: Result<Vec<Value>, String>) -> Value {
    match result {
        Ok(objects) => {
            json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}})
        }
        Err(message) => {
            json!({"uid": uid, "result": {"status": "Failure", "message": message}})
        }
    }
}

/// The `request` of an `AdmissionReview`.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::{AdmissionRequest, AdmissionResponse};
///
/// fn admit(request: &AdmissionRequest) -> AdmissionResponse {
///     match request.object()["spec"]["replicas"].as_i64() {
///         Some(replicas) if replicas > 10 => AdmissionResponse::deny("at most 10 replicas"),
///         _ => AdmissionResponse::allow(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionRequest(Value);

impl AdmissionRequest {
    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    /// Returns `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub fn operation(&self) -> &str {
        self.text("operation")
    }

    /// Returns the name of the object; empty if the server will generate it.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// Returns the namespace of the object; empty for a cluster-scoped one.
    pub fn namespace(&self) -> &str {
        self.text("namespace")
    }

    /// Returns the subresource; empty for the object itself.
    pub fn subresource(&self) -> &str {
        self.text("subResource")
    }

    /// Returns the plural of the resource.
    pub fn resource(&self) -> &str {
        self.0["resource"]["resource"].as_str().unwrap_or_default()
    }

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        self.0["userInfo"]["username"].as_str().unwrap_or_default()
    }

    /// Returns true if nothing will be stored.
    pub fn is_dry_run(&self) -> bool {
        self.0["dryRun"] == Value::Bool(true)
    }

    /// Returns the new object, or the options of a `CONNECT`; null for a delete.
    pub fn object(&self) -> &Value {
        &self.0["object"]
    }

    /// Returns the stored object; null for a create or a `CONNECT`.
    pub fn old_object(&self) -> &Value {
        &self.0["oldObject"]
    }

    /// Returns the whole request.
    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

/// The `response` of an `AdmissionReview`.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::AdmissionResponse;
/// use serde_json::json;
///
/// let changed = AdmissionResponse::allow()
///     .patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]))
///     .warning("team was missing");
/// let refused = AdmissionResponse::deny("replicas must be odd").code(422);
/// # drop((changed, refused));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct AdmissionResponse {
    allowed: bool,
    status: Map<String, Value>,
    patch: Option<Value>,
    warnings: Vec<String>,
    annotations: Map<String, Value>,
}

impl AdmissionResponse {
    /// Allows the request.
    pub fn allow() -> Self {
        Self {
            allowed: true,
            status: Map::new(),
            patch: None,
            warnings: Vec::new(),
            annotations: Map::new(),
        }
    }

    /// Denies the request. `message` is part of the error that the client sees.
    pub fn deny(message: impl Into<String>) -> Self {
        let mut response = Self::allow();
        response.allowed = false;
        response
            .status
            .insert("message".into(), message.into().into());
        response
    }

    /// Changes the object with a JSON patch (RFC 6902). Only for mutating webhooks.
    pub fn patch(mut self, patch: Value) -> Self {
        self.patch = Some(patch);
        self
    }

    /// Adds a warning to the response that the client sees.
    pub fn warning(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds an audit annotation.
    pub fn audit_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into().into());
        self
    }

    /// Sets the status code of a denial. Default: 400.
    pub fn code(mut self, code: u16) -> Self {
        self.status.insert("code".into(), code.into());
        self
    }

    /// Sets the machine-readable reason of a denial.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.status.insert("reason".into(), reason.into().into());
        self
    }

    /// Returns the response as it would be sent.
    fn review(self, uid: &Value) -> Value {
        let mut response = json!({"uid": uid, "allowed": self.allowed});
        if !self.status.is_empty() {
            response["status"] = Value::Object(self.status);
        }
        if let Some(patch) = self.patch {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch.to_string()).into();
        }
        if !self.warnings.is_empty() {
            response["warnings"] = self.warnings.into();
        }
        if !self.annotations.is_empty() {
            response["auditAnnotations"] = Value::Object(self.annotations);
        }
        response
    }
}

/// The `request` of a `ConversionReview`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversionRequest(Value);

impl ConversionRequest {
    /// Returns the version to convert to, for example `example.com/v2`.
    pub fn desired_api_version(&self) -> &str {
        self.0["desiredAPIVersion"].as_str().unwrap_or_default()
    }

    /// Returns the objects to convert.
    pub fn objects(&self) -> &[Value] {
        self.0["objects"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the objects to convert by value.
    pub fn into_objects(mut self) -> Vec<Value> {
        match self.0["objects"].take() {
            Value::Array(objects) => objects,
            _ => Vec::new(),
        }
    }
}
