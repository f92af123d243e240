//! The options writes share: dry run, field validation, field manager.

use std::sync::Arc;

use http::{HeaderValue, Response, header};
use parking_lot::Mutex;

use super::{Body, Call, error::ApiError};
use crate::schema::field::FieldError;

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Everything but the storing.
    pub(crate) dry_run: bool,
    /// Who the changed fields belong to.
    pub(crate) manager: String,
    pub(crate) field_validation: FieldValidation,
    /// What the client is to be told besides the answer.
    pub(crate) warnings: Warnings,
}

/// What the client is to be told besides the answer; shared by the steps of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn add(&self, text: String) {
        let mut told = self.0.lock();
        if !told.contains(&text) {
            told.push(text);
        }
    }

    /// Adds them to an answer as headers.
    pub(crate) fn tell(&self, response: &mut Response<Body>) {
        for text in &*self.0.lock() {
            let clean: String = text.chars().filter(|c| !c.is_control()).collect();
            let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
    }
}

/// What happens to fields the schema does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl Call {
    /// Reads and checks the options; `kind` names them in the refusal.
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
        })
    }

    fn manager(&self, said: &str) -> String {
        if !said.is_empty() {
            return said.to_owned();
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
