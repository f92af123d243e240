//! The options all writes share, and the warnings of a request.

use std::{collections::BTreeSet, sync::Arc};

use http::{HeaderValue, Response, header};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::admission::Operation;
use crate::api::{ApiError, Body, Call};
use crate::audit::Record;
use crate::schema::{field::FieldError, field_paths::clip};

/// The total length of a response's warnings, in characters, above which each is truncated.
const MAX_TOTAL: usize = 4 * 1024;
/// The length of a truncated warning, in characters.
const MAX_TRUNCATED: usize = 256;
/// The maximum number of warnings in a response. Common clients reject a response with more than
/// 100 header lines.
const MAX_WARNINGS: usize = 80;

/// The options of a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Do everything except the commit.
    pub(crate) dry_run: bool,
    /// The field manager of the write.
    pub(crate) manager: String,
    pub(crate) field_validation: FieldValidation,
    /// Warnings for the response.
    pub(crate) warnings: Warnings,
    /// The audit record of the request.
    pub(crate) audit: Record,
    /// What the client sent, for admission.
    pub(crate) sent: Sent,
    /// The deadline of the request.
    pub(crate) deadline: Option<Instant>,
}

/// The options of a write as the client sent them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    /// Whether the client named its field manager.
    pub(crate) manager: bool,
    /// Whether the client chose a field validation.
    pub(crate) field_validation: bool,
    /// The decoded `DeleteOptions` of a delete.
    deletion: Option<Arc<Value>>,
}

impl Sent {
    /// Returns the options of a delete.
    pub(crate) fn deletion(options: &Arc<Value>) -> Self {
        Self {
            deletion: Some(Arc::clone(options)),
            ..Self::default()
        }
    }
}

impl WriteOptions {
    /// Returns the options as admission reviews show them.
    pub(crate) fn reviewed(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = match self.sent.deletion.as_deref() {
            Some(Value::Object(sent)) => sent.clone(),
            _ => serde_json::Map::new(),
        };
        options.insert("kind".into(), kind.into());
        options.insert("apiVersion".into(), "meta.k8s.io/v1".into());
        if self.dry_run {
            options.insert("dryRun".into(), serde_json::json!(["All"]));
        }
        if self.sent.manager {
            options.insert("fieldManager".into(), self.manager.clone().into());
        }
        if self.sent.field_validation {
            let text = match self.field_validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            options.insert("fieldValidation".into(), text.into());
        }
        Value::Object(options)
    }
}

/// The warnings of a response, shared by the steps of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Collected>>);

/// The warnings so far, without duplicates.
///
/// If they exceed [`MAX_TOTAL`], all are truncated to [`MAX_TRUNCATED`]. Once the truncated
/// warnings also reach [`MAX_TOTAL`], or there are [`MAX_WARNINGS`], further warnings are dropped.
#[derive(Debug, Default)]
struct Collected {
    texts: Vec<String>,
    seen: BTreeSet<String>,
    /// The total length of the warnings, in characters.
    length: usize,
    truncating: bool,
}

impl Collected {
    fn add(&mut self, text: String) {
        let full = self.texts.len() >= MAX_WARNINGS || self.truncating && self.length >= MAX_TOTAL;
        if full || text.is_empty() || self.seen.contains(&text) {
            return;
        }
        self.seen.insert(text.clone());
        self.texts.push(text);
        let count = |texts: &[String]| texts.iter().map(|text| text.chars().count()).sum();
        self.length = count(&self.texts);
        self.truncating |= self.length > MAX_TOTAL;
        if self.truncating {
            for text in &mut self.texts {
                let end = clip(text, MAX_TRUNCATED).len();
                text.truncate(end);
            }
            self.length = count(&self.texts);
        }
    }
}

impl Warnings {
    pub(crate) fn add(&self, text: String) {
        self.0.lock().add(text);
    }

    /// Adds the warnings to a response, as headers.
    pub(crate) fn add_to(&self, response: &mut Response<Body>) {
        for value in self.0.lock().texts.iter().filter_map(|text| warning(text)) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Formats a warning as the value of a `Warning` header.
pub(crate) fn warning(text: &str) -> Option<HeaderValue> {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
    // Header values may hold any character except control characters.
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

/// What happens to fields that the schema does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl Call {
    /// Decodes the options of a write; `kind` is the name of the options in error messages.
    pub(crate) fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        let mut dry_run = false;
        for value in self.query.all("dryRun") {
            if value == "All" {
                dry_run = true;
            } else {
                errors.push(FieldError::not_supported(
                    "dryRun",
                    serde_json::json!([value]),
                    &["All"],
                ));
            }
        }
        let field_validation = match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Ignore
            }
        };
        let manager = self.query.get("fieldManager");
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        if !manager.chars().all(|c| !c.is_control()) {
            errors.push(FieldError::invalid(
                "fieldManager",
                manager,
                "should only contain printable characters",
            ));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", errors));
        }
        Ok(WriteOptions {
            dry_run,
            manager: self.manager(manager),
            field_validation,
            warnings: self.warnings.clone(),
            audit: self.audit.clone(),
            sent: Sent {
                manager: !manager.is_empty(),
                field_validation: !self.query.get("fieldValidation").is_empty(),
                deletion: None,
            },
            deadline: self.deadline()?,
        })
    }

    /// Returns the field manager: the given one, or the name of the user agent.
    fn manager(&self, given: &str) -> String {
        if !given.is_empty() {
            return given.to_owned();
        }
        let agent = self
            .headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        agent
            .split('/')
            .next()
            .unwrap_or_default()
            .chars()
            .take(128)
            .collect()
    }
}

#[cfg(test)]
mod tests;
