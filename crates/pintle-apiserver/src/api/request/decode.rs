//! Request bodies: media types, and the object in the body.

use std::fmt::Write;

use http::{HeaderMap, header};
use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::api::{
    ApiError, Call,
    request::fields::{Source, prune},
    request::options::WriteOptions,
};
use crate::{
    codec::{json, protobuf},
    meta::{self, Tree},
    patch::json_kind,
    schema::{MAX_DEPTH, field::FieldError},
};

const ACCEPTED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// A group, a version and a kind.
pub(crate) type Gvk<'a> = (&'a str, &'a str, &'a str);

/// Returns the media type of the body without parameters, or an empty string.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Decodes a body by its media type. Errors name `kind`, which is also the default of protobuf
/// bodies that name no type.
pub(crate) fn decode_body(
    headers: &HeaderMap,
    body: &[u8],
    kind: Gvk<'_>,
) -> Result<Value, ApiError> {
    match media_type(headers).as_str() {
        "" | "*/*" | "application/json" => json(body, kind.2),
        "application/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => {
            protobuf::decode(body, Some(kind)).map_err(|error| match error.type_meta() {
                Some((api_version, found)) => {
                    let version = api_version.rsplit('/').next().unwrap_or_default();
                    let expected = kind.2;
                    ApiError::bad_request(format!(
                        "{found} in version {version:?} cannot be handled as a {expected}: {error}"
                    ))
                }
                None => unrecognized(kind.2, body, &error.to_string()),
            })
        }
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

fn json(body: &[u8], kind: &str) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| not_json(kind, &error, body))
}

fn not_json(kind: &str, error: &serde_json::Error, body: &[u8]) -> ApiError {
    let why = json_problem(error, body);
    let why = format!("couldn't get version/kind; json parse error: {why}");
    unrecognized(kind, body, &why)
}

/// Words common JSON errors like Go's decoder.
pub(crate) fn json_problem(error: &serde_json::Error, text: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text_of_error = error.to_string();
    if let Some(place) = text_of_error.strip_prefix("recursion limit exceeded") {
        return format!("exceeded max depth: at most {MAX_DEPTH} levels are allowed{place}");
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.nth(error.line().saturating_sub(1));
    let found = line.and_then(|line| line.get(error.column().saturating_sub(1)));
    match found {
        Some(found) if text_of_error.starts_with("expected value") => {
            let found = char::from(*found);
            format!("invalid character {found:?} looking for beginning of value")
        }
        _ => text_of_error,
    }
}

/// Decodes YAML. The last of duplicate keys wins.
fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        ApiError::bad_request(format!("error converting YAML to JSON: {error}"))
    })?;
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        ApiError::bad_request(format!("error converting YAML to JSON: yaml: {error}"))
    })
}

/// Decodes YAML and reports its first duplicate key like Go: `line 3: key "a" already set in map`.
///
/// Most clients send JSON, a subset of YAML that parses many times faster. YAML is parsed only if
/// the body is not JSON, or has a duplicate key, whose line the JSON decoder does not report.
pub(crate) fn yaml_or_json(body: &[u8]) -> Result<(Value, Option<String>), ApiError> {
    if let Ok((value, duplicates)) = json::decode(body)
        && duplicates.is_empty()
    {
        return Ok((value, None));
    }
    Ok((yaml(body)?, yaml_duplicate(body)))
}

fn yaml_duplicate(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let error = serde_saphyr::from_str::<Value>(text).err()?.to_string();
    let (place, key) = error.split_once("duplicate mapping key: ")?;
    let key = key.split_once(", set DuplicateKeyPolicy")?.0;
    let line = place.split_once("line ")?.1.split(' ').next()?;
    Some(format!("line {line}: key {key:?} already set in map"))
}

/// Returns the start of a body, for error messages.
fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    let (start, more) = match body.get(..MAX) {
        Some(start) if body.len() > MAX => (start, " ..."),
        _ => (body, ""),
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut hex = String::new();
            for byte in start {
                let _ = write!(hex, "{byte:02x}");
            }
            hex + more
        }
    }
}

