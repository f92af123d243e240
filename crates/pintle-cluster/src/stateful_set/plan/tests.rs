use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::{ControllerRevision, StatefulSet},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::*;

/// A set with up to three members, and what the planner observes of it.
struct World {
    set: StatefulSet,
    pods: Vec<Arc<Pod>>,
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    current: ControllerRevision,
    update: ControllerRevision,
}

#[allow(clippy::needless_pass_by_value, reason = "reads better in tests")]
fn set(spec: Value) -> StatefulSet {
    let mut set = json!({
        "metadata": { "name": "db", "namespace": "default", "uid": "set", "generation": 2 },
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "template": template("new"),
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).unwrap()
}

fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "db" } },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

fn revision(name: &str) -> ControllerRevision {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "data": { "spec": { "template": template(name) } },
        "revision": 1,
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum Health {
    Ready,
    Pending,
    Failed,
    Terminating,
}
use Health::{Failed, Pending, Ready, Terminating};

fn pod(ordinal: i32, revision: &str, health: Health) -> Arc<Pod> {
    let phase = match health {
        Ready | Terminating => "Running",
        Pending => "Pending",
        Failed => "Failed",
    };
    let name = format!("db-{ordinal}");
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": {
                "app": "db",
                "controller-revision-hash": revision,
                "statefulset.kubernetes.io/pod-name": name,
            },
        },
        "status": { "phase": phase, "conditions": [{
            "type": "Ready",
            "status": if phase == "Running" { "True" } else { "False" },
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    });
    if health == Terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

impl World {
    fn new(spec: Value, pods: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        Self {
            set: set(spec),
            pods: pods.into_iter().collect(),
            claims: BTreeMap::new(),
            current: revision("old"),
            update: revision("new"),
        }
    }

    fn plan(&self) -> Plan {
        plan(&Observed {
            set: &self.set,
            pods: &self.pods,
            claims: &self.claims,
            current: &self.current,
            update: &self.update,
            now: now(),
        })
    }

    /// Returns the writes as words, such as `create db-0@new`.
    fn steps(&self) -> Vec<String> {
        let name = |meta: &ObjectMeta| meta::name(meta).to_owned();
        let step = |step: &Step| match step {
            Step::Create { pod, claims } => {
                let claims = claims.iter().map(|claim| {
                    let owners = claim.metadata.owner_references.iter().flatten();
                    let owners: Vec<_> = owners.map(|it| format!(" of {}", it.name)).collect();
                    format!(" {}{}", name(&claim.metadata), owners.concat())
                });
                let claims: String = claims.collect();
                let revision = identity::revision(pod);
                format!("create {}@{revision}{claims}", name(&pod.metadata))
            }
            Step::CreateClaims { claims, .. } => format!("create {} claims", claims.len()),
            Step::AwaitClaim { claim, pod } => format!("await {claim} for {pod:?}"),
            Step::SetOwners { claim, owners, .. } => {
                let owners: Vec<&str> = owners.iter().map(|it| it.name.as_str()).collect();
                format!("own {} by {owners:?}", name(&claim.metadata))
            }
            Step::Correct(pod) => format!("correct {}", name(&pod.metadata)),
            Step::Delete(pod) => format!("delete {}", name(&pod.metadata)),
        };
        self.plan().steps.iter().map(step).collect()
    }
}

#[test]
fn ordered_set_creates_one_pod_at_a_time() {
    assert_eq!(World::new(json!({}), []).steps(), ["create db-0@new"]);
    let waiting = World::new(json!({}), [pod(0, "new", Pending)]);
    assert_eq!(waiting.steps(), [""; 0]);
    let next = World::new(json!({}), [pod(0, "new", Ready)]);
    assert_eq!(next.steps(), ["create db-1@new"]);
}

#[test]
fn parallel_set_creates_all_pods_together() {
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    let world = World::new(parallel, [pod(1, "new", Pending)]);
    assert_eq!(world.steps(), ["create db-0@new", "create db-2@new"]);
}

#[test]
fn ordinals_start_at_the_configured_number() {
    let spec = json!({ "ordinals": { "start": 5 }, "replicas": 1 });
    assert_eq!(World::new(spec.clone(), []).steps(), ["create db-5@new"]);
    let moved = World::new(spec, [pod(0, "new", Ready), pod(5, "new", Ready)]);
    assert_eq!(moved.steps(), ["delete db-0"]);
}

#[test]
fn pod_has_the_identity_of_its_ordinal() {
    let world = World::new(
        json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] }),
        [],
    );
    let Step::Create { pod, claims } = &world.plan().steps[0] else {
        panic!("no Pod is created");
    };
    let named = (&pod.metadata.name, &pod.metadata.generate_name);
    assert_eq!(named, (&Some("db-0".into()), &Some("db-".into())));
    let labels = meta::labels(&pod.metadata);
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-0");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(labels["controller-revision-hash"], "new");
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("db-0"));
    assert_eq!(spec.subdomain.as_deref(), Some("db"));
    let volume = &spec.volumes.as_ref().unwrap()[0];
    let source = volume.persistent_volume_claim.as_ref().unwrap();
    assert_eq!((&*volume.name, &*source.claim_name), ("data", "data-db-0"));
    assert_eq!(meta::labels(&claims[0].metadata)["app"], "db");
}

