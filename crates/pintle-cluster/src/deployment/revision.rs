//! Identifies the `ReplicaSet`s of a Deployment: the template hash in their names and labels, and
//! the revisions in their annotations.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use pintle::clock::StableHash;

use crate::meta;

/// The label that distinguishes the Pods of different templates.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
/// The number of the template among those the Deployment has had.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The earlier revisions of a ReplicaSet that was rolled back to.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the Deployment when it last scaled this ReplicaSet.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The size recorded in [`DESIRED`] plus the surge.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations that are not copied from a Deployment to its sets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
];

/// The maximum length of a revision history; older entries are dropped.
const HISTORY_CHARS: usize = 2000;

/// The maximum length of an object name.
const NAME_CHARS: usize = 253;

/// Hashes the template and the collision count into ten characters.
///
/// The alphabet has no vowels and no similar characters, so that no words appear.
pub(super) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // Serialization of a plain struct cannot fail, and maps are ordered.
    let mut bytes = serde_json::to_vec(template).unwrap_or_default();
    bytes.extend(collisions.unwrap_or_default().to_le_bytes());
    let mut hash = StableHash::of(&bytes);
    let mut digit = || {
        let index = usize::try_from(hash % 27).unwrap_or_default();
        hash /= 27;
        char::from(ALPHABET[index])
    };
    (0..10).map(|_| digit()).collect()
}

/// Returns whether two templates are equal apart from the hash label.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        let meta = template.metadata.get_or_insert_default();
        if let Some(labels) = &mut meta.labels {
            labels.remove(TEMPLATE_HASH);
        }
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.annotations = meta
            .annotations
            .take()
            .filter(|annotations| !annotations.is_empty());
        template
    };
    plain(a) == plain(b)
}

/// Builds the ReplicaSet for the current template, with zero replicas.
///
/// Its name is derived from the template, so that concurrent or restarted controllers do not create
/// it twice.
pub(super) fn new_set(deployment: &Deployment) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions);

    let mut template = spec.template;
    let template_meta = template.metadata.get_or_insert_default();
    let labels = template_meta.labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.into(), hash.clone());
    let labels = labels.clone();

    let mut selector: LabelSelector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(TEMPLATE_HASH.into(), hash.clone());

    let mut name = meta::name(&deployment.metadata).to_owned();
    name.truncate(NAME_CHARS - 1 - hash.len());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: meta::controller_reference(deployment).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    meta::annotation(meta, REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Copies the annotations of the Deployment to its new set and gives it a revision above all old
/// ones.
pub(super) fn annotate(deployment: &Deployment, set: &mut ReplicaSet, newest_old: i64) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let next = newest_old + 1;
    let previous = annotations.get(REVISION).cloned();
    if previous
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
        >= next
    {
        return;
    }
    annotations.insert(REVISION.into(), next.to_string());
    if let Some(previous) = previous {
        append_history(annotations, &previous);
    }
}

/// Appends `previous` to the revision history of a set that is rolled back to.
fn append_history(annotations: &mut BTreeMap<String, String>, previous: &str) {
    let history = annotations.get(REVISION_HISTORY).map_or("", String::as_str);
    let mut revisions: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).collect();
    revisions.push(previous);
    let joined = revisions.join(",");
    let mut history = joined.as_str();
    while history.len() > HISTORY_CHARS {
        let Some((_, rest)) = history.split_once(',') else {
            return;
        };
        history = rest;
    }
    annotations.insert(REVISION_HISTORY.into(), history.into());
}

/// Records the size of the Deployment on a set, so that a later reconcile notices scaling.
pub(super) fn record_sizes(set: &mut ReplicaSet, desired: i32, surge: i32) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED.into(), desired.to_string());
    annotations.insert(MAX.into(), (desired + surge).to_string());
}

/// Returns a size recorded by [`record_sizes`].
pub(super) fn recorded_size(set: &ReplicaSet, key: &str) -> Option<i32> {
    meta::annotation(&set.metadata, key)?
        .parse()
        .ok()
        .filter(|size| *size >= 0)
}

#[cfg(test)]
mod tests;
