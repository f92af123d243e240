//! One call: builds the review, posts it, and verifies the response.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{hook::Hook, matching::Invocation, types::check_types};
use crate::{
    admission::Request,
    api::{Api, ApiError},
    meta::Tree,
    registry::api_version,
    webhook::{Answer, Held, Sent, apart, check_values},
};

/// The patch of a webhook.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) operations: Value,
    _held: Held,
}

/// Why a call did not allow the request.
#[derive(Debug)]
pub(super) enum Failure {
    /// The webhook could not be called or sent an invalid response; the failure policy decides.
    Calling(String),
    /// The request fails, regardless of the failure policy.
    Refused(ApiError),
}

impl Failure {
    /// Returns the error of the request, or `None` if the failure policy of the webhook ignores it.
    /// `place` names the call in the audit event.
    pub(super) fn verdict(
        self,
        hook: &Hook,
        request: &Request<'_>,
        place: &str,
    ) -> Option<ApiError> {
        let name = &hook.name;
        match self {
            Self::Refused(error) => Some(error),
            Self::Calling(why) if hook.ignore_failures => {
                request.options.audit.annotate(place, name.as_str());
                tracing::warn!(webhook = name, why, "webhook failed; allowing the request");
                None
            }
            Self::Calling(why) => {
                tracing::warn!(webhook = name, why, "webhook failed; denying the request");
                Some(ApiError::internal(format!(
                    "failed calling webhook {name:?}: {why}"
                )))
            }
        }
    }
}

/// Returns an object in the version that a webhook or policy expects; null if there is none.
pub(in crate::admission) async fn shown(
    api: &Api,
    request: &Request<'_>,
    invocation: &Invocation,
    object: Option<&Tree>,
) -> Result<Value, ApiError> {
    let Some(object) = object else {
        return Ok(Value::Null);
    };
    if request.exchanged.is_some() || Arc::ptr_eq(&invocation.resource, request.resource) {
        return Ok(request.served(object));
    }
    let (from, to) = (request.resource, &invocation.resource);
    let object = api.convert_between(from, to, object.clone()).await?;
    let mut object = to.to_served(object);
    object.insert("apiVersion".into(), to.api_version().into());
    object.insert("kind".into(), to.kind.clone().into());
    Ok(Value::Object(object))
}

/// Describes a write as the `request` of a review, without UID and objects.
pub(in crate::admission) fn described(request: &Request<'_>, invocation: &Invocation) -> Value {
    let own = request.resource;
    let seen = &invocation.resource;
    let kind = |resource: &crate::registry::Resource| {
        let (group, version, kind) = match request.exchanged {
            Some(kind) => (kind.group, kind.version, kind.kind),
            None => (&*resource.group, &*resource.version, &*resource.kind),
        };
        json!({"group": group, "version": version, "kind": kind})
    };
    let plural = |resource: &crate::registry::Resource| {
        json!({"group": resource.group, "version": resource.version,
            "resource": resource.plural})
    };
    let mut described = json!({
        "kind": kind(seen), "resource": plural(seen),
        "requestKind": kind(own), "requestResource": plural(own),
        "operation": request.operation.as_str(), "userInfo": request.user.info(),
        "dryRun": request.is_dry_run(), "options": request.options.reviewed(request.operation),
    });
    let namespace = request.namespace.unwrap_or_default();
    for (field, value) in [
        ("name", request.name),
        ("namespace", namespace),
        ("subResource", request.sub),
        ("requestSubResource", request.sub),
    ] {
        if !value.is_empty() {
            described[field] = value.into();
        }
    }
    described
}

