//! Plays the graph against a small server that stores objects and applies steps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::{
    super::decide::{Decision, OwnerStates, Propagation, Step},
    *,
};

/// A server and the collector that watches it.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, (Identity, ObjectMeta)>,
    graph: Graph,
    queue: BTreeSet<String>,
    version: u64,
    warnings: Vec<String>,
    lookups: usize,
}

fn reference(owner: &str, block: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: owner.into(),
        uid: owner.into(),
        controller: None,
        block_owner_deletion: Some(block),
    }
}

impl World {
    /// Creates an object whose name is its UID, and delivers it to the collector if `deliver`.
    fn create_in(
        &mut self,
        namespace: &str,
        name: &str,
        owners: Vec<OwnerReference>,
        deliver: bool,
    ) {
        self.version += 1;
        let meta = ObjectMeta {
            name: Some(name.into()),
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            uid: Some(name.into()),
            resource_version: Some(self.version.to_string()),
            owner_references: Some(owners).filter(|owners| !owners.is_empty()),
            ..ObjectMeta::default()
        };
        let identity = Identity::of("v1", "ConfigMap", &meta);
        self.objects.insert(name.into(), (identity, meta));
        if deliver {
            self.deliver(name);
        }
    }

    fn create(&mut self, name: &str, owners: &[&str]) {
        let owners = owners.iter().map(|owner| reference(owner, true)).collect();
        self.create_in("default", name, owners, true);
    }

    /// Delivers the current state of an object, or its deletion, to the collector.
    fn deliver(&mut self, uid: &str) {
        let work = match self.objects.get(uid) {
            Some((identity, meta)) => self.graph.observe(identity.clone(), meta),
            None => self.graph.forget(uid),
        };
        self.queue.extend(work);
    }

    /// Handles a DELETE request.
    fn delete(&mut self, uid: &str, propagation: Propagation) {
        let Some((_, meta)) = self.objects.get_mut(uid) else {
            return;
        };
        let finalizers = meta.finalizers.get_or_insert_default();
        match propagation {
            Propagation::Foreground => finalizers.push(FOREGROUND.into()),
            Propagation::Orphan => finalizers.push(ORPHAN.into()),
            Propagation::Background => {}
        }
        finalizers.sort();
        finalizers.dedup();
        meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        self.finish(uid);
    }

    /// Bumps the resourceVersion, and removes a deleted object without finalizers.
    fn finish(&mut self, uid: &str) {
        self.version += 1;
        if let Some((_, meta)) = self.objects.get_mut(uid) {
            meta.resource_version = Some(self.version.to_string());
            let none = meta.finalizers.iter().flatten().next().is_none();
            if meta.deletion_timestamp.is_some() && none {
                self.objects.remove(uid);
            }
        }
        self.deliver(uid);
    }

    fn lookup(&mut self, dependent: &Identity, owner: &OwnerReference) -> OwnerState {
        self.lookups += 1;
        match self.objects.get(&owner.uid) {
            Some((identity, meta)) if identity.is_named_by(owner, dependent) => {
                OwnerState::Present {
                    awaits_dependents: meta.deletion_timestamp.is_some()
                        && meta
                            .finalizers
                            .iter()
                            .flatten()
                            .any(|have| have == FOREGROUND),
                }
            }
            _ => OwnerState::Absent,
        }
    }

    fn attempt(&mut self, uid: &str) {
        let mut states = OwnerStates::new();
        let decision = match self.graph.decide(uid, &states) {
            Decision::Lookup { dependent, owners } => {
                for owner in owners {
                    let state = self.lookup(&dependent, &owner);
                    self.graph.remember(&dependent, &owner, state);
                    states.insert(owner.uid, state);
                }
                self.graph.decide(uid, &states)
            }
            decision => decision,
        };
        let Decision::Apply { steps, retry } = decision else {
            return;
        };
        for step in steps {
            self.apply(step);
        }
        if retry {
            self.queue.insert(uid.into());
        }
    }

