//! Misbehaving webhooks, in a process of its own: the allocator counts everything in it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use peak_alloc::PeakAlloc;
use pintle_apiserver::{AdmissionResponse, ApiServer, ApiService, Webhook, WebhookTarget};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MIB: usize = 1024 * 1024;

/// The size of a large response.
const SIZE: usize = 4 * MIB;

/// Concurrent writes that each misbehaving webhook is called for.
const WRITES: usize = 16;

fn path(plural: &str) -> String {
    format!("/api/v1/namespaces/default/{plural}")
}

async fn send(service: &ApiService, method: &str, path: &str, body: &Value) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    code
}

/// Answers with a review that is large and for another request. It is sent in pieces
/// of one buffer, so only the receiver needs memory for it.
async fn lie(
    _: Request<Full<Bytes>>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    const PIECE: &[u8] = &[b'x'; 64 * 1024];
    let start = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"no","allowed":true,"warnings":[""#;
    let pieces = stream::iter(std::iter::repeat_n(
        Bytes::from_static(PIECE),
        SIZE / PIECE.len(),
    ));
    let start = stream::iter([Bytes::from_static(start.as_bytes())]);
    let body = start
        .chain(pieces)
        .chain(stream::iter([Bytes::from_static(b"\"]}}")]));
    Ok(Response::new(StreamBody::new(
        body.map(|piece| Ok(Frame::data(piece))),
    )))
}

/// Registers four webhooks, each for a kind of its own.
async fn misbehave(server: &ApiServer) -> Vec<Box<dyn std::any::Any>> {
    let hook = |name: &str| {
        Webhook::validating(format!("{name}.example.com"), |_| async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            AdmissionResponse::allow()
        })
    };
    let slow = hook("slow").rule(["*"], [""], ["v1"], ["secrets"]);
    let service = server.service();
    let looping = Webhook::validating("loop.example.com", move |_| {
        let service = service.clone();
        async move {
            let name = json!({"metadata": {"generateName": "n"}});
            let code = send(&service, "POST", &path("serviceaccounts"), &name).await;
            AdmissionResponse::deny(format!("inner write: {code}"))
        }
    });
    let looping = looping.rule(["*"], [""], ["v1"], ["serviceaccounts"]);
    // One that panics would grow the output that the test harness captures.
    let failing = Webhook::mutating("fails.example.com", |_| async {
        AdmissionResponse::allow().patch(json!("not a patch"))
    });
    let failing = failing.rule(["*"], [""], ["v1"], ["podtemplates"]);
    let second = Duration::from_secs(1);
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    for webhook in [slow, looping, failing] {
        let webhook = webhook.timeout(second);
        kept.push(Box::new(server.register_webhook(&webhook).unwrap()));
    }
    server.route_webhooks("n", "hook", WebhookTarget::service(tower::service_fn(lie)));
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "lies.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "hook"}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["limitranges"]}]}]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let code = send(&server.service(), "POST", configurations, &configuration).await;
    assert_eq!(code, 201);
    kept
}

/// Writes while all webhooks misbehave. Every write that they are called for fails; another client
/// and its watch notice nothing.
async fn round(service: &ApiService, watch: &mut pintle_apiserver::Body) {
    let bad =
        ["secrets", "serviceaccounts", "podtemplates", "limitranges"].map(|plural| async move {
            let object = json!({"metadata": {"generateName": "x"}, "spec": {"limits": []},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
            let path = path(plural);
            let codes = join_all((0..WRITES).map(|_| send(service, "POST", &path, &object))).await;
            assert!(codes.iter().all(|code| *code >= 400), "{plural}: {codes:?}");
        });
    let others = async {
        let start = Instant::now();
        for turn in 0..5 {
            let map = json!({"metadata": {"name": "m"}, "data": {"turn": turn.to_string()}});
            assert_eq!(
                send(service, "PUT", &format!("{}/m", path("configmaps")), &map).await,
                200
            );
            let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
            let event: Value = serde_json::from_slice(&frame).unwrap();
            assert_eq!(event["object"]["data"], map["data"]);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    };
    tokio::join!(join_all(bad), others);
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn misbehaving_webhooks_block_nothing_and_leave_no_memory() {
    let server = ApiServer::builder().seed(1).build();
    let service = server.service();
    let map = json!({"metadata": {"name": "m"}, "data": {"turn": "x"}});
    assert_eq!(send(&service, "POST", &path("configmaps"), &map).await, 201);
    let request = Request::get(format!("{}?watch=true", path("configmaps")));
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let mut watch = service.clone().oneshot(request).await.unwrap().into_body();
    watch.frame().await.unwrap().unwrap();
    let _webhooks = misbehave(&server).await;
    for _ in 0..2 {
        round(&service, &mut watch).await;
    }
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    for _ in 0..5 {
        round(&service, &mut watch).await;
    }
    let peak = ALLOCATOR.peak_usage() / MIB;
    let grown = ALLOCATOR.current_usage().saturating_sub(before);
    println!("peak {peak} MiB, grown by {grown} bytes");
    // All at once would take 64 MiB as bytes, and as much again when decoded.
    assert!(peak < 64, "{peak} MiB");
    // The history of the watch keeps its events.
    assert!(grown < MIB / 2, "{grown} bytes");
}
