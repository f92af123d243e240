//! Term after term in one process.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::{
    cache::{Object, ObjectKey},
    controller::{Action, Context, Controller, Predicate, ReconcileError},
    informer::{Namespaces, WatchInput},
    manager::{Component, Environment},
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Record, Running, account, breakable, expire, manager, recorder, settle, steal};
use crate::support::config_map;

/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn thousand_terms_do_not_leak() {
    let api = ApiServer::builder().build();
    for name in ["a", "b", "c"] {
        account(&api.client(), name).await;
    }
    let (lists, record) = (Record::default(), Record::default());
    let client = super::counting_lists(&api, &lists);
    let mut manager = manager(client)
        .leader_election_with(|election| election.identity("first"))
        .build();
    manager.add(recorder(&manager, "accounts", &record));
    let log = record.clone();
    manager.add(Component::task("task", move |_| {
        log.push("task");
        async { Ok::<_, std::convert::Infallible>(()) }
    }));
    let running = Running::start(manager);
    settle().await;
    assert_eq!(
        record.take_sorted(),
        ["accounts a", "accounts b", "accounts c", "task"]
    );
    let mut tasks = None;
    lists.take();
    for term in 2..=1000 {
        steal(&api.client(), "thief").await;
        sleep(Duration::from_secs(5)).await; // noticed by the next renewal
        assert_eq!(record.take(), [""; 0], "nothing runs between terms");
        expire(&api.client(), "operator").await;
        sleep(Duration::from_secs(5)).await;
        let done = record.take_sorted();
        assert_eq!(
            done,
            ["accounts a", "accounts b", "accounts c", "task"],
            "term {term}"
        );
        let alive = Handle::current().metrics().num_alive_tasks();
        assert_eq!(alive, *tasks.get_or_insert(alive), "tasks in term {term}");
    }
    assert_eq!(lists.take(), [""; 0], "no term lists anything");
    running.stop().await;
}

/// Proves controller/external-sources, informer/namespaces, manager/terms.
#[tokio::test(start_paused = true)]
async fn external_sources_and_namespaces_outlive_a_term() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let (record, tenants) = (Record::default(), Namespaces::new(["default"]));
    let mut manager = manager(api.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let (sender, mut receiver) = mpsc::channel(4);
    let keys = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let input = WatchInput::<ServiceAccount>::new().follow_namespaces(&tenants);
    let log = record.clone();
    let controller = Controller::of("accounts", input, manager.informers())
        .wakes(keys)
        .build_by_key(move |key: ObjectKey, _: Context| {
            log.push(key.name());
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        });
    manager.add(controller);
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["a"]);
    for term in 0..3 {
        steal(&api.client(), "thief").await;
        sleep(Duration::from_secs(5)).await;
        // More keys than the channel holds: they wait in the queue, not in the sender.
        for number in 0..10 {
            let key = ObjectKey::namespaced("default", &format!("{term}-{number}"));
            sender.send(key).await.unwrap();
        }
        tenants.remove("default");
        sleep(Duration::from_secs(1)).await;
        tenants.add("default");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(record.take(), [""; 0], "nothing runs between terms");
        expire(&api.client(), "operator").await;
        sleep(Duration::from_secs(5)).await;
        let done = record.take();
        assert_eq!(done.len(), 11, "{done:?}");
    }
    running.stop().await;
    settle().await;
    assert!(sender.is_closed());
}

