//! How a controller starts and stops, and the report it returns.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Controller},
    queue::WorkQueue,
};
use pintle_apiserver::ApiServer;
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{World, done, slow_reads};

/// Proves controller/starts-synced.
#[tokio::test(start_paused = true)]
async fn first_reconcile_waits_for_all_caches() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_reads(&server, "configmaps", Duration::from_secs(20)));
    world.account("a").await;
    for name in ["one", "two", "three"] {
        world.map(name, None).await;
    }
    let full = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&full);
    let controller = world.controller().watches::<ConfigMap>(|_, _| Vec::new());
    let _running = world.run(controller, move |_, cx| {
        count.store(cx.lister::<ConfigMap>().unwrap().len(), Ordering::SeqCst);
        async { Ok(Action::await_change()) }
    });
    sleep(Duration::from_secs(120)).await;
    // The namespace may hold others.
    assert!(full.load(Ordering::SeqCst) >= 3);
    assert!(world.seen.take_times()[0] >= 20_000);
}

/// Proves controller/starts-synced.
#[tokio::test(start_paused = true)]
async fn unfilled_cache_is_an_error_that_names_its_kind() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_reads(
        &server,
        "configmaps",
        Duration::from_secs(100_000),
    ));
    world.account("a").await;
    let controller = world
        .controller()
        .owns::<ConfigMap>()
        .sync_timeout(Duration::from_secs(30));
    let start = Instant::now();
    let error = world.run(controller, done).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ConfigMap"), "{error}");
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert!(world.seen.take().is_empty());
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn shutdown_while_caches_fill_is_immediate() {
    let server = ApiServer::builder().build();
    let never = Duration::from_secs(100_000);
    let world = World::on(slow_reads(&server, "configmaps", never));
    world.account("a").await;
    // The informers are shared and keep running.
    world.informers.start(&CancellationToken::new());
    let running = world.run(world.controller().owns::<ConfigMap>(), done);
    world.settle().await;
    let start = Instant::now();
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(world.seen.take().is_empty());
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn shutdown_finishes_running_reconciles_only() {
    let world = World::new();
    for name in ["a", "b"] {
        world.account(name).await;
    }
    let finished = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finished);
    let running = world.run(world.controller(), move |_, _| {
        let count = Arc::clone(&count);
        async move {
            sleep(Duration::from_secs(10)).await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(5)).await;
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(finished.load(Ordering::SeqCst), 1, "the running one");
    assert!(stopped.unfinished.is_empty());
    assert!(stopped.waiting >= 1, "{stopped:?}");
}

/// Proves controller/stop, queue/yields.
#[tokio::test(start_paused = true)]
async fn busy_controller_yields_and_stops_on_shutdown() {
    // Ends the test if the controller starves everything else.
    const ENOUGH: usize = 100_000;
    let world = World::new();
    let queue = WorkQueue::new("accounts");
    let runs = Arc::new(AtomicUsize::new(ENOUGH));
    let (count, again) = (Arc::clone(&runs), queue.clone());
    let running = world.run(world.controller().queue(queue.clone()), move |key, _| {
        // A key added while it is being processed runs again next.
        if count.fetch_add(1, Ordering::SeqCst) < ENOUGH {
            again.add(key);
        }
        ready(Ok(Action::await_change()))
    });
    world.account("busy").await;
    world.settle().await;
    runs.store(0, Ordering::SeqCst);
    queue.add(ObjectKey::namespaced("default", "busy"));
    while runs.load(Ordering::SeqCst) == 0 {
        yield_now().await;
    }
    world.shutdown.cancel();
    let before = runs.load(Ordering::SeqCst);
    assert!(before < ENOUGH, "other tasks ran");
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(
        runs.load(Ordering::SeqCst),
        before,
        "no key was dequeued after the shutdown"
    );
    assert_eq!(stopped.waiting + stopped.delayed, 1);
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn stopped_controller_reports_ready_and_delayed_keys() {
    let world = World::new();
    for name in ["1-later", "2-busy", "3-next", "4-next"] {
        world.account(name).await;
    }
    let running = world.run(world.controller(), |key, _| async move {
        if key.name() == "1-later" {
            return Ok(Action::requeue_after(Duration::from_secs(3600)));
        }
        sleep(Duration::from_secs(10)).await;
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(5)).await;
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(world.seen.take(), ["1-later", "2-busy"]);
    assert!(stopped.unfinished.is_empty(), "{stopped:?}");
    assert_eq!((stopped.waiting, stopped.delayed), (2, 1));
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn reconcile_that_does_not_end_is_dropped_and_reported() {
    let world = World::new();
    world.account("stuck").await;
    let controller = world.controller().stop_within(Duration::from_secs(3));
    let running = world.run(controller, |key, _| async move {
        if key.name() == "stuck" {
            std::future::pending::<()>().await;
        }
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(5)).await;
    world.shutdown.cancel();
    let start = Instant::now();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(
        stopped.unfinished,
        [ObjectKey::namespaced("default", "stuck")]
    );
    assert_eq!(
        (stopped.waiting, stopped.delayed),
        (0, 0),
        "not counted twice"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn stopped_informer_ends_the_controller_with_an_error() {
    let world = World::new();
    world.account("a").await;
    let informing = CancellationToken::new();
    let controller = world.controller();
    // The informers are started and stopped independently.
    let _informers = world.informers.informer::<ServiceAccount>();
    world.informers.start(&informing);
    let running = world.run(controller, done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    informing.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ServiceAccount"), "{error}");
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn informer_that_stops_before_sync_ends_the_controller() {
    let server = ApiServer::builder().build();
    let never = Duration::from_secs(100_000);
    let world = World::on(slow_reads(&server, "configmaps", never));
    world.account("a").await;
    let informing = CancellationToken::new();
    let _informers = (
        world.informers.informer::<ServiceAccount>(),
        world.informers.informer::<ConfigMap>(),
    );
    world.informers.start(&informing);
    let running = world.run(world.controller().owns::<ConfigMap>(), done);
    world.settle().await;
    informing.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ConfigMap stopped"), "{error}");
    assert!(world.seen.take().is_empty());
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn stopped_controller_leaves_shared_informers_running() {
    let world = World::new();
    let _informers = world.informers.informer::<ServiceAccount>();
    world.informers.start(&world.shutdown);
    let first = CancellationToken::new();
    let (informers, stop) = (world.informers.clone(), first.clone());
    let leaving = tokio::spawn(async move {
        Controller::<ServiceAccount>::new("first", &informers)
            .run_by_key(done, &stop)
            .await
    });
    let _staying = world.run(world.controller(), done);
    world.settle().await;
    first.cancel();
    leaving.await.unwrap().unwrap();
    world.account("late").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["late"]);
}
