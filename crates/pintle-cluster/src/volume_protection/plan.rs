//! Decides whether a claim or a volume may be deleted.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// Protects a claim until no scheduled Pod uses it.
pub(super) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Protects a volume until it is no longer bound to a claim.
pub(super) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The change that an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    None,
    /// Add the finalizer, because the object is not being deleted.
    Finalizer,
    /// Remove the finalizer once the object is unused, because it is being deleted.
    Release,
}

pub(super) fn need(meta: &ObjectMeta, finalizer: &str) -> Need {
    let has = meta.finalizers.iter().flatten().any(|it| it == finalizer);
    match (meta::is_being_deleted(meta), has) {
        (true, true) => Need::Release,
        (false, false) => Need::Finalizer,
        _ => Need::None,
    }
}

/// Returns the names of the claims a Pod uses, including ephemeral ones.
pub(crate) fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.clone()),
            None if volume.ephemeral.is_some() => Some(ephemeral_claim(pod, &volume.name)),
            None => None,
        })
        .collect()
}

pub(crate) fn ephemeral_claim(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", meta::name(&pod.metadata))
}

/// Returns whether a Pod prevents the deletion of a claim.
///
/// An unscheduled Pod does not: no kubelet starts it with a claim that is being deleted. A finished
/// Pod does as long as it exists, except for its ephemeral claims once the kubelet has shut it
/// down.
pub(super) fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return false;
    };
    if spec.node_name.as_deref().unwrap_or_default().is_empty() {
        return false;
    }
    let name = meta::name(&claim.metadata);
    let is_controlled = || {
        let controller = meta::controller_of(&claim.metadata);
        controller.is_some_and(|controller| controller.uid == meta::uid(&pod.metadata))
    };
    spec.volumes.iter().flatten().any(|volume| {
        let source = volume.persistent_volume_claim.as_ref();
        source.is_some_and(|source| source.claim_name == name)
            || volume.ephemeral.is_some()
                && !is_shut_down(pod)
                && ephemeral_claim(pod, &volume.name) == name
                && is_controlled()
    })
}

/// Returns whether the kubelet has shut the Pod down, or it was deleted by force.
fn is_shut_down(pod: &Pod) -> bool {
    meta::is_being_deleted(&pod.metadata) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

pub(super) fn is_bound(volume: &PersistentVolume) -> bool {
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Bound")
}

#[cfg(test)]
mod tests;