/// A task learns of the end of its term from a rejected write, which must not stop the program.
///
/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn task_that_fails_with_its_term_runs_again_in_the_next() {
    let api = ApiServer::builder().build();
    let record = Record::default();
    let mut manager = manager(api.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let log = record.clone();
    manager.add(Component::task("writer", move |cx: Environment| {
        let log = log.clone();
        async move {
            log.push("started");
            let maps = Api::<ConfigMap>::default_namespaced(cx.client().clone());
            let params = PatchParams::apply("writer").force();
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
                "data": {"key": "value"},
            });
            loop {
                maps.patch("m", &params, &Patch::Apply(&map)).await?;
                sleep(Duration::from_millis(100)).await;
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<_, kube::Error>(())
        }
    }));
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["started"]);
    for _ in 0..3 {
        steal(&api.client(), "thief").await;
        sleep(Duration::from_secs(5)).await;
        expire(&api.client(), "operator").await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(record.take(), ["started"]);
    }
    running.stop().await;
}

/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn later_terms_respect_the_filter() {
    let api = ApiServer::builder().build();
    for name in ["mine-a", "other-b"] {
        account(&api.client(), name).await;
    }
    let record = Record::default();
    let mut manager = manager(api.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let log = record.clone();
    let mine =
        Predicate::new(|_, new: &Object<ServiceAccount>| new.key().name().starts_with("mine"));
    let controller = Controller::<ServiceAccount>::new("accounts", manager.informers())
        .filter(mine)
        .build_by_key(move |key: ObjectKey, _: Context| {
            log.push(key.name());
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        });
    manager.add(controller);
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["mine-a"]);
    steal(&api.client(), "thief").await;
    sleep(Duration::from_secs(5)).await;
    expire(&api.client(), "operator").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(record.take(), ["mine-a"]);
    running.stop().await;
}

/// After an outage the Lease can be free before the caches are current again. A term that starts
/// then must not work from stale caches.
///
/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn term_after_an_outage_waits_for_the_watches() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let online = watch::Sender::new(true);
    let record = Record::default();
    let mut manager = manager(breakable(&api, &online))
        .leader_election_with(|election| election.identity("first"))
        .build();
    let log = record.clone();
    let controller = Controller::<ServiceAccount>::new("accounts", manager.informers())
        .build_by_key(move |_: ObjectKey, cx: Context| {
            let accounts = cx.lister::<ServiceAccount>().unwrap();
            log.push(format!("{} accounts", accounts.list().len()));
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        });
    manager.add(controller);
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take(), ["1 accounts"]);
    online.send_replace(false);
    sleep(Duration::from_mins(2)).await;
    // Another leader has made changes in the meantime.
    account(&api.client(), "b").await;
    expire(&api.client(), "operator").await;
    online.send_replace(true);
    sleep(Duration::from_mins(2)).await;
    let seen = record.take();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|seen| seen == "2 accounts"), "{seen:?}");
    running.stop().await;
}

/// Another leader may have applied other fields as the same field manager. Only the server knows
/// which of them to remove, so the first reconcile of a term always applies.
///
/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn later_terms_do_not_trust_earlier_applies() {
    let api = ApiServer::builder().build();
    account(&api.client(), "a").await;
    let mut manager = manager(api.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let controller = Controller::<ServiceAccount>::new("accounts", manager.informers())
        .owns::<ConfigMap>()
        .build(|account: Arc<ServiceAccount>, cx: Context| async move {
            let child = config_map(&account.name_any(), "1");
            cx.apply_owned(child).await.map(|_| Action::await_change())
        });
    manager.add(controller);
    let running = Running::start(manager);
    settle().await;
    steal(&api.client(), "thief").await;
    sleep(Duration::from_secs(5)).await;
    let maps = Api::<ConfigMap>::default_namespaced(api.client());
    let mut other = maps.get("a").await.unwrap();
    other.metadata.managed_fields = None;
    other.metadata.resource_version = None;
    other
        .data
        .get_or_insert_default()
        .insert("extra".to_owned(), "x".to_owned());
    let params = PatchParams::apply("accounts").force();
    maps.patch("a", &params, &Patch::Apply(&other))
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    expire(&api.client(), "operator").await;
    sleep(Duration::from_secs(5)).await;
    let data = maps.get("a").await.unwrap().data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["value"]);
    running.stop().await;
}