#[test]
fn scale_down_deletes_the_highest_pod_first() {
    let three = || [0, 1, 2].map(|ordinal| pod(ordinal, "new", Ready));
    let one = json!({ "replicas": 1 });
    assert_eq!(World::new(one.clone(), three()).steps(), ["delete db-2"]);
    let mut terminating = three();
    terminating[2] = pod(2, "new", Terminating);
    assert_eq!(World::new(one, terminating).steps(), [""; 0]);
    let parallel = json!({ "replicas": 1, "podManagementPolicy": "Parallel" });
    assert_eq!(
        World::new(parallel, three()).steps(),
        ["delete db-2", "delete db-1"]
    );
}

#[test]
fn scale_down_waits_for_an_unready_pod_below() {
    let mut pods = [0, 1, 2].map(|ordinal| pod(ordinal, "new", Ready));
    pods[2] = pod(2, "new", Pending);
    let world = World::new(json!({ "replicas": 1 }), pods.clone());
    // The only unhealthy Pod is itself the one to delete.
    assert_eq!(world.steps(), ["delete db-2"]);
    pods[1] = pod(1, "new", Pending);
    assert_eq!(World::new(json!({ "replicas": 1 }), pods).steps(), [""; 0]);
}

#[test]
fn failed_pod_is_deleted_and_blocks_the_next() {
    let world = World::new(json!({}), [pod(0, "new", Failed), pod(2, "new", Failed)]);
    assert_eq!(world.steps(), ["delete db-0"]);
}

#[test]
fn update_replaces_the_highest_outdated_pod() {
    let mut world = World::new(json!({}), [0, 1, 2].map(|it| pod(it, "old", Ready)));
    assert_eq!(world.steps(), ["delete db-2"]);
    assert_eq!(world.plan().status.current_replicas, Some(2));
    world.pods[2] = pod(2, "new", Pending);
    assert_eq!(world.steps(), [""; 0]);
    world.pods[2] = pod(2, "new", Ready);
    assert_eq!(world.steps(), ["delete db-1"]);
    world.pods = [0, 1, 2].map(|it| pod(it, "new", Ready)).into();
    let status = world.plan().status;
    assert_eq!(status.current_revision.as_deref(), Some("new"));
    assert_eq!(status.current_replicas, Some(3));
}

#[test]
fn partition_keeps_lower_pods_at_the_current_revision() {
    let spec = json!({ "updateStrategy": {
        "type": "RollingUpdate", "rollingUpdate": { "partition": 2 },
    }});
    let mut world = World::new(spec, [0, 1].map(|it| pod(it, "old", Ready)));
    assert_eq!(world.steps(), ["create db-2@new"]);
    world.pods.push(pod(2, "new", Ready));
    assert_eq!(world.steps(), [""; 0]);
    let status = world.plan().status;
    assert_eq!(status.current_revision.as_deref(), Some("old"));
    assert_eq!(status.update_revision.as_deref(), Some("new"));
    assert_eq!(
        (status.current_replicas, status.updated_replicas),
        (Some(2), Some(1))
    );
    world.pods.remove(1);
    assert_eq!(world.steps(), ["create db-1@old"]);
}

#[test]
fn on_delete_leaves_outdated_pods_alone() {
    let spec = json!({ "updateStrategy": { "type": "OnDelete" } });
    let mut world = World::new(spec, [0, 1, 2].map(|it| pod(it, "old", Ready)));
    assert_eq!(world.steps(), [""; 0]);
    world.pods.remove(0);
    assert_eq!(world.steps(), ["create db-0@new"]);
}

#[test]
fn min_ready_seconds_delay_the_next_pod() {
    let spec = json!({ "minReadySeconds": 90 });
    let plan = World::new(spec, [pod(0, "new", Ready)]).plan();
    assert_eq!(plan.steps, []);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(30)));
    assert_eq!(plan.status.ready_replicas, Some(1));
    assert_eq!(plan.status.available_replicas, Some(0));
}

#[test]
fn set_being_deleted_only_updates_its_status() {
    let mut world = World::new(json!({}), [pod(0, "new", Ready)]);
    world.set.metadata.deletion_timestamp = Some(meta::time(now()));
    assert_eq!(world.steps(), [""; 0]);
    assert_eq!(world.plan().status.replicas, 1);
}

