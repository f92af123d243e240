use serde_json::{Value, json};

use super::*;

fn class() -> StorageClass {
    serde_json::from_value(json!({
        "metadata": { "name": "fast" }, "provisioner": "example.com/disk",
        "reclaimPolicy": "Retain", "mountOptions": ["noatime"],
    }))
    .unwrap()
}

fn claim(spec: &Value, status: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {
            "name": "data", "namespace": "default", "uid": "uid",
            "annotations": { PROVISIONER: "example.com/disk" },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        claim["spec"][key] = value.clone();
    }
    serde_json::from_value(claim).unwrap()
}

/// Proves volumes/provisioning.
#[test]
fn volume_has_the_properties_of_claim_and_class() {
    let pending = claim(&json!({}), &json!({ "phase": "Pending" }));
    let Step::Create(volume) = plan(&pending, Some(&class()), None) else {
        panic!("expected a volume to be created");
    };
    assert_eq!(
        json!(volume),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": "pvc-uid",
                "annotations": { "pv.kubernetes.io/provisioned-by": "example.com/disk" },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "1Gi" },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": "default", "name": "data", "uid": "uid",
                },
                "hostPath": { "path": "/simulated/pvc-uid", "type": "DirectoryOrCreate" },
                "mountOptions": ["noatime"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "fast",
            },
        })
    );
    assert_eq!(plan(&pending, None, None), Step::None);
    let mut unasked = pending.clone();
    unasked.metadata.annotations = None;
    assert_eq!(plan(&unasked, Some(&class()), None), Step::None);
    let bound = claim(&json!({ "volumeName": "disk" }), &json!({}));
    assert_eq!(plan(&bound, Some(&class()), None), Step::None);
}

/// Proves volumes/provisioning.
#[test]
fn volume_grows_with_its_claim() {
    let Step::Create(volume) = plan(&claim(&json!({}), &json!({})), Some(&class()), None) else {
        panic!("expected a volume to be created");
    };
    let larger = json!({ "resources": { "requests": { "storage": "2Gi" } } });
    let status = |size: &str| json!({ "phase": "Bound", "capacity": { "storage": size } });
    let larger = |size: &str| claim(&larger, &status(size));
    let Step::Expand(volume) = plan(&larger("1Gi"), Some(&class()), Some(&volume)) else {
        panic!("expected the volume to grow");
    };
    let Step::Expanded(expanded) = plan(&larger("1Gi"), Some(&class()), Some(&volume)) else {
        panic!("expected a status for the claim");
    };
    assert_eq!(json!(expanded.status), status("2Gi"));
    assert_eq!(
        plan(&larger("2Gi"), Some(&class()), Some(&volume)),
        Step::None
    );
}
