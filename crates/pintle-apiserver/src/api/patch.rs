//! Patches: JSON patch and JSON merge patch.

use serde_json::Value;

use super::{
    Answer, Api, Call,
    decode::{check_metadata_types, json, media_type},
    error::ApiError,
    strategy::Part,
};
use crate::meta::Tree;

/// The most operations a JSON patch may have.
const MOST_OPERATIONS: usize = 10_000;

const ACCEPTED: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// A decoded patch.
enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
}

impl Api {
    /// Answers PATCH of an object or one of its subresources.
    pub(crate) fn patch(&self, call: &Call, sub: &str) -> Answer {
        let options = call.write_options("PatchOptions")?;
        let patch = read(call)?;
        let resource = &call.target.resource;
        let kind = (resource.api_version(), resource.kind.clone());
        let mut change = |stored: Tree| {
            let mut value = Value::Object(stored);
            value["apiVersion"] = kind.0.clone().into();
            value["kind"] = kind.1.clone().into();
            patch.apply(&mut value, &resource.group, &resource.kind, call)?;
            let tree = call.typed(value, &kind)?;
            check_metadata_types(&tree)?;
            Ok(tree)
        };
        let written = self.change(call, Part::of(sub), &options, &mut change)?;
        Ok(written.answer(200, resource))
    }
}

fn read(call: &Call) -> Result<Patch, ApiError> {
    match media_type(&call.headers).as_str() {
        "application/json-patch+json" => {
            let value = json(&call.body)?;
            if value
                .as_array()
                .is_some_and(|list| list.len() > MOST_OPERATIONS)
            {
                return Err(ApiError::too_large(format!(
                    "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}"
                )));
            }
            serde_json::from_value(value)
                .map(Patch::Json)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
        }
        "application/merge-patch+json" => {
            let value = json(&call.body)?;
            if !value.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: an object is expected",
                ));
            }
            Ok(Patch::Merge(value))
        }
        "application/strategic-merge-patch+json" if call.target.resource.custom.is_none() => {
            Err(ApiError::not_implemented("strategic merge patch"))
        }
        "application/apply-patch+yaml" => Err(ApiError::not_implemented("server-side apply")),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

impl Patch {
    fn apply(
        &self,
        value: &mut Value,
        group: &str,
        kind: &str,
        call: &Call,
    ) -> Result<(), ApiError> {
        match self {
            Self::Json(patch) => json_patch::patch(value, patch).map_err(|error| {
                let what = super::error::qualified(group, kind);
                let name = call.target.name.as_deref().unwrap_or_default();
                ApiError::unprocessable(format!(
                    "{what} {name:?} is invalid: the server rejected our request due to an error in our request: {error}"
                ))
            }),
            Self::Merge(patch) => {
                json_patch::merge(value, patch);
                Ok(())
            }
        }
    }
}
