use serde_json::{Value, json};

use super::*;

fn claim(change: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": "data", "namespace": "default", "uid": "claim" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Pending" },
    });
    merge(&mut claim, change);
    serde_json::from_value(claim).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match change.as_object() {
        Some(fields) => {
            for (key, value) in fields {
                merge(&mut into[key], value);
            }
        }
        None => *into = change.clone(),
    }
}

fn class(name: &str, mode: &str, default: bool) -> (String, Arc<StorageClass>) {
    let mark = json!({ "storageclass.kubernetes.io/is-default-class": default.to_string() });
    let class = json!({
        "metadata": { "name": name, "annotations": mark },
        "provisioner": "example.com/disk",
        "volumeBindingMode": mode,
    });
    (
        name.to_owned(),
        Arc::new(serde_json::from_value(class).unwrap()),
    )
}

fn volume(name: &str, claim: Option<&str>) -> Arc<PersistentVolume> {
    let reference = claim.map(|uid| json!({ "name": "data", "namespace": "default", "uid": uid }));
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "5Gi" },
            "claimRef": reference,
        },
        "status": { "phase": "Available" },
    });
    Arc::new(serde_json::from_value(volume).unwrap())
}

fn reason(step: &Step) -> &'static str {
    match step {
        Step::Wait(Some(note)) | Step::Lose(note) | Step::Update(_, Some(note)) => note.reason,
        _ => "",
    }
}

/// Proves volumes/binding.
#[test]
fn claim_without_class_gets_the_default_or_waits() {
    let mut world = World::default();
    assert_eq!(reason(&plan(&claim(&json!({})), &world)), "FailedBinding");
    world.classes.extend([
        class("fast", "Immediate", true),
        class("slow", "Immediate", false),
    ]);
    let Step::Update(updated, None) = plan(&claim(&json!({})), &world) else {
        panic!("expected the claim to get a class");
    };
    assert_eq!(spec(&updated).storage_class_name.as_deref(), Some("fast"));
    let none = claim(&json!({ "spec": { "storageClassName": "" } }));
    assert_eq!(reason(&plan(&none, &world)), "FailedBinding");
    let unknown = claim(&json!({ "spec": { "storageClassName": "missing" } }));
    assert_eq!(reason(&plan(&unknown, &world)), "ProvisioningFailed");
    world.volumes.push(volume("free", None));
    assert!(matches!(plan(&claim(&json!({})), &world), Step::Bind(_)));
}

/// Proves volumes/binding.
#[test]
fn provisioner_is_named_once() {
    let mut world = World::default();
    world.classes.extend([class("fast", "Immediate", true)]);
    let fast = claim(&json!({ "spec": { "storageClassName": "fast" } }));
    let Step::Update(asked, Some(_)) = plan(&fast, &world) else {
        panic!("expected the provisioner to be named");
    };
    assert_eq!(
        meta::annotation(&asked.metadata, PROVISIONER),
        Some("example.com/disk")
    );
    assert_eq!(reason(&plan(&asked, &world)), "ExternalProvisioning");
    assert!(matches!(plan(&asked, &world), Step::Wait(_)));
}

/// Proves volumes/first-consumer.
#[test]
fn claim_waits_for_its_first_consumer() {
    let mut world = World::default();
    world
        .classes
        .extend([class("late", "WaitForFirstConsumer", false)]);
    let late = claim(&json!({ "spec": { "storageClassName": "late" } }));
    assert_eq!(reason(&plan(&late, &world)), "WaitForFirstConsumer");
    let consumer = |node: Option<&str>| {
        let node = node.map(|name| json!({ "metadata": { "name": name } }));
        Consumer {
            name: "user".into(),
            node: node.map(|node| Arc::new(serde_json::from_value(node).unwrap())),
        }
    };
    world.consumers = vec![consumer(None)];
    assert_eq!(reason(&plan(&late, &world)), "WaitForPodScheduled");
    world.consumers = vec![consumer(Some("node-0"))];
    let Step::Update(selected, None) = plan(&late, &world) else {
        panic!("expected the node to be recorded");
    };
    assert_eq!(
        meta::annotation(&selected.metadata, SELECTED_NODE),
        Some("node-0")
    );
    assert_eq!(reason(&plan(&selected, &world)), "ExternalProvisioning");
    let mut existing = (*volume("existing", None)).clone();
    existing.spec.as_mut().unwrap().storage_class_name = Some("late".into());
    world.volumes.push(Arc::new(existing));
    assert!(matches!(plan(&late, &world), Step::Bind(_)));
}

/// Proves volumes/binding.
#[test]
fn named_volume_is_bound_only_if_it_is_free_and_fits() {
    let mut world = World::default();
    let wants = |name: &str| claim(&json!({ "spec": { "volumeName": name } }));
    assert_eq!(plan(&wants("disk"), &world), Step::Wait(None));
    world.volumes = vec![volume("disk", None), volume("taken", Some("other"))];
    assert!(matches!(plan(&wants("disk"), &world), Step::Bind(_)));
    assert_eq!(reason(&plan(&wants("taken"), &world)), "FailedBinding");
    let large = json!({ "resources": { "requests": { "storage": "1Ti" } }, "volumeName": "disk" });
    assert_eq!(
        reason(&plan(&claim(&json!({ "spec": large })), &world)),
        "VolumeMismatch"
    );
}

/// Proves volumes/binding.
#[test]
fn bound_claim_without_its_volume_is_lost() {
    let bound = |volume: &str| {
        let annotations = json!({ BIND_COMPLETED: "yes" });
        claim(&json!({
            "metadata": { "annotations": annotations }, "spec": { "volumeName": volume },
        }))
    };
    let mut world = World::default();
    assert_eq!(reason(&plan(&bound("disk"), &world)), "ClaimLost");
    assert_eq!(reason(&plan(&bound(""), &world)), "ClaimLost");
    world.volumes = vec![volume("disk", Some("other"))];
    assert_eq!(reason(&plan(&bound("disk"), &world)), "ClaimMisbound");
    world.volumes = vec![volume("disk", Some("claim"))];
    assert!(matches!(plan(&bound("disk"), &world), Step::Bind(_)));
}

/// Proves volumes/binding.
#[test]
fn binding_is_recorded_once() {
    let free = claim(&json!({}));
    let disk = volume("disk", None);
    let bound_claim = bound(&free, &disk).unwrap();
    assert_eq!(
        json!(bound_claim.metadata.annotations),
        json!({ BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes" })
    );
    assert_eq!(bound(&bound_claim, &disk), None);
    let chosen = claim(&json!({ "spec": { "volumeName": "disk" } }));
    let annotations = bound(&chosen, &disk).unwrap().metadata.annotations;
    assert_eq!(json!(annotations), json!({ BIND_COMPLETED: "yes" }));
    let after = status(&free, "Bound", Some(&disk));
    assert_eq!(
        json!(after),
        json!({
            "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "5Gi" },
        })
    );
    let bound_claim = PersistentVolumeClaim {
        status: after,
        ..bound_claim
    };
    assert_eq!(status(&bound_claim, "Bound", Some(&disk)), None);
    assert_eq!(
        json!(status(&bound_claim, "Lost", None)),
        json!({ "phase": "Lost" })
    );
}
