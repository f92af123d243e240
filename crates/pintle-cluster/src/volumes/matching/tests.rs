use serde_json::{Value, json};

use super::*;

fn claim(spec: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": "data", "namespace": "default", "uid": "claim" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": { "requests": { "storage": "2Gi" } },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        claim["spec"][key] = value.clone();
    }
    serde_json::from_value(claim).unwrap()
}

fn volume(name: &str, size: &str, spec: &Value) -> Arc<PersistentVolume> {
    let mut volume = json!({
        "metadata": { "name": name, "labels": { "disk": name } },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "capacity": { "storage": size },
        },
        "status": { "phase": "Available" },
    });
    for (key, value) in spec.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(volume).unwrap())
}

fn chosen(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    choice: Choice<'_>,
) -> Option<String> {
    best(claim, volumes, choice)?.metadata.name.clone()
}

/// Proves volumes/matching.
#[test]
fn smallest_volume_that_fits_is_chosen() {
    let none = json!({});
    let volumes = [
        volume("large", "10Gi", &none),
        volume("medium", "3Gi", &none),
        volume("small", "1Gi", &none),
        volume("other-class", "2Gi", &json!({ "storageClassName": "slow" })),
        volume("block", "2Gi", &json!({ "volumeMode": "Block" })),
        volume(
            "read-only",
            "2Gi",
            &json!({ "accessModes": ["ReadOnlyMany"] }),
        ),
        volume(
            "taken",
            "2Gi",
            &json!({ "claimRef": { "name": "other", "namespace": "default" } }),
        ),
    ];
    let choose = |spec: Value| chosen(&claim(&spec), &volumes, Choice::All);
    assert_eq!(choose(json!({})).as_deref(), Some("medium"));
    let selector = json!({ "selector": { "matchLabels": { "disk": "large" } } });
    assert_eq!(choose(selector).as_deref(), Some("large"));
    assert_eq!(
        choose(json!({ "storageClassName": "slow" })).as_deref(),
        Some("other-class")
    );
    assert_eq!(
        choose(json!({ "volumeMode": "Block" })).as_deref(),
        Some("block")
    );
    let huge = json!({ "resources": { "requests": { "storage": "1Ti" } } });
    assert_eq!(choose(huge), None);
    assert_eq!(choose(json!({ "accessModes": ["ReadWriteMany"] })), None);
}

/// Proves volumes/matching.
#[test]
fn fewer_access_modes_and_reservations_win() {
    let both = json!({ "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] });
    let volumes = [
        volume("two-modes", "2Gi", &both),
        volume("one-mode", "5Gi", &json!({})),
    ];
    assert_eq!(
        chosen(&claim(&json!({})), &volumes, Choice::All).as_deref(),
        Some("one-mode")
    );
    assert_eq!(chosen(&claim(&json!({})), &volumes, Choice::Reserved), None);
    let reserved = json!({
        "claimRef": { "name": "data", "namespace": "default" }, "storageClassName": "slow",
    });
    let volumes = [
        volume("free", "2Gi", &json!({})),
        volume("reserved", "9Gi", &reserved),
    ];
    for choice in [Choice::All, Choice::Reserved] {
        let chosen = chosen(&claim(&json!({})), &volumes, choice);
        assert_eq!(chosen.as_deref(), Some("reserved"));
    }
}

/// Proves volumes/matching.
#[test]
fn volume_must_be_reachable_from_the_node() {
    let on = |node: &str| {
        let expression = json!({
            "key": "kubernetes.io/hostname", "operator": "In", "values": [node],
        });
        let terms = json!([{ "matchExpressions": [expression] }]);
        json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } })
    };
    let volumes = [
        volume("a", "2Gi", &on("node-a")),
        volume("b", "3Gi", &on("node-b")),
    ];
    let labels = json!({ "kubernetes.io/hostname": "node-b" });
    let node = json!({ "metadata": { "name": "node-b", "labels": labels } });
    let node: Node = serde_json::from_value(node).unwrap();
    let chosen = chosen(&claim(&json!({})), &volumes, Choice::On(&node));
    assert_eq!(chosen.as_deref(), Some("b"));
}

/// Proves volumes/matching.
#[test]
fn named_volume_must_fit_the_claim() {
    let problem = |size: &str, spec: &Value| mismatch(&volume("v", size, spec), &claim(&json!({})));
    assert_eq!(problem("2Gi", &json!({})), None);
    let small = "requested PV is too small";
    assert_eq!(problem("2047Mi", &json!({})).as_deref(), Some(small));
    let class = json!({ "storageClassName": "" });
    let mismatch = "storageClassName does not match";
    assert_eq!(problem("2Gi", &class).as_deref(), Some(mismatch));
    let block = json!({ "volumeMode": "Block" });
    assert_eq!(
        problem("2Gi", &block).as_deref(),
        Some("incompatible volumeMode")
    );
    let modes = json!({ "accessModes": ["ReadWriteMany"] });
    assert_eq!(
        problem("2Gi", &modes).as_deref(),
        Some("incompatible accessMode")
    );
}
