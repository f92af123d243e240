//! Volumes and claims.

use super::{Kind, fields::ensure_map};
use crate::{api::request::options::Warnings, meta::Tree, schema::typed::quantity::Amount};

/// The annotation that named the storage class of a claim before the field existed.
const LEGACY_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// `persistentvolumes`.
#[derive(Debug)]
pub(super) struct PersistentVolumes;

impl Kind for PersistentVolumes {
    fn prepare_create(&self, object: &mut Tree, now: &str) {
        if let Some(status) = ensure_map(object, "status") {
            status.insert("lastPhaseTransitionTime".into(), now.into());
        }
    }
}

/// `persistentvolumeclaims`.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaims;

impl Kind for PersistentVolumeClaims {
    fn warn(&self, claim: &Tree, _stored: Option<&Tree>, warnings: &Warnings) {
        let annotations = claim.get("metadata").map(|found| &found["annotations"]);
        if annotations.is_some_and(|found| !found[LEGACY_CLASS].is_null()) {
            warnings.add(format!(
                "metadata.annotations[{LEGACY_CLASS}]: deprecated since v1.8; use \
                 \"storageClassName\" attribute instead"
            ));
        }
        for list in ["requests", "limits"] {
            let resources = claim.get("spec").map(|spec| &spec["resources"][list]);
            let storage = resources.and_then(|resources| resources["storage"].as_str());
            let amount = storage.and_then(Amount::parse);
            if let Some(amount) = amount.filter(|amount| amount.rounded_up() != *amount) {
                warnings.add(format!(
                    "spec.resources.{list}[storage]: fractional byte value \"{amount}\" is \
                     invalid, must be an integer"
                ));
            }
        }
    }
}
