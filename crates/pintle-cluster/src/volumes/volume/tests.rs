use serde_json::{Value, json};

use super::*;

fn volume(change: &Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": { "name": "disk" },
        "spec": {
            "claimRef": { "name": "data", "namespace": "default", "uid": "claim" },
            "persistentVolumeReclaimPolicy": "Retain",
        },
        "status": { "phase": "Bound" },
    });
    for (section, fields) in change.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            volume[section][key] = value.clone();
        }
    }
    serde_json::from_value(volume).unwrap()
}

fn claim(uid: &str, volume: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "data", "namespace": "default", "uid": uid },
        "spec": { "volumeName": volume },
    }))
    .unwrap()
}

/// Proves volumes/binding.
#[test]
fn phase_follows_the_claim() {
    let free = volume(&json!({ "spec": { "claimRef": null } }));
    assert_eq!(plan(&free, None), Step::Phase("Available", None));
    let reserved = json!({ "name": "data", "namespace": "default" });
    let reserved = volume(&json!({ "spec": { "claimRef": reserved } }));
    assert_eq!(plan(&reserved, None), Step::Phase("Available", None));
    let pending = json!({ "status": { "phase": "Pending" } });
    let bound = Step::Phase("Bound", None);
    assert_eq!(
        plan(&volume(&pending), Some(&claim("claim", "disk"))),
        bound
    );
    assert_eq!(
        plan(&volume(&json!({})), Some(&claim("claim", "disk"))),
        Step::None
    );
    assert_eq!(
        plan(&volume(&json!({})), Some(&claim("claim", ""))),
        Step::None
    );
}

/// Proves volumes/reclaim.
#[test]
fn volume_of_a_deleted_claim_is_released_and_reclaimed() {
    let released = Step::Phase("Released", None);
    assert_eq!(plan(&volume(&json!({})), None), released);
    assert_eq!(
        plan(&volume(&json!({})), Some(&claim("another", "disk"))),
        released
    );
    assert!(needs_confirmation(&volume(&json!({})), None));
    assert!(!needs_confirmation(
        &volume(&json!({})),
        Some(&claim("claim", ""))
    ));

    let after = |policy: &str| {
        volume(&json!({
            "spec": { "persistentVolumeReclaimPolicy": policy }, "status": { "phase": "Released" },
        }))
    };
    assert_eq!(plan(&after("Retain"), None), Step::None);
    assert!(matches!(
        plan(&after("Delete"), None),
        Step::Phase("Failed", Some(_))
    ));
    let mut provisioned = after("Delete");
    let annotations = [(PROVISIONED_BY.to_owned(), "example.com/disk".to_owned())];
    provisioned.metadata.annotations = Some(annotations.into());
    assert_eq!(plan(&provisioned, None), Step::None);
    let Step::Unbind(recycled, Some(_)) = plan(&after("Recycle"), None) else {
        panic!("expected the volume to be recycled");
    };
    assert_eq!(recycled.spec.unwrap().claim_ref.unwrap().uid, None);
}

/// Proves volumes/binding.
#[test]
fn volume_of_a_claim_that_is_bound_elsewhere_is_freed() {
    let elsewhere = claim("claim", "another");
    let Step::Unbind(reserved, None) = plan(&volume(&json!({})), Some(&elsewhere)) else {
        panic!("expected the volume to be unbound");
    };
    assert_eq!(reserved.spec.unwrap().claim_ref.unwrap().uid, None);
    let ours = json!({ "metadata": { "annotations": { BOUND_BY_CONTROLLER: "yes" } } });
    let Step::Unbind(free, None) = plan(&volume(&ours), Some(&elsewhere)) else {
        panic!("expected the volume to be unbound");
    };
    assert_eq!(free.spec.unwrap().claim_ref, None);
    assert_eq!(free.metadata.annotations, None);
}
