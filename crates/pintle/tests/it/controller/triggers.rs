//! Which changes enqueue which keys, and at which priority.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, ResourceExt, api::PostParams};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Controller, ControllerError, Predicate},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{World, controlled_by, create, delete, done, named, patch};

/// Proves controller/owner-wakes.
#[tokio::test(start_paused = true)]
async fn change_enqueues_the_owner_by_group_and_kind() {
    let world = World::new();
    let (a, b) = (world.account("a").await, world.account("b").await);
    let _running = world.run(world.controller().owns::<ConfigMap>(), done);
    world.settle().await;
    world.seen.take();

    world.map("ours", Some(controlled_by("v1", &a))).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);

    world
        .map(
            "of-another-group",
            Some(controlled_by("other.example/v1", &b)),
        )
        .await;
    world.map("without-owner", None).await;
    world.settle().await;
    assert!(world.seen.take().is_empty());

    // When the owner changes, the previous one is enqueued too.
    let moved = json!({"metadata": {"ownerReferences": [controlled_by("v1", &b)]}});
    patch(&world.maps(), "ours", moved).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a", "b"]);

    delete(&world.maps(), "ours").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["b"]);
}

/// Proves controller/owner-wakes.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_owner_of_a_namespaced_object_is_found() {
    let world = World::new();
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = Node {
        metadata: named("n1"),
        ..Node::default()
    };
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let (seen, start) = (world.seen.clone(), Instant::now());
    let (informers, shutdown) = (world.informers.clone(), world.shutdown.clone());
    let _running = tokio::spawn(async move {
        let note = move |key: ObjectKey, _| {
            assert_eq!(key.namespace(), None);
            seen.push(&key, start);
            async { Ok(Action::await_change()) }
        };
        Controller::<Node>::new("nodes", &informers)
            .owns::<ConfigMap>()
            .run_by_key(note, &shutdown)
            .await
    });
    world.settle().await;
    world.seen.take();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid().unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    world.map("of-the-node", Some(owner)).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["n1"]);
}

