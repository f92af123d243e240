//! Components of one replica: order, failures, shutdown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use pintle::{
    cache::{BoxError, ObjectKey},
    controller::{Action, Context, Controller, ReconcileError},
    informer::InformerFactory,
    manager::{Component, Environment, Left, ManagerError},
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::{Record, Running, account, manager, recorder, settle};
use crate::support::SECOND;

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn controllers_share_one_list_per_kind() {
    let server = ApiServer::builder().build();
    let (lists, record) = (Record::default(), Record::default());
    let mut manager = manager(super::counting_lists(&server, &lists)).build();
    for name in ["first", "second", "third"] {
        manager.add(recorder(&manager, name, &record));
    }
    account(&server.client(), "a").await;
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take_sorted(), ["first a", "second a", "third a"]);
    assert_eq!(
        lists.take_sorted(),
        ["/api/v1/configmaps", "/api/v1/serviceaccounts"]
    );
    assert_eq!(running.stop().await.left, []);
}

/// A server that is ready after `delay`.
fn server(record: &Record, delay: Duration) -> Component {
    let record = record.clone();
    Component::server("webhooks", move |cx: Environment| {
        let record = record.clone();
        async move {
            sleep(delay).await;
            record.push("webhooks ready");
            cx.ready();
            cx.shutdown().cancelled().await;
            record.push("webhooks stopped");
            Ok::<_, BoxError>(())
        }
    })
}

/// Proves manager/order.
#[tokio::test(start_paused = true)]
async fn starts_servers_then_caches_then_controllers() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut manager = manager(super::counting_lists(&api, &record)).build();
    manager.add(recorder(&manager, "accounts", &record));
    let accounts = manager.informers().informer::<ServiceAccount>().lister();
    let log = record.clone();
    manager.add(Component::server("reader", move |cx: Environment| {
        let (log, accounts) = (log.clone(), accounts.clone());
        async move {
            cx.ready();
            if cx.wait_for_caches().await {
                log.push(format!("reader sees {} account", accounts.list().len()));
            }
            cx.shutdown().cancelled().await;
            Ok::<_, BoxError>(())
        }
    }));
    manager.add(server(&record, 5 * SECOND));
    let log = record.clone();
    manager.add(Component::task("task", move |cx: Environment| {
        let log = log.clone();
        async move {
            cx.shutdown().cancelled().await;
            sleep(SECOND).await;
            log.push("task stopped");
            Ok::<_, BoxError>(())
        }
    }));
    let running = Running::start(manager);
    sleep(4 * SECOND).await;
    assert_eq!(record.take(), [""; 0], "nothing is listed yet");
    sleep(4 * SECOND).await;
    let mut started = record.take();
    assert_eq!(started.remove(0), "webhooks ready");
    let mut lists: Vec<String> = started.drain(..2).collect();
    lists.sort_unstable();
    assert_eq!(lists, ["/api/v1/configmaps", "/api/v1/serviceaccounts"]);
    started.sort_unstable();
    assert_eq!(started, ["accounts a", "reader sees 1 account"]);
    assert_eq!(running.stop().await.left, []);
    assert_eq!(record.take(), ["task stopped", "webhooks stopped"]);
}

/// The API server cannot list a kind before its conversion webhook responds.
///
/// Proves manager/order.
#[tokio::test(start_paused = true)]
async fn list_may_depend_on_a_server_of_the_same_program() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let (record, converts) = (Record::default(), Arc::new(AtomicBool::new(false)));
    let client = super::refusing(&api, "serviceaccounts", &converts);
    let mut manager = manager(client).sync_timeout(10 * SECOND).build();
    manager.add(recorder(&manager, "accounts", &record));
    manager.add(Component::server("converter", move |cx: Environment| {
        let converts = Arc::clone(&converts);
        async move {
            sleep(SECOND).await;
            converts.store(true, Ordering::Relaxed);
            cx.ready();
            cx.shutdown().cancelled().await;
            converts.store(false, Ordering::Relaxed);
            Ok::<_, BoxError>(())
        }
    }));
    let begun = Instant::now();
    let running = Running::start(manager);
    while record.take() != ["accounts a"] {
        sleep(Duration::from_millis(10)).await;
        assert!(begun.elapsed() < 2 * SECOND, "no list failed before");
    }
    assert_eq!(running.stop().await.left, []);
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn isolated_server_that_is_never_ready_is_abandoned() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut manager = manager(api.client()).sync_timeout(10 * SECOND).build();
    manager.add(server(&record, Duration::from_hours(1)).isolated());
    manager.add(recorder(&manager, "accounts", &record));
    let running = Running::start(manager);
    sleep(9 * SECOND).await;
    assert_eq!(record.take(), [""; 0], "it may still become ready");
    sleep(2 * SECOND).await;
    assert_eq!(record.take(), ["accounts a"]);
    let left = running.stop().await.left;
    assert_eq!(left, [Left::Task("webhooks".to_owned())]);
}

