//! Errors: a `Status` with the code, reason and message that clients expect from Kubernetes.

use std::borrow::Cow;

use serde_json::Value;

use super::status::{self, Status};
use crate::schema::field::{FieldError, aggregate};

/// The error of a request.
///
/// As in Kubernetes, `details.kind` is the plural in errors about the existence of an object and
/// the kind in errors about its content.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    reason: Cow<'static, str>,
    message: String,
    details: Box<Details>,
}

#[derive(Debug, Clone, Default)]
struct Details {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Cause>,
    retry_after: Option<u32>,
    /// Include `details` even if they are empty.
    shown: bool,
    /// A `metadata.continue` that continues an expired list.
    resume: Option<String>,
}

/// One cause of an error, usually a field.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    reason: Cow<'static, str>,
    message: String,
    field: String,
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self {
            reason: error.reason.as_str().into(),
            message: error.body(),
            field: error.field,
        }
    }
}

impl Cause {
    /// Creates a cause from a finished message.
    pub(crate) fn raw(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self {
            reason: reason.into(),
            message,
            field: field.into(),
        }
    }

    fn shown(&self) -> status::Cause<'_> {
        status::Cause {
            reason: &self.reason,
            message: &self.message,
            field: &self.field,
        }
    }
}

/// Formats a group and a plural as messages name a resource: `pods`, `deployments.apps`.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Box::default(),
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        group.clone_into(&mut self.details.group);
        kind.clone_into(&mut self.details.kind);
        name.clone_into(&mut self.details.name);
        self
    }

    fn empty_details(mut self) -> Self {
        self.details.shown = true;
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details.retry_after = Some(seconds);
        self
    }

    /// Adds a token that continues an expired list.
    pub(crate) fn resume(mut self, token: String) -> Self {
        self.details.resume = Some(token);
        self
    }

    fn cause(mut self, cause: Cause) -> Self {
        self.details.causes.push(cause);
        self
    }

    /// Adds a cause that is only a reason.
    pub(crate) fn because(self, reason: &'static str) -> Self {
        self.cause(Cause::raw(reason, "", String::new()))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns true if the object already exists.
    pub(crate) fn is_taken(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Returns true if the object does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        self.reason == "NotFound"
    }

    /// Prefixes the message.
    pub(crate) fn prefixed(mut self, words: &str) -> Self {
        self.message.insert_str(0, words);
        self
    }

    /// Rewords the error for an object that a patch made undecodable.
    pub(crate) fn blame_patch(self, patched: &str) -> Self {
        let why = self.message.split_once(" cannot be handled as a ");
        let why = why.and_then(|(_, rest)| rest.split_once(": "));
        let why = why.map_or(self.message.as_str(), |(_, why)| why);
        let error = FieldError::invalid("patch", patched, why);
        Self::invalid("", "", "", vec![error])
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, plural);
        let message = if plural.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// A path that is not a resource, for a user without access to it.
    pub(crate) fn forbidden_path(why: &str) -> Self {
        Self::new(403, "Forbidden", format!("forbidden: {why}")).empty_details()
    }

    /// A create in a namespace that is being deleted.
    pub(crate) fn namespace_terminating(
        group: &str,
        plural: &str,
        name: &str,
        namespace: &str,
    ) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Self::forbidden(group, plural, name, &why).cause(Cause::raw(
            "NamespaceTerminating",
            "metadata.namespace",
            format!("namespace {namespace} is being terminated"),
        ))
    }

    /// A webhook denied the request; `status` is the one in its response.
    pub(crate) fn denied_by_webhook(webhook: &str, status: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (message, reason) = (text(&status["message"]), text(&status["reason"]));
        let denied = format!("admission webhook {webhook:?} denied the request");
        let message = match (message.as_str(), reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", why) | (why, _) => format!("{denied}: {why}"),
        };
        let code = status["code"]
            .as_u64()
            .and_then(|code| code.try_into().ok());
        let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
        let mut error = Self::new(code, "", message);
        error.reason = reason.into();
        let details = &status["details"];
        error = error.about(
            &text(&details["group"]),
            &text(&details["kind"]),
            &text(&details["name"]),
        );
        error.details.uid = text(&details["uid"]);
        let retry = details["retryAfterSeconds"].as_u64();
        error.details.retry_after = retry.and_then(|seconds| seconds.try_into().ok());
        let causes = details["causes"].as_array().into_iter().flatten();
        error.details.causes = causes
            .map(|cause| Cause {
                reason: text(&cause["reason"]).into(),
                message: text(&cause["message"]),
                field: text(&cause["field"]),
            })
            .collect();
        error
    }

    /// Replaces the message.
    pub(crate) fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// Turns an error about an object into the denial of an admission policy.
    pub(crate) fn denied_by_policy(
        mut self,
        code: u16,
        reason: &'static str,
        causes: Vec<String>,
    ) -> Self {
        self.code = code;
        self.reason = reason.into();
        let causes = causes.into_iter();
        self.details.causes = causes.map(|message| Cause::raw("", "", message)).collect();
        self
    }

    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, plural));
        Self::new(404, "NotFound", message).about(group, plural, name)
    }

    /// A resource that is not served.
    pub(crate) fn unknown_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .empty_details()
    }

    /// A method that the resource does not support.
    pub(crate) fn wrong_method() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .empty_details()
    }

    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
        .empty_details()
    }

    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, plural));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    /// No free name was found for a `generateName`.
    pub(crate) fn no_free_name(group: &str, plural: &str, name: &str) -> Self {
        let message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            qualified(group, plural)
        );
        Self::new(409, "AlreadyExists", message)
            .about(group, plural, name)
            .retry_after(1)
    }

    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(group, plural)
        );
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// An apply that conflicts with other field managers.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        let mut error = Self::new(409, "Conflict", message);
        error.details.causes = causes;
        error
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let what = qualified(group, kind);
        let message = format!("{what} {name:?} is invalid: {}", aggregate(&errors));
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        error.details.causes = errors.into_iter().map(Cause::from).collect();
        error
    }

    /// A representation that this kind does not have.
    pub(crate) fn no_such_form() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn rejected() -> Self {
        let why = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", why).empty_details()
    }

    /// A patch of an unsupported type.
    pub(crate) fn unknown_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").empty_details()
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, cause: Cause) -> Self {
        Self::new(429, "TooManyRequests", message).cause(cause)
    }

    /// A write that missed its deadline.
    pub(crate) fn timed_out() -> Self {
        let why = "Timeout: request did not complete within requested timeout - context deadline \
                   exceeded";
        Self::new(504, "Timeout", why)
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let message = message.to_string();
        let whole = format!("Internal error occurred: {message}");
        Self::new(500, "InternalError", whole).cause(Cause::raw("", "", message))
    }

    /// Something that kube-apiserver implements and this server does not.
    pub(crate) fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "NotImplemented",
            format!("this server does not implement {what}"),
        )
    }

    /// A `resourceVersion` that was not reached in time.
    pub(crate) fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(504, "Timeout", message)
            .retry_after(1)
            .cause(Cause::raw(
                "ResourceVersionTooLarge",
                "",
                "Too large resource version".to_owned(),
            ))
    }

    /// Returns the seconds after which a retry may succeed.
    pub(crate) fn retry_seconds(&self) -> Option<u32> {
        self.details.retry_after
    }

    /// Returns the body of the response.
    pub(crate) fn status(&self) -> Status<'_> {
        let details = self.details.shown();
        let status = Status::failure(&self.message, &self.reason)
            .resume(self.details.resume.as_deref())
            .code(self.code);
        if details.is_empty() && !self.details.shown {
            return status;
        }
        status.details(details)
    }
}

impl Details {
    fn shown(&self) -> status::Details<'_> {
        status::Details {
            name: &self.name,
            group: &self.group,
            kind: &self.kind,
            uid: &self.uid,
            causes: self.causes.iter().map(Cause::shown).collect(),
            retry_after_seconds: self.retry_after,
        }
    }
}
