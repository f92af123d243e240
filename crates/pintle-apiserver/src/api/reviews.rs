//! Questions about the caller: answered, never kept.

use serde_json::{Value, json};

use super::{Answer, Call, error::ApiError, negotiate, respond};
use crate::{clock::Clock, meta::Tree, schema::field::FieldError};

/// Answers POST of a review.
pub(crate) fn review(call: &Call, clock: &Clock) -> Answer {
    let resource = &call.target.resource;
    let form = negotiate::plain(&call.headers)?;
    call.write_options("CreateOptions")?;
    let value = call.decoded((&resource.group, &resource.version, &resource.kind))?;
    let kind = (resource.api_version(), resource.kind.clone());
    let mut review = call.typed(value, &kind)?;
    check(call, &review)?;
    let status = match resource.plural.as_str() {
        // Whoever gets here may do everything: there is one user and no rules.
        "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews" => {
            json!({"allowed": true})
        }
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "selfsubjectreviews" => {
            json!({"userInfo": {"username": call.user.name, "groups": call.user.groups}})
        }
        _ => {
            return Err(ApiError::not_implemented(&format!(
                "{} objects",
                resource.kind
            )));
        }
    };
    review.insert("apiVersion".into(), kind.0.into());
    review.insert("kind".into(), kind.1.into());
    let metadata = review.entry("metadata").or_insert_with(|| json!({}));
    if resource.plural == "selfsubjectreviews" {
        metadata["creationTimestamp"] = clock.stamp().into();
    }
    if resource.plural == "selfsubjectrulesreviews" {
        // What was asked is not told again.
        review.insert("spec".into(), json!({}));
    }
    review.insert("status".into(), status);
    Ok(respond::formed(
        201,
        form,
        Value::Object(review).to_string().into_bytes(),
    ))
}

/// A question about access is about one thing and somebody, in the namespace it is asked in.
fn check(call: &Call, review: &Tree) -> Result<(), ApiError> {
    let resource = &call.target.resource;
    if !resource.plural.ends_with("accessreviews") {
        return Ok(());
    }
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    let asked = |field: &str| spec.get(field).is_some_and(Value::is_object);
    match (asked("resourceAttributes"), asked("nonResourceAttributes")) {
        (true, true) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            spec["nonResourceAttributes"].clone(),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty()
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if nobody && !resource.plural.starts_with("self") {
        errors.push(FieldError::invalid(
            "spec.user",
            "",
            "at least one of user or group must be specified",
        ));
    }
    if let Some(namespace) = &call.target.namespace {
        let about = spec["resourceAttributes"]["namespace"]
            .as_str()
            .unwrap_or_default();
        if asked("resourceAttributes") && about != namespace {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes.namespace",
                about,
                "must match metadata.namespace",
            ));
        }
        if asked("nonResourceAttributes") {
            errors.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                spec["nonResourceAttributes"].clone(),
                "disallowed on this kind of request",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&resource.group, "", "", errors))
}
