//! `CertificateSigningRequests`: the server records the requester, and the spec never changes.
//!
//! A signer trusts `spec.username`, `uid`, `groups` and `extra` because no client or webhook can
//! write them. An approval changes only conditions; a signer's status update can neither approve
//! nor deny.

mod validate;

use pintle_clock::Clock;
use serde_json::{Value, json};

use super::Kind;
use crate::{
    api::{ApiError, User, write::Part},
    meta::Tree,
    patch::apply::FieldSet,
    schema::field::FieldError,
};

/// The conditions that only an approval sets.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that are never removed.
const PERMANENT: [&str; 3] = ["Approved", "Denied", "Failed"];

/// `certificates.k8s.io/certificatesigningrequests`.
#[derive(Debug)]
pub(super) struct SigningRequests;

impl Kind for SigningRequests {
    /// Records the requester, overriding the request.
    fn set_requester(&self, request: &mut Tree, user: &User) {
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

    /// Restores the fields that this write may not change, and sets the times of new conditions.
    fn prepare_update(&self, part: Part, request: &mut Tree, stored: &Tree, clock: &Clock) {
        match part {
            Part::Main => {
                let spec = stored.get("spec").cloned().unwrap_or_default();
                request.insert("spec".into(), spec);
            }
            Part::Status => {
                restore_verdicts(request, stored);
                set_times(request, stored, &clock.stamp());
            }
            Part::Approval => {
                set_times(request, stored, &clock.stamp());
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

    fn validate(
        &self,
        part: Part,
        request: &Tree,
        stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        if stored.is_none() {
            validate::check_spec(request, errors);
        }
        validate::check_conditions(request, stored, errors);
        validate::check_certificate(request, stored, errors);
        let Some(stored) = stored else {
            return Ok(());
        };
        let count = |request: &Tree, kind: &str| {
            let conditions = conditions(request).iter();
            conditions
                .filter(|condition| condition["type"] == kind)
                .count()
        };
        let forbidden = |why: String| FieldError::forbidden("status.conditions", why);
        for kind in PERMANENT {
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
        if part == Part::Status && validate::replaces_certificate(request, stored) {
            errors.push(FieldError::forbidden(
                "status.certificate",
                "updates may not modify existing certificate content",
            ));
        }
        Ok(())
    }

    fn reset_fields(&self, sub: &str) -> Option<FieldSet> {
        Some(match sub {
            "status" => FieldSet::of(&[&["spec"], &["status", "conditions"]]),
            "approval" => FieldSet::of(&[&["spec"], &["status", "certificate"]]),
            _ => FieldSet::of(&[&["spec"], &["status"]]),
        })
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

/// Restores approvals and denials, unless their number changed.
fn restore_verdicts(request: &mut Tree, stored: &Tree) {
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

/// Sets the missing times of conditions. The transition time changes only with the status.
fn set_times(request: &mut Tree, stored: &Tree, now: &str) {
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
