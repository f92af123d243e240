//! Runs the planner against a simulated cluster in which Pods are only counted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn deployment(replicas: i32, image: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "d", "generation": 1 },
        "spec": {
            "replicas": replicas,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" },
            },
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": image }] },
            },
        },
    }))
    .unwrap()
}

fn set_image(deployment: &mut Deployment, image: &str) {
    let spec = deployment.spec.as_mut().unwrap();
    spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.into());
    *deployment.metadata.generation.as_mut().unwrap() += 1;
}

fn set_replicas(deployment: &mut Deployment, replicas: i32) {
    deployment.spec.as_mut().unwrap().replicas = Some(replicas);
    *deployment.metadata.generation.as_mut().unwrap() += 1;
}

/// The part of a cluster that a Deployment sees. Each component acts only when a test calls it, so
/// a test can play any order of events.
struct World {
    deployment: Deployment,
    sets: BTreeMap<String, ReplicaSet>,
    /// Per ReplicaSet: the number of Pods, and of available Pods.
    pods: BTreeMap<String, (i32, i32)>,
    seconds: i64,
    deleted: Vec<String>,
}

impl World {
    fn new(deployment: Deployment) -> Self {
        Self {
            deployment,
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            seconds: 0,
            deleted: Vec::new(),
        }
    }

    fn plan(&self) -> Plan {
        let sets: Vec<_> = self.sets.values().cloned().map(Arc::new).collect();
        let populated = self
            .sets
            .iter()
            .filter(|(name, _)| self.pods[*name].0 > 0)
            .map(|(_, set)| set.metadata.uid.clone().unwrap())
            .collect();
        plan(&self.deployment, &sets, &populated, at(self.seconds))
    }

    /// Runs one reconcile of the Deployment. Returns false if it had nothing to write.
    fn sync(&mut self) -> bool {
        let plan = self.plan();
        let idle = plan.writes.is_empty() && plan.status.is_none() && plan.revision.is_none();
        for write in plan.writes {
            match write {
                Write::Create(mut set) => {
                    let name = set.metadata.name.clone().unwrap();
                    assert!(!self.sets.contains_key(&name), "created twice");
                    set.metadata.uid = Some(format!("uid-{name}"));
                    set.metadata.generation = Some(1);
                    set.metadata.creation_timestamp = Some(Time(at(self.seconds)));
                    self.pods.insert(name.clone(), (0, 0));
                    self.sets.insert(name, set);
                }
                Write::Update { mut set, from } => {
                    if size::replicas(&set) != from {
                        *set.metadata.generation.as_mut().unwrap() += 1;
                    }
                    self.sets.insert(set.metadata.name.clone().unwrap(), set);
                }
                Write::Delete(set) => {
                    let name = set.metadata.name.clone().unwrap();
                    assert_eq!(self.pods[&name].0, 0, "deleted with Pods");
                    self.sets.remove(&name);
                    self.deleted.push(name);
                }
            }
        }
        if let Some(revision) = plan.revision {
            let annotations = self.deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(revision::REVISION.into(), revision);
        }
        if let Some(status) = plan.status {
            self.deployment.status = Some(status);
        }
        !idle
    }

    /// Creates or deletes Pods of one ReplicaSet to match its size, unavailable ones first.
    fn resize_pods(&mut self, name: &str) {
        let wanted = size::replicas(&self.sets[name]);
        let (total, available) = self.pods.get_mut(name).unwrap();
        *total = wanted;
        *available = (*available).min(wanted);
    }

    /// Makes one more Pod of a ReplicaSet available.
    fn make_available(&mut self, name: &str) {
        let (total, available) = self.pods.get_mut(name).unwrap();
        *available = (*available + 1).min(*total);
    }

