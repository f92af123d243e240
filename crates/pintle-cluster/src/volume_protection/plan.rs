//! Whether a claim or a volume may go.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// Holds a claim until no scheduled Pod uses it.
pub(super) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Holds a volume until it is bound to no claim.
pub(super) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// What the protection of an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is as it should be, or on its way out without our finalizer.
    Nothing,
    /// It has no finalizer although it is not being deleted.
    Finalizer,
    /// It is being deleted: the finalizer goes as soon as nothing uses the object.
    Release,
}

pub(super) fn need(meta: &ObjectMeta, finalizer: &str) -> Need {
    let has = meta
        .finalizers
        .iter()
        .flatten()
        .any(|have| have == finalizer);
    match (meta::is_being_deleted(meta), has) {
        (true, true) => Need::Release,
        (false, false) => Need::Finalizer,
        _ => Need::Nothing,
    }
}

/// The finalizers of an object with this one added.
pub(super) fn with(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let mut finalizers = without(meta, finalizer);
    finalizers.push(finalizer.to_owned());
    finalizers
}

/// The finalizers of an object without this one.
pub(super) fn without(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let finalizers = meta.finalizers.iter().flatten();
    finalizers
        .filter(|have| *have != finalizer)
        .cloned()
        .collect()
}

/// The names of the claims a Pod uses, its own ephemeral ones included.
pub(super) fn claims(pod: &Pod) -> Vec<String> {
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

fn ephemeral_claim(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", meta::name(&pod.metadata))
}

/// Whether a Pod keeps a claim from going.
///
/// A Pod that is not scheduled does not: no kubelet starts it with a claim that is being deleted. A
/// finished Pod does as long as it is there, except for a claim made for it alone once the kubelet
/// has let go of it.
pub(super) fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return false;
    };
    if spec.node_name.as_deref().unwrap_or_default().is_empty() {
        return false;
    }
    let name = meta::name(&claim.metadata);
    let is_made_for_pod = || {
        let controller = meta::controller_of(&claim.metadata);
        controller.is_some_and(|controller| controller.uid == meta::uid(&pod.metadata))
    };
    spec.volumes.iter().flatten().any(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        named.is_some_and(|named| named.claim_name == name)
            || volume.ephemeral.is_some()
                && !is_shut_down(pod)
                && ephemeral_claim(pod, &volume.name) == name
                && is_made_for_pod()
    })
}

/// Whether the kubelet is done with a Pod, or it was deleted by force.
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(metadata: &Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn pod(node: &str, volume: &Value, metadata: &Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "web", "uid": "web-uid" },
            "spec": { "nodeName": node, "containers": [], "volumes": [{ "name": "data" }] },
        });
        for (target, more) in [("metadata", metadata), ("volume", volume)] {
            for (key, value) in more.as_object().unwrap() {
                if target == "metadata" {
                    pod["metadata"][key] = value.clone();
                } else {
                    pod["spec"]["volumes"][0][key] = value.clone();
                }
            }
        }
        serde_json::from_value(pod).unwrap()
    }

    /// Proves volumes/protection.
    #[test]
    fn only_a_scheduled_pod_holds_a_claim() {
        let claim = claim(&json!({ "name": "data" }));
        let volume = json!({ "persistentVolumeClaim": { "claimName": "data" } });
        assert!(uses(&pod("node-0", &volume, &json!({})), &claim));
        assert!(!uses(&pod("", &volume, &json!({})), &claim));
        let other = json!({ "persistentVolumeClaim": { "claimName": "other" } });
        assert!(!uses(&pod("node-0", &other, &json!({})), &claim));
        assert_eq!(claims(&pod("", &other, &json!({}))), ["other"]);
    }

    /// Proves volumes/protection.
    #[test]
    fn ephemeral_claim_is_held_by_its_own_pod_while_it_lives() {
        let volume = json!({ "ephemeral": {} });
        let owner = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid", "controller": true,
        }]);
        let own = claim(&json!({ "name": "web-data", "ownerReferences": owner }));
        let foreign = claim(&json!({ "name": "web-data" }));
        let running = pod("node-0", &volume, &json!({}));
        assert!(uses(&running, &own));
        assert!(!uses(&running, &foreign), "the name alone proves nothing");
        let done = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        });
        assert!(!uses(&pod("node-0", &volume, &done), &own));
        assert_eq!(claims(&running), ["web-data"]);
    }

    #[test]
    fn foreign_finalizers_stay() {
        let metadata = claim(&json!({ "name": "data", "finalizers": ["a", CLAIM_FINALIZER, "b"] }));
        let metadata = metadata.metadata;
        assert_eq!(need(&metadata, CLAIM_FINALIZER), Need::Nothing);
        assert_eq!(need(&metadata, VOLUME_FINALIZER), Need::Finalizer);
        assert_eq!(without(&metadata, CLAIM_FINALIZER), ["a", "b"]);
        assert_eq!(
            with(&metadata, VOLUME_FINALIZER),
            ["a", CLAIM_FINALIZER, "b", VOLUME_FINALIZER]
        );
    }
}