    /// Applies a step if the resourceVersion still matches.
    fn apply(&mut self, step: Step) {
        let (object, version) = match &step {
            Step::Delete {
                object,
                resource_version,
                ..
            }
            | Step::SetOwners {
                object,
                resource_version,
                ..
            }
            | Step::SetFinalizers {
                object,
                resource_version,
                ..
            } => (object, resource_version),
            Step::WarnNamespace { object, owner } => {
                self.warnings
                    .push(format!("{} → {}", object.name, owner.name));
                return;
            }
        };
        let uid = object.uid.clone();
        let Some((_, meta)) = self.objects.get_mut(&uid) else {
            return;
        };
        if meta.resource_version.as_ref() != Some(version) {
            self.queue.insert(uid);
            return;
        }
        match step {
            Step::Delete { propagation, .. } => self.delete(&uid, propagation),
            Step::SetOwners { owners, .. } => {
                meta.owner_references = Some(owners);
                self.finish(&uid);
            }
            Step::SetFinalizers { finalizers, .. } => {
                meta.finalizers = Some(finalizers);
                self.finish(&uid);
            }
            Step::WarnNamespace { .. } => {}
        }
    }

    fn converge(&mut self) {
        for _ in 0..10_000 {
            let Some(uid) = self.queue.pop_first() else {
                return;
            };
            self.attempt(&uid);
        }
        panic!("does not converge: {:?}", self.queue);
    }

    fn names(&self) -> Vec<&str> {
        self.objects.keys().map(String::as_str).collect()
    }

    fn owners_of(&self, name: &str) -> Vec<&str> {
        let owners = self.objects[name].1.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.as_str()).collect()
    }
}

/// Proves gc/collects.
#[test]
fn dependents_are_deleted_with_their_owner_recursively() {
    let mut world = World::default();
    world.create("deployment", &[]);
    world.create("set", &["deployment"]);
    world.create("pod-1", &["set"]);
    world.create("pod-2", &["set"]);
    world.create("bystander", &[]);
    world.converge();
    assert_eq!(
        world.objects.len(),
        5,
        "nothing is deleted while the owners exist"
    );

    world.delete("deployment", Propagation::Background);
    world.converge();
    assert_eq!(world.names(), ["bystander"]);
    assert_eq!(world.lookups, 0, "observed owners need no lookup");
}

/// Proves gc/collects.
#[test]
fn dangling_reference_is_removed_if_another_owner_exists() {
    let mut world = World::default();
    world.create("a", &[]);
    world.create("b", &[]);
    world.create("child", &["a", "b"]);
    world.delete("a", Propagation::Background);
    world.converge();
    assert_eq!(world.names(), ["b", "child"]);
    assert_eq!(world.owners_of("child"), ["b"]);
}

/// Proves gc/collects.
#[test]
fn dependent_of_a_missing_owner_is_collected_after_a_lookup() {
    let mut world = World::default();
    world.create("child-1", &["never-was"]);
    world.create("child-2", &["never-was"]);
    world.converge();
    assert!(world.names().is_empty());
    assert_eq!(world.lookups, 1, "the result is remembered");
}

/// Proves gc/collects.
#[test]
fn owner_with_another_uid_does_not_count() {
    let mut world = World::default();
    world.create("reborn", &[]);
    let mut owner = reference("reborn", true);
    owner.uid = "previous-life".into();
    world.create_in("default", "child", vec![owner], true);
    world.converge();
    assert_eq!(world.names(), ["reborn"]);
}

/// Proves gc/collects.
#[test]
fn dependent_observed_before_its_owner_is_retained() {
    let mut world = World::default();
    world.create_in("default", "owner", vec![], false);
    world.create("child", &["owner"]);
    let child = world.queue.pop_first().unwrap();
    world.attempt(&child);
    assert_eq!(world.names(), ["child", "owner"]);
    assert!(
        !world.queue.is_empty(),
        "retried until the owner is observed"
    );

    world.deliver("owner");
    world.converge();
    assert_eq!(world.names(), ["child", "owner"]);
}

