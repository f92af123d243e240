//! Informers on the embedded API server, under virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use pintle::{
    cache::Selector,
    clock::Rng,
    informer::{InformerFactory, SharedInformer, WatchInput},
    metrics::Metrics,
    source::{KubeSource, Scope},
};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{EventLog, SECOND, cached, config_map, create, delete, patch, stored};

fn server() -> ApiServer {
    ApiServer::builder().seed(7).build()
}

/// Proves factory/inputs, informer/handler-order, informer/eventually-consistent.
#[tokio::test(start_paused = true)]
async fn thousands_of_objects_sync_in_every_form() {
    let server = server();
    let client = server.client();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for n in 0..5000 {
        let value = if n % 100 == 0 { "rare" } else { "common" };
        create(&maps, &config_map(&format!("m{n}"), value)).await;
    }
    let informers = InformerFactory::new(client);
    let typed = informers.informer::<ConfigMap>();
    let resource = ApiResource::erase::<ConfigMap>(&());
    let (dynamic, metadata) = (informers.dynamic(&resource), informers.metadata(&resource));
    typed.index_field("value", "/data/value").unwrap();
    let (events, registration) = EventLog::of(&typed);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert!(registration.synced().await);
    assert_eq!(events.len(), 5000);

    let stored = stored(&maps).await;
    assert_eq!(cached(&typed.lister()), stored);
    assert_eq!(cached(&dynamic.lister()), stored);
    assert_eq!(cached(&metadata.lister()), stored);
    let rare: Selector = "value=rare".parse().unwrap();
    assert_eq!(typed.lister().list_matching(&rare).len(), 50);
    assert_eq!(typed.lister().by_index("value", "rare").unwrap().len(), 50);
    let of = |name: &str| {
        dynamic
            .lister()
            .namespace("default")
            .get(name)
            .unwrap()
            .get()
            .unwrap()
    };
    assert_eq!(of("m7").types.as_ref().unwrap().kind, "ConfigMap");
    assert_eq!(of("m7").data["data"]["value"], "common");
    let meta = metadata.lister().namespace("default").get("m0").unwrap();
    assert_eq!(
        meta.get().unwrap().metadata.labels.as_ref().unwrap()["value"],
        "rare"
    );
}

/// A client that reaches the server while `up` is true. Every change of `up` ends open watches.
fn breakable(server: &ApiServer, up: &watch::Sender<bool>) -> Client {
    let (service, up) = (server.service(), up.clone());
    let breaking = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let answer = service.clone().oneshot(request);
        let mut up = up.subscribe();
        async move {
            if !*up.borrow_and_update() {
                return Err(tower::BoxError::from("connection refused"));
            }
            let answer = answer.await?;
            Ok(answer.map(|body| {
                let ended = async move {
                    let _ = up.changed().await;
                };
                let frames = BodyStream::new(body).take_until(Box::pin(ended));
                StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
            }))
        }
    });
    Client::new(breaking, "default")
}

/// Proves informer/eventually-consistent, fifo/cache-decides-kind.
#[tokio::test(start_paused = true)]
async fn cache_recovers_from_broken_watches_and_compaction() {
    let server = server();
    let up = watch::Sender::new(true);
    let informers = InformerFactory::new(breakable(&server, &up));
    let informer = informers.informer::<ConfigMap>();
    let (events, _registration) = EventLog::of(&informer);
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for name in ["a", "b", "c"] {
        create(&maps, &config_map(name, "1")).await;
    }
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(events.take(), ["+a", "+b", "+c"]);

    // A broken watch resumes where it was.
    up.send_replace(true);
    delete(&maps, "a").await;
    sleep(SECOND * 5).await;
    assert_eq!(events.take(), ["-a"]);

    // After a compaction it relists.
    up.send_replace(false);
    delete(&maps, "b").await;
    delete(&maps, "c").await;
    create(&maps, &config_map("c", "2")).await;
    create(&maps, &config_map("d", "1")).await;
    server.compact();
    sleep(SECOND * 60).await;
    assert_eq!(events.len(), 0, "the cache survives the outage");
    up.send_replace(true);
    sleep(SECOND * 90).await;
    assert_eq!(events.take(), ["?b", "?c", "+c", "+d"]);
    assert_eq!(cached(&informer.lister()), stored(&maps).await);
    informers.shutdown().await;
}

