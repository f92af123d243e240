//! Webhook servers, called by the embedded API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, ObjectMeta, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use pintle::{
    cache::BoxError,
    manager::{Component, Environment, Manager},
    metrics::Metrics,
    webhook::{Admission, Certificates, Denied, Injection, WebhookServer},
};
use pintle_apiserver::{ApiServer, WebhookTarget};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

async fn check(admission: Admission<ConfigMap>) -> Result<(), Denied> {
    let data = admission.object.clone().and_then(|map| map.data);
    let data = data.unwrap_or_default();
    admission.audit_annotation("keys", data.len().to_string());
    assert!(!data.contains_key("panic"), "asked to");
    if data.contains_key("password") {
        return Err(Denied::invalid("passwords belong in a Secret"));
    }
    if data.is_empty() {
        admission.warn("the map is empty");
    }
    Ok(())
}

async fn label(mut map: ConfigMap, admission: Admission<ConfigMap>) -> Result<ConfigMap, Denied> {
    let labels = map.metadata.labels.get_or_insert_default();
    admission.audit_annotation("labelled", admission.name.as_str());
    labels.insert("by".to_owned(), admission.user);
    Ok(map)
}

fn webhooks() -> WebhookServer {
    WebhookServer::new()
        .validate("/validate", check)
        .mutate("/mutate", label)
}

fn map(name: &str, key: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(key.to_owned(), "x".to_owned())])),
        ..ConfigMap::default()
    }
}

/// Creates a webhook configuration of this kind that matches the creation of `ConfigMap`s.
async fn configure(client: &Client, kind: &str, client_config: &Value) {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let name = format!("{}.example.com", kind.to_lowercase());
    let configuration = json!({"metadata": {"name": "shop"}, "webhooks": [{
        "name": name, "clientConfig": client_config, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let configuration = serde_json::from_value(configuration).unwrap();
    api.create(&PostParams::default(), &configuration)
        .await
        .unwrap();
}

async fn create(client: &Client, map: &ConfigMap) -> Result<ConfigMap, kube::core::Status> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    match api.create(&PostParams::default(), map).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{error}"),
    }
}

/// Proves webhook-server/in-process.
#[tokio::test(start_paused = true)]
async fn webhooks_answer_the_api_server_in_process() {
    let annotations = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&annotations);
    let server = ApiServer::builder()
        .audit(move |event| *seen.lock().unwrap() = event.annotations)
        .build();
    let client = server.client();
    let metrics = Metrics::new();
    let handler = webhooks().metrics(&metrics).handler();
    server.route_webhooks("shop", "webhooks", WebhookTarget::service(handler));
    let service =
        |path: &str| json!({"service": {"namespace": "shop", "name": "webhooks", "path": path}});
    configure(&client, "MutatingWebhookConfiguration", &service("/mutate")).await;
    configure(
        &client,
        "ValidatingWebhookConfiguration",
        &service("/validate"),
    )
    .await;

    let created = create(&client, &map("good", "k")).await.unwrap();
    assert_eq!(created.metadata.labels.unwrap()["by"], "kubernetes-admin");
    let status = create(&client, &map("bad", "password")).await.unwrap_err();
    assert_eq!(status.code, 422);
    // Of an allowed and of a refused review.
    for (key, value) in [
        ("mutatingwebhookconfiguration.example.com/labelled", "bad"),
        ("validatingwebhookconfiguration.example.com/keys", "1"),
    ] {
        assert_eq!(annotations.lock().unwrap()[key], value);
    }
    assert_eq!(
        status.message,
        "admission webhook \"validatingwebhookconfiguration.example.com\" denied the request: \
         passwords belong in a Secret"
    );
    let status = create(&client, &map("ugly", "panic")).await.unwrap_err();
    assert_eq!(status.code, 500);
    assert!(
        status.message.contains("the webhook panicked"),
        "{}",
        status.message
    );
    let text = metrics.encode();
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"200\"} 2",
        "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"500\"} 1",
        "controller_runtime_webhook_panics_total 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// Proves webhook-server/in-process.
#[tokio::test(start_paused = true)]
async fn converter_serves_every_version_of_a_crd() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let converting =
        WebhookServer::new().convert("/convert", |mut object: Value, to: String| async move {
            let spec = object["spec"].take();
            object["spec"] = if to == "example.com/v2" {
                json!({"text": spec["count"].to_string()})
            } else {
                let text = spec["text"].as_str().unwrap_or_default();
                json!({"count": text.parse::<i64>().map_err(|_| format!("not a number: {text}"))?})
            };
            object["apiVersion"] = to.into();
            Ok(object)
        });
    server.route_webhooks(
        "shop",
        "webhooks",
        WebhookTarget::service(converting.handler()),
    );
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true,
        "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", true), version("v2", false)],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "shop", "name": "webhooks",
                "path": "/convert"}}}}}});
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let definition = serde_json::from_value(definition).unwrap();
    api.create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let things = |version: &str| {
        let gvk = GroupVersionKind::gvk("example.com", version, "Thing");
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
    };
    let thing = |version: &str, spec: Value| -> DynamicObject {
        let api_version = format!("example.com/{version}");
        serde_json::from_value(json!({"apiVersion": api_version, "kind": "Thing",
            "metadata": {"name": "one"}, "spec": spec}))
        .unwrap()
    };
    let new = thing("v2", json!({"text": "7"}));
    let created = things("v2").create(&PostParams::default(), &new).await;
    assert_eq!(created.unwrap().data["spec"], json!({"text": "7"}));
    assert_eq!(
        things("v1").get("one").await.unwrap().data["spec"],
        json!({"count": 7})
    );
    let mut bad = thing("v2", json!({"text": "seven"}));
    bad.metadata.name = Some("two".to_owned());
    let error = things("v2")
        .create(&PostParams::default(), &bad)
        .await
        .unwrap_err();
    let message = "conversion webhook for example.com/v2, Kind=Thing failed: not a number: seven";
    assert!(error.to_string().contains(message), "{error}");
}

