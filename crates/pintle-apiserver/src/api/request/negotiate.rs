//! Content negotiation: which representation the client accepts.

use http::{HeaderMap, header};

use crate::api::{ApiError, request::query::Query};

/// The representation of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// The objects themselves.
    #[default]
    Json,
    Yaml,
    /// A `Table` in that version of `meta.k8s.io`.
    Table(&'static str, RowObject),
    /// `PartialObjectMetadata` in that version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// The object that each row of a table carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RowObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// Returns the first acceptable representation that the server supports.
pub(crate) fn form(headers: &HeaderMap, query: &Query) -> Result<Form, ApiError> {
    let mut options = options(headers).peekable();
    if options.peek().is_none() {
        return Ok(Form::Json);
    }
    let row = match query.get("includeObject") {
        "None" => RowObject::None,
        "Object" => RowObject::Object,
        "" | "Metadata" => RowObject::Metadata,
        other => {
            return Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            )));
        }
    };
    let mut known = false;
    options
        .find_map(|option| {
            let media = option.split(';').next().unwrap_or_default().trim();
            known |= one(media, row).is_some();
            one(option, row)
        })
        .ok_or_else(|| {
            if known {
                ApiError::no_such_form()
            } else {
                ApiError::not_acceptable()
            }
        })
}

/// Returns JSON or YAML, for responses without other representations.
pub(crate) fn plain(headers: &HeaderMap) -> Result<Form, ApiError> {
    let mut options = options(headers).peekable();
    if options.peek().is_none() {
        return Ok(Form::Json);
    }
    options
        .filter_map(|option| one(option, RowObject::None))
        .find(|form| matches!(form, Form::Json | Form::Yaml))
        .ok_or_else(ApiError::no_such_form)
}

/// Iterates over the media types of the `Accept` headers.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::ACCEPT).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|option| !option.is_empty())
}

fn one(option: &str, row: RowObject) -> Option<Form> {
    let mut parts = option.split(';').map(str::trim);
    let media = parts.next()?;
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let plain = match media {
        "application/json" | "application/*" | "*/*" => Form::Json,
        "application/yaml" => Form::Yaml,
        _ => return None,
    };
    let Some(wanted) = parameter("as") else {
        return Some(plain);
    };
    let version = match (parameter("g"), parameter("v")) {
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    match wanted {
        "Table" if plain == Form::Json => Some(Form::Table(version, row)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" if plain == Form::Json => {
            Some(Form::Metadata(version))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
