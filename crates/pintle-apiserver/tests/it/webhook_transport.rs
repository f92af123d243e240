//! How webhooks are reached: addresses, connections, certificates and time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, Http, config_map, created, http, server,
    webhooks::{WebhookServer, answer, hang_up, review},
};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const V1: &str = "/api/v1/namespaces/default";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Registers a webhook for creates of config maps, with a timeout in seconds.
async fn configure(http: &Http, client: &Value, seconds: u64) {
    let configuration = json!({"metadata": {"name": "v"}, "webhooks": [{
        "name": "hook.example.com", "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": seconds,
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let _ = http.delete(&format!("{VALIDATING}/v")).await;
    let (code, created) = http.post(VALIDATING, &configuration).await;
    assert_eq!(code, 201, "{created}");
}

/// Creates a config map and returns the code and why the call failed.
async fn create(http: &Http) -> (u16, String) {
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let (code, status) = http.post(&path, &config_map("a")).await;
    let message = status["message"].as_str().unwrap_or_default();
    let start = "Internal error occurred: failed calling webhook \"hook.example.com\": failed to \
                 call webhook: ";
    let why = message.strip_prefix(start).unwrap_or(message);
    (code, why.to_owned())
}

#[allow(clippy::needless_pass_by_value)] // the signature of a handler
fn allow(_: String, asked: Value) -> http::Response<http_body_util::Full<bytes::Bytes>> {
    answer(&review(&asked, json!({"allowed": true})))
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn stale_connection_is_replaced() {
    let calls = AtomicUsize::new(0);
    let webhook = WebhookServer::start(&["127.0.0.1"], move |path, asked| {
        // The second call arrives on a reused connection, the fourth on a new one.
        match calls.fetch_add(1, Ordering::SeqCst) {
            1 | 3 => hang_up(),
            _ => allow(path, asked),
        }
    })
    .await;
    let server = server();
    let http = http(&server);
    configure(&http, &webhook.url("/x"), 5).await;
    assert_eq!(create(&http).await.0, 201);
    assert_eq!(create(&http).await.0, 201, "the call is repeated");
    assert_eq!(webhook.connections(), 2);
    // A call on a new connection is not repeated.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let (code, why) = create(&http).await;
    let port = webhook.address.port();
    assert_eq!(
        (code, why),
        (
            500,
            format!("Post \"https://127.0.0.1:{port}/x?timeout=5s\": EOF")
        )
    );
    assert_eq!(webhook.connections(), 3, "an old connection is not used");
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn silent_webhook_over_https_times_out() {
    let webhook = WebhookServer::start(&["127.0.0.1"], allow).await;
    webhook.hold();
    let server = server();
    let http = http(&server);
    configure(&http, &webhook.url("/x"), 1).await;
    let port = webhook.address.port();
    let expected =
        format!("Post \"https://127.0.0.1:{port}/x?timeout=1s\": context deadline exceeded");
    assert_eq!(create(&http).await, (500, expected));
}

/// A webhook cannot redirect the server, and with it the objects of its users, to another address.
///
/// Proves webhook-calls/errors.
#[tokio::test]
async fn redirects_are_not_followed() {
    let other = WebhookServer::start(&["127.0.0.1"], allow).await;
    let location = other.url("/x")["url"].as_str().unwrap().to_owned();
    let codes = [301, 302, 303, 307, 308];
    let webhook = WebhookServer::start(&["127.0.0.1"], move |path, _| {
        let code = path.trim_start_matches('/').split('?').next().unwrap();
        http::Response::builder()
            .status(code)
            .header("location", &location)
            .body(http_body_util::Full::default())
            .unwrap()
    })
    .await;
    let server = server();
    let http = http(&server);
    for code in codes {
        configure(&http, &webhook.url(&format!("/{code}")), 5).await;
        let why = format!(
            "the server responded with the status code {code} but did not return more information"
        );
        assert_eq!(create(&http).await, (500, why));
    }
    assert_eq!(other.connections(), 0);
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn connection_is_not_shared_between_authorities() {
    let webhook = WebhookServer::start(&["127.0.0.1"], allow).await;
    let other = WebhookServer::start(&["127.0.0.1"], allow).await;
    let server = server();
    let http = http(&server);
    configure(&http, &webhook.url("/x"), 5).await;
    assert_eq!(create(&http).await.0, 201);
    let mut client = webhook.url("/x");
    client["caBundle"] = other.bundle.clone().into();
    configure(&http, &client, 5).await;
    let (code, why) = create(&http).await;
    assert_eq!(code, 500);
    assert!(why.ends_with("signed by unknown authority"), "{why}");
    let port = webhook.address.port();
    client = json!({"url": format!("https://localhost:{port}/x"), "caBundle": webhook.bundle});
    configure(&http, &client, 5).await;
    let (_, why) = create(&http).await;
    assert!(why.contains("certificate is not valid for"), "{why}");
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn self_signed_certificate_can_be_its_own_authority() {
    let webhook = WebhookServer::self_signed("127.0.0.1", allow).await;
    let server = server();
    let http = http(&server);
    configure(&http, &webhook.url("/x"), 5).await;
    assert_eq!(create(&http).await, (201, String::new()));
    // Its names are still checked, and a bundle with another certificate is not enough.
    let port = webhook.address.port();
    let client = json!({"url": format!("https://localhost:{port}/x"), "caBundle": webhook.bundle});
    configure(&http, &client, 5).await;
    let (_, why) = create(&http).await;
    assert!(why.contains("certificate is not valid for"), "{why}");
    let other = WebhookServer::self_signed("127.0.0.1", allow).await;
    let mut client = webhook.url("/x");
    client["caBundle"] = other.bundle.into();
    configure(&http, &client, 5).await;
    let (code, why) = create(&http).await;
    assert_eq!(code, 500);
    assert!(why.contains("tls: failed to verify certificate"), "{why}");
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn service_resolves_to_a_ready_endpoint_of_the_right_port() {
    let webhook = WebhookServer::start(&["hook.default.svc"], allow).await;
    let server = server();
    let http = http(&server);
    let client = json!({"caBundle": webhook.bundle,
        "service": {"namespace": "default", "name": "hook", "path": "/x", "port": 8443}});
    configure(&http, &client, 5).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [
        {"name": "web", "port": 80}, {"name": "tls", "port": 9443}]}});
    created(&http, &format!("{V1}/services"), &service).await;
    let url = "Post \"https://hook.default.svc:8443/x?timeout=5s\"";
    assert_eq!(
        create(&http).await,
        (
            500,
            format!("{url}: no service port 8443 found for service \"hook\"")
        )
    );
    let ports = json!({"spec": {"ports": [
        {"name": "web", "port": 80}, {"name": "tls", "port": 8443}]}});
    assert_eq!(
        http.merge(&format!("{V1}/services/hook"), &ports).await.0,
        200
    );
    let port = webhook.address.port();
    let slice = |name: &str, service: &str, address: &str, ready: bool| {
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "web", "port": 1},
                {"name": "tls", "port": port}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}]})
    };
    // Endpoints of other services and endpoints that are not ready are not used.
    created(&http, SLICES, &slice("a", "other", "127.0.0.1", true)).await;
    created(&http, SLICES, &slice("b", "hook", "127.0.0.1", false)).await;
    assert_eq!(
        create(&http).await,
        (
            500,
            format!("{url}: no endpoints available for service \"hook\"")
        )
    );
    // The next address is tried if one refuses the connection.
    created(&http, SLICES, &slice("c", "hook", "127.0.0.2", true)).await;
    let refused = format!("{url}: dial tcp 127.0.0.2:{port}: connect: connection refused");
    assert_eq!(create(&http).await, (500, refused));
    created(&http, SLICES, &slice("d", "hook", "127.0.0.1", true)).await;
    assert_eq!(create(&http).await, (201, String::new()));
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn service_without_slices_resolves_to_its_endpoints() {
    let webhook = WebhookServer::start(&["hook.default.svc"], allow).await;
    let server = server();
    let http = http(&server);
    let client = json!({"caBundle": webhook.bundle,
        "service": {"namespace": "default", "name": "hook"}});
    configure(&http, &client, 5).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    created(&http, &format!("{V1}/services"), &service).await;
    let port = webhook.address.port();
    let endpoints = json!({"metadata": {"name": "hook"}, "subsets": [
        {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}]});
    created(&http, &format!("{V1}/endpoints"), &endpoints).await;
    assert_eq!(create(&http).await, (201, String::new()));
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn default_port_of_a_url_is_443() {
    let server = server();
    let http = http(&server);
    configure(&http, &json!({"url": "https://127.0.0.3/x"}), 5).await;
    let (_, why) = create(&http).await;
    let refused = "dial tcp 127.0.0.3:443: connect: connection refused";
    assert_eq!(
        why,
        format!("Post \"https://127.0.0.3/x?timeout=5s\": {refused}")
    );
}

/// Proves admission/bounds.
#[tokio::test]
async fn idle_connections_are_limited() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let webhook = WebhookServer::start(&["127.0.0.1"], {
        let waiting = Arc::clone(&waiting);
        move |path, asked| {
            waiting.fetch_add(1, Ordering::SeqCst);
            allow(path, asked)
        }
    })
    .await;
    webhook.hold();
    let server = Arc::new(server());
    let admin = http(&server);
    configure(&admin, &webhook.url("/x"), 30).await;
    let calls = (0..40).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { create(&http(&server)).await.0 })
    });
    let calls: Vec<_> = calls.collect();
    while waiting.load(Ordering::SeqCst) < 40 {
        tokio::task::yield_now().await;
    }
    assert_eq!(webhook.open(), 40);
    webhook.release();
    for call in calls {
        assert_eq!(call.await.unwrap(), 201);
    }
    while webhook.open() > 32 {
        tokio::task::yield_now().await;
    }
}
