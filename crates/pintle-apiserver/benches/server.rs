//! Benchmarks the server alone: no socket, no TLS, one thread.
//!
//! ```text
//! cargo bench -p pintle-apiserver --bench server
//! cargo bench -p pintle-apiserver --bench server -- --pods 10000
//! cargo bench -p pintle-apiserver --bench server -- --crds
//! ```
//!
//! Reports CPU time of that thread; the list row shows the best of several rounds. `cargo xtask
//! bench apiserver` compares the server with kube-apiserver over TLS.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "prints results for people"
)]
#![allow(clippy::cast_precision_loss, reason = "approximate results are fine")]

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use pintle_apiserver::{AdmissionResponse, ApiServer, ApiService, Body, Webhook};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::task::unconstrained;
use tower::ServiceExt as _;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROUNDS: usize = 3;

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

fn since(before: Duration) -> Duration {
    cpu().saturating_sub(before)
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn text() -> String {
    "the quick brown fox jumps over the lazy dog; ".repeat(20)
}

async fn send(service: &ApiService, method: Method, path: &str, body: Bytes) -> (StatusCode, Body) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(body))
        .unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    (response.status(), response.into_body())
}

/// Sends a write and reads the response to its end.
async fn write(service: &ApiService, method: Method, path: &str, body: Bytes) {
    let (status, body) = send(service, method, path, body).await;
    let response = body.collect().await.unwrap().to_bytes();
    assert!(status.is_success(), "{status}: {response:?}");
}

async fn start() -> ApiServer {
    let before = cpu();
    let server = ApiServer::builder().build();
    let service = server.service();
    let path = "/api/v1/namespaces/default";
    let (status, _) = send(&service, Method::GET, path, Bytes::new()).await;
    assert_eq!(status, StatusCode::OK);
    println!(
        "build to first response: {:.2} ms; {:.1} MB resident",
        (since(before)).as_secs_f64() * 1e3,
        resident_mb()
    );
    server
}

/// Creates through a typed client: encode, send, store, respond, decode.
async fn typed_creates(count: usize) {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::namespaced(server.client(), "default");
    let mut map = ConfigMap {
        metadata: ObjectMeta::default(),
        data: Some(BTreeMap::from([("text".to_owned(), text())])),
        ..ConfigMap::default()
    };
    let mut create = async |name: String| {
        map.metadata.name = Some(name);
        api.create(&PostParams::default(), &map).await.unwrap();
    };
    create("warm".to_owned()).await;
    let before = cpu();
    for i in 0..count {
        create(format!("map-{i}")).await;
    }
    rate("typed create through kube::Client", count, since(before));
}

/// Creates and replaces with prepared bodies: the cost of the server alone.
async fn writes(count: usize) {
    let server = ApiServer::builder().build();
    let service = server.service();
    let body = |name: &str, turn: usize| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name },
            "data": { "text": text(), "turn": turn.to_string() },
        });
        Bytes::from(map.to_string())
    };
    let bodies: Vec<Bytes> = (0..count).map(|i| body(&format!("map-{i}"), 0)).collect();
    write(&service, Method::POST, CONFIG_MAPS, body("warm", 0)).await;
    let before = cpu();
    for body in bodies {
        write(&service, Method::POST, CONFIG_MAPS, body).await;
    }
    rate("create, bytes in and out", count, since(before));

    let bodies: Vec<Bytes> = (0..count).map(|turn| body("warm", turn + 1)).collect();
    let path = format!("{CONFIG_MAPS}/warm");
    let before = cpu();
    for body in bodies {
        write(&service, Method::PUT, &path, body).await;
    }
    rate("replace, bytes in and out", count, since(before));
}

