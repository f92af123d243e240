//! Patches: JSON patch, JSON merge patch and strategic merge patch.

use serde_json::Value;

use super::{Managers, Part, apply::applies, change::check_identity, managers::check_options};
use crate::{
    api::{
        Answer, Api, ApiError, Call,
        request::{
            decode::{json_problem, media_type},
            fields::Source,
        },
    },
    codec::json,
    meta::{self, Tree},
    patch::{self, PatchError},
    schema::builtin::{self, TypeRef},
};

/// A decoded patch.
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    /// A strategic merge patch, and the type that says how lists are merged.
    Strategic(Value, TypeRef),
}

impl Api {
    /// Handles PATCH of an object or one of its subresources.
    pub(crate) async fn patch(&self, call: &Call, sub: &str) -> Answer {
        let options = call.write_options("PatchOptions")?;
        if applies(call) {
            return self.apply(call, sub, &options).await;
        }
        check_options(call, false)?;
        let (patch, duplicates) = read(call)?;
        let resource = &call.target.resource;
        let kind = (resource.api_version(), resource.kind.clone());
        let mut patched = |stored: &Tree| {
            let mut value = Value::Object(resource.to_served(stored.clone()));
            value["apiVersion"] = kind.0.clone().into();
            value["kind"] = kind.1.clone().into();
            patch.apply(&mut value)?;
            let source = match &patch {
                Patch::Strategic(..) => Source::Merged {
                    faults: &duplicates,
                },
                _ => Source::Other {
                    faults: &duplicates,
                },
            };
            let tree = call.stored(value.clone(), source, &options);
            let tree = tree.map_err(|error| error.blame_patch(&patch.shown(&value)))?;
            check_name(call, &tree)?;
            check_identity(resource, &tree, stored)?;
            Ok(tree)
        };
        let write = call.update_of(Part::of(sub), &options, Managers::Record);
        let written = self.change(&write, &mut patched).await?;
        written.answer(200, call, self).await
    }
}

/// Checks that the name and namespace match the path.
pub(super) fn check_name(call: &Call, patched: &Tree) -> Result<(), ApiError> {
    let name = call.target.name.as_deref().unwrap_or_default();
    let found = meta::text(patched, "name");
    if found.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = call.target.namespace.as_deref().unwrap_or_default();
    if call.target.resource.namespaced && meta::text(patched, "namespace") != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Decodes the patch in the body of a request. Also returns its duplicate fields.
pub(crate) fn read(call: &Call) -> Result<(Patch, Vec<String>), ApiError> {
    let resource = &call.target.resource;
    let ty = match (&resource.custom, call.target.sub.as_deref()) {
        (Some(_), _) => None,
        (None, Some("scale")) => builtin::kind("autoscaling", "v1", "Scale"),
        (None, _) => resource.ty,
    };
    match (media_type(&call.headers).as_str(), ty) {
        ("application/json-patch+json", _) => body(call, "json patch ", Patch::Json),
        ("application/merge-patch+json", _) => body(call, "", Patch::Merge),
        ("application/strategic-merge-patch+json", Some(ty)) => {
            body(call, "", |patch| Patch::Strategic(patch, ty))
        }
        _ if resource.custom.is_some() => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        _ => Err(ApiError::unknown_patch()),
    }
}

fn body(
    call: &Call,
    what: &str,
    patch: impl FnOnce(Value) -> Patch,
) -> Result<(Patch, Vec<String>), ApiError> {
    let (value, duplicates) = json::decode(&call.body).map_err(|error| {
        ApiError::bad_request(format!(
            "error decoding patch: {}",
            json_problem(&error, &call.body)
        ))
    })?;
    let shown = |field: &String| format!("{what}duplicate field {field:?}");
    Ok((patch(value), duplicates.iter().map(shown).collect()))
}

impl Patch {
    /// Returns what the error shows if the patch made the object undecodable: the patch or its
    /// result.
    fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch, _) => patch::go_text(patch),
            _ => patched.to_string(),
        }
    }

    pub(crate) fn apply(&self, value: &mut Value) -> Result<(), ApiError> {
        let result = match self {
            Self::Json(patch) => patch::json::apply(value, patch),
            Self::Merge(patch) => patch::merge(value, patch.clone()),
            Self::Strategic(patch, ty) => patch::strategic::apply(value, patch.clone(), *ty),
        };
        result.map_err(|error| match error {
            PatchError::Malformed(why) => {
                ApiError::bad_request(format!("error decoding patch: {why}"))
            }
            PatchError::Unprocessable(_) => ApiError::rejected(),
            PatchError::TooLarge(why) => ApiError::too_large(why),
            error @ PatchError::TooDeep => ApiError::new(422, "Invalid", error.to_string()),
            PatchError::Unmergeable(why) => ApiError::new(500, "", why),
        })
    }
}
