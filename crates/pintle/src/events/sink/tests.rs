use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::{core, events};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::events::tests::support::occurrence;

type Log = Arc<Mutex<Vec<String>>>;

/// A server that responds with the code that `answer` returns; for 200, with the request's body.
fn server(answer: impl Fn(&Request<Body>) -> u16 + Clone + Send + 'static) -> (ApiSink, Log) {
    let log = Log::default();
    let seen = Arc::clone(&log);
    let service = tower::service_fn(move |request: Request<Body>| {
        let code = answer(&request);
        let content = request
            .headers()
            .get("content-type")
            .map(|value| value.to_str());
        let content = content.and_then(Result::ok).unwrap_or("-");
        let line = format!("{} {} {content}", request.method(), request.uri().path());
        seen.lock().push(line);
        async move {
            let sent = request
                .into_body()
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes);
            let body = match code {
                200 => sent.unwrap_or_default().to_vec(),
                code => json!({ "code": code, "reason": "No" })
                    .to_string()
                    .into_bytes(),
            };
            let response = Response::builder().status(code).body(Body::from(body));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    (ApiSink::new(Client::new(service, "default")), log)
}

fn content_type(request: &Request<Body>) -> &str {
    request.headers()["content-type"].to_str().expect("text")
}

/// Proves events/sinks, events/repeats-patch.
#[tokio::test]
async fn events_of_both_apis_reach_their_endpoints() {
    let (sink, log) = server(|_| 200);
    let seen = occurrence("web", "Seen", "hello");
    let core: core::v1::Event = sink.create(&seen.to_core_v1()).await.expect("stored");
    assert_eq!(core.message.as_deref(), Some("hello"));
    let newer: events::v1::Event = sink.create(&seen.to_events_v1("m")).await.expect("stored");
    assert_eq!(newer.note.as_deref(), Some("hello"));
    let patch = json!({ "count": 2, "metadata": {}, "involvedObject": {} });
    let patched: core::v1::Event = sink.patch("shop", "e", &patch).await.expect("patched");
    assert_eq!(patched.count, Some(2));
    assert_eq!(
        *log.lock(),
        [
            "POST /api/v1/namespaces/shop/events application/json",
            "POST /apis/events.k8s.io/v1/namespaces/shop/events application/json",
            "PATCH /api/v1/namespaces/shop/events/e application/strategic-merge-patch+json",
        ]
    );
}

/// Proves events/repeats-patch.
#[tokio::test]
async fn unsupported_strategic_patch_falls_back_to_merge() {
    for unknown in [415, 501] {
        plain_after(unknown).await;
    }
}

async fn plain_after(unknown: u16) {
    let (sink, log) = server(move |request| {
        if content_type(request).contains("strategic") {
            unknown
        } else {
            200
        }
    });
    let patch = json!({ "count": 2, "metadata": {}, "involvedObject": {} });
    for _ in 0..2 {
        let patched: core::v1::Event = sink.patch("shop", "e", &patch).await.expect("patched");
        assert_eq!(patched.count, Some(2));
    }
    let kinds: Vec<_> = log
        .lock()
        .iter()
        .map(|line| line.contains("strategic"))
        .collect();
    assert_eq!(kinds, [true, false, false]);
}

/// Proves events/retries.
#[tokio::test]
async fn error_responses_are_distinguished_from_no_response() {
    let event = occurrence("web", "Seen", "hello").to_core_v1();
    for (code, transient) in [
        (400, false),
        (404, false),
        (409, false),
        (500, false),
        (429, true),
    ] {
        let (sink, _) = server(move |_| code);
        let error = EventSink::<core::v1::Event>::create(&sink, &event)
            .await
            .expect_err("no");
        assert_eq!(error.code(), Some(code));
        assert_eq!(error.is_transient(), transient, "{error}");
    }
    let odd = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from(b"not an event".to_vec())))
    });
    let gone = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("connection refused"))
    });
    for client in [Client::new(odd, "default"), Client::new(gone, "default")] {
        let sink = ApiSink::new(client);
        let error = EventSink::<core::v1::Event>::create(&sink, &event)
            .await
            .expect_err("no");
        assert!(error.is_transient(), "{error}");
    }
    let (sink, log) = server(|_| 200);
    let patch = json!({});
    let error = EventSink::<core::v1::Event>::patch(&sink, "shop", "", &patch).await;
    assert!(!error.expect_err("an event without a name").is_transient());
    assert!(log.lock().is_empty());
}

/// Proves events/v1-discovery.
#[tokio::test]
async fn discovery_requests_events_v1() {
    let (sink, log) = server(|_| 404);
    assert!(
        sink.discover_events_v1()
            .await
            .expect_err("not found")
            .is_not_found()
    );
    assert_eq!(*log.lock(), ["GET /apis/events.k8s.io/v1 -"]);
}
