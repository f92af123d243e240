//! Owners of the claims of a StatefulSet, according to its retention policy.
//!
//! | when scaled | when deleted | owner of a replica's claim | owner of a condemned Pod's claim |
//! |---|---|---|---|
//! | Retain | Retain | none | none |
//! | Retain | Delete | the set | the set |
//! | Delete | Retain | none | the Pod |
//! | Delete | Delete | the set | the Pod |

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::identity;
use crate::meta;

fn deletes_when_scaled(set: &StatefulSet) -> bool {
    let policy = identity::spec(set).persistent_volume_claim_retention_policy;
    policy.and_then(|it| it.when_scaled).as_deref() == Some("Delete")
}

fn deletes_when_deleted(set: &StatefulSet) -> bool {
    let policy = identity::spec(set).persistent_volume_claim_retention_policy;
    policy.and_then(|it| it.when_deleted).as_deref() == Some("Delete")
}

fn refers_to<K: kube::Resource<DynamicType = ()>>(reference: &OwnerReference, owner: &K) -> bool {
    reference.api_version == K::api_version(&())
        && reference.kind == K::kind(&())
        && Some(&reference.name) == owner.meta().name.as_ref()
}

fn has_owner(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    owners(claim).any(|owner| owner.uid == uid)
}

fn owners(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &OwnerReference> {
    claim.metadata.owner_references.iter().flatten()
}

/// Returns whether the claim belongs to an earlier Pod of the same name and is about to be deleted.
pub(super) fn is_stale(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let uid = meta::uid(&pod.metadata);
    deletes_when_scaled(set) && owners(claim).any(|owner| refers_to(owner, pod) && owner.uid != uid)
}

/// Returns whether a controller other than the set or the Pod owns a claim that the policy would
/// delete. Such a claim is left alone.
pub(super) fn has_foreign_controller(
    set: &StatefulSet,
    pod: &Pod,
    claim: &PersistentVolumeClaim,
) -> bool {
    if !deletes_when_scaled(set) && !deletes_when_deleted(set) {
        return false;
    }
    owners(claim).any(|owner| {
        if refers_to(owner, set) {
            owner.uid != meta::uid(&set.metadata)
        } else if refers_to(owner, pod) {
            owner.uid != meta::uid(&pod.metadata)
        } else {
            owner.controller == Some(true)
        }
    })
}

/// Returns the owners that the claim of a Pod should have, or `None` if it already has them or is
/// about to be deleted.
pub(super) fn desired_owners(
    set: &StatefulSet,
    pod: &Pod,
    claim: &PersistentVolumeClaim,
) -> Option<Vec<OwnerReference>> {
    let (set_uid, pod_uid) = (meta::uid(&set.metadata), meta::uid(&pod.metadata));
    let is_stale = |owner: &OwnerReference| {
        refers_to(owner, set) && owner.uid != set_uid
            || refers_to(owner, pod) && owner.uid != pod_uid
    };
    if owners(claim).any(is_stale) {
        // The claim belongs to an earlier set or Pod, and the garbage collector is about to delete
        // it.
        return None;
    }
    let is_ours = |owner: &OwnerReference| refers_to(owner, set) || refers_to(owner, pod);
    let mut desired: Vec<_> = owners(claim).filter(|it| !is_ours(it)).cloned().collect();
    if has_foreign_controller(set, pod, claim) {
        let is_owned = has_owner(claim, set_uid) || has_owner(claim, pod_uid);
        return is_owned.then_some(desired);
    }
    let ordinal = identity::ordinal(set, &pod.metadata);
    let is_replica = ordinal.is_some_and(|it| identity::ordinals(set).contains(&it));
    let owner = if !is_replica && deletes_when_scaled(set) {
        // An owner that is not stored yet has no UID to refer to.
        meta::controller_reference(pod)
    } else if deletes_when_deleted(set) {
        meta::controller_reference(set)
    } else {
        None
    };
    desired.extend(owner);
    let is_current = owners(claim).count() == desired.len()
        && desired.iter().all(|it| {
            owners(claim).any(|owner| owner.uid == it.uid && owner.controller == it.controller)
        });
    (!is_current).then_some(desired)
}
