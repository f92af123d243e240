//! The claims of pending Pods: a Pod waits until its claims exist and are bound, unless their class
//! binds them to the node of their first consumer.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use pintle::cache::ObjectKey;

use super::pod::PodInfo;
use crate::{
    meta,
    volumes::claim::{awaits_binding, spec, waits_for_consumer},
};

/// A claim that a Pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) name: String,
    /// Whether it is created for the Pod.
    pub(super) is_ephemeral: bool,
}

/// Claims and storage classes. Without a loop that binds claims, no Pod waits for them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) are_bound: bool,
    known: BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    classes: BTreeMap<String, Arc<StorageClass>>,
}

impl Claims {
    pub(super) fn set(&mut self, key: &ObjectKey, claim: Option<Arc<PersistentVolumeClaim>>) {
        match claim {
            Some(claim) => self.known.insert(key.clone(), claim),
            None => self.known.remove(key),
        };
    }

    pub(super) fn set_class(&mut self, name: &str, class: Option<Arc<StorageClass>>) {
        match class {
            Some(class) => self.classes.insert(name.to_owned(), class),
            None => self.classes.remove(name),
        };
    }

    /// Returns why a Pod has to wait for its claims, in the words of Kubernetes.
    pub(super) fn problem(&self, pod: &PodInfo) -> Option<String> {
        if !self.are_bound {
            return None;
        }
        let mut claims = Vec::new();
        for used in &pod.claims {
            let name = &used.name;
            let Some(claim) = self
                .known
                .get(&ObjectKey::namespaced(pod.namespace(), name))
            else {
                return Some(if used.is_ephemeral {
                    format!(
                        "waiting for ephemeral volume controller to create the \
                         persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
            };
            let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
            if phase == Some("Lost") {
                let volume = spec(claim).volume_name.as_deref().unwrap_or_default();
                return Some(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume \
                     {volume:?}"
                ));
            }
            if meta::is_being_deleted(&claim.metadata) {
                return Some(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            let owner = meta::controller_of(&claim.metadata);
            if used.is_ephemeral && owner.is_none_or(|owner| owner.uid != pod.uid) {
                let (namespace, pod) = (pod.namespace(), meta::name(&pod.pod.metadata));
                return Some(format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not \
                     owner)"
                ));
            }
            claims.push(claim);
        }
        let waits = |claim: &&Arc<PersistentVolumeClaim>| {
            awaits_binding(claim) && !waits_for_consumer(claim, &self.classes)
        };
        let unbound = "pod has unbound immediate PersistentVolumeClaims";
        claims.iter().any(waits).then(|| unbound.to_owned())
    }
}
