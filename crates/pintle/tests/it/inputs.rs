//! Watch inputs: one informer per input, and namespaces that are added and removed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    client::Body,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use pintle::{
    cache::{Kind, Lister},
    informer::{InformerFactory, Namespaces, WatchInput},
    probes::Probes,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{EventLog, SECOND, config_map, create, delete, forbidden, patch};

/// The reads of `ConfigMap`s that pass through a client.
#[derive(Clone, Default)]
struct Traffic {
    /// The path of each request.
    requests: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
    /// A namespace whose `ConfigMap`s may not be read.
    refused: Arc<Mutex<Option<String>>>,
    /// Breaks all open responses.
    breaks: watch::Sender<()>,
}

/// Counts a response as open until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Traffic {
    fn client(&self, server: &ApiServer) -> Client {
        let (service, traffic) = (server.service(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, traffic) = (service.clone(), traffic.clone());
            async move {
                let path = request.uri().path().to_owned();
                if !path.ends_with("/configmaps") {
                    let answer = service.oneshot(request).await?;
                    return Ok(answer.map(BodyExt::boxed_unsync));
                }
                traffic.requests.lock().unwrap().push(path.clone());
                let refused = traffic.refused.lock().unwrap().clone();
                if refused.is_some_and(|namespace| path.contains(&format!("/{namespace}/"))) {
                    return Ok(forbidden("configmaps").map(BodyExt::boxed_unsync));
                }
                let answer = service.oneshot(request).await?;
                traffic.open.fetch_add(1, Ordering::SeqCst);
                let open = Open(traffic.open);
                let mut breaks = traffic.breaks.subscribe();
                let broken = async move {
                    let _ = breaks.changed().await;
                };
                Ok::<_, tower::BoxError>(answer.map(|body| {
                    let frames = BodyStream::new(body).take_until(Box::pin(broken));
                    let frames = frames.map(move |frame| {
                        let _counted = &open;
                        frame
                    });
                    StreamBody::new(frames.boxed()).boxed_unsync()
                }))
            }
        });
        Client::new(service, "default")
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// A server with namespaces of these names, and a ConfigMap `x-1` in each namespace `x`.
async fn server_with(namespaces: &[&str]) -> ApiServer {
    let server = ApiServer::builder().build();
    for name in namespaces {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        create(&Api::all(server.client()), &namespace).await;
        create(&maps(&server, name), &config_map(&format!("{name}-1"), "x")).await;
    }
    server
}

fn maps(server: &ApiServer, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(server.client(), namespace)
}

