//! What a user of informers relies on, on the embedded API server under virtual time.

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
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use pintle::{
    cache::{Kind, Lister, Selector},
    clock::Rng,
    informer::{Event, InformerFactory, SharedInformer},
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

const SECOND: Duration = Duration::from_secs(1);

fn server() -> ApiServer {
    ApiServer::builder().seed(7).build()
}

fn map(name: &str, value: &str) -> ConfigMap {
    let json = json!({
        "metadata": {"name": name, "labels": {"value": value}},
        "data": {"value": value},
    });
    serde_json::from_value(json).unwrap()
}

/// Names and versions of what a cache holds.
fn shown<K: Kind>(lister: &Lister<K>) -> BTreeMap<String, String> {
    let row = |object: &pintle::cache::Object<K>| {
        (
            object.key().name().to_owned(),
            object.resource_version().to_owned(),
        )
    };
    lister.list().iter().map(row).collect()
}

/// Names and versions of what the server holds.
async fn held(maps: &Api<ConfigMap>) -> BTreeMap<String, String> {
    let items = maps.list(&ListParams::default()).await.unwrap().items;
    let row = |map: ConfigMap| {
        (
            map.metadata.name.unwrap_or_default(),
            map.metadata.resource_version.unwrap_or_default(),
        )
    };
    items.into_iter().map(row).collect()
}

/// Proves factory/shared-informer, factory/dynamic-kinds, informer/states-in-order.
/// Proves informer/eventually-consistent.
#[tokio::test(start_paused = true)]
async fn thousands_of_objects_sync_in_every_form() {
    let server = server();
    let client = server.client();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for n in 0..5000 {
        let value = if n % 100 == 0 { "rare" } else { "common" };
        maps.create(&PostParams::default(), &map(&format!("m{n}"), value))
            .await
            .unwrap();
    }
    let informers = InformerFactory::new(client);
    let typed = informers.informer::<ConfigMap>();
    let resource = ApiResource::erase::<ConfigMap>(&());
    let (dynamic, metadata) = (informers.dynamic(&resource), informers.metadata(&resource));
    typed.index_field("value", "/data/value").unwrap();
    let counted = Arc::new(Mutex::new(0));
    let calls = counted.clone();
    let watching = typed.on_event(move |_| *calls.lock().unwrap() += 1);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert!(watching.synced().await);
    assert_eq!(*counted.lock().unwrap(), 5000);

    let held = held(&maps).await;
    assert_eq!(shown(&typed.lister()), held);
    assert_eq!(shown(&dynamic.lister()), held);
    assert_eq!(shown(&metadata.lister()), held);
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

/// A client that reaches the server while `up` says so; every change of it ends open watches.
fn breakable(server: &ApiServer, up: &watch::Sender<bool>) -> Client {
    let (service, up) = (server.service(), up.clone());
    let breaking = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let answer = service.clone().oneshot(request);
        let mut up = up.subscribe();
        async move {
            if !*up.borrow_and_update() {
                return Err(tower::BoxError::from("the server cannot be reached"));
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

/// Proves informer/eventually-consistent, fifo/recreated-under-same-name.
#[tokio::test(start_paused = true)]
async fn broken_watches_and_a_compaction_leave_the_cache_right() {
    let server = server();
    let up = watch::Sender::new(true);
    let informers = InformerFactory::new(breakable(&server, &up));
    let cached = informers.informer::<ConfigMap>();
    let told = Arc::new(Mutex::new(Vec::new()));
    let lines = told.clone();
    let _watching = cached.on_event(move |event| {
        lines.lock().unwrap().push(match &event {
            Event::Added { object, .. } => format!("+{}", object.key().name()),
            Event::Updated { new, .. } => format!("={}", new.key().name()),
            Event::Deleted(deleted) if deleted.exact => format!("-{}", deleted.key.name()),
            Event::Deleted(deleted) => format!("?{}", deleted.key.name()),
        });
    });
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name, "1"))
            .await
            .unwrap();
    }
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(
        std::mem::take(&mut *told.lock().unwrap()),
        ["+a", "+b", "+c"]
    );

    // A watch that breaks goes on from where it was.
    up.send_replace(true);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(std::mem::take(&mut *told.lock().unwrap()), ["-a"]);

    // One that breaks and finds its history gone lists anew.
    up.send_replace(false);
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    maps.delete("c", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &map("c", "2"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &map("d", "1"))
        .await
        .unwrap();
    server.compact();
    sleep(SECOND * 60).await;
    assert!(
        told.lock().unwrap().is_empty(),
        "what is cached stays while nobody can be asked"
    );
    up.send_replace(true);
    sleep(SECOND * 90).await;
    assert_eq!(
        std::mem::take(&mut *told.lock().unwrap()),
        ["?b", "?c", "+c", "+d"]
    );
    assert_eq!(shown(&cached.lister()), held(&maps).await);
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

/// Proves factory/wait-for-sync, factory/dynamic-kinds.
#[tokio::test(start_paused = true)]
async fn a_kind_may_come_go_and_come_back_under_a_running_informer() {
    let server = server();
    let client = server.client();
    let informers = InformerFactory::new(client.clone());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let cached: SharedInformer<DynamicObject> = informers.dynamic(&kind);
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
    kinds
        .create(&PostParams::default(), &widgets())
        .await
        .unwrap();
    informers.wait_for_sync().await.unwrap();
    objects
        .create(&PostParams::default(), &widget("one"))
        .await
        .unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(cached.lister().len(), 1);

    kinds
        .delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    sleep(SECOND * 120).await;
    kinds
        .create(&PostParams::default(), &widgets())
        .await
        .unwrap();
    sleep(SECOND * 120).await;
    objects
        .create(&PostParams::default(), &widget("two"))
        .await
        .unwrap();
    sleep(SECOND * 5).await;
    let names: Vec<_> = shown(&cached.lister()).into_keys().collect();
    assert_eq!(names, ["two"]);
}

/// Proves factory/options, informer/filter.
#[tokio::test(start_paused = true)]
async fn scopes_select_on_the_server() {
    let server = server();
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for (name, value) in [("a", "x"), ("b", "y")] {
        maps.create(&PostParams::default(), &map(name, value))
            .await
            .unwrap();
    }
    let informers = InformerFactory::new(server.client()).namespace("default");
    let scope = Scope::namespace("default").labels("value=x");
    let cached = informers.request::<ConfigMap>(&()).scope(scope).get();
    let pods = informers.informer::<Pod>();
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    assert!(pods.lister().is_empty());
    assert_eq!(
        shown(&cached.lister()).into_keys().collect::<Vec<_>>(),
        ["a"]
    );
    // What leaves the selection is gone, what enters it is new.
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"value": value}}}));
    maps.patch("a", &PatchParams::default(), &label("y"))
        .await
        .unwrap();
    maps.patch("b", &PatchParams::default(), &label("x"))
        .await
        .unwrap();
    sleep(SECOND).await;
    assert_eq!(
        shown(&cached.lister()).into_keys().collect::<Vec<_>>(),
        ["b"]
    );
}

