//! Informers over sockets, in real time: many objects, and a server that restarts.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use futures::{StreamExt, stream};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};
use pintle::{informer::InformerFactory, reflector::Phase};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{EventLog, cached, config_map, create, delete, patch, stored};

/// Only a failing test waits this long.
const DEADLINE: Duration = Duration::from_mins(1);

/// Serves on a socket. Aborting the set resets every connection, as if the server process had died.
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
                // Clients may disconnect at any time.
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

/// Waits until `condition` holds.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, polling).await;
    assert!(waited.is_ok(), "waited {DEADLINE:?} for {what}");
}

/// Proves factory/inputs, informer/handler-order, informer/eventually-consistent.
#[tokio::test]
async fn thousands_of_objects_sync_over_a_socket() {
    let server = ApiServer::builder().build();
    let maps = &Api::<ConfigMap>::default_namespaced(server.client());
    let created = stream::iter(0..5000)
        .map(|number| async move { create(maps, &config_map(&format!("m{number}"), "1")).await });
    created.buffer_unordered(16).collect::<Vec<_>>().await;

    let (address, _process) = serve(&server, ([127, 0, 0, 1], 0).into()).await;
    let informers = InformerFactory::new(client(address));
    let informer = informers.informer::<ConfigMap>();
    let (events, registration) = EventLog::of(&informer);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync_within(DEADLINE).await.unwrap();
    assert!(registration.synced().await);
    assert_eq!(events.len(), 5000);
    assert_eq!(cached(&informer.lister()), stored(maps).await);
    informers.shutdown().await;
}

/// Proves informer/eventually-consistent, reflector/watch-errors.
#[tokio::test]
async fn informer_follows_a_restarted_server() {
    let server = ApiServer::builder().build();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    for name in ["a", "b", "c"] {
        create(&maps, &config_map(name, "1")).await;
    }
    let (address, mut process) = serve(&server, ([127, 0, 0, 1], 0).into()).await;
    let informers = InformerFactory::new(client(address));
    let informer = informers.informer::<ConfigMap>();
    let (events, registration) = EventLog::of(&informer);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync_within(DEADLINE).await.unwrap();
    assert!(registration.synced().await);
    assert_eq!(events.take(), ["+a", "+b", "+c"]);

    // The server restarts twice: with its watch history, then without.
    for forgets in [false, true] {
        process.shutdown().await;
        let status = informer.status();
        let is_down = || matches!(status.borrow().phase, Phase::Retrying { .. });
        eventually("the informer to retry", is_down).await;
        delete(&maps, "a").await;
        create(&maps, &config_map("a", "1")).await;
        let value = json!({"data": {"value": format!("forgets {forgets}")}});
        patch(&maps, "b", value).await;
        delete(&maps, "c").await;
        if forgets {
            server.compact();
        }
        assert_eq!(events.len(), 0, "the server is down");

        (_, process) = serve(&server, address).await;
        create(&maps, &config_map("c2", "1")).await;
        eventually("the missed events", || events.len() >= 5).await;
        let expected = if forgets {
            // Deletions are inferred from the list and come first.
            ["?c", "?a", "+a", "=b", "+c2"]
        } else {
            ["-a", "+a", "=b", "-c", "+c2"]
        };
        assert_eq!(events.take(), expected);
        assert_eq!(cached(&informer.lister()), stored(&maps).await);
        delete(&maps, "c2").await;
        create(&maps, &config_map("c", "1")).await;
        eventually("the watch to continue", || events.len() == 2).await;
        assert_eq!(events.take(), ["-c2", "+c"]);
    }
    informers.shutdown().await;
}