fn names<K: Kind>(lister: &Lister<K>) -> Vec<String> {
    let mut names: Vec<String> = lister
        .list()
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    names.sort_unstable();
    names
}

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn same_input_lists_and_watches_once() {
    let server = server_with(&["blue", "green"]).await;
    let traffic = Traffic::default();
    let informers = InformerFactory::new(traffic.client(&server));
    informers.start(&CancellationToken::new());
    let input = || WatchInput::<ConfigMap>::new().namespaces(["blue", "green"]);
    let first = informers.informer_from(&input().labels("value=x"));
    informers.wait_for_sync().await.unwrap();
    let once = traffic.take();
    assert!(!once.is_empty());
    let again = informers.informer_from(&input().labels("value=x"));
    informers.wait_for_sync().await.unwrap();
    sleep(SECOND).await;
    assert_eq!(names(&again.lister()), ["blue/blue-1", "green/green-1"]);
    assert_eq!(traffic.take(), [""; 0], "nothing was requested twice");
    // A different input opens its own watches, which look the same in the traffic.
    let _other = informers.informer_from(&input().labels("value=y"));
    sleep(SECOND).await;
    assert_eq!(traffic.take(), once);
    drop((first, again));
    sleep(SECOND).await;
    assert_eq!(traffic.open(), 2, "only the other watch is left");
}

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn inputs_select_kind_form_and_objects() {
    let server = server_with(&["blue", "green"]).await;
    create(&maps(&server, "blue"), &config_map("other", "y")).await;
    let informers = InformerFactory::new(server.client()).namespace("green");
    let kind = ApiResource::erase::<ConfigMap>(&());
    let typed = informers.informer_from(&WatchInput::<ConfigMap>::new());
    let labels = WatchInput::<ConfigMap>::new()
        .all_namespaces()
        .labels("value=x");
    let labels = informers.informer_from(&labels);
    let fields = WatchInput::<DynamicObject>::of(kind.clone())
        .namespace("blue")
        .fields("metadata.name=other");
    let fields = informers.informer_from(&fields);
    let metadata = WatchInput::<PartialObjectMeta>::of(kind).namespaces(["blue", "green"]);
    let metadata = informers.informer_from(&metadata);
    let changed = WatchInput::<ConfigMap>::new()
        .eager()
        .transform("mark", |map| {
            map["data"]["value"] = json!("changed");
            Ok(())
        });
    let changed = informers.informer_from(&changed);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert_eq!(names(&typed.lister()), ["green/green-1"]);
    assert_eq!(names(&labels.lister()), ["blue/blue-1", "green/green-1"]);
    assert_eq!(names(&fields.lister()), ["blue/other"]);
    let other = fields.lister().list().pop().unwrap().get().unwrap();
    assert_eq!(other.types.as_ref().unwrap().kind, "ConfigMap");
    let all = ["blue/blue-1", "blue/other", "green/green-1"];
    assert_eq!(names(&metadata.lister()), all);
    let map = changed.lister().list().pop().unwrap().get().unwrap();
    assert_eq!(map.data.as_ref().unwrap()["value"], "changed");
}

/// Proves cache/recent-views.
#[tokio::test(start_paused = true)]
async fn inputs_limit_the_views_kept_between_reads() {
    let server = server_with(&["blue", "green"]).await;
    let informers = InformerFactory::new(server.client());
    let by_default = informers.informer_from(&WatchInput::<ConfigMap>::new());
    let limited = informers.informer_from(&WatchInput::<ConfigMap>::new().recent_views(0));
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    for (informer, kept) in [(by_default, [true, true]), (limited, [false, true])] {
        let objects = informer.lister().list();
        let views: Vec<_> = objects
            .iter()
            .map(|object| Arc::downgrade(&object.get().unwrap()))
            .collect();
        let in_memory: Vec<_> = views.iter().map(|view| view.upgrade().is_some()).collect();
        assert_eq!(in_memory, kept);
    }
}