/// Proves gc/propagation.
#[test]
fn foreground_owner_is_deleted_after_blocking_dependents() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create("child", &["owner"]);
    world.create("grandchild", &["child"]);
    world.objects.get_mut("grandchild").unwrap().1.finalizers = Some(vec!["hold".into()]);
    world.deliver("grandchild");

    world.delete("owner", Propagation::Foreground);
    world.converge();
    assert_eq!(
        world.names(),
        ["child", "grandchild", "owner"],
        "held by the finalizer of the grandchild"
    );
    assert!(
        world.objects["child"]
            .1
            .finalizers
            .iter()
            .flatten()
            .any(|f| f == FOREGROUND)
    );

    world.objects.get_mut("grandchild").unwrap().1.finalizers = None;
    world.finish("grandchild");
    world.converge();
    assert!(world.names().is_empty());
}

/// Proves gc/propagation.
#[test]
fn foreground_owner_does_not_wait_for_other_dependents() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create_in("default", "child", vec![reference("owner", false)], true);
    world.objects.get_mut("child").unwrap().1.finalizers = Some(vec!["hold".into()]);
    world.deliver("child");
    world.delete("owner", Propagation::Foreground);
    world.converge();
    assert_eq!(
        world.names(),
        ["child"],
        "deleted, held by its own finalizer"
    );
    assert!(world.objects["child"].1.deletion_timestamp.is_some());
}

/// Proves gc/propagation.
#[test]
fn shared_dependent_only_loses_its_foreground_owner() {
    let mut world = World::default();
    world.create("going", &[]);
    world.create("staying", &[]);
    world.create("child", &["going", "staying"]);
    world.delete("going", Propagation::Foreground);
    world.converge();
    assert_eq!(world.names(), ["child", "staying"]);
    assert_eq!(world.owners_of("child"), ["staying"]);
}

/// Proves gc/propagation.
#[test]
fn orphan_deletion_retains_dependents() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create("a", &["owner"]);
    world.create("b", &["owner"]);
    world.delete("owner", Propagation::Orphan);
    world.converge();
    assert_eq!(world.names(), ["a", "b"]);
    assert!(world.owners_of("a").is_empty() && world.owners_of("b").is_empty());
}

/// Proves gc/collects, gc/propagation.
#[test]
fn reference_in_another_version_of_the_group_counts() {
    let in_another_version = || OwnerReference {
        api_version: "example.com/v1beta1".into(),
        ..reference("owner", true)
    };
    let owner = ObjectMeta {
        name: Some("owner".into()),
        namespace: Some("default".into()),
        uid: Some("owner".into()),
        ..ObjectMeta::default()
    };
    for (propagation, left) in [
        (Propagation::Orphan, &["child"][..]),
        (Propagation::Foreground, &[]),
        (Propagation::Background, &[]),
    ] {
        let mut world = World::default();
        let identity = Identity::of("example.com/v1", "ConfigMap", &owner);
        world
            .objects
            .insert("owner".into(), (identity, owner.clone()));
        world.deliver("owner");
        world.create_in("default", "child", vec![in_another_version()], true);
        world.converge();
        assert_eq!(world.lookups, 0, "it was observed");
        world.delete("owner", propagation);
        world.converge();
        assert_eq!(world.names(), left, "{propagation:?}");
        if propagation == Propagation::Orphan {
            assert!(world.owners_of("child").is_empty());
        }
    }
}

/// Proves gc/collects.
#[test]
fn removing_a_kind_collects_dependents_of_its_objects() {
    let mut world = World::default();
    let foo = ObjectMeta {
        name: Some("foo".into()),
        namespace: Some("default".into()),
        uid: Some("foo".into()),
        ..ObjectMeta::default()
    };
    world
        .graph
        .observe(Identity::of("example.com/v1", "Foo", &foo), &foo);
    let owner = OwnerReference {
        api_version: "example.com/v1".into(),
        kind: "Foo".into(),
        ..reference("foo", true)
    };
    world.create_in("default", "child", vec![owner], true);
    world.create("bystander", &[]);
    world.converge();
    assert_eq!(world.names(), ["bystander", "child"]);
    assert_eq!(world.graph.len(), 3);

    let work = world.graph.forget_kind("example.com", "Foo");
    world.queue.extend(work);
    world.converge();
    assert_eq!(world.names(), ["bystander"]);
    assert_eq!(world.graph.len(), 1);
    assert!(world.graph.dependents.is_empty());
    assert_eq!(world.lookups, 0, "no lookup for a removed kind");
}

