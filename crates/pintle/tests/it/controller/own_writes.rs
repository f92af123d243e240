//! Read your own writes: a reconcile sees what the previous one of its key wrote.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Namespace, Secret, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, Controller, ReconcileError},
    informer::{SharedInformer, WatchInput},
    metrics::Metrics,
    source::{KubeSource, Scope},
};
use pintle_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::{World, named, slow_watches};

/// A child with a generated name.
fn child_in(namespace: &str) -> Secret {
    let labels = BTreeMap::from([("parent".to_owned(), "parent".to_owned())]);
    let metadata = ObjectMeta {
        generate_name: Some("child-".to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels),
        ..ObjectMeta::default()
    };
    Secret {
        metadata,
        ..Secret::default()
    }
}

/// Creates a child unless the cache shows one. This is correct only if the cache shows the previous
/// one.
async fn create_one_child(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ServiceAccount>()?.get(&key).is_none() || key.name() != "parent" {
        return Ok(Action::await_change());
    }
    let children = cx.lister::<Secret>()?.list();
    if !children
        .iter()
        .any(|child| child.labels().get("parent") == Some(key.name()))
    {
        cx.create(&child_in("default")).await?;
    }
    Ok(Action::await_change())
}

/// Changes the parent faster than the cache of its children follows. Returns the number of children
/// created.
async fn children_created(
    controller: impl FnOnce(Controller<ServiceAccount>) -> Controller<ServiceAccount>,
) -> usize {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let _running = world.run(
        controller(world.controller().watches::<Secret>(|_, _| Vec::new())),
        create_one_child,
    );
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    for round in 0..5 {
        sleep(Duration::from_millis(100)).await;
        world.relabel("parent", round).await;
    }
    sleep(Duration::from_secs(60)).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let all = secrets.list(&ListParams::default()).await.unwrap();
    all.iter()
        .filter(|secret| secret.labels().contains_key("parent"))
        .count()
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn reconcile_sees_the_previous_create() {
    let stale = children_created(Controller::without_reading_own_writes).await;
    assert!(stale > 1, "a stale cache creates duplicates: {stale}");
    assert_eq!(children_created(|controller| controller).await, 1);
}

/// Creates a Secret in `namespace` at each run of the parent.
async fn create_in(
    namespace: &'static str,
    key: ObjectKey,
    cx: Context,
) -> Result<Action, ReconcileError> {
    if key.name() == "parent" {
        cx.create(&child_in(namespace)).await?;
    }
    Ok(Action::await_change())
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn key_runs_anyway_when_its_writes_do_not_appear() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(40)));
    let metrics = Metrics::new();
    let controller = world
        .controller()
        .watches::<Secret>(|_, _| Vec::new())
        .metrics(&metrics)
        .read_own_writes_within(Duration::from_secs(7));
    let _running = world.run(controller, |key, cx| create_in("default", key, cx));
    sleep(Duration::from_secs(200)).await;
    world.account("parent").await;
    sleep(Duration::from_millis(100)).await;
    world.seen.take();
    world.relabel("parent", 1).await;
    sleep(Duration::from_secs(5)).await;
    assert!(world.seen.take().is_empty(), "parked");
    // The only worker is free in the meantime.
    world.account("other").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen.take(), ["other"]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.seen.take(), ["parent"]);
    for counted in ["parked", "stale"] {
        let line =
            format!(r#"controller_runtime_reconcile_{counted}_total{{controller="accounts"}} 1"#);
        assert!(metrics.encode().contains(&line), "{line}");
    }
}