fn widgets() -> CustomResourceDefinition {
    let json: Value = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    serde_json::from_value(json).unwrap()
}

/// Proves factory/wait-for-sync, factory/inputs.
#[tokio::test(start_paused = true)]
async fn informer_survives_removal_of_its_kind() {
    let server = server();
    let client = server.client();
    let informers = InformerFactory::new(client.clone());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let informer: SharedInformer<DynamicObject> = informers.dynamic(&kind);
    informers.start(&CancellationToken::new());
    let missing = informers
        .wait_for_sync_within(SECOND * 10)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("404") && missing.contains("widgets.example.com"),
        "{missing}"
    );

    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let objects = Api::<DynamicObject>::namespaced_with(client, "default", &kind);
    let widget = |name: &str| DynamicObject::new(name, &kind).data(json!({"spec": {"size": 1}}));
    create(&kinds, &widgets()).await;
    informers.wait_for_sync().await.unwrap();
    create(&objects, &widget("one")).await;
    sleep(SECOND * 5).await;
    assert_eq!(informer.lister().len(), 1);

    delete(&kinds, "widgets.example.com").await;
    sleep(SECOND * 120).await;
    create(&kinds, &widgets()).await;
    sleep(SECOND * 120).await;
    create(&objects, &widget("two")).await;
    sleep(SECOND * 5).await;
    let names: Vec<_> = cached(&informer.lister()).into_keys().collect();
    assert_eq!(names, ["two"]);
}

/// Proves factory/options, informer/filter.
#[tokio::test(start_paused = true)]
async fn scopes_select_on_the_server() {
    let server = server();
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for (name, value) in [("a", "x"), ("b", "y")] {
        create(&maps, &config_map(name, value)).await;
    }
    let informers = InformerFactory::new(server.client()).namespace("default");
    let selected = WatchInput::<ConfigMap>::new().labels("value=x");
    let selected = informers.informer_from(&selected);
    let pods = informers.informer::<Pod>();
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert!(pods.lister().is_empty());
    assert_eq!(
        cached(&selected.lister()).into_keys().collect::<Vec<_>>(),
        ["a"]
    );
    // An object that stops matching is deleted from the cache; one that starts to match is added.
    let label = |value: &str| json!({"metadata": {"labels": {"value": value}}});
    patch(&maps, "a", label("y")).await;
    patch(&maps, "b", label("x")).await;
    sleep(SECOND).await;
    assert_eq!(
        cached(&selected.lister()).into_keys().collect::<Vec<_>>(),
        ["b"]
    );
}