/// Creates that call three in-process webhooks: one that changes the object and two that validate
/// it.
async fn admitted(count: usize) {
    let server = ApiServer::builder().build();
    let service = server.service();
    let mutating = Webhook::mutating("label.example.com", |_| async {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]);
        AdmissionResponse::allow().patch(patch)
    });
    let validating = |name: &str| {
        Webhook::validating(name, |request| async move {
            match request.object()["data"]["turn"].as_str() {
                Some(_) => AdmissionResponse::allow(),
                None => AdmissionResponse::deny("no turn"),
            }
        })
    };
    let hooks = [
        mutating,
        validating("a.example.com"),
        validating("b.example.com"),
    ];
    let registrations = hooks.map(|hook| {
        let hook = hook.rule(["CREATE"], [""], ["v1"], ["configmaps"]);
        server.register_webhook(&hook).unwrap()
    });
    let body = |name: String| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "text": text(), "turn": "0" },
        });
        Bytes::from(map.to_string())
    };
    let bodies: Vec<Bytes> = (0..count).map(|i| body(format!("map-{i}"))).collect();
    write(&service, Method::POST, CONFIG_MAPS, body("warm".to_owned())).await;
    let before = cpu();
    for body in bodies {
        write(&service, Method::POST, CONFIG_MAPS, body).await;
    }
    rate("create through three webhooks", count, since(before));
    drop(registrations);
}

/// Updates of one object, by number of watchers.
async fn watchers(watchers: usize, changes: usize) {
    let server = ApiServer::builder().build();
    let service = server.service();
    let body = |turn: usize| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "watched" },
            "data": { "text": text(), "turn": turn.to_string() },
        });
        Bytes::from(map.to_string())
    };
    write(&service, Method::POST, CONFIG_MAPS, body(0)).await;
    let mut open = Vec::new();
    for _ in 0..watchers {
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
        let (status, body) = send(&service, Method::GET, &path, Bytes::new()).await;
        assert_eq!(status, StatusCode::OK);
        open.push(body);
    }
    let mut seen = read(&mut open);
    let path = format!("{CONFIG_MAPS}/watched");
    let bodies: Vec<Bytes> = (1..=changes).map(body).collect();
    let before = cpu();
    for body in bodies {
        write(&service, Method::PUT, &path, body).await;
        seen += read(&mut open);
    }
    let took = since(before);
    // A watch from version 0 starts with the existing object.
    assert_eq!(seen, watchers * (changes + 1));
    println!(
        "update with {watchers} watchers: {:.2} µs",
        took.as_secs_f64() * 1e6 / changes as f64
    );
}

/// Reads all available events from every watch and counts them. `unconstrained`, because tokio
/// would make a task that always finds data yield.
fn read(open: &mut [Body]) -> usize {
    let mut seen = 0;
    for body in open {
        while let Some(Some(Ok(frame))) = unconstrained(body.frame()).now_or_never() {
            let data = frame.into_data().unwrap_or_default();
            // Each line ends with its newline.
            seen += data.split(|byte| *byte == b'\n').count() - 1;
        }
    }
    seen
}

/// A Pod of about two kilobytes.
fn pod(index: usize) -> Bytes {
    let variables: Vec<_> = (0..12)
        .map(|n| json!({ "name": format!("VARIABLE_{n}"), "value": "some value of it" }))
        .collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{index}"),
            "labels": { "app": "web", "tier": "front", "shard": (index % 64).to_string() },
        },
        "spec": { "containers": [{
            "name": "main", "image": "registry.example.com/team/web:1.2.3",
            "env": variables, "ports": [{ "containerPort": 8080 }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
        }] },
    });
    Bytes::from(pod.to_string())
}