/// Proves controller/owner-wakes.
#[tokio::test(start_paused = true)]
async fn only_the_controlling_owner_is_enqueued() {
    let world = World::new();
    let (a, b) = (world.account("a").await, world.account("b").await);
    let _running = world.run(world.controller().owns::<ConfigMap>(), done);
    world.settle().await;
    world.seen.take();
    let also = OwnerReference {
        controller: None,
        ..controlled_by("v1", &b)
    };
    world.map("shared", [controlled_by("v1", &a), also]).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Proves controller/owner-wakes, controller/predicates.
#[tokio::test(start_paused = true)]
async fn mapper_sees_old_and_new_state_and_enqueues_each_key_once() {
    let world = World::new();
    for name in ["old", "new", "other"] {
        world.account(name).await;
    }
    let map = ConfigMap {
        metadata: named("pointer"),
        data: Some(BTreeMap::from([("to".to_owned(), "old".to_owned())])),
        ..ConfigMap::default()
    };
    world
        .maps()
        .create(&PostParams::default(), &map)
        .await
        .unwrap();
    let controller = world.controller().watches::<ConfigMap>(|map, _| {
        let data = map.get().unwrap().data.clone().unwrap_or_default();
        vec![ObjectKey::namespaced("default", &data["to"]); 2]
    });
    let _running = world.run(controller, done);
    world.settle().await;
    world.seen.take();

    patch(&world.maps(), "pointer", json!({"data": {"to": "new"}})).await;
    world.settle().await;
    let mut enqueued = world.seen.take();
    enqueued.sort();
    assert_eq!(enqueued, ["new", "old"]);
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn predicate_drops_updates_but_never_deletions() {
    let world = World::new();
    world.account("a").await;
    let nothing = Predicate::new(|_, _| false);
    let _running = world.run(world.controller().filter(nothing), done);
    world.settle().await;
    assert!(world.seen.take().is_empty());

    world.relabel("a", 1).await;
    world.settle().await;
    assert!(world.seen.take().is_empty());

    delete(&world.accounts(), "a").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn label_predicate_admits_label_changes_only() {
    let world = World::new();
    world.account("a").await;
    let _running = world.run(world.controller().filter(Predicate::labels_changed()), done);
    world.settle().await;
    world.seen.take();
    for (change, runs) in [
        (json!({"metadata": {"annotations": {"x": "y"}}}), 0),
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
    ] {
        patch(&world.accounts(), "a", change).await;
        world.settle().await;
        assert_eq!(world.seen.take().len(), runs);
    }
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn predicates_combine_and_select_by_label() {
    let world = World::new();
    for name in ["plain", "ours"] {
        world.account(name).await;
    }
    let ours = || Predicate::labels_match("team=ours".parse().unwrap());
    // Has our label or a changed annotation, and is not a resync.
    let interesting = ours()
        .or((!ours()).and(Predicate::annotations_changed()))
        .and(Predicate::resource_version_changed());
    let _running = world.run(world.controller().filter(interesting), done);
    world.settle().await;
    world.seen.take();
    for (name, change, runs) in [
        ("plain", json!({"metadata": {"labels": {"x": "y"}}}), 0),
        ("plain", json!({"metadata": {"annotations": {"x": "y"}}}), 1),
        ("ours", json!({"metadata": {"labels": {"team": "ours"}}}), 1),
        ("ours", json!({"metadata": {"labels": {"x": "y"}}}), 1),
    ] {
        patch(&world.accounts(), name, change).await;
        world.settle().await;
        assert_eq!(world.seen.take().len(), runs, "{name}");
    }
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn every_filter_must_admit_a_change() {
    let world = World::new();
    world.account("a").await;
    let controller = world
        .controller()
        .filter(Predicate::labels_changed())
        .filter(Predicate::annotations_changed());
    let _running = world.run(controller, done);
    world.settle().await;
    world.seen.take();
    for (change, runs) in [
        (json!({"labels": {"x": "1"}}), 0),
        (json!({"annotations": {"x": "1"}}), 0),
        (json!({"labels": {"x": "2"}, "annotations": {"x": "2"}}), 1),
    ] {
        patch(&world.accounts(), "a", json!({ "metadata": change })).await;
        world.settle().await;
        assert_eq!(world.seen.take().len(), runs);
    }
}

/// Proves controller/user-panics.
#[tokio::test(start_paused = true)]
async fn panicking_predicate_or_mapper_does_not_lose_other_keys() {
    let world = World::new();
    let account = world.account("a").await;
    let controller = world
        .controller()
        .filter(Predicate::new(|_, _| panic!("oh no")))
        .watches::<ConfigMap>(|_, _| panic!("oh no"))
        .owns::<ConfigMap>();
    let _running = world.run(controller, done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    world.map("ours", Some(controlled_by("v1", &account))).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Waits for `after`, creates an object while fifty others are reconciled for a second each, and
/// asserts that it overtakes them.
async fn assert_overtakes(world: World, after: Duration) {
    for number in 0..50 {
        world.account(&format!("bulk-{number:02}")).await;
    }
    let _running = world.run(world.controller(), |_, _| async {
        sleep(Duration::from_secs(1)).await;
        Ok(Action::await_change())
    });
    sleep(after).await;
    world.seen.take();
    world.account("fresh").await;
    sleep(Duration::from_secs(5)).await;
    let seen = world.seen.take();
    let place = seen.iter().position(|name| name == "fresh");
    assert!(place.is_some_and(|place| place <= 1), "{seen:?}");
}

/// Proves controller/starts-synced.
#[tokio::test(start_paused = true)]
async fn change_overtakes_the_initial_list() {
    assert_overtakes(World::new(), Duration::from_millis(1500)).await;
}

/// Proves controller/starts-synced.
#[tokio::test(start_paused = true)]
async fn change_overtakes_a_resync() {
    let mut world = World::new();
    world.informers = world.informers.resync(Duration::from_secs(10));
    // The first list is done, and the last resync is always in progress.
    assert_overtakes(world, Duration::from_millis(200_500)).await;
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn predicate_of_a_watched_kind_never_drops_deletions() {
    let world = World::new();
    world.account("a").await;
    let nothing = Predicate::new(|_, _| false);
    let controller = world
        .controller()
        .watches_if::<ConfigMap>(nothing, |_, _| vec![ObjectKey::namespaced("default", "a")]);
    let _running = world.run(controller, done);
    world.settle().await;
    world.seen.take();
    world.map("pointer", None).await;
    world.settle().await;
    assert!(world.seen.take().is_empty());
    delete(&world.maps(), "pointer").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Proves controller/references.
#[tokio::test(start_paused = true)]
async fn change_enqueues_the_objects_that_name_it() {
    let world = World::new();
    let client = world.client.clone();
    let other = Namespace {
        metadata: named("other"),
        ..Namespace::default()
    };
    create(&Api::all(client.clone()), &other).await;
    let account = async |namespace: &str, name: &str, uses: &str| {
        let mut account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        account.annotations_mut().insert("uses".into(), uses.into());
        create(&Api::namespaced(client.clone(), namespace), &account).await
    };
    account("default", "a", "shared").await;
    account("default", "b", "own").await;
    account("other", "c", "shared").await;
    let node = Node {
        metadata: named("shared"),
        ..Node::default()
    };
    create(&Api::all(client.clone()), &node).await;
    world.map("shared", None).await;
    let controller = world
        .controller()
        .watches_referenced::<ConfigMap>("/metadata/annotations/uses")
        .watches_referenced::<Node>("/metadata/annotations/uses");
    let running = world.run(controller, done);
    world.settle().await;
    world.seen.take();

    // A namespaced object can be referenced only from its own namespace, a cluster-scoped one from
    // any.
    patch(&world.maps(), "shared", json!({"data": {"k": "v"}})).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    let label = json!({"metadata": {"labels": {"k": "v"}}});
    patch(&Api::<Node>::all(client.clone()), "shared", label).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a", "c"]);

    // The index follows the references.
    let uses = json!({"metadata": {"annotations": {"uses": "shared"}}});
    patch(&world.accounts(), "b", uses).await;
    let uses = json!({"metadata": {"annotations": {"uses": null}}});
    patch(&world.accounts(), "a", uses).await;
    world.settle().await;
    world.seen.take();
    delete(&world.maps(), "shared").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["b"]);
    assert!(!running.is_finished());
}

/// Proves controller/references.
#[tokio::test(start_paused = true)]
async fn invalid_reference_path_is_reported_at_start() {
    let world = World::new();
    let controller = world
        .controller()
        .watches_referenced::<ConfigMap>("spec.configMapName");
    let error = world.run(controller, done).await.unwrap().unwrap_err();
    assert!(matches!(error, ControllerError::InvalidReference { .. }));
    assert!(error.to_string().contains("\"spec.configMapName\""));
}
