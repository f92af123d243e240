//! Limits of webhook servers: malformed and slow requests, silent connections, shutdown.

use std::{convert::Infallible, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use parking_lot::Mutex;
use pintle::{
    manager::{Component, Environment, Manager},
    webhook::{Admission, Certificates, Denied, Injection, WebhookHandler, WebhookServer},
};
use pintle_apiserver::{ApiServer, User};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

async fn allow(_: Admission<ConfigMap>) -> Result<(), Denied> {
    Ok(())
}

/// Posts a body to a handler and returns the code and the body of the response.
async fn post<B>(handler: &WebhookHandler, path: &str, body: B) -> (u16, String)
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let request = Request::post(path).body(body).unwrap();
    let response = handler.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

fn review(object: &Value) -> Full<Bytes> {
    let request = json!({"uid": "1", "operation": "CREATE", "object": object});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": request});
    Full::from(review.to_string())
}

/// Proves webhook-server/in-process.
#[tokio::test(start_paused = true)]
async fn body_without_a_request_is_rejected() {
    let handler = WebhookServer::new().validate("/validate", allow).handler();
    for body in ["[]", "1", "\"x\"", "null", "{}", "{\"request\": 1}"] {
        let (code, text) = post(&handler, "/validate", Full::from(body)).await;
        assert_eq!((code, &*text), (400, "the review has no request\n"));
    }
}

/// Proves webhook-server/connections.
#[tokio::test(start_paused = true)]
async fn body_must_arrive_in_time() {
    let handler = WebhookServer::new().validate("/validate", allow).handler();
    let start = Instant::now();
    let never = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let (code, text) = post(&handler, "/validate", never).await;
    assert_eq!((code, start.elapsed().as_secs()), (408, 10), "{text}");
}

/// Proves webhook-server/connections.
#[tokio::test(start_paused = true)]
async fn webhook_is_cancelled_when_its_caller_times_out() {
    let handler = WebhookServer::new()
        .validate("/validate", |_: Admission<ConfigMap>| {
            std::future::pending::<Result<(), Denied>>()
        })
        .handler();
    for (query, expected) in [("?timeout=2s", 2), ("", 30), ("?timeout=5m", 30)] {
        let start = Instant::now();
        let path = format!("/validate{query}");
        let (code, text) = post(&handler, &path, review(&json!({}))).await;
        assert_eq!((code, start.elapsed().as_secs()), (504, expected));
        assert_eq!(text, format!("no response within {expected} s\n"));
    }
}

/// Proves webhook-server/in-process.
#[tokio::test(start_paused = true)]
async fn mutator_keeps_unknown_fields_in_lists() {
    let handler = WebhookServer::new()
        .mutate("/mutate", |mut pod: Pod, _: Admission<Pod>| async {
            let spec = pod.spec.as_mut().unwrap();
            spec.containers.remove(0);
            let env = spec.containers[0].env.get_or_insert_default();
            env.push(k8s_openapi::api::core::v1::EnvVar {
                name: "A".to_owned(),
                ..Default::default()
            });
            Ok(pod)
        })
        .handler();
    let future = json!({"future": {"x": 1}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "gone", "image": "a"},
        {"name": "c", "image": "b", "fromTheFuture": future},
        {"name": "d", "image": "c", "fromTheFuture": 2}]}});
    let (code, text) = post(&handler, "/mutate", review(&pod)).await;
    assert_eq!(code, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let patch = answer["response"]["patch"].as_str().unwrap();
    let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    assert_eq!(
        patch,
        json!([{"op": "replace", "path": "/spec/containers", "value": [
            {"name": "c", "image": "b", "fromTheFuture": future, "env": [{"name": "A"}]},
            {"name": "d", "image": "c", "fromTheFuture": 2}]}])
    );
}

fn configurations(client: &Client) -> Api<DynamicObject> {
    let group = "admissionregistration.k8s.io";
    let gvk = GroupVersionKind::gvk(group, "v1", "ValidatingWebhookConfiguration");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
}