    /// Resizes the Pods of one ReplicaSet and then writes its status.
    fn report(&mut self, name: &str) {
        self.resize_pods(name);
        let (total, available) = self.pods[name];
        let set = self.sets.get_mut(name).unwrap();
        let some = |n: i32| Some(n).filter(|n| *n != 0);
        set.status = Some(k8s_openapi::api::apps::v1::ReplicaSetStatus {
            replicas: total,
            ready_replicas: some(available),
            available_replicas: some(available),
            terminating_replicas: Some(0),
            observed_generation: set.metadata.generation,
            ..Default::default()
        });
    }

    fn names(&self) -> Vec<String> {
        self.sets.keys().cloned().collect()
    }

    fn available(&self) -> i32 {
        self.pods.values().map(|(_, available)| available).sum()
    }

    fn total(&self) -> i32 {
        self.sets.values().map(size::replicas).sum()
    }

    /// Runs all components until nothing changes.
    fn converge(&mut self) {
        for _ in 0..200 {
            let mut changed = self.sync();
            for name in self.names() {
                let before = (self.pods[&name], self.sets[&name].clone());
                self.resize_pods(&name);
                self.make_available(&name);
                self.report(&name);
                changed |= before != (self.pods[&name], self.sets[&name].clone());
            }
            self.seconds += 1;
            if !changed {
                return;
            }
        }
        panic!("does not converge");
    }

    fn sizes(&self) -> Vec<i32> {
        let mut sets: Vec<_> = self.sets.values().collect();
        sets.sort_by_key(|set| revision::revision(&set.metadata));
        sets.into_iter().map(size::replicas).collect()
    }

    fn reason(&self, type_: &str) -> Option<String> {
        let status = self.deployment.status.as_ref()?;
        let found = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_)?;
        found.reason.clone()
    }

    fn revision(&self) -> i64 {
        revision::revision(&self.deployment.metadata)
    }
}

/// Proves deployment/rollout, deployment/conditions.
#[test]
fn new_deployment_creates_one_set_and_completes() {
    let mut world = World::new(deployment(3, "nginx:1"));
    world.sync();
    assert_eq!(world.sizes(), [3]);
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("NewReplicaSetCreated")
    );
    assert_eq!(
        world.reason("Available").as_deref(),
        Some("MinimumReplicasUnavailable")
    );
    world.converge();
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("NewReplicaSetAvailable")
    );
    assert_eq!(
        world.reason("Available").as_deref(),
        Some("MinimumReplicasAvailable")
    );
    let status = world.deployment.status.clone().unwrap();
    assert_eq!(status.available_replicas, Some(3));
    assert_eq!(status.unavailable_replicas, None);
    assert_eq!(world.revision(), 1);
    assert_eq!(world.plan().requeue_after, None);
}

/// Proves deployment/rollout, workloads/revisions.
#[test]
fn undo_reuses_the_old_set_under_a_new_revision() {
    let mut world = World::new(deployment(4, "nginx:1"));
    world.converge();
    set_image(&mut world.deployment, "nginx:2");
    world.converge();
    assert_eq!(world.sizes(), [0, 4]);
    assert_eq!(world.revision(), 2);

    set_image(&mut world.deployment, "nginx:1");
    world.converge();
    assert_eq!(world.sets.len(), 2, "the first set is reused");
    assert_eq!(world.sizes(), [0, 4]);
    assert_eq!(world.revision(), 3);
    let back = world
        .sets
        .values()
        .find(|set| size::replicas(set) == 4)
        .unwrap();
    assert_eq!(
        meta::annotation(&back.metadata, revision::REVISION_HISTORY),
        Some("1")
    );
}

/// Proves workloads/revisions.
#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let mut world = World::new(deployment(2, "nginx:1"));
    world
        .deployment
        .spec
        .as_mut()
        .unwrap()
        .revision_history_limit = Some(2);
    for version in 1..=5 {
        set_image(&mut world.deployment, &format!("nginx:{version}"));
        world.converge();
    }
    assert_eq!(world.sizes(), [0, 0, 2]);
    assert_eq!(world.deleted.len(), 2);
    assert_eq!(world.revision(), 5);
}