/// Proves informer/namespaces.
#[tokio::test(start_paused = true)]
async fn namespaces_come_and_go_while_the_informer_runs() {
    let server = server_with(&["blue", "green", "red"]).await;
    let traffic = Traffic::default();
    let informers = InformerFactory::new(traffic.client(&server));
    informers.start(&CancellationToken::new());
    let tenants = Namespaces::new(["blue", "green"]);
    let input = WatchInput::<ConfigMap>::new().follow_namespaces(&tenants);
    let informer = informers.informer_from(&input);
    informer.index_field("value", "/data/value").unwrap();
    let (events, registration) = EventLog::of(&informer);
    let lister = informer.lister();
    informers.wait_for_sync().await.unwrap();
    assert!(registration.synced().await);
    assert_eq!(informer.describe(), "configmaps in namespaces blue, green");
    assert_eq!(lister.by_index("value", "x").unwrap().len(), 2);
    let mut seen = events.take();
    seen.sort_unstable();
    assert_eq!(seen, ["+blue-1", "+green-1"]);

    assert!(tenants.add("red"));
    informers.wait_for_sync().await.unwrap();
    assert_eq!(lister.len(), 3, "waiting covers the added namespace");
    create(&maps(&server, "red"), &config_map("red-2", "x")).await;
    patch(
        &maps(&server, "green"),
        "green-1",
        json!({"data": {"value": "y"}}),
    )
    .await;
    sleep(SECOND).await;
    assert_eq!(events.take(), ["+red-1", "+red-2", "=green-1"]);
    assert_eq!(lister.by_index("value", "x").unwrap().len(), 3);
    assert_eq!(traffic.open(), 3);

    assert!(tenants.remove("blue"));
    sleep(SECOND).await;
    assert_eq!(events.take(), ["?blue-1"], "only its last state is known");
    assert_eq!(names(&lister), ["green/green-1", "red/red-1", "red/red-2"]);
    assert_eq!(traffic.open(), 2, "its watch has ended");
    delete(&maps(&server, "blue"), "blue-1").await;
    create(&maps(&server, "blue"), &config_map("blue-2", "x")).await;
    sleep(SECOND).await;
    assert_eq!(events.take(), [""; 0]);

    // `green` is removed and added again immediately; `blue-1` was deleted before `blue` is added
    // again.
    tenants.remove("green");
    tenants.add("blue");
    tenants.add("green");
    informers.wait_for_sync().await.unwrap();
    sleep(SECOND).await;
    assert_eq!(events.take(), ["+blue-2"]);
    assert_eq!(traffic.open(), 3);
    for name in tenants.names() {
        tenants.remove(&name);
    }
    sleep(SECOND).await;
    assert_eq!((lister.len(), traffic.open()), (0, 0));
    drop((informer, registration, lister));
    sleep(SECOND).await;
    assert!(informers.not_synced().is_none());
}

/// Proves informer/namespaces.
#[tokio::test(start_paused = true)]
async fn relist_of_one_namespace_leaves_the_others_alone() {
    let server = server_with(&["blue", "green"]).await;
    let traffic = Traffic::default();
    let informers = InformerFactory::new(traffic.client(&server));
    informers.start(&CancellationToken::new());
    let input = WatchInput::<ConfigMap>::new().namespaces(["blue", "green"]);
    let informer = informers.informer_from(&input);
    let (events, _registration) = EventLog::of(&informer);
    informers.wait_for_sync().await.unwrap();
    sleep(SECOND).await;
    events.take();
    // While `blue` may not be read, an object in it is deleted and the history is compacted.
    *traffic.refused.lock().unwrap() = Some("blue".to_owned());
    traffic.breaks.send_replace(());
    sleep(SECOND).await;
    delete(&maps(&server, "blue"), "blue-1").await;
    create(&maps(&server, "blue"), &config_map("blue-2", "x")).await;
    create(&maps(&server, "green"), &config_map("green-2", "x")).await;
    server.compact();
    *traffic.refused.lock().unwrap() = None;
    sleep(Duration::from_secs(120)).await;
    let mut seen = events.take();
    seen.retain(|line| !line.starts_with('='));
    seen.sort_unstable();
    assert_eq!(seen, ["+blue-2", "+green-2", "?blue-1"]);
    let lister = informer.lister();
    assert_eq!(
        names(&lister),
        ["blue/blue-2", "green/green-1", "green/green-2"]
    );
}