fn entry(name: &str, client: &Value) -> Value {
    json!({"name": name, "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]})
}

async fn configure(client: &Client, webhooks: Value) {
    let configuration = json!({"metadata": {"name": "shop"}, "webhooks": webhooks});
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations(client)
        .create(&PostParams::default(), &configuration)
        .await
        .unwrap();
}

async fn bundles(client: &Client) -> Vec<Option<String>> {
    let found = configurations(client).get("shop").await.unwrap().data;
    let webhooks = found["webhooks"].as_array().unwrap().iter();
    let bundle = |w: &Value| w["clientConfig"]["caBundle"].as_str().map(str::to_owned);
    webhooks.map(bundle).collect()
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// Serves webhooks at a free port. Returns their `clientConfig`, the address and the task.
async fn serve(
    webhooks: WebhookServer,
    shutdown: &CancellationToken,
) -> (Value, std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let bundle = STANDARD.encode(certificates.authority_pem().unwrap());
    let shutdown = shutdown.clone();
    let serving = tokio::spawn(async move {
        webhooks
            .serve(address, &certificates, &shutdown)
            .await
            .unwrap();
    });
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let url = format!("https://{address}/validate");
    (json!({"url": url, "caBundle": bundle}), address, serving)
}

/// Proves webhook-server/connections.
#[tokio::test]
async fn silent_connections_are_evicted_for_others() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let shutdown = CancellationToken::new();
    let webhooks = WebhookServer::new().validate("/validate", allow);
    let (config, address, _serving) = serve(webhooks, &shutdown).await;
    configure(&client, json!([entry("v.example.com", &config)])).await;
    let mut silent = Vec::new();
    for _ in 0..256 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
}

/// Proves webhook-server/connections.
#[tokio::test]
async fn shutdown_waits_for_in_flight_reviews() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let shutdown = CancellationToken::new();
    let (started, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let webhooks = WebhookServer::new().validate("/validate", {
        let (started, gate) = (Arc::clone(&started), Arc::clone(&gate));
        move |_: Admission<ConfigMap>| {
            let (started, gate) = (Arc::clone(&started), Arc::clone(&gate));
            async move {
                started.add_permits(1);
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    });
    let (config, _, serving) = serve(webhooks, &shutdown).await;
    configure(&client, json!([entry("v.example.com", &config)])).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let creating = tokio::spawn({
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &map("a")).await }
    });
    started.acquire().await.unwrap().forget();
    shutdown.cancel();
    tokio::task::yield_now().await;
    gate.add_permits(1);
    creating.await.unwrap().unwrap();
    serving.await.unwrap();
}

/// Runs a manager with a webhook server and reports when controllers may start.
fn manage(
    client: &Client,
    shutdown: &CancellationToken,
) -> (
    String,
    Arc<Semaphore>,
    tokio::task::JoinHandle<Result<(), String>>,
) {
    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let authority = STANDARD.encode(certificates.authority_pem().unwrap());
    let certificates = certificates.inject(Injection::validating("shop"));
    let mut manager = Manager::builder("shop", client.clone()).build();
    let webhooks = WebhookServer::new().validate("/validate", allow);
    manager.add(webhooks.component("webhooks", "127.0.0.1:0", certificates));
    let started = Arc::new(Semaphore::new(0));
    let signal = Arc::clone(&started);
    manager.add(Component::task("after", move |environment: Environment| {
        signal.add_permits(1);
        async move {
            environment.shutdown().cancelled().await;
            Ok::<_, std::io::Error>(())
        }
    }));
    let shutdown = shutdown.clone();
    let running = tokio::spawn(async move {
        let run = manager.run_until(&shutdown).await;
        run.map(drop).map_err(|error| error.to_string())
    });
    (authority, started, running)
}

/// Proves webhook-server/tls.
#[tokio::test(start_paused = true)]
async fn authority_is_injected_whenever_it_is_missing() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let shutdown = CancellationToken::new();
    let (authority, started, running) = manage(&client, &shutdown);
    // The configuration does not exist yet.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!running.is_finished());
    assert_eq!(started.available_permits(), 0);
    let url = json!({"url": "https://127.0.0.1:1/validate"});
    let webhooks = json!([entry("v.example.com", &url)]);
    configure(&client, webhooks.clone()).await;
    started.acquire().await.unwrap().forget();
    assert_eq!(bundles(&client).await, [Some(authority.clone())]);
    // Created again, without the authority.
    configurations(&client)
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    configure(&client, webhooks).await;
    assert_eq!(bundles(&client).await, [None]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bundles(&client).await, [Some(authority)]);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves webhook-server/tls.
#[tokio::test(start_paused = true)]
async fn injection_does_not_overwrite_another_change() {
    let server = ApiServer::builder().build();
    let plain = server.client();
    let url = json!({"url": "https://127.0.0.1:1/validate"});
    let entries = json!([entry("v.example.com", &url)]);
    configure(&plain, entries.clone()).await;
    // Another client adds a webhook right before the first patch of the injection.
    let other = Arc::new(Mutex::new(Some(plain.clone())));
    let service = server.service_as(User::admin());
    let client = Client::new(
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let (mut service, other) = (service.clone(), Arc::clone(&other));
            let entries = entries.clone();
            async move {
                let first = match request.method() {
                    &http::Method::PATCH => other.lock().take(),
                    _ => None,
                };
                if let Some(other) = first {
                    let mut found = configurations(&other).get("shop").await.unwrap();
                    let mut first = entries[0].clone();
                    first["name"] = "first.example.com".into();
                    found.data["webhooks"] = json!([first, entries[0]]);
                    configurations(&other)
                        .replace("shop", &PostParams::default(), &found)
                        .await
                        .unwrap();
                }
                service.call(request).await
            }
        }),
        "default",
    );
    let shutdown = CancellationToken::new();
    let (authority, started, running) = manage(&client, &shutdown);
    started.acquire().await.unwrap().forget();
    assert_eq!(
        bundles(&plain).await,
        [Some(authority.clone()), Some(authority)]
    );
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
