//! Several replicas: elections, hand-overs, warm standbys.

use std::time::Duration;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{Api, Client};
use pintle::{
    cache::{BoxError, ObjectKey},
    controller::{Action, Context, Controller, ReconcileError},
    leader_election::NotLeading,
    manager::{Component, Environment, Left, Manager},
    queue::WorkQueue,
};
use pintle_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::{Record, Running, account, counting_lists, manager, recorder, settle};
use crate::support::{SECOND, config_map};

fn replica(client: Client, identity: &'static str) -> Manager {
    let replica = manager(client).leader_election_with(move |election| election.identity(identity));
    replica.build()
}

/// A ConfigMap with the name of the object `key`.
fn child(key: &ObjectKey) -> ConfigMap {
    let mut child = config_map(key.name(), "1");
    child.metadata.namespace = key.namespace().map(str::to_owned);
    child
}

/// Proves manager/warm-standby.
#[tokio::test(start_paused = true)]
async fn standby_takes_over_immediately_without_a_list() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let (record, lists) = (Record::default(), Record::default());
    let mut first = replica(api.client(), "first");
    first.add(recorder(&first, "first", &record));
    let first = Running::start(first);
    settle().await;
    let mut second = replica(counting_lists(&api, &lists), "second");
    second.add(recorder(&second, "second", &record));
    let accounts = second.informers().informer::<ServiceAccount>().lister();
    let second = Running::start(second);
    settle().await;
    assert_eq!(record.take(), ["first a"], "only the leader reconciles");
    assert_eq!(accounts.list().len(), 1, "the standby's cache is filled");
    lists.take();

    let begun = Instant::now();
    first.stop().await;
    account(&api.client(), "b").await;
    while record.0.lock().unwrap().len() < 2 {
        sleep(Duration::from_millis(1)).await;
        assert!(begun.elapsed() < SECOND, "hand-over takes under a second");
    }
    assert_eq!(record.take_sorted(), ["second a", "second b"]);
    assert_eq!(lists.take(), [""; 0], "hand-over lists nothing");
    second.stop().await;
}

/// Proves election/gate.
#[tokio::test(start_paused = true)]
async fn controllers_write_only_while_leading() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut manager = replica(api.client(), "first");
    let log = record.clone();
    let writer = Controller::<ServiceAccount>::new("writer", manager.informers()).build_by_key(
        move |key: ObjectKey, cx: Context| {
            let log = log.clone();
            async move {
                sleep(5 * SECOND).await; // meanwhile, another replica takes the Lease
                let written = cx.create(&child(&key)).await;
                let refused = written.as_ref().err().and_then(NotLeading::find);
                log.push(format!("{refused:?}"));
                Ok::<_, ReconcileError>(Action::await_change())
            }
        },
    );
    manager.add(writer);
    let running = Running::start(manager);
    settle().await;
    super::steal(&api.client(), "thief").await;
    sleep(5 * SECOND).await;
    assert_eq!(record.take(), ["Some(NotSent)"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    assert!(maps.get_opt("a").await.unwrap().is_none());

    // The other holder dies. The next term reconciles the object again, and its write succeeds.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(record.take(), ["None"]);
    assert!(maps.get_opt("a").await.unwrap().is_some());
    running.stop().await;
}

/// Proves manager/named-elections.
#[tokio::test(start_paused = true)]
async fn component_can_run_on_every_replica() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut running = Vec::new();
    for identity in ["first", "second"] {
        let mut manager = replica(api.client(), identity);
        let everywhere = Component::from(recorder(&manager, identity, &record));
        manager.add(everywhere.on_every_replica());
        let log = record.clone();
        manager.add(Component::task("elected", move |cx: Environment| {
            log.push(format!("elected {identity}"));
            async move {
                cx.shutdown().cancelled().await;
                Ok::<_, BoxError>(())
            }
        }));
        running.push(Running::start(manager));
        settle().await;
    }
    assert_eq!(record.take(), ["first a", "elected first", "second a"]);
    for one in running {
        one.stop().await;
    }
}

/// Proves manager/named-elections.
#[tokio::test(start_paused = true)]
async fn replicas_share_the_work_by_controller() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut replicas = Vec::new();
    for identity in ["first", "second"] {
        let mut manager = replica(api.client(), identity);
        for name in ["left", "right"] {
            let log = record.clone();
            let task = Component::task(name, move |cx: Environment| {
                log.push(format!("{name} on {identity}"));
                async move {
                    cx.shutdown().cancelled().await;
                    Ok::<_, BoxError>(())
                }
            });
            manager.add(task.elected_as(name));
        }
        replicas.push(Running::start(manager));
        settle().await;
    }
    assert_eq!(record.take(), ["left on first", "right on first"]);
    // Only the released Lease is acquired again.
    super::expire(&api.client(), "left").await;
    sleep(Duration::from_mins(1)).await;
    let started = record.take();
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(started[0].starts_with("left on "));
    for one in replicas {
        one.stop().await;
    }
}