/// Posts a body to a handler and returns the code and the body of the response.
async fn post(
    handler: &pintle::webhook::WebhookHandler,
    method: &str,
    path: &str,
    body: impl Into<bytes::Bytes>,
) -> (u16, String) {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.body(Full::new(body.into())).unwrap();
    let response = handler.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let kind = match code {
        200 => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    assert_eq!(response.headers()["content-type"], kind);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

/// Proves webhook-server/protocol.
#[tokio::test(start_paused = true)]
async fn malformed_requests_are_rejected_with_a_reason() {
    let metrics = Metrics::new();
    let handler = webhooks()
        .convert("/convert", |object: Value, _| async { Ok(object) })
        .metrics(&metrics)
        .handler();
    let review = |request: Value| json!({"request": request}).to_string();
    let wrong = json!({"uid": "1", "object": {"data": [1]}});
    for (method, path, body, expected) in [
        (
            "POST",
            "/other",
            review(json!({})),
            (404, "no webhook at /other"),
        ),
        ("GET", "/validate", String::new(), (405, "only POST")),
        (
            "POST",
            "/validate",
            "{".to_owned(),
            (400, "cannot decode the review: "),
        ),
        (
            "POST",
            "/validate",
            "{}".to_owned(),
            (400, "the review has no request"),
        ),
        (
            "POST",
            "/validate",
            review(wrong.clone()),
            (400, "cannot decode the object: "),
        ),
        (
            "POST",
            "/mutate",
            review(wrong),
            (400, "cannot decode the object: "),
        ),
        (
            "POST",
            "/convert",
            review(json!({"uid": "1"})),
            (400, "cannot decode the object: objects: expected a list"),
        ),
    ] {
        let (code, text) = post(&handler, method, path, body).await;
        assert_eq!(code, expected.0, "{path}: {text}");
        assert!(text.starts_with(expected.1), "{path}: {text}");
    }
    let large = vec![b' '; 9 * 1024 * 1024];
    let (code, text) = post(&handler, "POST", "/validate", large).await;
    assert_eq!(
        (code, text.as_str()),
        (400, "cannot read the review: length limit exceeded\n")
    );
    // Unknown paths are not counted: clients could make up any number of them.
    assert!(!metrics.encode().contains("/other"));
}

/// Proves webhook-server/in-process.
#[tokio::test(start_paused = true)]
async fn responses_carry_patches_verdicts_and_warnings() {
    let handler = WebhookServer::new()
        .mutate(
            "/mutate",
            |mut map: ConfigMap, admission: Admission<ConfigMap>| async move {
                admission.warn(format!("{} {:?}", admission.subresource, admission.dry_run));
                assert!(admission.old_object.is_none());
                match admission.name.as_str() {
                    "denied" => Err(Denied::new("not that")),
                    "same" => Ok(map),
                    _ => {
                        map.data
                            .get_or_insert_default()
                            .insert("a/b~c".into(), "x".into());
                        map.binary_data = None;
                        Ok(map)
                    }
                }
            },
        )
        .handler();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
        "data": {"k": "v"}, "binaryData": {"b": "AA=="}, "future": {"field": 1}});
    let asked = |name: &str, object: &Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "7", "name": name, "subResource": "sub", "dryRun": true, "object": object}})
        .to_string()
    };
    let respond = async |name: &str, object: &Value| -> Value {
        let (code, text) = post(&handler, "POST", "/mutate", asked(name, object)).await;
        assert_eq!(code, 200, "{text}");
        let review: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["response"]["uid"], "7");
        review["response"].clone()
    };
    let response = respond("m", &object).await;
    assert_eq!(response["warnings"], json!(["sub true"]));
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([{"op": "remove", "path": "/binaryData"},
            {"op": "add", "path": "/data/a~1b~0c", "value": "x"}])
    );
    let response = respond("same", &object).await;
    assert_eq!(response["allowed"], true);
    assert!(response["patch"].is_null() && response["patchType"].is_null());
    let response = respond("denied", &object).await;
    assert_eq!(response["warnings"], json!(["sub true"]));
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"],
        json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "not that"})
    );
    // A delete has nothing to mutate.
    let response = respond("m", &Value::Null).await;
    assert_eq!(response["allowed"], true);
}