/// Proves deployment/rollout.
#[test]
fn recreate_waits_for_the_last_old_pod() {
    let mut world = World::new(deployment(3, "nginx:1"));
    world.deployment.spec.as_mut().unwrap().strategy =
        Some(serde_json::from_value(json!({ "type": "Recreate" })).unwrap());
    world.converge();
    let old = world.names()[0].clone();

    set_image(&mut world.deployment, "nginx:2");
    world.sync();
    assert_eq!(
        world.sizes(),
        [0],
        "the old set is scaled down before the new one exists"
    );
    world
        .sets
        .get_mut(&old)
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .replicas = 0;
    world.sync();
    assert_eq!(world.sets.len(), 1, "its Pods are still terminating");
    world.converge();
    assert_eq!(world.sizes(), [0, 3]);
}

/// Proves deployment/rollout.
#[test]
fn switch_to_recreate_during_a_rollout_completes() {
    let mut world = World::new(deployment(4, "nginx:1"));
    world.converge();
    set_image(&mut world.deployment, "nginx:2");
    world.sync();
    assert_eq!(world.sizes().len(), 2, "both sets exist");
    world.deployment.spec.as_mut().unwrap().strategy =
        Some(serde_json::from_value(json!({ "type": "Recreate" })).unwrap());
    set_replicas(&mut world.deployment, 7);
    world.converge();
    assert_eq!(world.sizes(), [0, 7]);
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("NewReplicaSetAvailable")
    );
}

/// Proves deployment/rollout.
#[test]
fn paused_deployment_scales_but_does_not_roll_out() {
    let mut world = World::new(deployment(3, "nginx:1"));
    world.converge();
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    set_image(&mut world.deployment, "nginx:2");
    world.converge();
    assert_eq!(world.sizes(), [3]);
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("DeploymentPaused")
    );
    set_replicas(&mut world.deployment, 5);
    world.converge();
    assert_eq!(world.sizes(), [5]);

    world.seconds += 100_000;
    world.deployment.spec.as_mut().unwrap().paused = Some(false);
    world.sync();
    assert_ne!(
        world.reason("Progressing").as_deref(),
        Some("ProgressDeadlineExceeded"),
        "time spent paused does not count"
    );
    world.converge();
    assert_eq!(world.sizes(), [0, 5]);
}

/// Proves deployment/conditions.
#[test]
fn stalled_rollout_is_reported_after_its_deadline() {
    let mut world = World::new(deployment(3, "nginx:1"));
    world.converge();
    set_image(&mut world.deployment, "broken");
    for _ in 0..5 {
        world.sync();
        for name in world.names() {
            world.resize_pods(&name);
            world.report(&name);
        }
    }
    let wait = world
        .plan()
        .requeue_after
        .expect("a requeue at the deadline");
    assert!(wait <= Duration::from_secs(601));
    world.seconds += i64::try_from(wait.as_secs()).unwrap() + 1;
    assert!(world.sync());
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("ProgressDeadlineExceeded")
    );
    assert!(!world.sync(), "reported once");
    assert_eq!(world.plan().requeue_after, None);
    assert_eq!(world.available(), 3, "the old Pods still serve");

    set_image(&mut world.deployment, "nginx:3");
    world.converge();
    assert_eq!(
        world.reason("Progressing").as_deref(),
        Some("NewReplicaSetAvailable")
    );
}

/// Proves deployment/rollout.
#[test]
fn scaling_during_a_rollout_keeps_the_proportions() {
    let mut world = World::new(deployment(10, "nginx:1"));
    world.converge();
    set_image(&mut world.deployment, "broken");
    for _ in 0..5 {
        world.sync();
        for name in world.names() {
            world.resize_pods(&name);
            world.report(&name);
        }
    }
    assert_eq!(world.sizes(), [8, 5]);
    set_replicas(&mut world.deployment, 20);
    world.sync();
    assert_eq!(world.sizes(), [15, 10], "25 Pods in all, 8 to 5 before");
    set_replicas(&mut world.deployment, 0);
    world.sync();
    assert_eq!(world.sizes(), [0, 0]);
}