/// Proves gc/cross-namespace.
#[test]
fn owner_in_another_namespace_is_ignored_with_a_warning() {
    let mut world = World::default();
    world.create_in("other", "owner", vec![], true);
    world.create("child", &["owner"]);
    world.converge();
    assert_eq!(world.names(), ["owner"]);
    assert_eq!(world.warnings, ["child → owner"]);
}

/// Proves gc/cross-namespace.
#[test]
fn cluster_scoped_dependent_of_namespaced_owner_is_retained() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create_in("", "child", vec![reference("owner", true)], true);
    world.converge();
    assert_eq!(world.names(), ["child", "owner"]);
}

/// Proves gc/propagation.
#[test]
fn cycle_of_foreground_owners_is_broken() {
    let mut world = World::default();
    world.create("a", &["c"]);
    world.create("b", &["a"]);
    world.create("c", &["b"]);
    world.queue.clear();
    world.delete("a", Propagation::Foreground);
    world.converge();
    assert!(world.names().is_empty(), "{:?}", world.objects);
}

#[test]
fn dependent_of_an_unknown_kind_is_retained() {
    let mut world = World::default();
    world.create("child", &["strange"]);
    let states = [("strange".to_owned(), OwnerState::UnknownKind)].into();
    assert_eq!(
        world.graph.decide("child", &states),
        Decision::Apply {
            steps: vec![],
            retry: true
        },
        "the kind may be installed later"
    );
}

#[test]
fn memory_of_absent_owners_is_bounded() {
    let mut world = World::default();
    for i in 0..MAX_ABSENT + 100 {
        world.create(&format!("child-{i}"), &[&format!("absent-{i}")]);
    }
    world.converge();
    assert_eq!(world.graph.absent.len(), MAX_ABSENT);
    assert_eq!(world.graph.len(), 0);
    assert!(world.graph.dependents.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Proves gc/collects, gc/propagation.
    #[test]
    fn no_dangling_references_after_any_deletions(
        // Object i may only be owned by objects before it, so there are no cycles.
        owners in proptest::collection::vec(proptest::collection::vec((0..8usize, any::<bool>()), 0..3), 1..9),
        deletions in proptest::collection::vec((0..9usize, 0..3u8), 0..4),
        order in any::<u64>(),
    ) {
        let mut world = World::default();
        for (i, owners) in owners.iter().enumerate() {
            let refs: Vec<_> = owners.iter().filter(|(owner, _)| *owner < i)
                .map(|(owner, block)| reference(&format!("o{owner}"), *block)).collect();
            world.create_in("default", &format!("o{i}"), refs, false);
        }
        // Informers of different kinds deliver in any order.
        let mut names: Vec<String> = world.objects.keys().cloned().collect();
        let shift = usize::try_from(order % 7).unwrap() % names.len();
        names.rotate_left(shift);
        for name in names {
            world.deliver(&name);
        }
        world.converge();
        prop_assert_eq!(world.objects.len(), owners.len());

        for (index, policy) in deletions {
            let name = format!("o{index}");
            let propagation = [Propagation::Background, Propagation::Foreground, Propagation::Orphan][usize::from(policy)];
            world.delete(&name, propagation);
            world.converge();
            for (name, (_, meta)) in &world.objects {
                prop_assert!(meta.deletion_timestamp.is_none(), "{name} is stuck");
                for owner in meta.owner_references.iter().flatten() {
                    prop_assert!(world.objects.contains_key(&owner.uid), "{name} names {}", owner.uid);
                }
            }
        }
    }
}