#[test]
fn lost_label_is_restored() {
    let mut world = World::new(json!({ "replicas": 1 }), [pod(0, "new", Ready)]);
    let mut bare = (*world.pods[0]).clone();
    let labels = bare.metadata.labels.as_mut().unwrap();
    labels.remove("statefulset.kubernetes.io/pod-name");
    world.pods[0] = Arc::new(bare);
    assert_eq!(world.steps(), ["correct db-0"]);
}

fn with_claims(replicas: i32, scaled: &str, deleted: &str) -> Value {
    json!({
        "replicas": replicas,
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": scaled, "whenDeleted": deleted },
    })
}

fn claim(ordinal: i32, owner: Option<(&str, &str, &str)>) -> Arc<PersistentVolumeClaim> {
    let owner = owner.map(|(kind, name, uid)| {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true })
    });
    let owners: Vec<Value> = owner.into_iter().collect();
    Arc::new(
        serde_json::from_value(json!({
            "metadata": { "name": format!("data-db-{ordinal}"), "ownerReferences": owners },
        }))
        .unwrap(),
    )
}

#[test]
fn claims_have_owners_by_retention_policy() {
    let cases = [
        ("Retain", "Retain", "create db-0@new data-db-0"),
        ("Retain", "Delete", "create db-0@new data-db-0 of db"),
        ("Delete", "Retain", "create db-0@new data-db-0"),
        ("Delete", "Delete", "create db-0@new data-db-0 of db"),
    ];
    for (scaled, deleted, expected) in cases {
        let world = World::new(with_claims(1, scaled, deleted), []);
        assert_eq!(world.steps(), [expected], "{scaled} {deleted}");
    }
}

#[test]
fn condemned_pod_owns_its_claim_before_deletion() {
    let mut world = World::new(with_claims(0, "Delete", "Delete"), [pod(0, "new", Ready)]);
    let set_owner = Some(("StatefulSet", "db", "set"));
    world.claims = [("data-db-0".into(), claim(0, set_owner))].into();
    let expected = ["own data-db-0 by [\"db-0\"]", "delete db-0"];
    assert_eq!(world.steps(), expected);
    world.claims = [("data-db-0".into(), claim(0, Some(("Pod", "db-0", "db-0"))))].into();
    assert_eq!(world.steps(), ["delete db-0"]);
}

#[test]
fn claim_of_an_earlier_pod_delays_its_successor() {
    let mut world = World::new(with_claims(1, "Delete", "Retain"), []);
    let earlier = claim(0, Some(("Pod", "db-0", "gone")));
    world.claims = [("data-db-0".into(), earlier)].into();
    assert_eq!(world.steps(), [""; 0]);

    let mut deleted = (*claim(0, None)).clone();
    deleted.metadata.deletion_timestamp = Some(meta::time(now()));
    world.claims = [("data-db-0".into(), Arc::new(deleted))].into();
    assert_eq!(world.steps(), ["await data-db-0 for Some(\"db-0\")"]);
}

#[test]
fn foreign_controller_of_a_claim_is_respected() {
    let mut world = World::new(with_claims(1, "Retain", "Delete"), [pod(0, "new", Ready)]);
    let foreign = claim(0, Some(("Other", "other", "other")));
    world.claims = [("data-db-0".into(), foreign)].into();
    assert_eq!(world.steps(), [""; 0]);
    world.claims = [("data-db-0".into(), claim(0, None))].into();
    assert_eq!(world.steps(), ["own data-db-0 by [\"db\"]"]);
}

#[test]
fn lost_claim_of_a_pending_pod_is_recreated() {
    let world = World::new(with_claims(1, "Retain", "Retain"), [pod(0, "new", Pending)]);
    assert_eq!(world.steps(), ["create 1 claims"]);
}

#[test]
fn existing_claims_of_new_and_pending_pods_are_owned() {
    let mut world = World::new(with_claims(1, "Retain", "Delete"), []);
    world.claims = [("data-db-0".into(), claim(0, None))].into();
    let owned = "own data-db-0 by [\"db\"]";
    assert_eq!(world.steps(), ["create db-0@new", owned]);
    world.pods = vec![pod(0, "new", Pending)];
    assert_eq!(world.steps(), [owned]);
    let parallel = json!({ "podManagementPolicy": "Parallel", "replicas": 1 });
    let mut spec = with_claims(1, "Retain", "Delete");
    spec.as_object_mut()
        .unwrap()
        .extend(parallel.as_object().unwrap().clone());
    let mut world = World::new(spec, [pod(0, "new", Pending)]);
    world.claims = [("data-db-0".into(), claim(0, None))].into();
    assert_eq!(world.steps(), [owned]);
}
