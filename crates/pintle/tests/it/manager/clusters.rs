//! Controllers on clusters other than the manager's own.

use std::sync::Arc;

use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{Api, Client, api::ListParams, client::Body};
use pintle::{
    controller::{Action, Context, Controller, ReconcileError},
    events::EventType,
    informer::WatchInput,
    leader_election::NotLeading,
};
use pintle_apiserver::ApiServer;
use tokio::{sync::watch, time::sleep};

use super::{Record, Running, account, breakable, expire, manager, recorder, settle, steal};
use crate::support::{SECOND, config_map, create};

async fn events(server: &ApiServer) -> Vec<String> {
    let events = Api::<Event>::default_namespaced(server.client());
    let events = events.list(&ListParams::default()).await.unwrap();
    let reasons = events.items.into_iter().filter_map(|event| event.reason);
    reasons.collect()
}

/// A client whose events take a second to be written.
fn slow_events(server: &ApiServer) -> Client {
    let inner = server.client();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            let is_write = request.method() != http::Method::GET;
            if is_write && request.uri().path().contains("/events") {
                sleep(SECOND).await;
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Proves controller/clusters.
#[tokio::test(start_paused = true)]
async fn events_go_to_the_cluster_of_their_object() {
    let (home, east) = (ApiServer::builder().build(), ApiServer::builder().build());
    let mut manager = manager(home.client()).leader_election().build();
    let input = WatchInput::<ConfigMap>::new()
        .labels("value=x")
        .cluster("east", slow_events(&east));
    let record = Record::default();
    let log = record.clone();
    let controller = Controller::of("maps", input, manager.informers()).build(
        move |map: Arc<ConfigMap>, cx: Context| {
            let reason = map.metadata.name.clone().unwrap_or_default();
            cx.event(EventType::Normal, reason.clone(), "seen");
            log.push(reason);
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        },
    );
    manager.add(controller);
    let there = Api::<ConfigMap>::default_namespaced(east.client());
    create(&there, &config_map("first", "x")).await;
    let running = Running::start(manager);
    sleep(5 * SECOND).await;
    assert_eq!(events(&east).await, ["first"]);

    // The last events are written while the manager stops, after the term has ended.
    create(&there, &config_map("last", "x")).await;
    while record.0.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.stop().await.left, []);
    let mut written = events(&east).await;
    written.sort_unstable();
    assert_eq!(written, ["first", "last"]);
    assert_eq!(events(&home).await, [""; 0]);
}

/// Proves controller/clusters, election/gate.
#[tokio::test(start_paused = true)]
async fn writes_to_another_cluster_are_gated_too() {
    let (home, east) = (ApiServer::builder().build(), ApiServer::builder().build());
    let mut manager = manager(home.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let input = WatchInput::<ConfigMap>::new()
        .labels("value=x")
        .cluster("east", east.client());
    let record = Record::default();
    let log = record.clone();
    let controller = Controller::of("maps", input, manager.informers()).build(
        move |_: Arc<ConfigMap>, cx: Context| {
            let log = log.clone();
            async move {
                sleep(5 * SECOND).await; // meanwhile, another replica takes the Lease
                let mut child = config_map("child", "y");
                child.metadata.namespace = Some("default".to_owned());
                let written = cx.create(&child).await;
                let refused = written.as_ref().err().and_then(NotLeading::find);
                log.push(format!("{refused:?}"));
                Ok::<_, ReconcileError>(Action::await_change())
            }
        },
    );
    manager.add(controller);
    let there = Api::<ConfigMap>::default_namespaced(east.client());
    create(&there, &config_map("a", "x")).await;
    let running = Running::start(manager);
    settle().await;
    steal(&home.client(), "thief").await;
    sleep(6 * SECOND).await;
    assert_eq!(record.take(), ["Some(NotSent)"]);
    assert!(there.get_opt("child").await.unwrap().is_none());
    running.stop().await;
}

/// Proves manager/terms, controller/clusters.
#[tokio::test(start_paused = true)]
async fn outage_of_another_cluster_does_not_delay_a_term() {
    let (home, east) = (ApiServer::builder().build(), ApiServer::builder().build());
    account(&home.client(), "a").await;
    let online = watch::Sender::new(true);
    let mut manager = manager(home.client())
        .leader_election_with(|election| election.identity("first"))
        .build();
    let record = Record::default();
    manager.add(recorder(&manager, "here", &record));
    let there = WatchInput::<ConfigMap>::new()
        .labels("value=x")
        .cluster("east", breakable(&east, &online));
    let log = record.clone();
    let controller = Controller::of("there", there, manager.informers()).build(
        move |_: Arc<ConfigMap>, _: Context| {
            log.push("there");
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        },
    );
    manager.add(controller);
    let maps = Api::<ConfigMap>::default_namespaced(east.client());
    create(&maps, &config_map("m", "x")).await;
    let running = Running::start(manager);
    settle().await;
    assert_eq!(record.take_sorted(), ["here a", "there"]);
    online.send_replace(false);
    steal(&home.client(), "thief").await;
    sleep(5 * SECOND).await;
    expire(&home.client(), "operator").await;
    sleep(5 * SECOND).await;
    assert_eq!(record.take(), ["here a"], "its own caches are current");
    online.send_replace(true);
    sleep(60 * SECOND).await;
    assert_eq!(record.take(), ["there"]);
    running.stop().await;
}