/// Proves webhook-server/tls.
#[tokio::test(start_paused = true)]
async fn authority_is_written_into_every_configuration() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let url = json!({"url": "https://127.0.0.1:1/x"});
    configure(&client, "ValidatingWebhookConfiguration", &url).await;
    configure(&client, "MutatingWebhookConfiguration", &url).await;
    let resource = |kind: &str, group: &str| {
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
    };
    let registration = "admissionregistration.k8s.io";
    let mutating = resource("MutatingWebhookConfiguration", registration);
    let mut two = mutating.get("shop").await.unwrap();
    let mut second = two.data["webhooks"][0].clone();
    second["name"] = "second.example.com".into();
    two.data["webhooks"].as_array_mut().unwrap().push(second);
    let replaced = mutating.replace("shop", &PostParams::default(), &two).await;
    replaced.unwrap();
    let definitions = resource("CustomResourceDefinition", "apiextensions.k8s.io");
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema":
            {"openAPIV3Schema": {"type": "object"}}}],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/convert"}}}}});
    let definition = serde_json::from_value(definition).unwrap();
    let created = definitions
        .create(&PostParams::default(), &definition)
        .await;
    created.unwrap();

    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let authority = STANDARD.encode(certificates.authority_pem().unwrap());
    let certificates = certificates
        .inject(Injection::validating("shop"))
        .inject(Injection::mutating("shop"))
        .inject(Injection::definition("things.example.com"));
    let mut manager = Manager::builder("shop", client.clone()).build();
    manager.add(webhooks().component("webhooks", "127.0.0.1:0", certificates));
    let (started, mut starting) = tokio::sync::mpsc::unbounded_channel();
    manager.add(Component::task("after", move |environment: Environment| {
        let started = started.clone();
        async move {
            let _ = started.send(());
            environment.shutdown().cancelled().await;
            Ok::<_, BoxError>(())
        }
    }));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { manager.run_until(&shutdown).await }
    });
    starting.recv().await.unwrap();
    let validating = resource("ValidatingWebhookConfiguration", registration);
    let validating = validating.get("shop").await.unwrap().data;
    let mutating = mutating.get("shop").await.unwrap().data;
    let definition = definitions.get("things.example.com").await.unwrap().data;
    for client in [
        &validating["webhooks"][0]["clientConfig"],
        &mutating["webhooks"][0]["clientConfig"],
        &mutating["webhooks"][1]["clientConfig"],
        &definition["spec"]["conversion"]["webhook"]["clientConfig"],
    ] {
        assert_eq!(client["caBundle"], authority.as_str());
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves webhook-server/tls.
#[tokio::test]
async fn manager_serves_webhooks_on_tls_and_injects_its_authority() {
    let server = ApiServer::builder().build();
    let client = server.client();
    // The configuration must name the address before the server starts.
    let address = free_address();
    let url = json!({"url": format!("https://{address}/validate")});
    configure(&client, "ValidatingWebhookConfiguration", &url).await;
    let status = create(&client, &map("early", "k")).await.unwrap_err();
    assert!(
        status.message.contains("connection refused"),
        "{}",
        status.message
    );

    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let certificates = certificates.inject(Injection::validating("shop"));
    let mut manager = Manager::builder("shop", client.clone()).build();
    manager.add(webhooks().component("webhooks", address.to_string(), certificates));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { manager.run_until(&shutdown).await }
    });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let status = loop {
        let status = create(&client, &map("bad", "password")).await.unwrap_err();
        if status.code == 422 || tokio::time::Instant::now() > deadline {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(status.code, 422, "{}", status.message);
    create(&client, &map("good", "k")).await.unwrap();
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Returns an address that is free now.
fn free_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Sends a plain GET; returns the code and the body, or `None` if nothing listens.
async fn get(address: std::net::SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: probes\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    let code = response.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = response.split_once("\r\n\r\n")?;
    Some((code, body.to_owned()))
}

/// Polls the probe until it returns this code.
async fn wait_for(address: std::net::SocketAddr, code: u16) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let found = get(address, "/readyz?verbose").await;
        match found {
            Some((found, body)) if found == code => return body,
            _ if tokio::time::Instant::now() > deadline => panic!("{code}: {found:?}"),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Proves webhook-server/probes.
#[tokio::test]
async fn probes_and_metrics_of_the_manager_cover_webhooks() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let (address, probes) = (free_address(), free_address());
    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let certificates = certificates.inject(Injection::validating("shop"));
    let manager = Manager::builder("shop", client.clone()).probes(probes.to_string());
    let mut manager = manager.build();
    manager.add(webhooks().component("webhooks", address.to_string(), certificates));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { manager.run_until(&shutdown).await }
    });
    // The configuration that the authority is injected into does not exist yet.
    let body = wait_for(probes, 503).await;
    assert!(body.contains("startup"), "{body}");
    assert_eq!(get(probes, "/healthz").await.unwrap().0, 200);
    let url = json!({"url": format!("https://{address}/validate")});
    configure(&client, "ValidatingWebhookConfiguration", &url).await;
    wait_for(probes, 200).await;
    create(&client, &map("good", "k")).await.unwrap();
    create(&client, &map("bad", "password")).await.unwrap_err();
    let (code, text) = get(probes, "/metrics").await.unwrap();
    assert_eq!(code, 200);
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"200\"} 2",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(
        get(address, "/validate").await.is_none(),
        "the webhooks stop, too"
    );
}
