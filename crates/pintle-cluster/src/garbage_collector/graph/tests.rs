//! The collector played against a small server that holds objects and obeys steps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;

/// A server in a map, and the collector that watches it.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, (Identity, ObjectMeta)>,
    graph: Graph,
    queue: BTreeSet<String>,
    version: u64,
    warnings: Vec<String>,
    questions: usize,
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
    /// Creates an object whose name is its UID; `seen`: the informer tells of it at once.
    fn create_in(&mut self, namespace: &str, name: &str, owners: Vec<OwnerReference>, seen: bool) {
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
        if seen {
            self.tell(name);
        }
    }

    fn create(&mut self, name: &str, owners: &[&str]) {
        let owners = owners.iter().map(|owner| reference(owner, true)).collect();
        self.create_in("default", name, owners, true);
    }

    fn tell(&mut self, uid: &str) {
        let work = match self.objects.get(uid) {
            Some((identity, meta)) => self.graph.observe(identity.clone(), meta),
            None => self.graph.forget(uid),
        };
        self.queue.extend(work);
    }

    /// What the server does on DELETE.
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

    fn finish(&mut self, uid: &str) {
        self.version += 1;
        if let Some((_, meta)) = self.objects.get_mut(uid) {
            meta.resource_version = Some(self.version.to_string());
            let none = meta.finalizers.iter().flatten().next().is_none();
            if meta.deletion_timestamp.is_some() && none {
                self.objects.remove(uid);
            }
        }
        self.tell(uid);
    }

    fn answer(&mut self, from: &Identity, owner: &OwnerReference) -> Answer {
        self.questions += 1;
        match self.objects.get(&owner.uid) {
            Some((identity, meta)) if identity.is_named_by(owner, from) => Answer::Present {
                awaits_dependents: meta.deletion_timestamp.is_some()
                    && meta
                        .finalizers
                        .iter()
                        .flatten()
                        .any(|have| have == FOREGROUND),
            },
            _ => Answer::Absent,
        }
    }

    fn look(&mut self, uid: &str) {
        let mut answers = Answers::new();
        let look = match self.graph.look(uid, &answers) {
            Look::Ask { from, owners } => {
                for owner in owners {
                    let answer = self.answer(&from, &owner);
                    self.graph.remember(&from, &owner, answer);
                    answers.insert(owner.uid, answer);
                }
                self.graph.look(uid, &answers)
            }
            look => look,
        };
        let Look::Take { steps, again } = look else {
            return;
        };
        for step in steps {
            self.take(step);
        }
        if again {
            self.queue.insert(uid.into());
        }
    }

    /// A step succeeds only against the version it was decided on.
    fn take(&mut self, step: Step) {
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

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(uid) = self.queue.pop_first() else {
                return;
            };
            self.look(&uid);
        }
        panic!("does not settle: {:?}", self.queue);
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
fn dependents_of_a_deleted_owner_go_with_it_down_to_the_last_level() {
    let mut world = World::default();
    world.create("deployment", &[]);
    world.create("set", &["deployment"]);
    world.create("pod-1", &["set"]);
    world.create("pod-2", &["set"]);
    world.create("bystander", &[]);
    world.settle();
    assert_eq!(world.objects.len(), 5, "nothing goes while the owners live");

    world.delete("deployment", Propagation::Background);
    world.settle();
    assert_eq!(world.names(), ["bystander"]);
    assert_eq!(world.questions, 0, "what was observed is not asked for");
}

/// Proves gc/collects.
#[test]
fn one_solid_owner_keeps_a_dependent_and_the_dangling_reference_goes() {
    let mut world = World::default();
    world.create("a", &[]);
    world.create("b", &[]);
    world.create("child", &["a", "b"]);
    world.delete("a", Propagation::Background);
    world.settle();
    assert_eq!(world.names(), ["b", "child"]);
    assert_eq!(world.owners_of("child"), ["b"]);
}

/// Proves gc/owners, gc/collects.
#[test]
fn a_reference_to_nothing_is_checked_with_the_server_and_then_collected() {
    let mut world = World::default();
    world.create("child-1", &["never-was"]);
    world.create("child-2", &["never-was"]);
    world.settle();
    assert!(world.names().is_empty());
    assert_eq!(world.questions, 1, "the answer is remembered");
}

/// Proves gc/owners.
#[test]
fn an_owner_of_the_same_name_and_another_uid_is_not_the_owner() {
    let mut world = World::default();
    world.create("reborn", &[]);
    let mut owner = reference("reborn", true);
    owner.uid = "previous-life".into();
    world.create_in("default", "child", vec![owner], true);
    world.settle();
    assert_eq!(world.names(), ["reborn"]);
}

/// Proves gc/collects.
#[test]
fn a_dependent_that_is_heard_of_before_its_owner_is_kept() {
    let mut world = World::default();
    world.create_in("default", "owner", vec![], false);
    world.create("child", &["owner"]);
    let child = world.queue.pop_first().unwrap();
    world.look(&child);
    assert_eq!(world.names(), ["child", "owner"]);
    assert!(
        !world.queue.is_empty(),
        "looked at again until the owner is observed"
    );

    world.tell("owner");
    world.settle();
    assert_eq!(world.names(), ["child", "owner"]);
}

/// Proves gc/foreground.
#[test]
fn a_foreground_owner_goes_after_its_blocking_dependents() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create("child", &["owner"]);
    world.create("grandchild", &["child"]);
    world.objects.get_mut("grandchild").unwrap().1.finalizers = Some(vec!["hold".into()]);
    world.tell("grandchild");

    world.delete("owner", Propagation::Foreground);
    world.settle();
    assert_eq!(
        world.names(),
        ["child", "grandchild", "owner"],
        "held at the far end"
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
    world.settle();
    assert!(world.names().is_empty());
}