/// Returns the error for a body that cannot be decoded as the expected kind.
fn unrecognized(kind: &str, body: &[u8], why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(body)
    ))
}

impl Call {
    /// Decodes the options in the body of a delete.
    pub(crate) fn options_body(&self) -> Result<Value, ApiError> {
        const KIND: Gvk<'_> = ("", "v1", "DeleteOptions");
        if matches!(
            media_type(&self.headers).as_str(),
            "" | "*/*" | "application/json"
        ) && let Err(error) = serde_json::from_slice::<Value>(&self.body)
        {
            return Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: {}",
                json_problem(&error, &self.body)
            )));
        }
        let body = if media_type(&self.headers) == protobuf::MEDIA_TYPE {
            let read = protobuf::decode(&self.body, Some(KIND));
            read.map_err(|error| ApiError::bad_request(error.to_string()))?
        } else {
            self.decoded(KIND)?
        };
        match body.get("kind").and_then(Value::as_str) {
            None | Some("" | "DeleteOptions") => Ok(body),
            Some(other) => {
                let version = body["apiVersion"].as_str().unwrap_or_default();
                Err(ApiError::bad_request(format!(
                    "no kind {other:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
                )))
            }
        }
    }

    /// Decodes the body; see [`decode_body`] for `kind`.
    pub(crate) fn decoded(&self, kind: Gvk<'_>) -> Result<Value, ApiError> {
        decode_body(&self.headers, &self.body, kind)
    }

    /// Decodes the object in the body and converts it to the stored version. Its type is checked
    /// against the path and removed; its fields are checked against the schema.
    pub(crate) fn object(&self, options: &WriteOptions) -> Result<Tree, ApiError> {
        let resource = &self.target.resource;
        if resource.custom.is_some() && media_type(&self.headers) == protobuf::MEDIA_TYPE {
            return Err(ApiError::unsupported_media_type(&ACCEPTED[..2]));
        }
        if matches!(
            media_type(&self.headers).as_str(),
            "" | "*/*" | "application/json"
        ) {
            let read = json::decode(&self.body);
            let (value, duplicates) =
                read.map_err(|error| not_json(&resource.kind, &error, &self.body))?;
            let duplicates = duplicates
                .iter()
                .map(|field| format!("duplicate field {field:?}"));
            let source = Source::Json {
                text: &self.body,
                duplicates: &duplicates.collect::<Vec<_>>(),
            };
            return self.stored(value, source, options);
        }
        if media_type(&self.headers) == "application/yaml" {
            let (value, duplicate) = yaml_or_json(&self.body)
                .map_err(|error| unrecognized(&resource.kind, &self.body, error.message()))?;
            let fault = |duplicate| format!("yaml: unmarshal errors:\n  {duplicate}");
            let faults: Vec<String> = duplicate.map(fault).into_iter().collect();
            return self.stored(value, Source::Other { faults: &faults }, options);
        }
        let value = self.decoded((&resource.group, &resource.version, &resource.kind))?;
        self.stored_form(value, options)
    }

    /// Converts an object of this resource to the stored version.
    pub(crate) fn stored_form(
        &self,
        value: Value,
        options: &WriteOptions,
    ) -> Result<Tree, ApiError> {
        self.stored(value, Source::CLEAN, options)
    }

    /// Like [`stored_form`](Self::stored_form); `source` decides how bad fields are reported.
    pub(crate) fn stored(
        &self,
        value: Value,
        source: Source<'_>,
        options: &WriteOptions,
    ) -> Result<Tree, ApiError> {
        let resource = &self.target.resource;
        let kind = (resource.api_version(), resource.kind.clone());
        let mut tree = self.typed(value, &kind)?;
        // For merged objects `restore` checks metadata with everything else.
        if !matches!(source, Source::Merged { .. }) {
            check_metadata(&tree, &kind)?;
        }
        prune(resource, &mut tree, source, options)?;
        Ok(resource.to_stored(tree))
    }

    /// Checks that the body is an object of the given `(apiVersion, kind)`, and removes its type.
    pub(crate) fn typed(&self, value: Value, kind: &(String, String)) -> Result<Tree, ApiError> {
        let mut tree = match value {
            Value::Object(tree) => tree,
            value => {
                let why = format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    json_kind(&value)
                );
                return Err(unrecognized(&kind.1, &self.body, &why));
            }
        };
        let custom = self.target.resource.custom.is_some();
        let text = |field: &str, tree: &Tree| {
            tree.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (api_version, found_kind) = (text("apiVersion", &tree), text("kind", &tree));
        if custom && found_kind.is_empty() {
            let body = String::from_utf8_lossy(&self.body);
            let mut start: String = body.chars().take(30).collect();
            if start.len() < body.len() {
                start.push_str(" ...");
            }
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({start})",
                kind.1
            )));
        }
        if (custom || !api_version.is_empty()) && api_version != kind.0 {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                kind.0
            )));
        }
        if custom && found_kind != kind.1 {
            let why = format!("must be {}", kind.1);
            let errors = vec![FieldError::invalid("kind", found_kind.as_str(), why)];
            let name = meta::text(&tree, "name");
            return Err(ApiError::invalid(
                &self.target.resource.group,
                &found_kind,
                name,
                errors,
            ));
        }
        if !found_kind.is_empty() && found_kind != kind.1 {
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: the kind in the data does not match the expected kind",
                found_kind, api_version, kind.1
            )));
        }
        tree.remove("apiVersion");
        tree.remove("kind");
        Ok(tree)
    }
}