/// Returns the times of the requests that an informer sends within ten minutes to a server that
/// fails them all.
async fn request_times(make: impl FnOnce(Client) -> SharedInformer<ConfigMap>) -> Vec<Duration> {
    let (requests, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let record = Arc::clone(&requests);
    let refuse = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        record.lock().unwrap().push(start.elapsed());
        let answer = http::Response::builder().status(500);
        async move { answer.body(kube::client::Body::from(b"no".to_vec())) }
    });
    let informer = make(Client::new(refuse, "default"));
    let ten_minutes = Duration::from_mins(10);
    let _ = timeout(ten_minutes, informer.run(&CancellationToken::new())).await;
    let requests = requests.lock().unwrap();
    requests.clone()
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn informers_with_equal_seeds_retry_at_equal_times() {
    let of_factory = |seed| {
        move |client| {
            let informers = InformerFactory::new(client).rng(Rng::with_seed(seed));
            informers.informer()
        }
    };
    let of_builder = |seed| {
        move |client| {
            let maps = KubeSource::<ConfigMap>::new(client, Scope::all());
            let maps = SharedInformer::builder(maps);
            maps.rng(Rng::with_seed(seed)).build()
        }
    };
    let first = request_times(of_factory(7)).await;
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(request_times(of_factory(7)).await, first);
    assert_eq!(request_times(of_builder(7)).await, first);
    assert_ne!(request_times(of_factory(8)).await, first);
    assert_ne!(request_times(of_builder(8)).await, first);
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn namespaced_factory_lists_dynamic_cluster_scoped_kinds() {
    let server = server();
    let client = server.client();
    let node = serde_json::from_value(json!({"metadata": {"name": "worker-1"}})).unwrap();
    let nodes = Api::<Node>::all(client.clone());
    create(&nodes, &node).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    create(&maps, &config_map("ours", "1")).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    create(&maps, &config_map("theirs", "1")).await;

    let informers = InformerFactory::new(client).namespace("default");
    let nodes = ApiResource::erase::<Node>(&());
    let maps = ApiResource::erase::<ConfigMap>(&());
    let dynamic = [informers.dynamic(&nodes), informers.dynamic(&maps)];
    let metadata = [informers.metadata(&nodes), informers.metadata(&maps)];
    informers.start(&CancellationToken::new());
    informers.wait_for_sync_within(SECOND * 60).await.unwrap();
    assert_eq!(dynamic[0].describe(), "nodes at cluster scope");
    assert_eq!(metadata[0].describe(), "nodes at cluster scope");
    assert_eq!(dynamic[1].describe(), "configmaps in namespace default");
    let names = |objects: BTreeMap<String, String>| objects.into_keys().collect::<Vec<_>>();
    for nodes in [cached(&dynamic[0].lister()), cached(&metadata[0].lister())] {
        assert_eq!(names(nodes), ["worker-1"]);
    }
    for maps in [cached(&dynamic[1].lister()), cached(&metadata[1].lister())] {
        assert_eq!(names(maps), ["ours"]);
    }
}

/// A ConfigMap whose decoding panics on some values.
#[derive(Clone, Debug, serde::Deserialize)]
struct Explosive {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(deserialize_with = "defuse")]
    data: BTreeMap<String, String>,
}

fn defuse<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let data = <BTreeMap<String, String> as serde::Deserialize>::deserialize(deserializer)?;
    assert!(
        data.get("value").is_none_or(|value| value != "bomb"),
        "boom"
    );
    Ok(data)
}

impl kube::Resource for Explosive {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        &mut self.metadata
    }
}

/// Proves cache/indexes, informer/handler-panic.
#[tokio::test(start_paused = true)]
async fn panic_while_decoding_affects_one_object_only() {
    for eager in [false, true] {
        let server = server();
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        for (name, value) in [("fine", "1"), ("bomb", "bomb")] {
            create(&maps, &config_map(name, value)).await;
        }
        let metrics = Metrics::new();
        let informers = InformerFactory::new(client).metrics(metrics.clone());
        let input = WatchInput::<Explosive>::new();
        let input = if eager { input.eager() } else { input };
        let informer = informers.informer_from(&input);
        if !eager {
            let values = |map: &Explosive| map.data.values().cloned().collect();
            informer.index_by("value", values).unwrap();
        }
        informers.start(&CancellationToken::new());
        informers.wait_for_sync_within(SECOND * 60).await.unwrap();
        for (name, value) in [("later", "2"), ("second-bomb", "bomb")] {
            create(&maps, &config_map(name, value)).await;
        }
        sleep(SECOND).await;
        assert!(!informer.is_stopped());
        let lister = informer.lister();
        let of = |name: &str| lister.namespace("default").get(name).unwrap().get();
        assert_eq!(of("later").unwrap().data["value"], "2");
        let error = of("second-bomb").unwrap_err();
        assert_eq!(error.key().to_string(), "default/second-bomb");
        assert!(error.to_string().contains("boom"), "{error}");
        if !eager {
            assert_eq!(lister.by_index("value", "2").unwrap().len(), 1);
        }
        let counted = if eager {
            r#"informer_undecoded_objects_total{name="",resource="configmaps"} 2"#
        } else {
            r#"informer_unindexed_objects_total{name="",resource="configmaps"} 2"#
        };
        assert!(metrics.encode().contains(counted), "{}", metrics.encode());
    }
}