/// Deletes a child while the cache of children in `scope` is two seconds behind. Returns how each
/// reconcile sees the child (`None` if it is gone, otherwise whether it is being deleted), and
/// whether one of them ran on a stale cache.
async fn observe_deletion(
    scope: Scope,
    finalizers: Option<Vec<String>>,
) -> (Vec<Option<bool>>, bool) {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let metadata = ObjectMeta {
        finalizers,
        labels: Some(BTreeMap::from([("team".to_owned(), "ours".to_owned())])),
        ..named("child")
    };
    let secret = Secret {
        metadata,
        ..Secret::default()
    };
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let (seen, metrics) = (Arc::new(Mutex::new(Vec::new())), Metrics::new());
    let observed = Arc::clone(&seen);
    let secrets = KubeSource::<Secret>::new(world.client.clone(), scope);
    let secrets = SharedInformer::<Secret>::new(secrets);
    world.informers.adopt(&WatchInput::new(), &secrets);
    let controller = world
        .controller()
        .watches::<Secret>(|_, _| Vec::new())
        .metrics(&metrics);
    let _running = world.run(controller, move |key, cx| {
        let observed = Arc::clone(&observed);
        async move {
            if key.name() == "parent" {
                let child = cx.lister::<Secret>()?.namespace("default").get("child");
                let deleting = child.as_ref().map(Object::is_being_deleted);
                observed.lock().unwrap().push(deleting);
                if let Some(child) = child.filter(|_| deleting == Some(false)) {
                    cx.delete(&child).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(60)).await;
    world.account("parent").await;
    for round in 0..3 {
        sleep(Duration::from_millis(100)).await;
        world.relabel("parent", round).await;
    }
    sleep(Duration::from_secs(60)).await;
    let stale = r#"controller_runtime_reconcile_stale_total{controller="accounts"} 0"#;
    let seen = seen.lock().unwrap().clone();
    (seen, !metrics.encode().contains(stale))
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn reconcile_does_not_see_deleted_objects() {
    for scope in [Scope::all(), Scope::all().labels("team=ours")] {
        let case = scope.to_string();
        let (seen, stale) = observe_deletion(scope, None).await;
        assert_eq!(seen, [Some(false), None], "{case}");
        assert!(!stale, "{case}");
    }
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn reconcile_sees_a_deleted_object_held_by_a_finalizer() {
    let held = vec!["example.com/hold".to_owned()];
    let (seen, stale) = observe_deletion(Scope::all(), Some(held)).await;
    assert_eq!(seen, [Some(false), Some(true)]);
    assert!(!stale, "the removal is not awaited");
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn write_that_a_cache_may_never_show_is_not_awaited() {
    type Source = KubeSource<Secret>;
    let late: fn(Source) -> Source = |secrets| {
        secrets.tweak_list_options(|options| options.label_selector = Some("team=ours".into()))
    };
    let paged: fn(Source) -> Source =
        |secrets| secrets.tweak_list_options(|options| options.limit = Some(50));
    let plain: fn(Source) -> Source = |secrets| secrets;
    let here = || Scope::namespace("default");
    for (scope, tweak, written, waits) in [
        (Scope::all(), plain, "elsewhere", true),
        (here(), plain, "default", true),
        (here(), plain, "elsewhere", false),
        (Scope::all().labels("team=ours"), plain, "default", false),
        (here().fields("metadata.name=x"), plain, "default", false),
        (Scope::all(), late, "default", false),
        (Scope::all(), paged, "default", true),
    ] {
        let case = format!("Secrets {scope}, one written in {written}");
        let server = ApiServer::builder().build();
        let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(40)));
        let elsewhere = Namespace {
            metadata: named("elsewhere"),
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        namespaces
            .create(&PostParams::default(), &elsewhere)
            .await
            .unwrap();
        let secrets = tweak(KubeSource::new(world.client.clone(), scope));
        let secrets = SharedInformer::<Secret>::new(secrets);
        world.informers.adopt(&WatchInput::new(), &secrets);
        let controller = world.controller().watches::<Secret>(|_, _| Vec::new());
        let _running = world.run(controller, move |key, cx| create_in(written, key, cx));
        sleep(Duration::from_secs(200)).await;
        world.account("parent").await;
        world.settle().await;
        assert_eq!(world.seen.take(), ["parent"], "{case}");
        world.relabel("parent", 1).await;
        world.settle().await;
        assert_eq!(world.seen.take().is_empty(), waits, "{case}");
    }
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_parked_keys() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(40)));
    let controller = world
        .controller()
        .watches::<Secret>(|_, _| Vec::new())
        .read_own_writes_within(Duration::from_secs(20));
    let running = world.run(controller, |key, cx| create_in("default", key, cx));
    sleep(Duration::from_secs(200)).await;
    world.account("parent").await;
    world.settle().await;
    world.relabel("parent", 1).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["parent"], "the second run waits");
    let start = Instant::now();
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(stopped.unfinished.is_empty(), "{stopped:?}");
    // The key counts as waiting or delayed, depending on whether it is released before or after the
    // queue shuts down.
    assert_eq!(stopped.waiting + stopped.delayed, 1);
}
