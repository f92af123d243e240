//! Webhooks without a `caBundle`: the system's root certificates are trusted.

use base64::{Engine, engine::general_purpose::STANDARD};
use pintle_apiserver::{ApiServer, WebhookTarget};
use serde_json::{Value, json};

use crate::support::{
    config_map, http, server,
    webhooks::{WebhookServer, answer, review},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

async fn denying() -> WebhookServer {
    WebhookServer::start(&["127.0.0.1", "hook.default.svc"], |_, asked| {
        answer(&review(&asked, json!({"allowed": false})))
    })
    .await
}

fn configuration(client: &Value) -> Value {
    json!({"metadata": {"name": "v"}, "webhooks": [{"name": "roots.example.com",
        "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE"]}]}]})
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn webhook_without_bundle_is_verified_by_the_roots() {
    let webhook = denying().await;
    let roots = STANDARD.decode(&webhook.bundle).unwrap();
    let trusting = || ApiServer::builder().seed(1).webhook_roots(roots.clone());
    let mut by_url = webhook.url("/x");
    by_url.as_object_mut().unwrap().remove("caBundle");
    let by_service = json!({"service": {"namespace": "default", "name": "hook"}});
    let target = WebhookTarget::Address(webhook.address);
    let routed = trusting().route_webhooks("default", "hook", target);
    // A bundle that contains only whitespace counts as none.
    let mut blank = by_url.clone();
    blank["caBundle"] = STANDARD.encode("\n ").into();
    for (server, client) in [
        (trusting(), by_url),
        (routed, by_service),
        (trusting(), blank),
    ] {
        let server = server.build();
        let http = http(&server);
        let (code, created) = http.post(VALIDATING, &configuration(&client)).await;
        assert_eq!(code, 201, "{created}");
        let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(code, 400, "the webhook was not called: {status}");
        let message = "admission webhook \"roots.example.com\" denied the request without \
            explanation";
        assert_eq!(status["message"], message);
    }
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn webhook_with_an_untrusted_certificate_is_not_called() {
    let (webhook, other) = (denying().await, denying().await);
    let roots = STANDARD.decode(&other.bundle).unwrap();
    let mut untrusted = webhook.url("/x");
    untrusted.as_object_mut().unwrap().remove("caBundle");
    // A bundle replaces the roots: it does not add to them.
    let mut bundled = other.url("/x");
    bundled["caBundle"] = webhook.bundle.clone().into();
    let trusting = ApiServer::builder().seed(1).webhook_roots(roots).build();
    for (server, client) in [
        (&trusting, &untrusted),
        (&server(), &untrusted),
        (&trusting, &bundled),
    ] {
        let http = http(server);
        http.delete(&format!("{VALIDATING}/v")).await;
        http.post(VALIDATING, &configuration(client)).await;
        let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(code, 500);
        let url = client["url"].as_str().unwrap();
        assert_eq!(
            status["message"],
            format!(
                "Internal error occurred: failed calling webhook \"roots.example.com\": failed to \
                 call webhook: Post \"{url}?timeout=10s\": tls: failed to verify certificate: \
                 x509: certificate signed by unknown authority"
            )
        );
    }
}