/// Proves informer/namespaces, probes/readyz.
#[tokio::test(start_paused = true)]
async fn readiness_covers_every_namespace() {
    let server = server_with(&["blue", "green", "red"]).await;
    let traffic = Traffic::default();
    *traffic.refused.lock().unwrap() = Some("green".to_owned());
    let informers = InformerFactory::new(traffic.client(&server));
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    informers.start(&CancellationToken::new());
    let tenants = Namespaces::new(["blue", "green"]);
    let input = WatchInput::<ConfigMap>::new().follow_namespaces(&tenants);
    let informer = informers.informer_from(&input);
    let waited = informers.wait_for_sync_within(SECOND * 20).await;
    let missing = waited.unwrap_err().to_string();
    assert!(
        missing.contains("configmaps in namespaces blue, green"),
        "{missing}"
    );
    assert!(
        missing.contains("403 Forbidden on configmaps in namespace green"),
        "{missing}"
    );
    assert_eq!(informer.lister().len(), 1, "the other namespace is cached");
    assert!(!informer.has_synced());
    assert_eq!(probes.not_ready().len(), 1, "{:?}", probes.not_ready());

    // Without the forbidden namespace, nothing is missing.
    tenants.remove("green");
    informers.wait_for_sync_within(SECOND).await.unwrap();
    assert!(informer.has_synced());
    sleep(SECOND * 60).await;
    assert_eq!(probes.not_ready(), [""; 0]);

    // A forbidden namespace that is added later is tolerated for 30 seconds.
    tenants.add("green");
    sleep(SECOND * 20).await;
    assert_eq!(probes.not_ready(), [""; 0]);
    sleep(SECOND * 20).await;
    let reasons = probes.not_ready().join("\n");
    assert!(
        reasons.contains("403 Forbidden on configmaps in namespace green"),
        "{reasons}"
    );
    *traffic.refused.lock().unwrap() = None;
    sleep(SECOND * 60).await;
    assert_eq!(probes.not_ready(), [""; 0]);
}

/// Proves factory/restart.
#[tokio::test(start_paused = true)]
async fn lister_of_several_namespaces_follows_a_restart() {
    let server = server_with(&["blue", "green"]).await;
    let informers = InformerFactory::new(server.client());
    let input = WatchInput::<ConfigMap>::new().namespaces(["blue", "green"]);
    let lister = informers.informer_from(&input).lister();
    let first = CancellationToken::new();
    informers.start(&first);
    informers.wait_for_sync().await.unwrap();
    first.cancel();
    sleep(SECOND).await;
    create(&maps(&server, "blue"), &config_map("blue-2", "x")).await;
    assert_eq!(lister.len(), 2, "the last state is retained");
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert_eq!(
        names(&lister),
        ["blue/blue-1", "blue/blue-2", "green/green-1"]
    );
}

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn two_clusters_are_two_caches() {
    let (home, east) = (server_with(&["blue"]).await, server_with(&["blue"]).await);
    create(&maps(&east, "blue"), &config_map("east-only", "x")).await;
    let informers = InformerFactory::new(home.client());
    informers.start(&CancellationToken::new());
    let input = || WatchInput::<ConfigMap>::new().namespace("blue");
    let here = informers.informer_from(&input());
    let there = informers.informer_from(&input().cluster("east", east.client()));
    informers.wait_for_sync().await.unwrap();
    assert_eq!(names(&here.lister()), ["blue/blue-1"]);
    assert_eq!(names(&there.lister()), ["blue/blue-1", "blue/east-only"]);
    assert_eq!(
        there.describe(),
        "configmaps in namespace blue of cluster east"
    );
    let uid = |lister: &Lister<ConfigMap>| {
        let map = lister.namespace("blue").get("blue-1").unwrap();
        map.uid().to_owned()
    };
    assert_ne!(uid(&here.lister()), uid(&there.lister()));
}

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn input_transform_replaces_the_factory_transform() {
    let server = server_with(&["blue"]).await;
    let mark = |value: &'static str| {
        move |map: &mut serde_json::Value| {
            map["data"]["value"] = json!(value);
            Ok(())
        }
    };
    let informers = InformerFactory::new(server.client()).transform(mark("factory"));
    let input = WatchInput::<ConfigMap>::new().namespace("blue");
    let plain = informers.informer_from(&input);
    let own = informers.informer_from(&input.transform("mark", mark("input")));
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    for (informer, value) in [(plain, "factory"), (own, "input")] {
        let map = informer.lister().namespace("blue").get("blue-1").unwrap();
        assert_eq!(map.get().unwrap().data.as_ref().unwrap()["value"], value);
    }
}
