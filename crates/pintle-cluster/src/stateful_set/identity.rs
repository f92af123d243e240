//! Names, labels and volumes of the Pods of a StatefulSet.

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{
            PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{meta, revisions};

/// The label with the name of the Pod, for Services that select one Pod.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the ordinal of the Pod.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

pub(super) fn spec(set: &StatefulSet) -> StatefulSetSpec {
    set.spec.clone().unwrap_or_default()
}

/// Returns the ordinal of a Pod if its name is that of a member of the set.
pub(super) fn ordinal(set: &StatefulSet, pod: &ObjectMeta) -> Option<i32> {
    let (parent, ordinal) = meta::name(pod).rsplit_once('-')?;
    let number: i32 = ordinal.parse().ok()?;
    (parent == meta::name(&set.metadata) && number.to_string() == ordinal).then_some(number)
}

/// Returns the ordinals of the set's replicas.
pub(super) fn ordinals(set: &StatefulSet) -> std::ops::Range<i32> {
    let spec = set.spec.as_ref();
    let start = spec
        .and_then(|spec| spec.ordinals.as_ref()?.start)
        .unwrap_or_default();
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    start..start.saturating_add(replicas)
}

/// Returns the revision that a Pod was created from.
pub(super) fn revision(pod: &Pod) -> &str {
    meta::labels(&pod.metadata)
        .get(revisions::HASH)
        .map_or("", String::as_str)
}

/// Builds the Pod with this ordinal from a template.
pub(super) fn pod(
    set: &StatefulSet,
    template: PodTemplateSpec,
    revision: &str,
    ordinal: i32,
) -> Pod {
    let from = template.metadata.unwrap_or_default();
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(format!("{}-{ordinal}", meta::name(&set.metadata))),
            // Without effect, but set upstream, like on the Pods of other workloads.
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: meta::controller_reference(set).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    set_labels(&mut pod, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(revisions::HASH.into(), revision.into());
    set_volumes(set, &mut pod, ordinal);
    let name = pod.metadata.name.clone();
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = name;
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    pod
}

fn set_labels(pod: &mut Pod, ordinal: i32) {
    let name = meta::name(&pod.metadata).to_owned();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.into(), name);
    labels.insert(POD_INDEX.into(), ordinal.to_string());
}

/// Replaces the volumes that share a claim template's name with the claims of this ordinal.
fn set_volumes(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let claims = claim_templates(set).map(|template| Volume {
        name: meta::name(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    });
    let mut volumes: Vec<Volume> = claims.collect();
    let spec = pod.spec.get_or_insert_default();
    for volume in spec.volumes.take().into_iter().flatten() {
        if volumes.iter().all(|claim| claim.name != volume.name) {
            volumes.push(volume);
        }
    }
    spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
}

/// Returns the Pod with its labels restored, or `None` if they are correct.
///
/// Volumes of an existing Pod are immutable, so a Pod without its claims is left unchanged until it
/// is replaced.
pub(super) fn corrected(pod: &Pod, ordinal: i32) -> Option<Pod> {
    let name = meta::name(&pod.metadata);
    if meta::labels(&pod.metadata)
        .get(POD_NAME)
        .map(String::as_str)
        == Some(name)
    {
        return None;
    }
    let mut pod = pod.clone();
    set_labels(&mut pod, ordinal);
    Some(pod)
}

fn claim_templates(set: &StatefulSet) -> impl Iterator<Item = &PersistentVolumeClaim> {
    set.spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten())
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    let (template, set) = (meta::name(&template.metadata), meta::name(&set.metadata));
    format!("{template}-{set}-{ordinal}")
}

/// Returns whether the set creates a claim of this name.
pub(super) fn is_claim_of(set: &StatefulSet, claim: &str) -> bool {
    let set_name = meta::name(&set.metadata);
    claim_templates(set).any(|template| {
        let prefix = format!("{}-{set_name}-", meta::name(&template.metadata));
        claim
            .strip_prefix(&prefix)
            .is_some_and(|ordinal| ordinal.parse::<i32>().is_ok())
    })
}

/// Builds the claims of a Pod, without owners.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    claim_templates(set)
        .map(|template| {
            let mut claim = template.clone();
            claim.metadata.name = Some(claim_name(set, template, ordinal));
            claim.metadata.namespace.clone_from(&set.metadata.namespace);
            let selected = selector.and_then(|selector| selector.match_labels.clone());
            if let Some(selected) = selected {
                claim
                    .metadata
                    .labels
                    .get_or_insert_default()
                    .extend(selected);
            }
            claim.status = None;
            claim
        })
        .collect()
}
