//! Decides when to create, grow and delete a volume.

use k8s_openapi::{
    api::{
        core::v1::{
            HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use pintle::cache::ObjectKey;

use crate::{
    meta,
    volumes::{
        claim::PROVISIONER,
        matching,
        volume::{PROVISIONED_BY, current_phase, has_deleter, policy, reference},
    },
};

/// The name of the default class.
pub(super) const STANDARD: &str = "standard";

/// The next step for a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    None,
    /// Create this volume, reserved for the claim.
    Create(Box<PersistentVolume>),
    /// Write this larger volume.
    Expand(Box<PersistentVolume>),
    /// Write the status of this claim, whose volume is large enough now.
    Expanded(Box<PersistentVolumeClaim>),
}

/// Decides the next step for a claim. `volume` is the one that was created for it.
pub(super) fn plan(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    volume: Option<&PersistentVolume>,
) -> Step {
    if meta::is_being_deleted(&claim.metadata) {
        return Step::None;
    }
    let spec = claim.spec.clone().unwrap_or_default();
    let Some(volume) = volume else {
        let provisioner = meta::annotation(&claim.metadata, PROVISIONER);
        let is_bound = spec
            .volume_name
            .as_ref()
            .is_some_and(|name| !name.is_empty());
        return match class {
            Some(class) if !is_bound && provisioner == Some(&class.provisioner) => {
                Step::Create(Box::new(create(claim, class)))
            }
            _ => Step::None,
        };
    };
    let status = claim.status.clone().unwrap_or_default();
    let requested = spec.resources.and_then(|resources| resources.requests);
    let requested = requested
        .as_ref()
        .and_then(|requests| requests.get("storage"));
    let (Some("Bound"), Some(requested)) = (status.phase.as_deref(), requested) else {
        return Step::None;
    };
    let wanted = matching::requested_size(claim);
    let capacity = [("storage".to_owned(), requested.clone())].into();
    if matching::size(volume.spec.as_ref().and_then(|it| it.capacity.as_ref())) < wanted {
        let mut volume = volume.clone();
        volume.spec.get_or_insert_default().capacity = Some(capacity);
        return Step::Expand(Box::new(volume));
    }
    if matching::size(status.capacity.as_ref()) < wanted {
        let mut claim = claim.clone();
        claim.status.get_or_insert_default().capacity = Some(capacity);
        return Step::Expanded(Box::new(claim));
    }
    Step::None
}

fn create(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests);
    let size = requests.and_then(|requests| requests.get("storage").cloned());
    let key = volume_key(claim);
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(key.name().to_owned()),
            annotations: Some([(PROVISIONED_BY.into(), class.provisioner.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some([("storage".into(), size.unwrap_or(Quantity("0".into())))].into()),
            claim_ref: Some(reference(claim)),
            host_path: Some(HostPathVolumeSource {
                path: format!("/simulated/{}", key.name()),
                type_: Some("DirectoryOrCreate".into()),
            }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: Some(
                class
                    .reclaim_policy
                    .clone()
                    .unwrap_or_else(|| "Delete".into()),
            ),
            storage_class_name: class.metadata.name.clone(),
            volume_attributes_class_name: spec.volume_attributes_class_name,
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// Returns the key of the volume that is created for a claim.
pub(super) fn volume_key(claim: &PersistentVolumeClaim) -> ObjectKey {
    ObjectKey::cluster(&format!("pvc-{}", meta::uid(&claim.metadata)))
}

/// Returns whether to delete a volume together with the storage behind it.
pub(super) fn is_deletable(volume: &PersistentVolume) -> bool {
    !meta::is_being_deleted(&volume.metadata)
        && current_phase(volume) == "Released"
        && policy(volume) == "Delete"
        && has_deleter(volume)
}

/// Returns the default class.
pub(super) fn standard() -> StorageClass {
    let mark = "storageclass.kubernetes.io/is-default-class";
    StorageClass {
        metadata: ObjectMeta {
            name: Some(STANDARD.into()),
            annotations: Some([(mark.into(), "true".into())].into()),
            ..ObjectMeta::default()
        },
        provisioner: "pintle.dev/simulated".into(),
        allow_volume_expansion: Some(true),
        reclaim_policy: Some("Delete".into()),
        volume_binding_mode: Some("Immediate".into()),
        ..StorageClass::default()
    }
}

#[cfg(test)]
mod tests;
