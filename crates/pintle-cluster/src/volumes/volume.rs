//! Decides the next step for a volume, depending on the claim it refers to.

use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus,
};

use super::{
    claim::{BOUND_BY_CONTROLLER, Note, spec},
    matching,
};
use crate::meta;

/// Names the provisioner that created a volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The next step for a volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Do nothing until something changes.
    None,
    /// Enter a phase, with an event.
    Phase(&'static str, Option<Note>),
    /// Write this volume without its binding, and make it available.
    Unbind(Box<PersistentVolume>, Option<Note>),
    /// The claim and the volume cannot be bound.
    Mismatch,
}

/// Decides the next step for a volume. `claim` is the one with the name that the volume refers to,
/// which must have been confirmed with the server if it is absent or has another UID.
pub(super) fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Step {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let Some(uid) = reference
        .and_then(|it| it.uid.as_deref())
        .filter(|uid| !uid.is_empty())
    else {
        // Free, or reserved for a claim that does not exist yet.
        return phase(volume, "Available");
    };
    let Some(claim) = claim.filter(|claim| meta::uid(&claim.metadata) == uid) else {
        return release(volume);
    };
    let bound_to = spec(claim).volume_name.as_deref().unwrap_or_default();
    if bound_to.is_empty() {
        return if matching::same_volume_mode(volume, claim) {
            // It is up to the claim to complete the binding.
            Step::None
        } else {
            Step::Mismatch
        };
    }
    if bound_to == meta::name(&volume.metadata) {
        return phase(volume, "Bound");
    }
    if is_provisioned(volume) && policy(volume) == "Delete" {
        return release(volume);
    }
    Step::Unbind(Box::new(unbound(volume)), None)
}

/// Returns whether the claim of a volume must be looked up on the server, because the volume is
/// about to be released.
pub(super) fn needs_confirmation(
    volume: &PersistentVolume,
    claim: Option<&PersistentVolumeClaim>,
) -> bool {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let uid = reference.and_then(|reference| reference.uid.as_deref());
    let uid = uid.filter(|uid| !uid.is_empty());
    uid.is_some_and(|uid| claim.is_none_or(|claim| meta::uid(&claim.metadata) != uid))
        && !matches!(current_phase(volume), "Released" | "Failed")
}

/// Handles a volume whose claim is gone, according to its reclaim policy.
fn release(volume: &PersistentVolume) -> Step {
    if !matches!(current_phase(volume), "Released" | "Failed") {
        return Step::Phase("Released", None);
    }
    match policy(volume) {
        "Recycle" => {
            let note = Note::normal("VolumeRecycled", "Volume recycled");
            Step::Unbind(Box::new(unbound(volume)), Some(note))
        }
        "Delete" if !has_deleter(volume) && current_phase(volume) != "Failed" => {
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin \
                 matched",
                meta::name(&volume.metadata)
            );
            Step::Phase("Failed", Some(Note::warning("VolumeFailedDelete", message)))
        }
        _ => Step::None,
    }
}

/// Returns whether a provisioner deletes the storage behind a volume.
pub(crate) fn has_deleter(volume: &PersistentVolume) -> bool {
    is_provisioned(volume) || volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some())
}

fn is_provisioned(volume: &PersistentVolume) -> bool {
    meta::annotation(&volume.metadata, PROVISIONED_BY).is_some()
}

pub(crate) fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        .unwrap_or("Retain")
}

pub(crate) fn current_phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn phase(volume: &PersistentVolume, phase: &'static str) -> Step {
    if current_phase(volume) == phase {
        Step::None
    } else {
        Step::Phase(phase, None)
    }
}

/// Returns the status of a volume in a phase.
pub(super) fn status(
    volume: &PersistentVolume,
    phase: &str,
    message: &str,
) -> PersistentVolumeStatus {
    PersistentVolumeStatus {
        phase: Some(phase.to_owned()),
        message: Some(message.to_owned()).filter(|message| !message.is_empty()),
        ..volume.status.clone().unwrap_or_default()
    }
}

/// Returns a volume without the binding that the loop has made. A volume that the user has reserved
/// for a claim stays reserved.
fn unbound(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let is_ours = meta::annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some();
    let reference = &mut volume.spec.get_or_insert_default().claim_ref;
    if is_ours {
        *reference = None;
        remove_annotation(&mut volume, BOUND_BY_CONTROLLER);
    } else if let Some(reference) = reference {
        reference.uid = None;
    }
    volume
}

fn remove_annotation(volume: &mut PersistentVolume, key: &str) {
    if let Some(annotations) = &mut volume.metadata.annotations {
        annotations.remove(key);
    }
    let annotations = volume.metadata.annotations.take();
    volume.metadata.annotations = annotations.filter(|annotations| !annotations.is_empty());
}

/// Returns the volume bound to a claim, or `None` if it already is.
pub(super) fn bound(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Option<PersistentVolume> {
    let mut bound = volume.clone();
    let reference = &mut bound.spec.get_or_insert_default().claim_ref;
    let is_current = reference.as_ref().is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && reference.uid == claim.metadata.uid
    });
    if !is_current {
        *reference = Some(self::reference(claim));
    }
    if !matching::is_bound_to(volume, claim) {
        let annotations = bound.metadata.annotations.get_or_insert_default();
        annotations
            .entry(BOUND_BY_CONTROLLER.to_owned())
            .or_insert_with(|| "yes".to_owned());
    }
    (bound != *volume).then_some(bound)
}

/// Returns a reference to a claim.
pub(crate) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
