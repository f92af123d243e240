//! `Status`, with its fields in the Go type's order.

use serde::Serialize;

/// The body of a response without an object: an error, or the outcome of a write.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata<'a>,
    #[serde(rename = "status")]
    outcome: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Debug, Default, Serialize)]
struct Metadata<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    resume: Option<&'a str>,
}

/// Which object a [`Status`] is about, and why.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) uid: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_seconds: Option<u32>,
}

/// One cause of an error.
#[derive(Debug, Serialize)]
pub(crate) struct Cause<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) field: &'a str,
}

impl<'a> Status<'a> {
    /// Returns a `Status` about a write that succeeded.
    pub(crate) fn success() -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata::default(),
            outcome: "Success",
            message: "",
            reason: "",
            details: None,
            code: None,
        }
    }

    /// Returns a `Status` about an error.
    pub(super) fn failure(message: &'a str, reason: &'a str) -> Self {
        Self {
            outcome: "Failure",
            message,
            reason,
            ..Self::success()
        }
    }

    /// Adds a token that continues an expired list.
    pub(super) fn resume(mut self, token: Option<&'a str>) -> Self {
        self.metadata.resume = token;
        self
    }

    /// Names the object that the `Status` is about.
    pub(crate) fn details(mut self, details: Details<'a>) -> Self {
        self.details = Some(details);
        self
    }

    /// Sets the code of the response.
    pub(crate) fn code(mut self, code: u16) -> Self {
        self.code = Some(code);
        self
    }
}

impl Details<'_> {
    pub(super) fn is_empty(&self) -> bool {
        let texts = [self.name, self.group, self.kind, self.uid];
        texts.iter().all(|text| text.is_empty())
            && self.causes.is_empty()
            && self.retry_after_seconds.is_none()
    }
}