/// Calls a webhook. Returns its patch; warnings go to the response of the write.
pub(super) async fn call(
    api: &Api,
    hook: &Hook,
    request: &Request<'_>,
    invocation: &Invocation,
    object: Option<&Tree>,
    mutating: bool,
) -> Result<Option<Patch>, Failure> {
    let name = &hook.name;
    if hook.review_version.is_empty() {
        let why = "could not create admission objects: webhook does not accept known \
                   AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Calling(why.to_owned()));
    }
    let client = hook.client.as_ref();
    let client =
        client.map_err(|why| Failure::Calling(format!("could not get REST client: {why}")))?;
    let uid = api.rng.uuid();
    let mut asked = described(request, invocation);
    asked["uid"] = uid.clone().into();
    let new = shown(api, request, invocation, object).await;
    asked["object"] = new.map_err(Failure::Refused)?;
    let old = shown(api, request, invocation, request.old).await;
    asked["oldObject"] = old.map_err(Failure::Refused)?;
    let review =
        json!({"kind": "AdmissionReview", "apiVersion": hook.review_version, "request": asked});
    let now = Instant::now();
    let left = request.options.deadline;
    let left = left.map_or(hook.timeout, |deadline| deadline.duration_since(now));
    let sent = Sent {
        review,
        timeout: hook.timeout,
        announced: hook.timeout.min(left),
        limits: &hook.limits,
    };
    let answer = api.webhooks.client.call(api, client, sent).await;
    let Answer { review, held } =
        answer.map_err(|error| Failure::Calling(format!("failed to call webhook: {error}")))?;
    check_types(&review["response"])
        .map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
    let verified = verify(&uid, hook.review_version, &review, mutating);
    let response = verified
        .map_err(|why| Failure::Calling(format!("received invalid webhook response: {why}")))?;
    for (key, value) in response["auditAnnotations"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let value = value.as_str().unwrap_or_default();
        let key = format!("{name}/{key}");
        request.options.audit.annotate(&key, value);
    }
    for warning in response["warnings"].as_array().into_iter().flatten() {
        let warning = warning.as_str().unwrap_or_default();
        request.options.warnings.add(warning.to_owned());
    }
    if response["allowed"] != Value::Bool(true) {
        let status = &response["status"];
        return Err(Failure::Refused(ApiError::denied_by_webhook(name, status)));
    }
    if !mutating {
        return Ok(None);
    }
    let version = hook.review_version;
    let decoded = apart(held, move || decode_patch(version, &review["response"])).await;
    let (operations, held) = decoded.map_err(|error| Failure::Calling(error.to_string()))?;
    let operations = operations?;
    Ok(operations.map(|operations| Patch {
        operations,
        _held: held,
    }))
}

/// Decodes the JSON patch of a response; an empty one counts as no patch.
fn decode_patch(review_version: &str, response: &Value) -> Result<Option<Value>, Failure> {
    let Some(patch) = response["patch"].as_str().filter(|patch| !patch.is_empty()) else {
        return Ok(None);
    };
    let undecodable = |why: String| {
        Failure::Calling(format!(
            "received undecodable patch in webhook response: {why}"
        ))
    };
    let bytes = STANDARD.decode(patch);
    let bytes = bytes.map_err(|error| undecodable(error.to_string()))?;
    check_values(&bytes).map_err(undecodable)?;
    let patch: Value = serde_json::from_slice(&bytes)
        .map_err(|error| undecodable(crate::api::json_problem(&error, &bytes)))?;
    // The older review version does not have to name the type.
    if review_version == "admission.k8s.io/v1"
        && let Some(other) = response["patchType"].as_str()
        && other != "JSONPatch"
    {
        return Err(Failure::Calling(format!(
            "unsupported patch type {other:?}"
        )));
    }
    match &patch {
        Value::Array(operations) if operations.is_empty() => Ok(None),
        Value::Array(_) => Ok(Some(patch)),
        other => Err(undecodable(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            crate::patch::json_kind(other)
        ))),
    }
}

/// Checks that a response matches the request. The error is upstream's message.
fn verify<'a>(
    uid: &str,
    review_version: &str,
    review: &'a Value,
    mutating: bool,
) -> Result<&'a Value, String> {
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    // Upstream verifies nothing else in the older review version.
    if review_version != "admission.k8s.io/v1" {
        return Ok(response);
    }
    let found = response["uid"].as_str().unwrap_or_default();
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let text = |field: &str| review[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (review_version, "AdmissionReview") {
        let found = text("apiVersion");
        let (group, version) = found.split_once('/').unwrap_or(("", found));
        let found = match (group, version) {
            ("", "") => "/".to_owned(),
            _ => api_version(group, version),
        };
        return Err(format!(
            "expected webhook response of {review_version}, Kind=AdmissionReview, got {found}, Kind={}",
            text("kind")
        ));
    }
    let has_patch = response["patch"].as_str().is_some_and(|p| !p.is_empty());
    let has_type = !response["patchType"].is_null();
    if !mutating {
        if has_patch {
            return Err("validating webhook may not return response.patch".to_owned());
        }
        if has_type {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
    }
    match (has_patch, has_type) {
        (true, false) => {
            Err("webhook returned response.patch but not response.patchType".to_owned())
        }
        (false, true) => {
            Err("webhook returned response.patchType but not response.patch".to_owned())
        }
        _ if response["patchType"] == "" => {
            Err("webhook returned invalid response.patchType of \"\"".to_owned())
        }
        _ => Ok(response),
    }
}
