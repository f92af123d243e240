//! Decodes an object by the schema of its kind: prunes and reports unknown fields, applies
//! defaults.

use serde_json::Value;

use crate::api::{
    ApiError,
    request::options::{FieldValidation, WriteOptions},
};
use crate::{
    codec::json,
    meta::{self, Tree},
    registry::Resource,
    schema::{defaults, field_paths, structural, typed},
};

/// Where an object was decoded from. It decides how unknown and mistyped fields are reported.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A JSON document. For built-in kinds, unknown and duplicate fields are reported in document
    /// order.
    Json {
        text: &'a [u8],
        duplicates: &'a [String],
    },
    /// Anything else, with the faults found so far, which are reported first.
    Other { faults: &'a [String] },
    /// The result of an apply. As in upstream, it is not decoded again, so nulls are rejected
    /// instead of dropped.
    Applied,
    /// The result of a strategic merge, with the faults of the patch. Type errors are worded like
    /// those of upstream's conversion from an unstructured map.
    Merged { faults: &'a [String] },
}

impl Source<'_> {
    /// A source without faults.
    pub(crate) const CLEAN: Self = Self::Other { faults: &[] };

    fn faults(&self) -> &[String] {
        match self {
            Self::Json { duplicates, .. } => duplicates,
            Self::Other { faults } | Self::Merged { faults } => faults,
            Self::Applied => &[],
        }
    }
}

/// Decodes an object by its schema: drops unknown fields, reports them as `fieldValidation`
/// requests, and fills in defaults.
pub(crate) fn prune(
    resource: &Resource,
    object: &mut Tree,
    source: Source<'_>,
    options: &WriteOptions,
) -> Result<(), ApiError> {
    // An empty list resets the managers, so it must survive decoding, which drops empty lists.
    let managers = object.get("metadata").and_then(|m| m.get("managedFields"));
    let resets_managers = managers
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    let mut value = Value::Object(std::mem::take(object));
    let unknown = match (&resource.custom, resource.ty) {
        (Some(custom), _) => {
            let unreadable = |error| unreadable(resource, &error);
            let schema = &custom.schema;
            let mut unknown = structural::prune_metadata(&mut value).map_err(unreadable)?;
            unknown.extend(schema.prune_unknown(&mut value));
            if !matches!(source, Source::Applied) {
                schema.prune_nulls(&mut value);
            }
            unknown.extend(schema.coerce(&mut value).map_err(unreadable)?);
            if !custom.schema.default(&mut value) {
                return Err(ApiError::too_large(
                    "the defaults of the object are too large",
                ));
            }
            unknown
        }
        (None, Some(ty)) => {
            let read = match source {
                Source::Merged { .. } => typed::restore(&mut value, ty),
                _ => typed::canonicalize(&mut value, ty),
            };
            let unknown = read.map_err(|error| unreadable(resource, &error))?;
            defaults::apply(&mut value, ty);
            unknown
        }
        (None, None) => Vec::new(),
    };
    if let Value::Object(pruned) = value {
        *object = pruned;
    }
    if resets_managers {
        meta::metadata(object).insert("managedFields".into(), Value::Array(Vec::new()));
    }
    let faults: Vec<String> = match source {
        Source::Json { text, duplicates }
            if resource.custom.is_none() && !(duplicates.is_empty() && unknown.is_empty()) =>
        {
            json::strict_errors(text, &unknown)
        }
        _ => {
            let unknown = unknown.iter();
            let unknown = unknown.map(|field| format!("unknown field {field:?}"));
            let faults = source.faults().iter().cloned();
            faults.chain(unknown).take(field_paths::MAX_PATHS).collect()
        }
    };
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => faults
            .into_iter()
            .for_each(|text| options.warnings.add(text)),
        FieldValidation::Strict if faults.is_empty() => {}
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                resource.version,
                resource.kind,
                faults.join(", ")
            )));
        }
    }
    Ok(())
}

fn unreadable(resource: &Resource, error: &dyn std::fmt::Display) -> ApiError {
    let (kind, version) = (&resource.kind, &resource.version);
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
    ))
}