/// The instants at which an informer asks a server that refuses everything, in ten minutes.
async fn tries(make: impl FnOnce(Client) -> SharedInformer<ConfigMap>) -> Vec<Duration> {
    let (asked, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let note = Arc::clone(&asked);
    let refuse = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        note.lock().unwrap().push(start.elapsed());
        let answer = http::Response::builder().status(500);
        async move { answer.body(kube::client::Body::from(b"no".to_vec())) }
    });
    let informer = make(Client::new(refuse, "default"));
    let ten_minutes = Duration::from_mins(10);
    let _ = timeout(ten_minutes, informer.run(&CancellationToken::new())).await;
    let asked = asked.lock().unwrap();
    asked.clone()
}

/// Proves factory/seed.
#[tokio::test(start_paused = true)]
async fn informers_with_the_same_seed_retry_at_the_same_instants() {
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
    let first = tries(of_factory(7)).await;
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(tries(of_factory(7)).await, first);
    assert_eq!(tries(of_builder(7)).await, first);
    assert_ne!(tries(of_factory(8)).await, first);
    assert_ne!(tries(of_builder(8)).await, first);
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn namespaced_factory_lists_dynamic_cluster_scoped_kinds() {
    let server = server();
    let client = server.client();
    let node = serde_json::from_value(json!({"metadata": {"name": "worker-1"}})).unwrap();
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &map("ours", "1"))
        .await
        .unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    maps.create(&PostParams::default(), &map("theirs", "1"))
        .await
        .unwrap();

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
    let names = |shown: BTreeMap<String, String>| shown.into_keys().collect::<Vec<_>>();
    for shown in [shown(&dynamic[0].lister()), shown(&metadata[0].lister())] {
        assert_eq!(names(shown), ["worker-1"]);
    }
    for shown in [shown(&dynamic[1].lister()), shown(&metadata[1].lister())] {
        assert_eq!(names(shown), ["ours"]);
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

/// Proves cache/index-functions, informer/panicking-deserialize.
#[tokio::test(start_paused = true)]
async fn panic_while_decoding_concerns_one_object_only() {
    for eager in [false, true] {
        let server = server();
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        for (name, value) in [("fine", "1"), ("bomb", "bomb")] {
            maps.create(&PostParams::default(), &map(name, value))
                .await
                .unwrap();
        }
        let metrics = Metrics::new();
        let informers = InformerFactory::new(client).metrics(metrics.clone());
        let request = informers.request::<Explosive>(&());
        let cached = if eager { request.eager() } else { request }.get();
        if !eager {
            let values = |map: &Explosive| map.data.values().cloned().collect();
            cached.index_by("value", values).unwrap();
        }
        informers.start(&CancellationToken::new());
        informers.wait_for_sync_within(SECOND * 60).await.unwrap();
        for (name, value) in [("later", "2"), ("second-bomb", "bomb")] {
            maps.create(&PostParams::default(), &map(name, value))
                .await
                .unwrap();
        }
        sleep(SECOND).await;
        assert!(!cached.is_stopped());
        let lister = cached.lister();
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
