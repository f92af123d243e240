//! The options writes share: dry run, field validation, field manager.

use std::{collections::BTreeSet, sync::Arc};

use http::{HeaderValue, Response, header};
use parking_lot::Mutex;

use crate::api::{ApiError, Body, Call};
use crate::schema::{field::FieldError, field_paths::clip};

/// How many characters the warnings of one answer hold before each is cut short.
const MOST_TOLD: usize = 4 * 1024;
/// How many characters are left of a warning that is cut short.
const MOST_OF_ONE: usize = 256;
/// How many warnings an answer has. Common clients read no more than 100 header lines of an answer
/// and fail altogether when there are more.
const MOST_WARNINGS: usize = 80;

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
pub(crate) struct Warnings(Arc<Mutex<Told>>);

/// The warnings so far: each once, whole as long as all of them fit into [`MOST_TOLD`], and cut to
/// [`MOST_OF_ONE`] from the first on that does not fit. When those that are cut have filled the room
/// too, or there are [`MOST_WARNINGS`], all further ones are dropped.
#[derive(Debug, Default)]
struct Told {
    texts: Vec<String>,
    seen: BTreeSet<String>,
    /// In all texts, in characters.
    length: usize,
    cutting: bool,
}

impl Told {
    fn add(&mut self, text: String) {
        let full = self.texts.len() >= MOST_WARNINGS || self.cutting && self.length >= MOST_TOLD;
        if full || text.is_empty() || self.seen.contains(&text) {
            return;
        }
        self.seen.insert(text.clone());
        self.texts.push(text);
        let count = |texts: &[String]| texts.iter().map(|text| text.chars().count()).sum();
        self.length = count(&self.texts);
        self.cutting |= self.length > MOST_TOLD;
        if self.cutting {
            for text in &mut self.texts {
                let end = clip(text, MOST_OF_ONE).len();
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

/// A text as the value of a `Warning` header.
pub(crate) fn warning(text: &str) -> Option<HeaderValue> {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
    // Any script may stand in a header as long as it is no control character.
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(told: &Told) -> Vec<usize> {
        told.texts.iter().map(|text| text.chars().count()).collect()
    }

    #[test]
    fn warnings_that_fit_are_whole_and_told_once() {
        let mut told = Told::default();
        for text in ["a", "", "b", "a"] {
            told.add(text.to_owned());
        }
        assert_eq!(told.texts, ["a", "b"]);
        told.add("ä".repeat(MOST_TOLD - 2));
        assert_eq!(lengths(&told), [1, 1, MOST_TOLD - 2]);
    }

    #[test]
    fn warnings_that_do_not_fit_are_all_cut() {
        let mut told = Told::default();
        told.add("ä".repeat(MOST_TOLD));
        told.add("b".to_owned());
        assert_eq!(lengths(&told), [MOST_OF_ONE, 1]);
        for i in 0..MOST_WARNINGS {
            told.add(format!("{i:04}{}", "c".repeat(MOST_TOLD)));
        }
        // Those that fill the room, and one that was begun before it was full.
        assert_eq!(told.texts.len(), MOST_TOLD / MOST_OF_ONE + 1);
        assert!(told.length < MOST_TOLD + MOST_OF_ONE);
    }

    #[test]
    fn there_are_only_so_many_short_warnings() {
        let mut told = Told::default();
        for i in 0..1000 {
            told.add(format!("{i}"));
        }
        assert_eq!(told.texts.len(), MOST_WARNINGS);
        assert_eq!(told.seen.len(), MOST_WARNINGS);
    }
}
