//! The history of a workload as `ControllerRevision`s: which one holds the current template, and
//! which ones to delete.
//!
//! Pure functions of the observed revisions, except for [`obtain`].

use std::sync::Arc;

use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        runtime::RawExtension,
    },
};
use pintle::controller::Context;
use serde_json::json;

use crate::{
    api::unless_stale,
    meta::{self, Labels},
};

/// The label with the revision that a Pod was created from: the revision's name for `StatefulSet`s,
/// its hash for `DaemonSet`s. Revisions of `DaemonSet`s have this label too.
pub(crate) const HASH: &str = "controller-revision-hash";

/// The label of a revision of a `StatefulSet` with the hash of its data.
pub(crate) const DATA_HASH: &str = "controller.kubernetes.io/hash";

/// The maximum length of the prefix of a revision's name.
const PREFIX_CHARS: usize = 223;

/// How to obtain the revision of the current template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// It is the newest revision.
    Current(Arc<ControllerRevision>),
    /// It is an older revision, which becomes the newest with this number: a rollback.
    Renumber(Arc<ControllerRevision>, i64),
    /// No revision has this template.
    Create(i64),
}

/// Finds the revision of `template`. `revisions` are ordered by [`sort`].
pub(crate) fn plan(template: &PodTemplateSpec, revisions: &[Arc<ControllerRevision>]) -> Step {
    let newest = revisions.last().map_or(0, |newest| newest.revision);
    let next = newest.saturating_add(1);
    let is_equal = |revision: &&Arc<ControllerRevision>| {
        template_of(revision).is_some_and(|known| known == *template)
    };
    match revisions.iter().rev().find(is_equal) {
        None => Step::Create(next),
        Some(equal) if equal.revision == newest => Step::Current(equal.clone()),
        Some(equal) => Step::Renumber(equal.clone(), next),
    }
}

/// Orders revisions from the oldest to the newest.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let created = |it: &ControllerRevision| it.metadata.creation_timestamp.clone();
        a.revision
            .cmp(&b.revision)
            .then_with(|| created(a).cmp(&created(b)))
            .then_with(|| meta::name(&a.metadata).cmp(meta::name(&b.metadata)))
    });
}

/// Returns the template that a revision restores.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The workload that a revision belongs to.
pub(crate) struct Owner<'a> {
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) reference: Option<OwnerReference>,
    /// The label of its revisions with their hash: [`HASH`] or [`DATA_HASH`].
    pub(crate) label: &'static str,
}

/// Builds the revision of a template: a strategic merge patch that restores it.
fn new(
    owner: &Owner<'_>,
    template: &PodTemplateSpec,
    revision: i64,
    collisions: i32,
) -> ControllerRevision {
    // Serialization of a plain struct cannot fail, and maps are ordered.
    let mut patched = serde_json::to_value(template).unwrap_or_default();
    if let Some(template) = patched.as_object_mut() {
        template.insert("$patch".into(), "replace".into());
    }
    let data = json!({ "spec": { "template": patched } });
    let hash = hash(&data.to_string(), collisions);
    let mut labels: Labels = template
        .metadata
        .as_ref()
        .map(meta::labels)
        .cloned()
        .unwrap_or_default();
    labels.insert(owner.label.into(), hash.clone());
    let mut name = meta::name(owner.metadata).to_owned();
    name.truncate(PREFIX_CHARS);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: owner.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: owner.metadata.annotations.clone(),
            owner_references: owner.reference.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

/// Returns the revision of a template, creating or renumbering it if necessary, and counts
/// collisions of its name. Returns `None` if the cache is stale.
pub(crate) async fn obtain(
    cx: &Context,
    owner: &Owner<'_>,
    template: &PodTemplateSpec,
    history: &[Arc<ControllerRevision>],
    collisions: &mut i32,
) -> Result<Option<Arc<ControllerRevision>>, kube::Error> {
    let number = match plan(template, history) {
        Step::Current(revision) => return Ok(Some(revision)),
        Step::Renumber(revision, number) => {
            let mut revision = (*revision).clone();
            revision.revision = number;
            return Ok(unless_stale(cx.replace(&revision).await)?.map(Arc::new));
        }
        Step::Create(number) => number,
    };
    loop {
        let new = new(owner, template, number, *collisions);
        let error = match cx.create(&new).await {
            Ok(created) => return Ok(Some(Arc::new(created))),
            Err(error) => error,
        };
        if !matches!(&error, kube::Error::Api(status) if status.is_already_exists()) {
            return Err(error);
        }
        let namespace = owner.metadata.namespace.as_deref().unwrap_or_default();
        let stored = kube::Api::<ControllerRevision>::namespaced(cx.client().clone(), namespace);
        // If it is gone again, no event follows, so return the error and retry.
        let existing = stored
            .get_opt(meta::name(&new.metadata))
            .await?
            .ok_or(error)?;
        if existing.data == new.data {
            // The revision belongs to another owner, or is ours and not in the cache yet.
            return Ok(Some(Arc::new(existing)));
        }
        *collisions += 1;
    }
}

/// Hashes as upstream does for `StatefulSet`s: 32-bit FNV-1 over the data and the collision count,
/// its decimal digits encoded without vowels.
fn hash(data: &str, collisions: i32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let collisions = collisions.to_string();
    let bytes = data.bytes().chain(collisions.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    });
    let digits = hash.to_string();
    digits
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

/// Returns the revisions to delete: the oldest ones without Pods, until `limit` of those remain.
pub(crate) fn surplus(
    revisions: &[Arc<ControllerRevision>],
    live: &[&str],
    limit: Option<i32>,
) -> Vec<Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit.unwrap_or(10)) else {
        return Vec::new();
    };
    let is_live = |it: &ControllerRevision| live.contains(&meta::name(&it.metadata));
    let mut unused: Vec<_> = revisions
        .iter()
        .filter(|it| !is_live(it))
        .cloned()
        .collect();
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

#[cfg(test)]
mod tests;
