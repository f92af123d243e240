//! Questions about the caller: answered, never kept.

use serde_json::{Value, json};

use super::{Answer, Call, error::ApiError, negotiate, respond};

/// Answers POST of a review.
pub(crate) fn review(call: &Call) -> Answer {
    let resource = &call.target.resource;
    let form = negotiate::plain(&call.headers)?;
    call.write_options("CreateOptions")?;
    let value = call.decoded((&resource.group, &resource.version, &resource.kind))?;
    let kind = (resource.api_version(), resource.kind.clone());
    let mut review = call.typed(value, &kind)?;
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
    review.entry("metadata").or_insert_with(|| json!({}));
    review.insert("status".into(), status);
    Ok(respond::formed(
        201,
        form,
        Value::Object(review).to_string().into_bytes(),
    ))
}
