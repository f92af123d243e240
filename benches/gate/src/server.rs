//! The API server alone, without socket and client.

use std::hint::black_box;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use pintle_apiserver::{ApiServer, ApiService, Body, Clock};
use serde_json::json;
use tokio::{runtime::Runtime, task::unconstrained};
use tower::ServiceExt as _;

use crate::{
    measured,
    pods::{self, Form},
    runtime,
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/shop-0/pods";

/// Watchers in the fan-out benchmark.
const WATCHERS: usize = 100;

/// Pods per list.
const LISTED: usize = 200;

/// A server with the same timestamps, UIDs and names in every run.
pub(crate) fn server() -> ApiServer {
    let now = jiff::Timestamp::from_second(1_767_225_600).unwrap();
    ApiServer::builder()
        .clock(Clock::from_fn(move || now))
        .seed(7)
        .build()
}

/// Sends a request and returns the unread response body.
async fn open(service: &ApiService, method: Method, path: &str, body: Bytes) -> Body {
    let kind = if method == Method::PATCH {
        "application/apply-patch+yaml"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Full::new(body))
        .unwrap();
    let answer = service.clone().oneshot(request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.into_body()
}

/// Sends a request and returns the length of the response.
pub(crate) async fn send(service: &ApiService, method: Method, path: &str, body: Bytes) -> usize {
    let body = open(service, method, path, body).await;
    body.collect().await.unwrap().to_bytes().len()
}

/// Sends all `bodies`; the first one warms up and is not measured.
fn send_all(service: &ApiService, method: &Method, path: &str, bodies: Vec<Bytes>) {
    let runtime = runtime();
    let mut bodies = bodies.into_iter();
    let mut send = |body| runtime.block_on(send(service, method.clone(), path, body));
    bodies.next().map(&mut send);
    measured(&mut || {
        bodies.by_ref().for_each(|body| {
            send(body);
        });
    });
}

fn new_pod(i: usize) -> Bytes {
    // The Pods of the first Deployment in turn, each under a unique name.
    let name = format!("web-{i}");
    pods::pod(i % pods::GROUP, Some(&name), 0, Form::New).into()
}

/// Creates the namespace of the Pods.
fn with_namespace(runtime: &Runtime, service: &ApiService) {
    let namespace = json!({ "metadata": { "name": pods::namespace(0) } });
    let body = namespace.to_string().into();
    runtime.block_on(send(service, Method::POST, "/api/v1/namespaces", body));
}

pub(crate) fn create(count: usize) {
    let service = server().service();
    with_namespace(&runtime(), &service);
    let bodies = (0..=count).map(new_pod).collect();
    send_all(&service, &Method::POST, PODS, bodies);
}

pub(crate) fn config_map(turn: usize) -> Bytes {
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(20);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "app" },
        "data": { "text": text, "turn": turn.to_string() },
    });
    map.to_string().into()
}

pub(crate) fn replace(count: usize) {
    let service = server().service();
    runtime().block_on(send(&service, Method::POST, CONFIG_MAPS, config_map(0)));
    let bodies = (1..=count + 1).map(config_map).collect();
    send_all(
        &service,
        &Method::PUT,
        &format!("{CONFIG_MAPS}/app"),
        bodies,
    );
}

pub(crate) fn apply(count: usize) {
    let service = server().service();
    let body = |turn: usize| {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "app", "labels": { "app": "web" } },
            "spec": {
                "replicas": turn % 10,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{
                        "name": "web", "image": "registry.example.com/shop/web:1.27.3",
                        "ports": [{ "containerPort": 8080 }],
                    }] },
                },
            },
        });
        Bytes::from(deployment.to_string())
    };
    let path = format!("{DEPLOYMENTS}/app?fieldManager=gate&force=true");
    let bodies = (0..=count).map(body).collect();
    send_all(&service, &Method::PATCH, &path, bodies);
}

pub(crate) fn list(count: usize) {
    let (runtime, service) = (runtime(), server().service());
    with_namespace(&runtime, &service);
    for i in 0..LISTED {
        runtime.block_on(send(&service, Method::POST, PODS, new_pod(i)));
    }
    let list = || runtime.block_on(send(&service, Method::GET, PODS, Bytes::new()));
    let bytes = list();
    measured(&mut || {
        for _ in 0..count / LISTED {
            assert_eq!(list(), bytes);
        }
    });
}

/// Counts the ready frames of every watch. A frame is one event if each is read immediately.
fn read(watches: &mut [Body]) -> usize {
    let mut frames = 0;
    for body in watches {
        // Unconstrained: tokio's budget would otherwise end a long drain early.
        while let Some(Some(Ok(frame))) = unconstrained(body.frame()).now_or_never() {
            black_box(frame);
            frames += 1;
        }
    }
    frames
}

pub(crate) fn fan_out(count: usize) {
    let (runtime, service) = (runtime(), server().service());
    let (mut watches, mut changes) = runtime.block_on(async {
        send(&service, Method::POST, CONFIG_MAPS, config_map(0)).await;
        let mut watches = Vec::new();
        for _ in 0..WATCHERS {
            let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
            watches.push(open(&service, Method::GET, &path, Bytes::new()).await);
        }
        let changes = count / WATCHERS;
        let bodies: Vec<Bytes> = (1..=changes + 1).map(config_map).collect();
        (watches, bodies.into_iter())
    });
    let path = format!("{CONFIG_MAPS}/app");
    let mut change = |body| {
        runtime.block_on(async { send(&service, Method::PUT, &path, body).await });
        let _guard = runtime.enter();
        read(&mut watches)
    };
    changes.next().map(&mut change);
    let mut seen = 0;
    measured(&mut || seen = changes.by_ref().map(&mut change).sum());
    assert_eq!(seen, count);
}
