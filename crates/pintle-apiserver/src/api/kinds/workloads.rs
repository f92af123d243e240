//! Workload kinds and what scales them: small deviations from the generic write path.

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
    registry::served_versions::Conversion,
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
        set_template_generation(object, 1);
    }

    /// Sets the template generation again, in case admission has changed it.
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        set_template_generation(object, 1);
    }

    /// Maintains the count of template changes, which users cannot set.
    fn prepare_update(&self, _part: Part, object: &mut Tree, stored: &Tree, _clock: &Clock) {
        let template = |object: &Tree| {
            object
                .get("spec")
                .and_then(|it| it.get("template"))
                .cloned()
        };
        let changed = template(object) != template(stored);
        set_template_generation(object, template_generation(stored) + i64::from(changed));
    }
}

/// The annotation with the count of template changes, which older versions kept in the spec.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Tree) -> i64 {
    let metadata = object.get("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
    let generation = annotations.and_then(|it| it.get(TEMPLATE_GENERATION)?.as_str());
    generation.and_then(|it| it.parse().ok()).unwrap_or(1)
}

fn set_template_generation(object: &mut Tree, generation: i64) {
    let metadata = ensure_map(object, "metadata");
    if let Some(annotations) = metadata.and_then(|metadata| ensure_map(metadata, "annotations")) {
        annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
    }
}

/// `apps/deployments`.
#[derive(Debug)]
pub(super) struct Deployments;

impl Kind for Deployments {
    /// Restores the labels, which a status update cannot change.
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

/// `apps/statefulsets`.
#[derive(Debug)]
pub(super) struct StatefulSets;

impl Kind for StatefulSets {
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        drop_max_unavailable(object);
    }

    /// Keeps `maxUnavailable` where it is already in use, as kube-apiserver does with disabled
    /// fields.
    fn prepare_update(&self, _part: Part, object: &mut Tree, stored: &Tree, _clock: &Clock) {
        let rolling = stored
            .get("spec")
            .map(|spec| &spec["updateStrategy"]["rollingUpdate"]);
        if rolling.is_none_or(|rolling| rolling["maxUnavailable"].is_null()) {
            drop_max_unavailable(object);
        }
    }
}

/// Drops a field whose feature gate, `MaxUnavailableStatefulSet`, is off by default.
fn drop_max_unavailable(object: &mut Tree) {
    let strategy = child(object, "spec").and_then(|spec| child(spec, "updateStrategy"));
    if let Some(rolling) = strategy.and_then(|strategy| child(strategy, "rollingUpdate")) {
        rolling.remove("maxUnavailable");
    }
}

/// `autoscaling/horizontalpodautoscalers`: `autoscaling/v1` is a view of the stored `v2`.
#[derive(Debug)]
pub(super) struct Autoscalers;

impl Kind for Autoscalers {
    fn conversion(&self, version: &str) -> Option<Conversion> {
        (version == "v1").then_some(Conversion::Autoscalers)
    }
}
