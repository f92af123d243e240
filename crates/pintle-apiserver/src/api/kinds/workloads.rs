//! Workload kinds: small deviations from the generic write path.

use pintle_clock::Clock;
use serde_json::{Value, json};

use super::{
    Kind,
    fields::{child, ensure_map},
};
use crate::{
    api::{ApiError, write::Part},
    meta::Tree,
    patch::apply::FieldSet,
    schema::field::FieldError,
};

/// Upstream's warning for a deletion whose default surprises most users.
const JOB_DELETED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// `apps/daemonsets`.
#[derive(Debug)]
pub(super) struct DaemonSets;

impl Kind for DaemonSets {
    /// Sets the template generation before managers are recorded: its creator owns the annotation.
    fn complete(&self, object: &mut Tree) {
        set_template_generation(object);
    }

    /// Sets it again, in case admission changed it.
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        set_template_generation(object);
    }
}

fn set_template_generation(object: &mut Tree) {
    let metadata = ensure_map(object, "metadata");
    if let Some(annotations) = metadata.and_then(|metadata| ensure_map(metadata, "annotations")) {
        annotations.insert(
            "deprecated.daemonset.template.generation".into(),
            "1".into(),
        );
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
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        select_own_pods(object);
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn delete_warning(&self) -> Option<&'static str> {
        Some(JOB_DELETED)
    }
}

/// Generates the selector and Pod labels of a Job, unless it has a manual selector.
fn select_own_pods(map: &mut Tree) {
    let metadata = map.get("metadata").and_then(Value::as_object);
    let text = |name: &str| {
        let value = metadata
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (name, uid) = (text("name"), text("uid"));
    let labels = metadata
        .and_then(|metadata| metadata.get("labels"))
        .cloned();
    let Some(spec) = child(map, "spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&json!(true)) {
        return;
    }
    let template =
        ensure_map(spec, "template").and_then(|template| ensure_map(template, "metadata"));
    let Some(pod_labels) = template.and_then(|metadata| ensure_map(metadata, "labels")) else {
        return;
    };
    let shared = labels.as_ref().and_then(Value::as_object) == Some(pod_labels);
    for (label, value) in [
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
    ] {
        pod_labels
            .entry(label)
            .or_insert_with(|| value.as_str().into());
    }
    let pod_labels = pod_labels.clone();
    let selector =
        ensure_map(spec, "selector").and_then(|selector| ensure_map(selector, "matchLabels"));
    if let Some(selector) = selector {
        let uid = || uid.as_str().into();
        selector
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(uid);
    }
    // A Job whose labels were defaulted from its template keeps the same labels.
    if shared && let Some(metadata) = child(map, "metadata") {
        metadata.insert("labels".into(), Value::Object(pod_labels));
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
