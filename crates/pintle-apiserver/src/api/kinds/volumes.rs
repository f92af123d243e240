//! Volumes and claims: finalizers protect them while they are in use.

use super::{
    Kind,
    fields::{add, ensure_map},
};
use crate::meta::{self, Tree};

/// `persistentvolumes`.
#[derive(Debug)]
pub(super) struct PersistentVolumes;

impl Kind for PersistentVolumes {
    fn prepare_create(&self, object: &mut Tree, now: &str) {
        if let Some(status) = ensure_map(object, "status") {
            status.insert("lastPhaseTransitionTime".into(), now.into());
        }
        protect(object, "kubernetes.io/pv-protection");
    }
}

/// `persistentvolumeclaims`.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaims;

impl Kind for PersistentVolumeClaims {
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        protect(object, "kubernetes.io/pvc-protection");
    }
}

fn protect(object: &mut Tree, finalizer: &str) {
    add(meta::metadata(object), "finalizers", finalizer);
}