/// Proves gc/foreground.
#[test]
fn a_foreground_owner_does_not_wait_for_dependents_that_do_not_block() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create_in("default", "child", vec![reference("owner", false)], true);
    world.objects.get_mut("child").unwrap().1.finalizers = Some(vec!["hold".into()]);
    world.tell("child");
    world.delete("owner", Propagation::Foreground);
    world.settle();
    assert_eq!(
        world.names(),
        ["child"],
        "deleted, held by its own finalizer"
    );
    assert!(world.objects["child"].1.deletion_timestamp.is_some());
}

/// Proves gc/foreground.
#[test]
fn a_dependent_with_another_solid_owner_merely_loses_the_foreground_one() {
    let mut world = World::default();
    world.create("going", &[]);
    world.create("staying", &[]);
    world.create("child", &["going", "staying"]);
    world.delete("going", Propagation::Foreground);
    world.settle();
    assert_eq!(world.names(), ["child", "staying"]);
    assert_eq!(world.owners_of("child"), ["staying"]);
}

/// Proves gc/orphan.
#[test]
fn an_orphaning_owner_leaves_its_dependents_behind() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create("a", &["owner"]);
    world.create("b", &["owner"]);
    world.delete("owner", Propagation::Orphan);
    world.settle();
    assert_eq!(world.names(), ["a", "b"]);
    assert!(world.owners_of("a").is_empty() && world.owners_of("b").is_empty());
}

/// Proves gc/owners, gc/orphan.
#[test]
fn an_owner_named_in_another_version_of_its_group_is_the_owner() {
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
        world.tell("owner");
        world.create_in("default", "child", vec![in_another_version()], true);
        world.settle();
        assert_eq!(world.questions, 0, "it was observed");
        world.delete("owner", propagation);
        world.settle();
        assert_eq!(world.names(), left, "{propagation:?}");
        if propagation == Propagation::Orphan {
            assert!(world.owners_of("child").is_empty());
        }
    }
}

/// Proves gc/collects.
#[test]
fn objects_of_a_kind_that_is_no_more_are_forgotten_and_their_dependents_go() {
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
    world.settle();
    assert_eq!(world.names(), ["bystander", "child"]);
    assert_eq!(world.graph.len(), 3);

    let work = world.graph.forget_kind("example.com", "Foo");
    world.queue.extend(work);
    world.settle();
    assert_eq!(world.names(), ["bystander"]);
    assert_eq!(world.graph.len(), 1);
    assert!(world.graph.dependents.is_empty());
    assert_eq!(world.questions, 0, "there is nobody left to ask");
}

/// Proves gc/cross-namespace.
#[test]
fn an_owner_in_another_namespace_does_not_count_and_people_are_told() {
    let mut world = World::default();
    world.create_in("other", "owner", vec![], true);
    world.create("child", &["owner"]);
    world.settle();
    assert_eq!(world.names(), ["owner"]);
    assert_eq!(world.warnings, ["child → owner"]);
}

/// Proves gc/cross-namespace.
#[test]
fn a_cluster_scoped_dependent_of_a_namespaced_owner_is_never_collected() {
    let mut world = World::default();
    world.create("owner", &[]);
    world.create_in("", "child", vec![reference("owner", true)], true);
    world.settle();
    assert_eq!(world.names(), ["child", "owner"]);
}

/// Proves gc/cycles.
#[test]
fn a_circle_of_foreground_owners_is_broken() {
    let mut world = World::default();
    world.create("a", &["c"]);
    world.create("b", &["a"]);
    world.create("c", &["b"]);
    world.queue.clear();
    world.delete("a", Propagation::Foreground);
    world.settle();
    assert!(world.names().is_empty(), "{:?}", world.objects);
}

#[test]
fn an_owner_of_a_kind_nobody_knows_keeps_its_dependents() {
    let mut world = World::default();
    world.create("child", &["strange"]);
    let answers = [("strange".to_owned(), Answer::UnknownKind)].into();
    assert_eq!(
        world.graph.look("child", &answers),
        Look::Take {
            steps: vec![],
            again: true
        },
        "it may become known"
    );
}

#[test]
fn what_is_remembered_of_absent_owners_is_bounded() {
    let mut world = World::default();
    for i in 0..ABSENT_REMEMBERED + 100 {
        world.create(&format!("child-{i}"), &[&format!("nobody-{i}")]);
    }
    world.settle();
    assert_eq!(world.graph.absent.len(), ABSENT_REMEMBERED);
    assert_eq!(world.graph.len(), 0);
    assert!(world.graph.dependents.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Proves gc/collects, gc/foreground, gc/orphan.
    #[test]
    fn after_any_deletions_exactly_what_has_a_living_owner_or_none_is_left(
        // Object i may only be owned by objects before it: a forest with shared children.
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
        // The informers tell in some order of their own.
        let mut names: Vec<String> = world.objects.keys().cloned().collect();
        let shift = usize::try_from(order % 7).unwrap() % names.len();
        names.rotate_left(shift);
        for name in names {
            world.tell(&name);
        }
        world.settle();
        prop_assert_eq!(world.objects.len(), owners.len());

        for (index, policy) in deletions {
            let name = format!("o{index}");
            let propagation = [Propagation::Background, Propagation::Foreground, Propagation::Orphan][usize::from(policy)];
            world.delete(&name, propagation);
            world.settle();
            for (name, (_, meta)) in &world.objects {
                prop_assert!(meta.deletion_timestamp.is_none(), "{name} is stuck");
                for owner in meta.owner_references.iter().flatten() {
                    prop_assert!(world.objects.contains_key(&owner.uid), "{name} names {}", owner.uid);
                }
            }
        }
    }
}
