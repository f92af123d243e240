//! Informers over sockets, in real time: many objects, and a server that restarts under them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pintle::{
    cache::Lister,
    informer::{Event, InformerFactory},
    reflector::Phase,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// What a handler was told, one line each.
type Lines = Arc<Mutex<Vec<String>>>;

const PATIENCE: Duration = Duration::from_mins(1);

/// The server on a socket. Aborting it resets every connection, as the end of a process does.
async fn serve(server: &ApiServer, address: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = server.service();
    let mut process = JoinSet::new();
    process.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_zero_linger().unwrap();
            let service = service.clone();
            connections.spawn(async move {
                let answer = service_fn(move |request: http::Request<Incoming>| {
                    let answer = service.clone().oneshot(request);
                    async {
                        Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {}))
                    }
                });
                let http = auto::Builder::new(TokioExecutor::new());
                // A client that goes away is no concern of the server.
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (address, process)
}

fn client(address: SocketAddr) -> Client {
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_namespace = "default".into();
    config.default_retry = false;
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

fn map(name: &str, value: &str) -> ConfigMap {
    let json = json!({"metadata": {"name": name}, "data": {"value": value}});
    serde_json::from_value(json).unwrap()
}

async fn create(maps: &Api<ConfigMap>, name: &str) {
    let created = maps.create(&PostParams::default(), &map(name, "1")).await;
    created.unwrap();
}

/// Names and versions of what a cache holds.
fn shown(lister: &Lister<ConfigMap>) -> BTreeMap<String, String> {
    let objects = lister.list();
    let row = objects.iter().map(|object| {
        let version = object.resource_version().to_owned();
        (object.key().name().to_owned(), version)
    });
    row.collect()
}

/// Names and versions of what the server holds.
async fn held(maps: &Api<ConfigMap>) -> BTreeMap<String, String> {
    let items = maps.list(&ListParams::default()).await.unwrap().items;
    let row = items.into_iter().map(|map| {
        let version = map.metadata.resource_version.unwrap_or_default();
        (map.metadata.name.unwrap_or_default(), version)
    });
    row.collect()
}

async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let asked = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, asked).await;
    assert!(waited.is_ok(), "waited {PATIENCE:?} for {what}");
}

/// Every change in the order told. What is told once more without a change is left out.
fn recorder() -> (Lines, impl FnMut(Event<ConfigMap>) + Send + 'static) {
    let lines = Lines::default();
    let told = lines.clone();
    let record = move |event: Event<ConfigMap>| {
        let line = match &event {
            Event::Added { object, .. } => format!("+{}", object.key().name()),
            Event::Updated { old, new } if old.resource_version() == new.resource_version() => {
                return;
            }
            Event::Updated { new, .. } => format!("={}", new.key().name()),
            Event::Deleted(deleted) if deleted.exact => format!("-{}", deleted.key.name()),
            Event::Deleted(deleted) => format!("?{}", deleted.key.name()),
        };
        told.lock().unwrap().push(line);
    };
    (lines, record)
}

/// Proves factory/shared-informer, informer/states-in-order, informer/eventually-consistent.
#[tokio::test]
async fn thousands_of_objects_sync_over_a_socket() {
    let server = ApiServer::builder().build();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let names: Vec<String> = (0..5000).map(|n| format!("m{n}")).collect();
    let created = stream::iter(&names).map(|name| create(&maps, name));
    created.buffer_unordered(16).collect::<()>().await;

    let (address, _process) = serve(&server, ([127, 0, 0, 1], 0).into()).await;
    let informers = InformerFactory::new(client(address));
    let cached = informers.informer::<ConfigMap>();
    let (told, record) = recorder();
    let watching = cached.on_event(record);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync_within(PATIENCE).await.unwrap();
    assert!(watching.synced().await);
    assert_eq!(told.lock().unwrap().len(), 5000);
    assert_eq!(shown(&cached.lister()), held(&maps).await);
    informers.shutdown().await;
}

/// Proves informer/eventually-consistent, reflector/retry-open-without-list.
/// Proves reflector/other-errors-relist.
#[tokio::test]
async fn a_server_that_restarts_on_its_port_is_followed_again() {
    let server = ApiServer::builder().build();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    for name in ["a", "b", "c"] {
        create(&maps, name).await;
    }
    let (address, mut process) = serve(&server, ([127, 0, 0, 1], 0).into()).await;
    let informers = InformerFactory::new(client(address));
    let cached = informers.informer::<ConfigMap>();
    let (told, record) = recorder();
    let watching = cached.on_event(record);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync_within(PATIENCE).await.unwrap();
    assert!(watching.synced().await);
    assert_eq!(
        std::mem::take(&mut *told.lock().unwrap()),
        ["+a", "+b", "+c"]
    );

    // Twice: with its history, and without.
    for forgets in [false, true] {
        process.shutdown().await;
        let status = cached.status();
        let is_down = || matches!(status.borrow().phase, Phase::Retrying { .. });
        eventually("the server missed", is_down).await;
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        create(&maps, "a").await;
        let patch = Patch::Merge(json!({"data": {"value": format!("forgets {forgets}")}}));
        maps.patch("b", &PatchParams::default(), &patch)
            .await
            .unwrap();
        maps.delete("c", &DeleteParams::default()).await.unwrap();
        if forgets {
            server.compact();
        }
        assert!(told.lock().unwrap().is_empty(), "nobody can know yet");

        (_, process) = serve(&server, address).await;
        create(&maps, "c2").await;
        let last = 5;
        eventually("what was missed", || told.lock().unwrap().len() >= last).await;
        let expected = if forgets {
            // The deletions are seen by their absence, before the rest in the order of the list.
            ["?c", "?a", "+a", "=b", "+c2"]
        } else {
            ["-a", "+a", "=b", "-c", "+c2"]
        };
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), expected);
        assert_eq!(shown(&cached.lister()), held(&maps).await);
        maps.delete("c2", &DeleteParams::default()).await.unwrap();
        create(&maps, "c").await;
        eventually("the watch going on", || told.lock().unwrap().len() == 2).await;
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), ["-c2", "+c"]);
    }
    informers.shutdown().await;
}