/// Proves manager/order.
#[tokio::test(start_paused = true)]
async fn server_that_is_never_ready_is_an_error() {
    let api = ApiServer::builder().build();
    let record = Record::default();
    let mut manager = manager(api.client()).sync_timeout(10 * SECOND).build();
    manager.add(server(&record, Duration::from_mins(10)));
    manager.add(recorder(&manager, "accounts", &record));
    account(&api.client(), "a").await;
    let error = Running::start(manager).ended().await.unwrap_err();
    assert_eq!(error.to_string(), "webhooks failed: not ready within 10s");
    assert_eq!(record.take(), [""; 0]);
}

fn failing(name: &str, calls: &Arc<AtomicU32>) -> Component {
    let calls = Arc::clone(calls);
    Component::task(name, move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            sleep(SECOND).await;
            assert!(call.is_multiple_of(2), "odd call");
            Err::<(), _>("the disk is full")
        }
    })
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn failed_component_stops_the_manager() {
    let api = ApiServer::builder().build();
    let (record, calls) = (Record::default(), Arc::default());
    let mut manager = manager(api.client()).build();
    manager.add(recorder(&manager, "accounts", &record));
    manager.add(failing("sweeper", &calls));
    manager.add(server(&record, Duration::ZERO));
    let error = Running::start(manager).ended().await.unwrap_err();
    assert_eq!(error.to_string(), "sweeper failed: the disk is full");
    let ManagerError::Component { stopped, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(stopped.left, []);
    assert_eq!(record.take(), ["webhooks ready", "webhooks stopped"]);
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn isolated_component_fails_alone() {
    let api = ApiServer::builder().build();
    let (record, calls, metrics) = (Record::default(), Arc::default(), Metrics::new());
    let mut manager = manager(api.client()).metrics(&metrics).build();
    manager.add(recorder(&manager, "accounts", &record));
    manager.add(failing("sweeper", &calls).isolated());
    let running = Running::start(manager);
    sleep(Duration::from_mins(10)).await;
    account(&api.client(), "a").await;
    settle().await;
    assert_eq!(record.take(), ["accounts a"]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let text = metrics.encode();
    assert!(
        text.contains("manager_component_running{component=\"sweeper\"} 0"),
        "{text}"
    );
    assert!(
        text.contains("manager_component_running{component=\"accounts\"} 1"),
        "{text}"
    );
    running.stop().await;
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn component_restarts_with_growing_delays() {
    let api = ApiServer::builder().build();
    let calls = Arc::default();
    let mut manager = manager(api.client()).build();
    manager.add(failing("sweeper", &calls).restarts());
    let running = Running::start(manager);
    // Each call takes a second and panics or fails; the delays are 1, 2, 4, … 60 seconds.
    let mut at = Vec::new();
    for second in 0..75_u32 {
        at.push((second, calls.load(Ordering::Relaxed)));
        sleep(SECOND).await;
    }
    let changes: Vec<u32> = at
        .windows(2)
        .filter(|pair| pair[0].1 != pair[1].1)
        .map(|pair| pair[1].0)
        .collect();
    assert_eq!(changes, [1, 3, 6, 11, 20, 37, 70]);
    running.stop().await;
}

/// A controller whose caches cannot be filled does not hold up the others if it is isolated.
///
/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn isolated_controller_without_permissions_fails_alone() {
    let api = ApiServer::builder().build();
    let (record, metrics) = (Record::default(), Metrics::new());
    let client = super::refusing(&api, "secrets", &Arc::default());
    let mut manager = manager(client).metrics(&metrics).build();
    manager.add(recorder(&manager, "accounts", &record));
    let informers = manager.informers().clone();
    let secrets = Controller::<Secret>::new("secrets", &informers)
        .sync_timeout(30 * SECOND)
        .build_by_key(|_: ObjectKey, _: Context| async {
            Ok::<_, ReconcileError>(Action::await_change())
        });
    manager.add(Component::from(secrets).isolated());
    account(&api.client(), "a").await;
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["accounts a"]);
    let behind = informers.not_synced().expect("secrets have not synced");
    assert!(behind.to_string().contains("secrets"), "{behind}");

    sleep(Duration::from_mins(1)).await;
    let failures = "manager_component_failures_total{component=\"secrets\"} 1";
    let text = metrics.encode();
    assert!(text.contains(failures), "{text}");
    assert!(
        informers.not_synced().is_none(),
        "its informer is not in use"
    );
    account(&api.client(), "b").await;
    settle().await;
    assert_eq!(record.take(), ["accounts b"]);
    running.stop().await;
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn controller_on_other_informers_is_an_error() {
    let client = ApiServer::builder().build().client();
    let mut manager = manager(client.clone()).build();
    let other = InformerFactory::new(client);
    let foreign = Controller::<Secret>::new("secrets", &other).build_by_key(
        |_: ObjectKey, _: Context| async { Ok::<_, ReconcileError>(Action::await_change()) },
    );
    manager.add(foreign);
    let error = Running::start(manager).ended().await.unwrap_err();
    let expected =
        "controller secrets is not built on the manager's informers: pass Manager::informers to it";
    assert_eq!(error.to_string(), expected);
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn failed_isolated_server_does_not_block_the_start() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut manager = manager(api.client()).build();
    manager.add(recorder(&manager, "accounts", &record));
    let broken = Component::server("webhooks", |_| async { Err::<(), _>("no certificate") });
    manager.add(broken.isolated());
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["accounts a"]);
    running.stop().await;
}

/// Proves manager/failure.
#[tokio::test(start_paused = true)]
async fn duplicate_component_names_are_an_error() {
    let api = ApiServer::builder().build();
    let record = Record::default();
    let mut manager = manager(api.client()).build();
    manager.add(recorder(&manager, "accounts", &record));
    manager.add(recorder(&manager, "accounts", &record));
    let error = Running::start(manager).ended().await.unwrap_err();
    assert_eq!(error.to_string(), "duplicate component name \"accounts\"");
}

/// Proves manager/order.
#[tokio::test(start_paused = true)]
async fn stop_reports_dropped_work() {
    let api = ApiServer::builder().build();
    account(&api.client(), "slow").await;
    let mut manager = manager(api.client()).stop_within(10 * SECOND).build();
    let slow = Controller::<ServiceAccount>::new("slow", manager.informers()).build_by_key(
        |_: ObjectKey, _: Context| async {
            sleep(Duration::from_mins(5)).await;
            Ok::<_, ReconcileError>(Action::await_change())
        },
    );
    manager.add(slow);
    manager.add(Component::task("deaf", |_| async {
        sleep(Duration::from_mins(5)).await;
        Ok::<_, BoxError>(())
    }));
    let running = Running::start(manager);
    settle().await;
    let begun = Instant::now();
    let mut left = running.stop().await.left;
    left.sort_by_key(ToString::to_string);
    let expected = [
        Left::Reconciles {
            controller: "slow".to_owned(),
            keys: vec![ObjectKey::new(Some("default"), "slow")],
        },
        Left::Task("deaf".to_owned()),
    ];
    assert_eq!(left, expected);
    assert!(begun.elapsed() <= 10 * SECOND, "{:?}", begun.elapsed());
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn metrics_cover_controllers_queues_informers_and_build() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let (record, metrics) = (Record::default(), Metrics::new());
    let mut manager = manager(api.client())
        .metrics(&metrics)
        .version("1.2.3")
        .leader_election()
        .build();
    manager.add(recorder(&manager, "accounts", &record));
    let running = Running::start(manager);
    settle().await;
    let text = metrics.encode();
    for line in [
        "build_info{name=\"operator\",version=\"1.2.3\"",
        "controller_runtime_reconcile_total{controller=\"accounts\",result=\"success\"} 1",
        "workqueue_depth{name=\"accounts\"",
        "leader_election_master_status{name=\"operator\"} 1",
        "leader_election_lease_age_seconds{name=\"operator\"} 1.0",
        "informer_store_objects{name=\"\",resource=\"serviceaccounts\"} ",
    ] {
        assert!(text.contains(line), "{line} is missing from\n{text}");
    }
    running.stop().await;
    assert!(
        metrics
            .encode()
            .contains("leader_election_master_status{name=\"operator\"} 0")
    );
}
