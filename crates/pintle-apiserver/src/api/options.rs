//! The options writes share: dry run, field validation, field manager.

use super::{
    Call,
    error::{ApiError, Cause, CauseKind},
};

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Everything but the storing.
    pub(crate) dry_run: bool,
    /// Who the changed fields belong to.
    pub(crate) manager: String,
    pub(crate) field_validation: FieldValidation,
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
        let mut causes = Vec::new();
        let mut dry_run = false;
        for value in self.query.all("dryRun") {
            if value == "All" {
                dry_run = true;
            } else {
                causes.push(Cause::new(
                    CauseKind::NotSupported,
                    "dryRun",
                    format!("[{value:?}]: supported values: \"All\""),
                ));
            }
        }
        let field_validation = match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                causes.push(Cause::new(
                    CauseKind::NotSupported,
                    "fieldValidation",
                    format!("{other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""),
                ));
                FieldValidation::Ignore
            }
        };
        let manager = self.query.get("fieldManager");
        if manager.len() > 128 {
            causes.push(Cause::new(
                CauseKind::TooLong,
                "fieldManager",
                "may not be more than 128 bytes",
            ));
        }
        if !manager.chars().all(|c| !c.is_control()) {
            causes.push(Cause::invalid(
                "fieldManager",
                manager,
                "should only contain printable characters",
            ));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", causes));
        }
        Ok(WriteOptions {
            dry_run,
            manager: self.manager(manager),
            field_validation,
        })
    }

    fn manager(&self, said: &str) -> String {
        if !said.is_empty() {
            return said.to_owned();
        }
        let agent = self
            .headers
            .get(http::header::USER_AGENT)
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
