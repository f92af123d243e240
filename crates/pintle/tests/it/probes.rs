//! Health and metrics endpoints over real HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body};
use pintle::{
    informer::InformerFactory,
    metrics::Metrics,
    probes::{Probes, Serving},
    queue::WorkQueue,
};
use pintle_apiserver::ApiServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::forbidden;

/// Only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(20);

/// Sends a request and returns the status and the whole response.
async fn request(serving: &Serving, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(serving.address())
        .await
        .expect("listens");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: probe\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let status = answer.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), answer)
}

/// Polls `/readyz` until it returns `status` and a response that contains `part`.
async fn until(serving: &Serving, status: u16, part: &str) -> String {
    let mut last = String::new();
    let polling = async {
        loop {
            let (is, answer) = request(serving, "GET", "/readyz").await;
            if is == status && answer.contains(part) {
                return answer;
            }
            last = answer;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = tokio::time::timeout(DEADLINE, polling).await;
    answer.unwrap_or_else(|_| panic!("wanted {status} with {part:?}, last response: {last}"))
}

/// A client of `server` that may not read Secrets until `granted`.
fn restricted(server: &ApiServer, granted: &Arc<AtomicBool>) -> Client {
    let (service, granted) = (server.service(), Arc::clone(granted));
    let service = tower::service_fn(move |request: Request<Body>| {
        let refused = request.uri().path().contains("secrets") && !granted.load(Ordering::SeqCst);
        let answer = service.clone().oneshot(request);
        async move {
            if refused {
                return Ok(forbidden("secrets"));
            }
            answer.await.map(|answer| answer.map(BodyExt::boxed_unsync))
        }
    });
    Client::new(service, "default")
}

/// Proves probes/readyz.
#[tokio::test]
async fn readyz_names_the_unsynced_cache_and_why() {
    let (server, granted) = (ApiServer::builder().build(), Arc::default());
    let informers = InformerFactory::new(restricted(&server, &granted));
    let shutdown = CancellationToken::new();
    let probes = Probes::new(&shutdown).caches(&informers);
    let serving = probes.serve("127.0.0.1:0").await.expect("a free port");
    until(&serving, 503, "[-]informers failed: not started").await;

    let maps = informers.informer::<ConfigMap>();
    let secrets = informers.informer::<Secret>();
    informers.start(&shutdown);
    assert!(maps.synced().await);
    let answer = until(&serving, 503, "403").await;
    assert!(
        answer.contains("[-]informer secrets at cluster scope failed: "),
        "{answer}"
    );
    assert!(answer.contains("secrets is forbidden"), "{answer}");
    assert!(
        answer.contains("[+]informer configmaps at cluster scope ok\n"),
        "{answer}"
    );
    assert!(answer.ends_with("readyz check failed\n"), "{answer}");
    assert_eq!(request(&serving, "GET", "/healthz").await.0, 200);

    granted.store(true, Ordering::SeqCst);
    until(&serving, 200, "ok").await;
    drop(secrets);

    shutdown.cancel();
    let (status, answer) = request(&serving, "GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        answer.contains("[-]shutdown failed: shutting down"),
        "{answer}"
    );
    assert_eq!(
        request(&serving, "GET", "/healthz").await.0,
        200,
        "still alive"
    );
    let address = serving.address();
    serving.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err(), "closed");
}

/// Proves probes/readyz.
#[tokio::test]
async fn readyz_fails_after_informers_stop() {
    let server = ApiServer::builder().build();
    let informers = InformerFactory::new(server.client());
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    let serving = probes.serve("127.0.0.1:0").await.expect("a free port");
    let first = CancellationToken::new();
    informers.start(&first);
    let stopped = informers.informer::<ConfigMap>();
    until(&serving, 200, "ok").await;
    first.cancel();
    let (status, answer) = request(&serving, "GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.contains("[-]informers failed: stopped"), "{answer}");

    // Informers still in use run again.
    informers.start(&CancellationToken::new());
    until(&serving, 200, "ok").await;
    drop(stopped);

    informers.shutdown().await;
    let (status, answer) = request(&serving, "GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.contains("[-]informers failed: stopped"), "{answer}");
}

/// Proves probes/silent-connections.
#[tokio::test]
async fn silent_connections_do_not_block_probes() {
    let serving = Probes::new(&CancellationToken::new()).serve("127.0.0.1:0");
    let serving = serving.await.expect("a free port");
    let (status, answer) = request(&serving, "GET", "/healthz").await;
    assert_eq!(status, 200);
    assert!(answer.contains("connection: close"), "{answer}");
    let mut silent = Vec::new();
    for _ in 0..64 {
        let stream = TcpStream::connect(serving.address()).await;
        silent.push(stream.expect("listens"));
    }
    let answer = tokio::time::timeout(DEADLINE, request(&serving, "GET", "/healthz"));
    assert_eq!(answer.await.expect("answered in time").0, 200);
}

/// Proves metrics/names.
#[tokio::test]
async fn metrics_endpoint_serves_every_stage() {
    let (server, metrics) = (ApiServer::builder().build(), Metrics::new());
    let shutdown = CancellationToken::new();
    let informers = InformerFactory::new(server.client()).metrics(metrics.clone());
    let maps = informers.informer::<ConfigMap>();
    let queue = WorkQueue::<String>::builder("maps")
        .metrics(&metrics)
        .build();
    queue.add("a".to_owned());
    informers.start(&shutdown);
    assert!(maps.synced().await);
    let probes = Probes::new(&shutdown).metrics(&metrics);
    let serving = probes.serve("127.0.0.1:0").await.expect("a free port");
    let (status, text) = request(&serving, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(text.contains(r#"workqueue_depth{name="maps""#), "{text}");
    assert!(text.contains("informer_store_resource_version"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    serving.shutdown().await;
}

#[tokio::test]
async fn other_paths_and_methods_are_rejected() {
    let serving = Probes::new(&CancellationToken::new()).serve("127.0.0.1:0");
    let serving = serving.await.expect("a free port");
    assert_eq!(request(&serving, "GET", "/").await.0, 404);
    assert_eq!(request(&serving, "POST", "/healthz").await.0, 405);
    assert_eq!(request(&serving, "HEAD", "/readyz").await.0, 200);
}
