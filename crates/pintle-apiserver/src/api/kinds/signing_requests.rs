//! Certificate signing requests: the server records who asks, and what was asked for never changes.
//!
//! A signer trusts `spec.username`, `uid`, `groups` and `extra` because no client can write them. An
//! approval changes conditions and nothing else; a signer's status may not approve or deny.

use serde_json::{Value, json};

use crate::api::{request::user::User, write::prepare::Part};
use crate::{meta::Tree, patch::apply::FieldSet, registry::Resource, schema::field::FieldError};

/// The conditions that only an approval sets.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that stay once they are set.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(crate) fn is_one(resource: &Resource) -> bool {
    resource.is("certificates.k8s.io", "certificatesigningrequests")
}

/// Records who asks, whatever the request says.
pub(crate) fn identify(request: &mut Tree, user: &User) {
    let Some(Value::Object(spec)) = request.get_mut("spec") else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    if let Value::Object(info) = user.info() {
        spec.extend(info);
    }
}

/// Keeps what this path may not change, and dates new conditions.
pub(crate) fn prepare_update(part: Part, request: &mut Tree, stored: &Tree, now: &str) {
    match part {
        Part::Main => {
            let spec = stored.get("spec").cloned().unwrap_or_default();
            request.insert("spec".into(), spec);
        }
        Part::Status => {
            keep_verdicts(request, stored);
            date(request, stored, now);
        }
        Part::Approval => {
            date(request, stored, now);
            let conditions = conditions(request).to_vec();
            let mut status = stored.get("status").cloned().unwrap_or_else(|| json!({}));
            if conditions.is_empty() {
                status
                    .as_object_mut()
                    .map(|status| status.remove("conditions"));
            } else {
                status["conditions"] = conditions.into();
            }
            request.insert("status".into(), status);
        }
        _ => {}
    }
}

/// What is wrong with a changed status.
pub(crate) fn check(part: Part, request: &Tree, stored: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let count = |request: &Tree, kind: &str| {
        let conditions = conditions(request).iter();
        conditions
            .filter(|condition| condition["type"] == kind)
            .count()
    };
    let forbidden = |why: String| FieldError::forbidden("status.conditions", why);
    for kind in LASTING {
        if count(request, kind) < count(stored, kind) {
            errors.push(forbidden(format!(
                "updates may not remove a condition of type {kind:?}"
            )));
        }
    }
    if part != Part::Approval {
        for kind in VERDICTS {
            if count(request, kind) > count(stored, kind) {
                errors.push(forbidden(format!(
                    "updates may not add a condition of type {kind:?}"
                )));
            }
        }
    }
    errors
}

/// The fields nobody comes to manage by writing this path.
pub(crate) fn reset_fields(sub: &str) -> FieldSet {
    match sub {
        "status" => FieldSet::of(&[&["spec"], &["status", "conditions"]]),
        "approval" => FieldSet::of(&[&["spec"], &["status", "certificate"]]),
        _ => FieldSet::of(&[&["spec"], &["status"]]),
    }
}

fn conditions(request: &Tree) -> &[Value] {
    let status = request
        .get("status")
        .and_then(|status| status.get("conditions"));
    status.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn conditions_mut(request: &mut Tree) -> impl Iterator<Item = &mut Value> {
    let status = request.get_mut("status");
    let conditions = status.and_then(|status| status.get_mut("conditions"));
    conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Approvals and denials are taken over as they are, as long as there are as many.
fn keep_verdicts(request: &mut Tree, stored: &Tree) {
    for kind in VERDICTS {
        let is = |condition: &&Value| condition["type"] == kind;
        let kept: Vec<&Value> = conditions(stored).iter().filter(is).collect();
        if conditions(request).iter().filter(is).count() == kept.len() {
            let same = conditions_mut(request).filter(|condition| condition["type"] == kind);
            same.zip(kept)
                .for_each(|(condition, kept)| condition.clone_from(kept));
        }
    }
}

/// Sets the times a condition lacks; the time of a transition is kept while there is none.
fn date(request: &mut Tree, stored: &Tree, now: &str) {
    for condition in conditions_mut(request) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = conditions(stored).iter().find(|other| {
                other["type"] == condition["type"]
                    && other["status"] == condition["status"]
                    && !other["lastTransitionTime"].is_null()
            });
            let time = same.map(|other| other["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = time.unwrap_or_else(|| now.into());
        }
    }
}
