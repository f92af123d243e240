//! Every duration setting accepts any value.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use pintle::{
    controller::Action,
    informer::SharedInformer,
    reflector::Backoff,
    source::{KubeSource, Scope},
};
use serde_json::json;
use tokio::time::sleep;

use super::World;

const LONG: Duration = Duration::MAX;

/// Proves controller/any-duration.
#[tokio::test(start_paused = true)]
async fn controller_accepts_any_duration() {
    let world = World::new();
    world.account("a").await;
    let controller = world
        .controller()
        .owns::<ConfigMap>()
        .sync_timeout(LONG)
        .timeout(LONG)
        .read_own_writes_within(LONG)
        .stop_within(LONG);
    let running = world.run(controller, |key, cx| async move {
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        let patch = kube::api::Patch::Merge(label);
        cx.patch::<ServiceAccount, _>(&key, &patch).await?;
        Ok(Action::requeue_after(LONG))
    });
    world.settle().await;
    let runs = world.seen.take();
    assert!(
        !runs.is_empty() && runs.iter().all(|name| name == "a"),
        "{runs:?}"
    );
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/any-duration.
#[tokio::test(start_paused = true)]
async fn informer_accepts_any_duration() {
    let world = World::new();
    let source =
        KubeSource::<ServiceAccount>::new(world.client.clone(), Scope::all()).idle_timeout(LONG);
    let accounts = SharedInformer::<ServiceAccount>::builder(source)
        .resync(LONG)
        .reflector(|reflector| {
            reflector
                .watchdog(Some(LONG))
                .watch_list_timeouts(LONG, LONG)
                .max_internal_error_retry(LONG)
                .min_watch_timeout(LONG)
                .backoff(Backoff {
                    base: LONG,
                    cap: LONG,
                    reset_after: LONG,
                    ..Backoff::default()
                })
        })
        .build();
    let _watching = accounts.handler().resync(LONG).on_event(|_| {});
    let _default = accounts.on_event(|_| {});
    let (running, stop) = (accounts.clone(), world.shutdown.clone());
    let running = tokio::spawn(async move { running.run(&stop).await });
    assert!(accounts.synced().await);
    // Long enough for bookmarks, which feed the watchdog.
    sleep(Duration::from_secs(600)).await;
    world.account("late").await;
    world.settle().await;
    assert!(!running.is_finished());
    assert_eq!(accounts.lister().namespace("default").list().len(), 1);
}

/// Proves controller/any-duration.
#[tokio::test(start_paused = true)]
async fn factory_accepts_any_duration() {
    let world = World::new();
    let informers = world
        .informers
        .clone()
        .resync(LONG)
        .resync_of::<ConfigMap>(LONG);
    let accounts = informers.informer::<ServiceAccount>();
    let maps = informers.informer::<ConfigMap>();
    // A handler with a shorter period makes the informer compare all handlers' periods.
    let _often = maps
        .handler()
        .resync(Duration::from_secs(30))
        .on_event(|_| {});
    let _never = maps.handler().resync(LONG).on_event(|_| {});
    informers.start(&world.shutdown);
    informers.wait_for_sync_within(LONG).await.unwrap();
    sleep(Duration::from_secs(120)).await;
    world.account("late").await;
    world.settle().await;
    assert_eq!(accounts.lister().namespace("default").list().len(), 1);
    assert!(!maps.is_stopped());
}