/// Proves deployment/replicaset-name.
#[test]
fn name_collision_with_a_foreign_set_changes_the_hash() {
    let world = World::new(deployment(1, "nginx:1"));
    let Plan { writes, .. } = world.plan();
    let [Write::Create(set)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!(
        after_collision(&world.deployment, set),
        None,
        "our own set, created a moment ago"
    );

    let mut foreign = set.clone();
    foreign.metadata.owner_references = None;
    let mut deployment = world.deployment.clone();
    deployment.status = after_collision(&world.deployment, &foreign);
    let Plan { writes, .. } = World::new(deployment).plan();
    let [Write::Create(other)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_ne!(other.metadata.name, set.metadata.name);
}

#[test]
fn deleted_deployment_updates_only_its_status() {
    let mut world = World::new(deployment(3, "nginx:1"));
    world.converge();
    world.deployment.metadata.deletion_timestamp = Some(Time(at(0)));
    set_image(&mut world.deployment, "nginx:2");
    let plan = world.plan();
    assert!(plan.writes.is_empty());
    assert_eq!(plan.status.unwrap().observed_generation, Some(2));
}

#[derive(Clone, Debug)]
enum Action {
    Sync,
    ResizePods(usize),
    MakeAvailable(usize),
    Report(usize),
    Image(u8),
    Replicas(i32),
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Sync),
        4 => (0..4usize).prop_map(Action::ResizePods),
        6 => (0..4usize).prop_map(Action::MakeAvailable),
        4 => (0..4usize).prop_map(Action::Report),
        1 => (0..3u8).prop_map(Action::Image),
        1 => (0..8i32).prop_map(Action::Replicas),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // Proves deployment/rolling-bounds, deployment/rollout.
    #[test]
    fn rollout_respects_its_bounds_under_any_delay(
        replicas in 1..8i32,
        surge in 0..3i32,
        unavailable in 0..3i32,
        actions in proptest::collection::vec(any_action(), 0..80),
    ) {
        prop_assume!(surge + unavailable > 0);
        let mut start = deployment(replicas, "nginx:0");
        start.spec.as_mut().unwrap().strategy = Some(serde_json::from_value(json!({
            "type": "RollingUpdate",
            "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
        })).unwrap());
        let mut world = World::new(start);
        world.converge();
        let mut scaled = false;
        for action in actions {
            let name = |world: &World, index: usize| {
                let names = world.names();
                names[index % names.len()].clone()
            };
            match action {
                Action::Sync => { world.sync(); }
                Action::ResizePods(index) => { let name = name(&world, index); world.resize_pods(&name); }
                Action::MakeAvailable(index) => { let name = name(&world, index); world.make_available(&name); }
                Action::Report(index) => { let name = name(&world, index); world.report(&name); }
                Action::Image(version) => set_image(&mut world.deployment, &format!("nginx:{version}")),
                Action::Replicas(n) => { set_replicas(&mut world.deployment, n); scaled = true; }
            }
            world.seconds += 1;
            if !scaled {
                prop_assert!(world.available() >= replicas - unavailable.min(replicas), "available");
                prop_assert!(world.total() <= replicas + surge, "surge");
            }
        }
        world.converge();
        let desired = size::desired(&world.deployment);
        prop_assert_eq!(world.total(), desired);
        prop_assert_eq!(world.available(), desired);
        let active: Vec<_> = world.sets.values().filter(|set| size::replicas(set) > 0).collect();
        prop_assert!(active.iter().all(|set| has_template(set, &world.deployment)));
        prop_assert!(active.len() <= 1);
        prop_assert!(!world.sync(), "idle, so nothing is written");
    }
}
