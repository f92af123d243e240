//! Field errors with Kubernetes' wording.
//!
//! A [`FieldError`] becomes one cause of a `Status` with reason `Invalid`: a [`Reason`], a message
//! ([`FieldError::body`]) and the path of the field.

use std::fmt;

pub(crate) use pintle_cel::go::{float, quote};
use serde_json::Value;

/// Why a field was rejected: the `reason` of a status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The field refers to something that does not exist.
    NotFound,
    /// The field must be present.
    Required,
    /// The value must be unique but is repeated.
    Duplicate,
    /// The value violates a rule.
    Invalid,
    /// The value is not one of the allowed ones.
    NotSupported,
    /// The field must not be set or changed here.
    Forbidden,
    /// The string is too long.
    TooLong,
    /// There are too many items.
    TooMany,
    /// The value has the wrong JSON type.
    TypeInvalid,
}

impl Reason {
    /// Returns the name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// Returns the start of the message.
    fn phrase(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// One error in one field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    /// The kind of error.
    pub reason: Reason,
    /// The path, such as `spec.containers[0].name`; `<nil>` for the whole object.
    pub field: String,
    /// The rejected value, if messages show it.
    pub value: Option<Value>,
    /// What is wrong with the value or which values are valid; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(reason: Reason, field: impl Into<String>, value: Value, detail: String) -> Self {
        Self {
            reason,
            field: field.into(),
            value: Some(value),
            detail,
        }
    }

    /// The value violates a rule.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(Reason::Invalid, field, value.into(), detail.into())
    }

    /// Like [`invalid`](Self::invalid), for a value that is already encoded.
    pub(crate) fn shown(field: impl Into<String>, value: &str, detail: &str) -> Self {
        let detail = format!("{value}: {detail}");
        Self {
            value: None,
            ..Self::invalid(field, Value::Null, detail)
        }
    }

    /// The value has the wrong JSON type.
    pub(crate) fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(Reason::TypeInvalid, field, value.into(), detail.into())
    }

    /// The field must be present.
    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Required, field, "".into(), detail.into())
    }

    /// The field must not be set or changed here.
    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Forbidden, field, "".into(), detail.into())
    }

    /// The value is repeated.
    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(Reason::Duplicate, field, value.into(), String::new())
    }

    /// The field refers to something that does not exist.
    pub(crate) fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(Reason::NotFound, field, value.into(), String::new())
    }

    /// The value is not one of `supported`.
    pub(crate) fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[S],
    ) -> Self {
        let mut detail = String::new();
        for (i, name) in supported.iter().enumerate() {
            detail.push_str(if i == 0 { "supported values: " } else { ", " });
            detail.push_str(&quote(name.as_ref()));
        }
        Self::new(Reason::NotSupported, field, value.into(), detail)
    }

    /// The string is longer than `max` bytes.
    pub(crate) fn too_long(field: impl Into<String>, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {unit}");
        Self::new(Reason::TooLong, field, "<value omitted>".into(), detail)
    }

    /// There are `actual` items but only `max` are allowed.
    pub(crate) fn too_many(field: impl Into<String>, actual: i64, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(Reason::TooMany, field, actual.into(), detail)
    }

    /// Returns the message without the path, as in a status cause.
    pub(crate) fn body(&self) -> String {
        let mut text = self.reason.phrase().to_owned();
        if let (true, Some(value)) = (self.reason.shows_value(), &self.value) {
            text.push_str(": ");
            text.push_str(&show(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Joins errors into one line, as in the message of a `Status` with reason `Invalid`. Repeated
/// errors appear once.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::BTreeSet::new();
    for error in errors {
        let line = error.to_string();
        if seen.insert(line.clone()) {
            lines.push(line);
        }
    }
    match lines.len() {
        1 => lines.remove(0),
        _ => format!("[{}]", lines.join(", ")),
    }
}

/// The path of a field during a walk: a linked list on the stack that is only formatted when an
/// error is found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    /// The object itself.
    Root,
    /// A path given as a string.
    At(&'a str),
    /// A field of the parent: `parent.name`.
    Child(&'a Path<'a>, &'a str),
    /// A key of a map: `parent[key]`.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list: `parent[3]`.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// Returns the path of field `name`.
    pub(crate) fn child(&'a self, name: &'a str) -> Self {
        Self::Child(self, name)
    }

    /// Returns the path of map entry `key`.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// Returns the path of item `index`.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Root | Self::At(""))
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Root => {}
            Self::At(text) => out.push_str(text),
            Self::Child(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Self::Key(parent, key) => {
                parent.write(out);
                out.push('[');
                out.push_str(key);
                out.push(']');
            }
            Self::Index(parent, index) => {
                parent.write(out);
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("<nil>");
        }
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

/// Formats a value as messages show it: quoted strings, shortest numbers, anything else as JSON.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(n), _) => n.to_string(),
            (None, Some(n)) => float(n),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
