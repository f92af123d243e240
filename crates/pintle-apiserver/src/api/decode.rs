//! Request bodies: which format, and the object in it.

use http::{HeaderMap, header};
use serde_json::Value;

use super::{Call, error::ApiError, options::WriteOptions, strategy::prune};
use crate::{
    codec::protobuf,
    meta::{self, Tree},
    schema::field::FieldError,
};

const ACCEPTED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// A group, a version and a kind.
pub(crate) type Gvk<'a> = (&'a str, &'a str, &'a str);

/// The media type of the body, without parameters; empty when not said.
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

/// Decodes a body by its media type; `kind` is what it is taken for if it does not say.
pub(crate) fn decode_body(
    headers: &HeaderMap,
    body: &[u8],
    kind: Gvk<'_>,
) -> Result<Value, ApiError> {
    match media_type(headers).as_str() {
        "" | "*/*" | "application/json" => json(body, kind.2),
        "application/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => protobuf::decode(body, Some(kind))
            .map_err(|error| ApiError::bad_request(error.to_string())),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

fn json(body: &[u8], kind: &str) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}"
        ))
    })
}

pub(crate) fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        ApiError::bad_request(format!("error converting YAML to JSON: {error}"))
    })?;
    serde_saphyr::from_str(text).map_err(|error| {
        ApiError::bad_request(format!("error converting YAML to JSON: yaml: {error}"))
    })
}

impl Call {
    /// The body, decoded; `kind` is what it is taken for if it does not say.
    pub(crate) fn decoded(&self, kind: Gvk<'_>) -> Result<Value, ApiError> {
        decode_body(&self.headers, &self.body, kind)
    }

    /// The object in the body in its stored form: its type checked against the path and removed,
    /// its fields checked against the schema.
    pub(crate) fn object(&self, options: &WriteOptions) -> Result<Tree, ApiError> {
        let resource = &self.target.resource;
        if resource.custom.is_some() && media_type(&self.headers) == protobuf::MEDIA_TYPE {
            return Err(ApiError::unsupported_media_type(&ACCEPTED[..2]));
        }
        let value = self.decoded((&resource.group, &resource.version, &resource.kind))?;
        self.stored_form(value, options)
    }

    /// An object of this resource in its stored form.
    pub(crate) fn stored_form(
        &self,
        value: Value,
        options: &WriteOptions,
    ) -> Result<Tree, ApiError> {
        let resource = &self.target.resource;
        let kind = (resource.api_version(), resource.kind.clone());
        let mut tree = self.typed(value, &kind)?;
        prune(resource, &mut tree, options)?;
        Ok(resource.convert_back(tree))
    }

    /// The body as an object of the given `(apiVersion, kind)`.
    pub(crate) fn typed(&self, value: Value, kind: &(String, String)) -> Result<Tree, ApiError> {
        let Value::Object(mut tree) = value else {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: an object is expected",
                kind.1
            )));
        };
        let custom = self.target.resource.custom.is_some();
        let said = |field: &str, tree: &Tree| {
            tree.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (api_version, said_kind) = (said("apiVersion", &tree), said("kind", &tree));
        if custom && said_kind.is_empty() {
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
        if custom && said_kind != kind.1 {
            let why = format!("must be {}", kind.1);
            let errors = vec![FieldError::invalid("kind", said_kind.as_str(), why)];
            let name = meta::text(&tree, "name");
            return Err(ApiError::invalid(
                &self.target.resource.group,
                &said_kind,
                name,
                errors,
            ));
        }
        if !said_kind.is_empty() && said_kind != kind.1 {
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: the kind in the data does not match the expected kind",
                said_kind, api_version, kind.1
            )));
        }
        tree.remove("apiVersion");
        tree.remove("kind");
        match tree.get("metadata") {
            None | Some(Value::Object(_) | Value::Null) => {}
            Some(_) => return Err(ApiError::bad_request("metadata: an object is expected")),
        }
        check_metadata_types(&tree)?;
        Ok(tree)
    }
}

/// Metadata has the same types for every kind: a wrong one is a malformed request.
pub(crate) fn check_metadata_types(tree: &Tree) -> Result<(), ApiError> {
    let Some(Value::Object(metadata)) = tree.get("metadata") else {
        return Ok(());
    };
    for (field, value) in metadata {
        let right = match (field.as_str(), value) {
            (_, Value::Null) => true,
            ("labels" | "annotations", Value::Object(map)) => map.values().all(Value::is_string),
            ("finalizers", Value::Array(list)) => list.iter().all(Value::is_string),
            ("ownerReferences" | "managedFields", Value::Array(list)) => {
                list.iter().all(Value::is_object)
            }
            ("generation" | "deletionGracePeriodSeconds", value) => value.is_i64(),
            (
                "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink"
                | "creationTimestamp" | "deletionTimestamp",
                value,
            ) => value.is_string(),
            ("labels" | "annotations" | "finalizers" | "ownerReferences" | "managedFields", _) => {
                false
            }
            _ => true,
        };
        if !right {
            return Err(ApiError::bad_request(format!(
                "json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field}: wrong type"
            )));
        }
    }
    Ok(())
}