/// Proves manager/order.
#[tokio::test(start_paused = true)]
async fn lease_that_cannot_be_released_is_reported() {
    let api = ApiServer::builder().build();
    let online = tokio::sync::watch::Sender::new(true);
    let (inner, state) = (api.client(), online.subscribe());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, state) = (inner.clone(), state.clone());
        async move {
            if !*state.borrow() {
                std::future::pending::<()>().await;
            }
            inner.send(request).await
        }
    });
    let mut manager = manager(Client::new(service, "default"))
        .leader_election()
        .stop_within(3 * SECOND)
        .build();
    // Its caches must still stop in time.
    manager.add(recorder(&manager, "accounts", &Record::default()));
    let running = Running::start(manager);
    settle().await;
    online.send_replace(false);
    let begun = Instant::now();
    let left = running.stop().await.left;
    assert_eq!(left, [Left::Lease("default/operator".to_owned())]);
    assert!(begun.elapsed() <= 3 * SECOND, "{:?}", begun.elapsed());
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn lease_is_released_after_the_last_reconcile() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let record = Record::default();
    let mut first = replica(api.client(), "first");
    let log = record.clone();
    let slow = Controller::<ServiceAccount>::new("slow", first.informers()).build_by_key(
        move |key: ObjectKey, cx: Context| {
            let log = log.clone();
            async move {
                sleep(5 * SECOND).await;
                cx.create(&child(&key)).await?;
                log.push("first wrote");
                Ok::<_, ReconcileError>(Action::await_change())
            }
        },
    );
    first.add(slow);
    let first = Running::start(first);
    settle().await;
    let mut second = replica(api.client(), "second");
    second.add(recorder(&second, "second", &record));
    let second = Running::start(second);
    settle().await;
    assert_eq!(first.stop().await.left, [], "the reconcile ends in time");
    settle().await;
    assert_eq!(record.take(), ["first wrote", "second a"]);
    second.stop().await;
}

/// A dropped reconcile may have a write in flight, which has the rest of the lease duration to
/// arrive.
///
/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn lease_is_not_released_if_a_reconcile_was_dropped() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let mut manager = manager(api.client())
        .leader_election_with(|election| election.identity("first"))
        .stop_within(10 * SECOND)
        .build();
    let stuck = Controller::<ServiceAccount>::new("stuck", manager.informers()).build_by_key(
        |_: ObjectKey, _: Context| async {
            sleep(Duration::from_mins(5)).await;
            Ok::<_, ReconcileError>(Action::await_change())
        },
    );
    manager.add(stuck);
    let running = Running::start(manager);
    settle().await;
    let left = running.stop().await.left;
    assert_eq!(left.len(), 1, "{left:?}");
    let leases: Api<Lease> = Api::default_namespaced(api.client());
    let lease = leases.get("operator").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity.as_deref(), Some("first"));
}

/// Proves manager/warm-standby.
#[tokio::test(start_paused = true)]
async fn standby_forgets_keys_of_objects_that_are_gone() {
    let api = ApiServer::builder().build();
    account(&api.client(), "kept").await;
    let leader = Running::start(replica(api.client(), "first"));
    settle().await;
    let (record, metrics) = (Record::default(), pintle::metrics::Metrics::new());
    let mut standby = manager(api.client())
        .leader_election_with(|election| election.identity("second"))
        .metrics(&metrics)
        .build();
    standby.add(recorder(&standby, "second", &record));
    let standby = Running::start(standby);
    settle().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(api.client());
    for number in 0..2000 {
        let name = format!("gone-{number}");
        account(&api.client(), &name).await;
        crate::support::delete(&accounts, &name).await;
    }
    sleep(Duration::from_mins(2)).await;
    let text = metrics.encode();
    let depth = text
        .lines()
        .find(|line| line.starts_with("workqueue_depth{"));
    let depth: f64 = depth.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(depth < 1024.0, "{depth}");
    leader.stop().await;
    settle().await;
    assert!(record.take().contains(&"second kept".to_owned()));
    standby.stop().await;
}

/// The leader has not seen the keys of this replica's own sources.
///
/// Proves manager/warm-standby, controller/external-sources.
#[tokio::test(start_paused = true)]
async fn standby_keeps_keys_of_external_sources() {
    let api = ApiServer::builder().build();
    let leader = Running::start(replica(api.client(), "first"));
    settle().await;
    let mut standby = replica(api.client(), "second");
    let keys = (0..1500).map(|number| ObjectKey::namespaced("default", &format!("k-{number}")));
    let record = Record::default();
    let log = record.clone();
    let queue = WorkQueue::new("accounts");
    queue.add(ObjectKey::namespaced("default", "k-by-hand"));
    let controller = Controller::<ServiceAccount>::new("accounts", standby.informers())
        .queue(queue)
        .wakes(futures::stream::iter(keys.collect::<Vec<_>>()))
        .build_by_key(move |key: ObjectKey, _: Context| {
            log.push(key.name());
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        });
    standby.add(controller);
    let standby = Running::start(standby);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(record.take(), [""; 0]);
    leader.stop().await;
    settle().await;
    let reconciled = record.take();
    assert_eq!(
        reconciled
            .iter()
            .filter(|name| name.starts_with("k-"))
            .count(),
        1501
    );
    standby.stop().await;
}
