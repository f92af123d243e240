//! The options of a delete: what happens to dependents, the grace period, preconditions.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    api::{ApiError, Call},
    registry::Resource,
    schema::field::FieldError,
    store::Object,
};

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// The options of a delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(super) propagation: Option<Propagation>,
    pub(super) grace: Option<i64>,
    /// Precondition: the UID of the object.
    uid: Option<String>,
    /// Precondition: the `resourceVersion` of the object.
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// Whether [`Points`](crate::Points) do not see the delete, because no request caused it.
    pub(super) unobserved: bool,
    /// Whether the request was already admitted under another kind, such as an eviction.
    pub(crate) admitted: bool,
    /// The options as they were sent.
    pub(super) sent: Arc<Value>,
    /// The deadline of the request.
    pub(super) deadline: Option<Instant>,
}

impl DeleteOptions {
    /// Returns the options of a delete that cascades from a CRD to its instances.
    pub(crate) fn background() -> Self {
        Self {
            propagation: Some(Propagation::Background),
            ..Self::default()
        }
    }

    /// Returns the options of the server's delete at the end of a grace period.
    pub(crate) fn immediate(uid: &str) -> Self {
        Self {
            grace: Some(0),
            uid: Some(uid.to_owned()),
            unobserved: true,
            ..Self::default()
        }
    }

    /// Decodes `DeleteOptions`.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let policy = body["propagationPolicy"].as_str();
        let orphan = body["orphanDependents"].as_bool();
        if policy.is_some() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            None => orphan.map(|orphan| {
                if orphan {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        let mut dry_run = false;
        for value in body["dryRun"].as_array().into_iter().flatten() {
            if value == "All" {
                dry_run = true;
            } else {
                errors.push(FieldError::not_supported(
                    "dryRun",
                    json!([value]),
                    &["All"],
                ));
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                errors,
            ));
        }
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            propagation,
            grace: body["gracePeriodSeconds"].as_i64(),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            dry_run,
            unobserved: false,
            admitted: false,
            sent: Arc::new(body.clone()),
            deadline: None,
        })
    }
}

/// Decodes the options of a delete from the body, or from the query if there is no body.
pub(super) fn delete_options(call: &Call) -> Result<DeleteOptions, ApiError> {
    if !call.body.is_empty() {
        let body = call.options_body()?;
        if !body.is_object() {
            let why = "DeleteOptions: an object is expected";
            return Err(ApiError::bad_request(why));
        }
        return in_time(call, &body);
    }
    let mut body = json!({});
    let query = &call.query;
    let policy = query.get("propagationPolicy");
    if !policy.is_empty() {
        body["propagationPolicy"] = policy.into();
    }
    if let Some(grace) = query.number("gracePeriodSeconds")? {
        body["gracePeriodSeconds"] = grace.into();
    }
    if let Some(orphan) = query.optional_flag("orphanDependents") {
        body["orphanDependents"] = orphan.into();
    }
    let dry_run: Vec<Value> = query.all("dryRun").map(Value::from).collect();
    if !dry_run.is_empty() {
        body["dryRun"] = dry_run.into();
    }
    in_time(call, &body)
}

fn in_time(call: &Call, body: &Value) -> Result<DeleteOptions, ApiError> {
    let mut options = DeleteOptions::read(body)?;
    options.deadline = call.deadline()?;
    Ok(options)
}

/// Checks the UID and `resourceVersion` that a delete expects.
pub(crate) fn check_preconditions(
    resource: &Resource,
    current: &Object,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let conflict = |why: &str| {
        Err(ApiError::conflict(
            &resource.group,
            &resource.kind,
            current.name(),
            why,
        ))
    };
    let (uid, revision) = (&current.header().uid, current.revision.to_string());
    if let Some(wanted) = options.uid.as_ref().filter(|wanted| *wanted != uid) {
        return conflict(&format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options
        .resource_version
        .as_ref()
        .filter(|wanted| **wanted != revision)
    {
        return conflict(&format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}
