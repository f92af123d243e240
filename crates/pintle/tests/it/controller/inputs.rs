//! Controllers of watch inputs: dynamic kinds, namespaces, selectors, clusters.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use pintle::{
    cache::ObjectKey,
    conditions::Readiness,
    controller::{
        Action, Context, Controller, ControllerError, Predicate, Primary, ReconcileError,
    },
    informer::{InformerFactory, Namespaces, WatchInput},
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{World, create, delete, done, patch, slow_watches};
use crate::support::{SECOND, config_map};

fn kind_of<K: kube::Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// A Secret named after its owner, as a dynamic object.
fn secret_for(owner: &DynamicObject) -> DynamicObject {
    DynamicObject::new(&owner.name_any(), &kind_of::<Secret>())
        .within(&owner.namespace().unwrap())
        .data(json!({"type": "Opaque"}))
}

/// Proves controller/inputs, controller/read-your-writes, controller/owner-wakes.
#[tokio::test(start_paused = true)]
async fn dynamic_controller_owns_dynamic_children() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", SECOND * 2));
    let input = WatchInput::<DynamicObject>::of(kind_of::<ConfigMap>()).labels("value=ours");
    let controller = Controller::of("maps", input, &world.informers)
        .owns_from(WatchInput::<DynamicObject>::of(kind_of::<Secret>()))
        .filter(Predicate::resource_version_changed());
    let changes = Arc::new(Mutex::new(Vec::new()));
    let (log, stop) = (changes.clone(), world.shutdown.clone());
    let reconcile = move |map: Arc<DynamicObject>, cx: Context| {
        let log = log.clone();
        async move {
            let kind = kind_of::<Secret>();
            let writes = cx.of::<DynamicObject>(&kind);
            let applied = writes.apply_owned(secret_for(&map)).await?;
            let owned = cx.owned_of::<DynamicObject>(&kind)?.len();
            let listed = cx.lister_of::<DynamicObject>(&kind)?.len();
            assert_eq!(owned, listed);
            log.lock().unwrap().push((applied.is_changed(), owned));
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let running = tokio::spawn(async move { controller.run(reconcile, &stop).await });
    world.settle().await;
    let map = create(&world.maps(), &config_map("a", "ours")).await;
    create(&world.maps(), &config_map("b", "theirs")).await;
    sleep(Duration::from_millis(100)).await;
    patch(&world.maps(), "a", json!({"data": {"value": "2"}})).await;
    sleep(SECOND * 30).await;
    // Created before the cache shows it, then found there. The event of the child itself changes
    // nothing.
    let mut seen = std::mem::take(&mut *changes.lock().unwrap());
    assert_eq!(seen.remove(0), (true, 0));
    assert!(seen.iter().all(|one| *one == (false, 1)), "{seen:?}");
    let secrets: Api<Secret> = Api::namespaced(server.client(), "default");
    let child = secrets.get("a").await.unwrap();
    let owner = &child.owner_references()[0];
    assert_eq!((&*owner.api_version, &*owner.kind), ("v1", "ConfigMap"));
    assert_eq!(Some(&owner.uid), map.uid().as_ref());

    delete(&secrets, "a").await;
    sleep(SECOND * 30).await;
    let seen = std::mem::take(&mut *changes.lock().unwrap());
    assert_eq!(
        seen.first(),
        Some(&(true, 0)),
        "the owner is woken: {seen:?}"
    );
    assert!(secrets.get_opt("a").await.unwrap().is_some());
    assert!(
        secrets.get_opt("b").await.unwrap().is_none(),
        "not selected"
    );
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/inputs, controller/owner-wakes.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_dynamic_owner_of_a_namespaced_object_is_found() {
    let world = World::new();
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let owner: Namespace = serde_json::from_value(json!({"metadata": {"name": "own"}})).unwrap();
    let owner = create(&namespaces, &owner).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "own", "uid": owner.uid(),
        "controller": true,
    }]);
    create(&world.maps(), &config_map("child", "1")).await;
    patch(
        &world.maps(),
        "child",
        json!({"metadata": {"ownerReferences": reference}}),
    )
    .await;
    let input = WatchInput::<DynamicObject>::of(kind_of::<Namespace>());
    let controller = Controller::of("namespaces", input, &world.informers).owns::<ConfigMap>();
    let (seen, stop) = (world.seen.clone(), world.shutdown.clone());
    let start = tokio::time::Instant::now();
    let reconcile = move |key: ObjectKey, cx: Context| {
        let primary = cx.primary::<DynamicObject>();
        assert!(
            matches!(primary, Ok(Primary::Live(_))),
            "{key} is not a Namespace"
        );
        seen.push(&key, start);
        async { Ok(Action::await_change()) }
    };
    let _running = tokio::spawn(async move { controller.run_by_key(reconcile, &stop).await });
    world.settle().await;
    world.seen.take();
    patch(&world.maps(), "child", json!({"data": {"value": "2"}})).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["own"]);
}