/// Checks the types of an object's metadata; `kind` is its `(apiVersion, kind)`.
fn check_metadata(tree: &Tree, kind: &(String, String)) -> Result<(), ApiError> {
    match tree.get("metadata") {
        None | Some(Value::Object(_) | Value::Null) => {}
        Some(_) => return Err(ApiError::bad_request("metadata: an object is expected")),
    }
    check_metadata_types(tree).map_err(|error| {
        let version = kind.0.rsplit('/').next().unwrap_or_default();
        let what = &kind.1;
        error.prefixed(&format!(
            "{what} in version {version:?} cannot be handled as a {what}: "
        ))
    })
}

/// Checks the types of metadata fields, which are the same for every kind.
pub(crate) fn check_metadata_types(tree: &Tree) -> Result<(), ApiError> {
    let Some(Value::Object(metadata)) = tree.get("metadata") else {
        return Ok(());
    };
    for (field, value) in metadata {
        let (wrong, wanted) = match field.as_str() {
            "labels" | "annotations" => match value {
                Value::Object(map) => (map.values().find(|value| !value.is_string()), "string"),
                value => (Some(value), "map[string]string"),
            },
            "finalizers" => match value {
                Value::Array(list) => (list.iter().find(|value| !value.is_string()), "string"),
                value => (Some(value), "[]string"),
            },
            "ownerReferences" => objects(value, "v1.OwnerReference", "[]v1.OwnerReference"),
            "managedFields" => objects(value, "v1.ManagedFieldsEntry", "[]v1.ManagedFieldsEntry"),
            "generation" | "deletionGracePeriodSeconds" => {
                ((!value.is_i64()).then_some(value), "int64")
            }
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink"
            | "creationTimestamp" | "deletionTimestamp" => {
                ((!value.is_string()).then_some(value), "string")
            }
            _ => (None, ""),
        };
        if let Some(wrong) = wrong.filter(|_| !value.is_null()) {
            let found = json_kind(wrong);
            return Err(ApiError::bad_request(format!(
                "json: cannot unmarshal {found} into Go struct field ObjectMeta.metadata.{field} of type {wanted}"
            )));
        }
    }
    Ok(())
}

fn objects<'a>(
    value: &'a Value,
    item: &'static str,
    all: &'static str,
) -> (Option<&'a Value>, &'static str) {
    match value {
        Value::Array(list) => (list.iter().find(|value| !value.is_object()), item),
        value => (Some(value), all),
    }
}
