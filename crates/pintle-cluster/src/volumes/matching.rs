//! Finds the volume that fits a claim best.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{
        Affinity, Node, NodeAffinity, PersistentVolume, PersistentVolumeClaim, PodSpec,
    },
    apimachinery::pkg::api::resource::Quantity as Text,
};
use pintle::cache::Selector;
use pintle_cel::Quantity;

use crate::{meta, pods::fit};

/// The annotation that named the class of a claim or volume before the field existed.
const LEGACY_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the class of a claim: `None` if unset, and empty if it requests no class.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let spec = claim.spec.as_ref();
    meta::annotation(&claim.metadata, LEGACY_CLASS)
        .or_else(|| spec.and_then(|spec| spec.storage_class_name.as_deref()))
}

fn volume_class(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    meta::annotation(&volume.metadata, LEGACY_CLASS)
        .or_else(|| spec.and_then(|spec| spec.storage_class_name.as_deref()))
        .unwrap_or_default()
}

/// Returns whether a volume is reserved for a claim or bound to it.
pub(super) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (uid.is_empty() || uid == meta::uid(&claim.metadata))
    })
}

/// Parses the size of a claim or a volume. A missing size is zero.
pub(crate) fn size(quantities: Option<&BTreeMap<String, Text>>) -> Quantity {
    let text = quantities.and_then(|quantities| quantities.get("storage"));
    text.and_then(|text| text.0.parse().ok())
        .unwrap_or_default()
}

pub(crate) fn requested_size(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    size(resources.and_then(|resources| resources.requests.as_ref()))
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    size(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
}

fn modes(modes: Option<&Vec<String>>) -> Vec<&str> {
    let mut modes: Vec<&str> = modes.into_iter().flatten().map(String::as_str).collect();
    modes.sort_unstable();
    modes
}

fn volume_modes(volume: &PersistentVolume) -> Vec<&str> {
    modes(
        volume
            .spec
            .as_ref()
            .and_then(|spec| spec.access_modes.as_ref()),
    )
}

fn supports_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = modes(
        claim
            .spec
            .as_ref()
            .and_then(|spec| spec.access_modes.as_ref()),
    );
    let supported = volume_modes(volume);
    wanted.iter().all(|mode| supported.contains(mode))
}

/// Returns whether both are file systems or both are block devices.
pub(super) fn same_volume_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of = |mode: Option<&String>| mode.map_or("Filesystem", String::as_str).to_owned();
    let volume = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_mode.as_ref());
    let claim = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_mode.as_ref());
    of(volume) == of(claim)
}

fn same_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let volume = volume.spec.as_ref();
    let volume = volume.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let claim = claim.spec.as_ref();
    let claim = claim.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    volume.unwrap_or_default() == claim.unwrap_or_default()
}

/// Returns why a volume that a claim names cannot be bound to it.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let problem = if meta::is_being_deleted(&volume.metadata) {
        return Some(format!(
            "the volume is marked for deletion {:?}",
            meta::name(&volume.metadata)
        ));
    } else if capacity(volume) < requested_size(claim) {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim).unwrap_or_default() {
        "storageClassName does not match"
    } else if !same_attributes(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if !same_volume_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !supports_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// The volumes that may be bound.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    /// Any.
    All,
    /// Only those that are reserved for the claim, because its class waits for a consumer.
    Reserved,
    /// Only those that the node of the first consumer can reach.
    On(&'a Node),
}

/// Returns the volume for a claim: one that is reserved for it, or the smallest available one that
/// fits. Volumes with fewer access modes come first. `volumes` must be in a stable order.
pub(super) fn best(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    choice: Choice<'_>,
) -> Option<Arc<PersistentVolume>> {
    let mut by_modes: BTreeMap<(usize, Vec<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in volumes
        .iter()
        .filter(|volume| supports_modes(volume, claim))
    {
        let modes = volume_modes(volume);
        by_modes
            .entry((modes.len(), modes))
            .or_default()
            .push(volume);
    }
    let mut groups = by_modes.values();
    groups.find_map(|group| best_of(claim, group, choice))
}

fn best_of(
    claim: &PersistentVolumeClaim,
    volumes: &[&Arc<PersistentVolume>],
    choice: Choice<'_>,
) -> Option<Arc<PersistentVolume>> {
    let requested = requested_size(claim);
    let fits = |volume: &PersistentVolume| {
        let reference = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.claim_ref.as_ref());
        (reference.is_none() || is_bound_to(volume, claim))
            && capacity(volume) >= requested
            && same_volume_mode(volume, claim)
            && same_attributes(volume, claim)
            && !meta::is_being_deleted(&volume.metadata)
    };
    let candidates = volumes.iter().filter(|volume| fits(volume));
    let mut reserved = candidates
        .clone()
        .filter(|volume| is_bound_to(volume, claim));
    if let Some(reserved) = reserved.next() {
        return Some(Arc::clone(reserved));
    }
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.map_or_else(Selector::everything, |selector| {
        Selector::try_from(selector).unwrap_or_else(|_| Selector::nothing())
    });
    let is_allowed = |volume: &PersistentVolume| match choice {
        Choice::All => true,
        Choice::Reserved => false,
        Choice::On(node) => reaches(volume, node),
    };
    let available = candidates.filter(|volume| {
        let status = volume.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        is_allowed(volume)
            && phase == Some("Available")
            && meta::selects(&selector, &volume.metadata)
            && volume_class(volume) == claim_class(claim).unwrap_or_default()
    });
    available
        .min_by(|a, b| capacity(a).cmp(&capacity(b)))
        .copied()
        .cloned()
}

/// Returns whether the node affinity of a volume allows a node.
fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.clone()) else {
        return true;
    };
    let required = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(required),
        ..NodeAffinity::default()
    };
    let spec = PodSpec {
        affinity: Some(Affinity {
            node_affinity: Some(required),
            ..Affinity::default()
        }),
        ..PodSpec::default()
    };
    fit::selects(&spec, node)
}

#[cfg(test)]
mod tests;