/// Proves controller/inputs, controller/cleanup.
#[tokio::test(start_paused = true)]
async fn dynamic_controller_holds_a_finalizer() {
    let world = World::new();
    let input = WatchInput::<DynamicObject>::of(kind_of::<ConfigMap>()).namespace("default");
    let cleaned = Arc::new(Mutex::new(Vec::new()));
    let log = cleaned.clone();
    let controller = Controller::of("maps", input, &world.informers).finalizer(
        "example.org/cleanup",
        move |map: Arc<DynamicObject>, _: Context| {
            log.lock().unwrap().push(map.name_any());
            async { Ok::<_, ReconcileError>(()) }
        },
    );
    let stop = world.shutdown.clone();
    let reconcile = |map: Arc<DynamicObject>, _: Context| async move {
        assert!(!map.finalizers().is_empty() || map.name_any() == "kube-root-ca.crt");
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let _running = tokio::spawn(async move { controller.run(reconcile, &stop).await });
    create(&world.maps(), &config_map("a", "1")).await;
    world.settle().await;
    let map = world.maps().get("a").await.unwrap();
    assert_eq!(map.finalizers(), ["example.org/cleanup"]);
    delete(&world.maps(), "a").await;
    world.settle().await;
    assert_eq!(*cleaned.lock().unwrap(), ["a"]);
    assert!(world.maps().get_opt("a").await.unwrap().is_none());
}

/// Proves controller/inputs, conditions/readiness, controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn dynamic_controller_reports_status_and_applies_sets() {
    let server = ApiServer::builder().build();
    let world = World::on(server.client());
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(server.client(), "default");
    let budget = json!({"metadata": {"name": "a"}, "spec": {"minAvailable": 1}});
    create(&budgets, &serde_json::from_value(budget).unwrap()).await;
    // A condition set by another writer must survive.
    let foreign = json!({"type": "Foreign", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [foreign], "currentHealthy": 1}});
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(status);
    budgets.patch_status("a", &params, &patch).await.unwrap();

    let kind = kind_of::<PodDisruptionBudget>();
    let input = WatchInput::<DynamicObject>::of(kind.clone());
    let secrets = WatchInput::<DynamicObject>::of(kind_of::<Secret>());
    let controller = Controller::of("budgets", input, &world.informers).owns_from(secrets);
    let wrote = Arc::new(Mutex::new(Vec::new()));
    let (log, stop) = (wrote.clone(), world.shutdown.clone());
    let reconcile = move |budget: Arc<DynamicObject>, cx: Context| {
        let (log, kind) = (log.clone(), kind.clone());
        async move {
            let (writes, secrets) = (cx.of::<DynamicObject>(&kind), kind_of::<Secret>());
            let set = cx
                .apply_set()
                .child_of(secret_for(&budget), &secrets)
                .await?;
            let mut step = log.lock().unwrap().len();
            let written = match step {
                0 => {
                    let mut status = budget.data["status"].clone();
                    status["desiredHealthy"] = json!(7);
                    writes.update_status(&budget, &status).await?
                }
                1 => {
                    let error = std::io::Error::other("no quorum");
                    writes
                        .report_error(&budget, "Ready", "NoQuorum", &error)
                        .await?
                }
                _ => {
                    writes
                        .report(&budget, Readiness::ready("UpToDate", ""))
                        .await?
                }
            };
            step += usize::from(set.is_changed()) * 100;
            log.lock().unwrap().push((step, written));
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let running = tokio::spawn(async move { controller.run(reconcile, &stop).await });
    sleep(SECOND * 30).await;
    let wrote = std::mem::take(&mut *wrote.lock().unwrap());
    assert_eq!(wrote[..4], [(100, true), (1, true), (2, true), (3, false)]);
    let status = budgets.get("a").await.unwrap().status.unwrap();
    assert_eq!(
        (status.current_healthy, status.desired_healthy),
        (Some(1), Some(7))
    );
    assert_eq!(status.observed_generation, Some(1));
    let conditions = status.conditions.unwrap();
    let conditions: Vec<_> = conditions
        .iter()
        .map(|one| (&*one.type_, &*one.status, &*one.reason))
        .collect();
    let expected = [("Foreign", "True", "R"), ("Ready", "True", "UpToDate")];
    assert_eq!(conditions, expected);
    let secrets: Api<Secret> = Api::namespaced(server.client(), "default");
    assert!(secrets.get_opt("a").await.unwrap().is_some());
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Metadata does not include the status, so a write from it would lose fields.
///
/// Proves controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn status_is_not_written_from_metadata() {
    let world = World::new();
    create(&world.maps(), &config_map("a", "1")).await;
    let kind = kind_of::<ConfigMap>();
    let input = WatchInput::<PartialObjectMeta>::of(kind.clone()).labels("value");
    let controller = Controller::of("maps", input, &world.informers);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (log, stop) = (errors.clone(), world.shutdown.clone());
    let reconcile = move |map: Arc<PartialObjectMeta>, cx: Context| {
        let (log, kind) = (log.clone(), kind.clone());
        async move {
            let writes = cx.of::<PartialObjectMeta>(&kind);
            let reported = writes.report(&map, Readiness::ready("UpToDate", "")).await;
            let updated = writes.update_status(&map, &json!({"phase": "x"})).await;
            let errors = [reported, updated].map(|written| written.unwrap_err().to_string());
            log.lock().unwrap().extend(errors);
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let _running = tokio::spawn(async move { controller.run(reconcile, &stop).await });
    world.settle().await;
    let errors = std::mem::take(&mut *errors.lock().unwrap());
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(
            error.contains("only the metadata of the object is cached"),
            "{error}"
        );
    }
}

/// Proves controller/inputs.
#[tokio::test(start_paused = true)]
async fn lister_is_found_by_type_kind_and_input() {
    let world = World::new();
    world.account("s").await;
    for (name, value) in [("a", "x"), ("b", "y")] {
        create(&world.maps(), &config_map(name, value)).await;
    }
    let of = |value: &str| WatchInput::<ConfigMap>::new().labels(format!("value={value}"));
    let metadata = WatchInput::<PartialObjectMeta>::of(kind_of::<ConfigMap>());
    let (x, y) = (of("x"), of("y"));
    let controller = world
        .controller()
        .watches_from(x.clone(), |_, _| Vec::new())
        .watches_from(y.clone(), |_, _| Vec::new())
        .watches_from(metadata, |_, _| Vec::new());
    let plain = world
        .controller()
        .watches_from(x.clone(), |_, _| Vec::new());
    let plain = plain.watches::<ConfigMap>(|_, _| Vec::new());
    let check = move |cx: &Context, expected: Vec<&str>| -> Result<(), ReconcileError> {
        let names = |mut names: Vec<String>| {
            names.retain(|name| name != "kube-root-ca.crt");
            names.sort_unstable();
            assert_eq!(names, expected);
        };
        let maps = cx.lister::<ConfigMap>()?.list();
        names(maps.iter().map(|map| map.key().name().to_owned()).collect());
        Ok(())
    };
    for (controller, expected) in [(controller, vec!["a"]), (plain, vec!["a", "b"])] {
        let world = World::on(world.client.clone());
        let (x, y) = (x.clone(), y.clone());
        let running = world.run(controller, move |_, cx| {
            let (x, y, expected) = (x.clone(), y.clone(), expected.clone());
            async move {
                check(&cx, expected.clone())?;
                let named = |input| cx.lister_from(input).map(|lister| lister.list().len());
                assert_eq!(named(&x)?, 1);
                if expected == ["a"] {
                    assert_eq!(named(&y)?, 1);
                    let all = cx.lister_of::<PartialObjectMeta>(&kind_of::<ConfigMap>())?;
                    assert!(all.len() >= 2);
                    assert!(
                        cx.lister_of::<DynamicObject>(&kind_of::<ConfigMap>())
                            .is_err()
                    );
                    assert!(
                        cx.lister_of::<PartialObjectMeta>(&kind_of::<Secret>())
                            .is_err()
                    );
                } else {
                    let error = named(&y).unwrap_err().to_string();
                    assert!(error.contains("has no cache of ConfigMap"), "{error}");
                }
                Ok(Action::await_change())
            }
        });
        world.settle().await;
        assert!(world.seen.take().contains(&"s".to_owned()));
        world.shutdown.cancel();
        let stopped = running.await.unwrap().unwrap();
        assert_eq!((stopped.waiting, stopped.delayed), (0, 0), "a check failed");
    }
}

/// Proves controller/inputs, informer/namespaces.
#[tokio::test(start_paused = true)]
async fn controller_follows_namespaces_while_it_runs() {
    let world = World::new();
    let account = |namespace: &'static str, name: &'static str| {
        let client = world.client.clone();
        async move {
            let namespace_object =
                serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let _ = namespaces
                .create(&kube::api::PostParams::default(), &namespace_object)
                .await;
            let account = json!({"metadata": {"name": name}});
            let account: ServiceAccount = serde_json::from_value(account).unwrap();
            create(&Api::namespaced(client, namespace), &account).await
        }
    };
    account("blue", "b").await;
    account("green", "g").await;
    let tenants = Namespaces::new(["blue"]);
    let input = WatchInput::<ServiceAccount>::new().follow_namespaces(&tenants);
    let controller = Controller::of("accounts", input, &world.informers);
    let running = world.run(controller, done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["b"]);
    tenants.add("green");
    world.settle().await;
    assert_eq!(world.seen.take(), ["g"]);
    tenants.remove("blue");
    world.settle().await;
    assert_eq!(
        world.seen.take(),
        ["b"],
        "keys of a removed namespace are reconciled once more"
    );
    account("blue", "b2").await;
    account("green", "g2").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["g2"]);
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/inputs, controller/clusters.
#[tokio::test(start_paused = true)]
async fn function_maps_objects_of_another_cluster_to_keys() {
    let east = ApiServer::builder().build();
    let world = World::new();
    world.account("east").await;
    let there = Api::<ConfigMap>::namespaced(east.client(), "default");
    create(&there, &config_map("east", "x")).await;
    let remote = WatchInput::<ConfigMap>::new().cluster("east", east.client());
    let secrets = WatchInput::<Secret>::new().cluster("east", east.client());
    let controller = world
        .controller()
        .watches::<ConfigMap>(|_, _| Vec::new())
        .watches_from(secrets, |_, _| Vec::new())
        .watches_from(remote.clone(), |_, _| {
            vec![ObjectKey::namespaced("default", "east")]
        });
    let found = Arc::new(Mutex::new(Vec::new()));
    let log = found.clone();
    let running = world.run(controller, move |key, cx| {
        let (remote, log) = (remote.clone(), log.clone());
        async move {
            if key.name() == "east" {
                let here = cx.lister::<ConfigMap>()?.namespace("default").get("east");
                let there = cx.lister_from(&remote)?.list();
                let there = there
                    .iter()
                    .filter(|map| map.key().name().starts_with("east"))
                    .count();
                // A kind that is watched only in another cluster is not found by its type.
                assert!(cx.lister::<Secret>().is_err());
                log.lock().unwrap().push((here.is_some(), there));
                // Writes go to the controller's own cluster; the other cluster's cache does not
                // have to show them.
                if here.is_none() {
                    cx.create(&config_map_in("default", "east")).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    world.settle().await;
    assert_eq!(*found.lock().unwrap(), [(false, 1)]);
    create(&there, &config_map("east-2", "x")).await;
    world.settle().await;
    assert_eq!(*found.lock().unwrap(), [(false, 1), (true, 2)]);
    assert!(world.maps().get_opt("east").await.unwrap().is_some());
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

fn config_map_in(namespace: &str, name: &str) -> ConfigMap {
    let mut map = config_map(name, "home");
    map.metadata.namespace = Some(namespace.to_owned());
    map
}

/// Proves controller/clusters.
#[tokio::test(start_paused = true)]
async fn controller_works_on_the_cluster_of_its_own_kind() {
    let (home, east) = (ApiServer::builder().build(), ApiServer::builder().build());
    let informers = InformerFactory::new(home.client());
    let input = WatchInput::<ConfigMap>::new()
        .labels("value=x")
        .cluster("east", east.client());
    let there = Api::<ConfigMap>::namespaced(east.client(), "default");
    create(&there, &config_map("a", "x")).await;
    let stop = CancellationToken::new();
    let controller = Controller::of("maps", input, &informers).owns::<Secret>();
    let reconcile = |map: Arc<ConfigMap>, cx: Context| async move {
        let mut child = Secret::default();
        child.metadata.name = Some(map.name_any());
        cx.apply_owned(child).await.map(|_| Action::await_change())
    };
    let token = stop.clone();
    let running = tokio::spawn(async move { controller.run(reconcile, &token).await });
    sleep(SECOND).await;
    let secrets = |server: &ApiServer| Api::<Secret>::namespaced(server.client(), "default");
    assert!(secrets(&east).get_opt("a").await.unwrap().is_some());
    delete(&secrets(&east), "a").await;
    sleep(SECOND).await;
    assert!(
        secrets(&east).get_opt("a").await.unwrap().is_some(),
        "owned there"
    );
    let at_home = secrets(&home).list(&ListParams::default()).await.unwrap();
    assert!(at_home.items.is_empty());
    stop.cancel();
    running.await.unwrap().unwrap();

    // Objects of another cluster cannot be owned.
    let owned = WatchInput::<Secret>::new().cluster("west", home.client());
    let controller = Controller::<ConfigMap>::new("maps", &informers).owns_from(owned);
    let stopped = controller.run_by_key(done, &CancellationToken::new()).await;
    let error = stopped.unwrap_err();
    assert!(matches!(error, ControllerError::OwnedElsewhere { .. }));
    assert!(
        error
            .to_string()
            .contains("cannot own Secret in cluster west"),
        "{error}"
    );
}
