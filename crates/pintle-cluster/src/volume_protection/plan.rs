//! Decides whether a claim or a volume may be deleted.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// Protects a claim until no scheduled Pod uses it.
pub(super) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Protects a volume until it is no longer bound to a claim.
pub(super) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// What an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    None,
    /// The finalizer, because it is not being deleted.
    Finalizer,
    /// Removal of the finalizer once the object is unused, because it is being deleted.
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

/// Returns the finalizers of an object with this one added.
pub(super) fn with(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let mut finalizers = without(meta, finalizer);
    finalizers.push(finalizer.to_owned());
    finalizers
}

/// Returns the finalizers of an object without this one.
pub(super) fn without(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let finalizers = meta.finalizers.iter().flatten();
    finalizers.filter(|it| *it != finalizer).cloned().collect()
}

/// Returns the names of the claims a Pod uses, including ephemeral ones.
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

/// Returns whether a Pod prevents the deletion of a claim.
///
/// An unscheduled Pod does not: no kubelet starts it with a claim that is being deleted. A finished
/// Pod does as long as it exists, except for its ephemeral claims once the kubelet has shut it down.
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
    fn only_scheduled_pods_protect_a_claim() {
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
    fn ephemeral_claim_is_protected_by_its_own_pod() {
        let volume = json!({ "ephemeral": {} });
        let owner = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid", "controller": true,
        }]);
        let own = claim(&json!({ "name": "web-data", "ownerReferences": owner }));
        let foreign = claim(&json!({ "name": "web-data" }));
        let running = pod("node-0", &volume, &json!({}));
        assert!(uses(&running, &own));
        assert!(!uses(&running, &foreign), "the name alone does not suffice");
        let done = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        });
        assert!(!uses(&pod("node-0", &volume, &done), &own));
        assert_eq!(claims(&running), ["web-data"]);
    }

    #[test]
    fn foreign_finalizers_are_retained() {
        let metadata = claim(&json!({ "name": "data", "finalizers": ["a", CLAIM_FINALIZER, "b"] }));
        let metadata = metadata.metadata;
        assert_eq!(need(&metadata, CLAIM_FINALIZER), Need::None);
        assert_eq!(need(&metadata, VOLUME_FINALIZER), Need::Finalizer);
        assert_eq!(without(&metadata, CLAIM_FINALIZER), ["a", "b"]);
        assert_eq!(
            with(&metadata, VOLUME_FINALIZER),
            ["a", CLAIM_FINALIZER, "b", VOLUME_FINALIZER]
        );
    }
}