async fn lists(pods: usize) {
    let server = ApiServer::builder().build();
    let service = server.service();
    let path = "/api/v1/namespaces/default/pods";
    let mut took = Duration::ZERO;
    for first in (0..pods).step_by(1000) {
        let bodies: Vec<Bytes> = (first..pods.min(first + 1000)).map(pod).collect();
        let before = cpu();
        for body in bodies {
            write(&service, Method::POST, path, body).await;
        }
        took += since(before);
    }
    rate("create a Pod, bytes in and out", pods, took);
    let (mut best, mut bytes) = (Duration::MAX, 0);
    for _ in 0..ROUNDS {
        let before = cpu();
        let (status, mut body) = send(&service, Method::GET, path, Bytes::new()).await;
        assert_eq!(status, StatusCode::OK);
        bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap_or_default().len();
        }
        best = best.min(since(before));
    }
    let mb = bytes as f64 / 1e6;
    println!(
        "list of {pods} Pods, {mb:.0} MB: {:.0} MB/s; {:.0} MB resident",
        mb / best.as_secs_f64(),
        resident_mb()
    );
}

/// A CRD of about thirty kilobytes with a few rules.
fn definition(index: usize) -> Bytes {
    let property = |n: usize| {
        let words = "describes the field for people who read the reference ".repeat(2);
        let field = json!({ "type": "string", "maxLength": 64, "description": words });
        let item = json!({ "type": "object", "properties": { "name": field, "value": field } });
        let list = json!({ "type": "array", "maxItems": 16, "items": item });
        let rule = json!([{ "rule": "self.list.all(item, item.name != item.value)" }]);
        let properties = json!({ "list": list, "text": field });
        let mut object = json!({ "type": "object", "properties": properties });
        if n.is_multiple_of(10) {
            object["x-kubernetes-validations"] = rule;
        }
        (format!("field{n}"), object)
    };
    let spec: serde_json::Map<_, _> = (0..50).map(property).collect();
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": spec },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } });
    let (group, kind) = (
        format!("group{}.example.com", index / 4),
        format!("Kind{index}"),
    );
    let plural = format!("kind{index}s");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} } }],
        },
    });
    Bytes::from(definition.to_string())
}

/// Installs CRDs, and reads what kubectl reads after that.
async fn definitions(count: usize) {
    let server = ApiServer::builder().build();
    let service = server.service();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let bodies: Vec<Bytes> = (0..count).map(definition).collect();
    let bytes: usize = bodies.iter().map(Bytes::len).sum();
    let (before, mut half) = (cpu(), Duration::ZERO);
    for (i, body) in bodies.into_iter().enumerate() {
        if i == count / 2 {
            half = since(before);
        }
        write(&service, Method::POST, path, body).await;
    }
    let took = since(before);
    println!(
        "{count} CRDs of {} KB: {:.0} ms, the second half {:.2} times the first",
        bytes / count / 1000,
        took.as_secs_f64() * 1e3,
        took.saturating_sub(half).as_secs_f64() / half.as_secs_f64()
    );
    for path in [
        "/apis",
        "/openapi/v3",
        "/openapi/v3/apis/group0.example.com/v1",
        "/openapi/v2",
    ] {
        let before = cpu();
        let (status, body) = send(&service, Method::GET, path, Bytes::new()).await;
        assert_eq!(status, StatusCode::OK);
        let length = body.collect().await.unwrap().to_bytes().len();
        println!(
            "  then {path}: {:.1} ms, {} KB",
            since(before).as_secs_f64() * 1e3,
            length / 1000
        );
    }
}

fn rate(what: &str, count: usize, took: Duration) {
    println!(
        "{what}: {:.0} per second ({:.1} µs each)",
        count as f64 / took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / count as f64
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--pods");
    let pods = at.and_then(|at| arguments.get(at + 1)?.parse().ok());
    if arguments.iter().any(|argument| argument == "--crds") {
        for count in [300, 300, 600] {
            definitions(count).await;
        }
        return;
    }
    let server = start().await;
    definitions(300).await;
    for _ in 0..ROUNDS {
        typed_creates(20_000).await;
        writes(20_000).await;
        admitted(20_000).await;
    }
    for count in [0, 1, 1000] {
        watchers(count, 200).await;
    }
    lists(pods.unwrap_or(100_000)).await;
    drop(server);
}
