//! Workload kinds: small deviations from the generic write path.

use pintle_clock::Clock;
use serde_json::Value;

use super::Kind;
use crate::{
    api::{ApiError, User, write::Part},
    meta::Tree,
    patch::apply::FieldSet,
    schema::{field::FieldError, prepare},
};

/// Upstream's warning for a deletion whose default surprises most users.
const JOB_DELETED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// `apps/daemonsets`.
#[derive(Debug)]
pub(super) struct DaemonSets;

impl Kind for DaemonSets {
    /// Sets the template generation, whose annotation belongs to the creator.
    fn complete(&self, object: &mut Tree, _user: Option<&User>) {
        prepare::count_template(object);
    }
}

/// `apps/deployments`.
#[derive(Debug)]
pub(super) struct Deployments;

impl Kind for Deployments {
    /// Keeps the labels: an update of the status does not change them.
    fn prepare_update(&self, part: Part, object: &mut Tree, stored: &Tree, _clock: &Clock) {
        if part != Part::Status {
            return;
        }
        let labels = stored.get("metadata").and_then(|m| m.get("labels"));
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.insert("labels".into(), labels.cloned().unwrap_or_default());
        }
    }

    fn reset_fields(&self, sub: &str) -> Option<FieldSet> {
        (sub == "status").then(|| FieldSet::of(&[&["spec"], &["metadata", "labels"]]))
    }
}

/// `batch/jobs`.
#[derive(Debug)]
pub(super) struct Jobs;

impl Kind for Jobs {
    fn orphans_by_default(&self) -> bool {
        true
    }

    fn delete_warning(&self) -> Option<&'static str> {
        Some(JOB_DELETED)
    }
}

/// `replicationcontrollers`.
#[derive(Debug)]
pub(super) struct ReplicationControllers;

impl Kind for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }

    /// Accepts any prefix: only the generated name is validated.
    fn validate(
        &self,
        _part: Part,
        _object: &Tree,
        _stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        errors.retain(|error| error.field != "metadata.generateName");
        Ok(())
    }
}
