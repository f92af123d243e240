//! Patches: JSON patch and JSON merge patch.

use serde_json::Value;

use super::{
    Answer, Api, Call,
    decode::{json, media_type},
    error::ApiError,
    strategy::Part,
};
use crate::{
    meta::Tree,
    patch::{self, PatchError},
};

const ACCEPTED: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// A decoded patch.
pub(crate) enum Patch {
    Json(Value),
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
            let mut value = Value::Object(resource.convert_out(stored));
            value["apiVersion"] = kind.0.clone().into();
            value["kind"] = kind.1.clone().into();
            patch.apply(&mut value)?;
            call.stored_form(value, &options)
        };
        let written = self.change(call, Part::of(sub), &options, &mut change)?;
        Ok(written.answer(200, &call.view(&self.clock), &options))
    }
}

pub(crate) fn read(call: &Call) -> Result<Patch, ApiError> {
    match media_type(&call.headers).as_str() {
        "application/json-patch+json" => json(&call.body).map(Patch::Json),
        "application/merge-patch+json" => json(&call.body).map(Patch::Merge),
        "application/strategic-merge-patch+json" if call.target.resource.custom.is_none() => {
            Err(ApiError::not_implemented("strategic merge patch"))
        }
        "application/apply-patch+yaml" => Err(ApiError::not_implemented("server-side apply")),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

impl Patch {
    pub(crate) fn apply(&self, value: &mut Value) -> Result<(), ApiError> {
        let result = match self {
            Self::Json(patch) => patch::json::apply(value, patch),
            Self::Merge(patch) => patch::merge::apply(value, patch.clone()),
        };
        result.map_err(|error| match error {
            PatchError::Malformed(why) => ApiError::bad_request(why),
            PatchError::Unprocessable(why) => ApiError::unprocessable(why),
            PatchError::Unmergeable(why) => ApiError::unprocessable(why),
            PatchError::TooLarge(why) => ApiError::too_large(why),
        })
    }
}
