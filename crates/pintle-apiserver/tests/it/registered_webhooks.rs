//! Registration of webhooks in this process.

use std::time::Duration;

use crate::support::*;
use pintle_apiserver::{AdmissionResponse, Webhook};
use serde_json::json;

fn slow(takes: Duration) -> Webhook {
    Webhook::validating("slow.example.com", move |_| async move {
        tokio::time::sleep(takes).await;
        AdmissionResponse::allow()
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
}

/// Proves admission/builder.
#[tokio::test(start_paused = true)]
async fn unknown_configuration_fields_are_rejected() {
    let server = server();
    let misspelled = slow(Duration::ZERO).field("objectSelectr", json!({}));
    let error = server.register_webhook(&misspelled).unwrap_err();
    let expected = "invalid webhook: unknown field \"objectSelectr\"";
    assert_eq!(error.to_string(), expected);
    // Only mutating webhooks are called again.
    let again = slow(Duration::ZERO).field("reinvocationPolicy", json!("IfNeeded"));
    let error = server.register_webhook(&again).unwrap_err();
    let expected = "invalid webhook: unknown field \"reinvocationPolicy\"";
    assert_eq!(error.to_string(), expected);
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn timeouts_are_rounded_up_to_seconds() {
    let server = server();
    let http = http(&server);
    let half = Duration::from_millis(500);
    for (takes, code) in [(half, 201), (Duration::from_millis(1_100), 500)] {
        let webhook = slow(takes).timeout(half);
        let _registration = server.register_webhook(&webhook).unwrap();
        let name = format!("after-{}", takes.as_millis());
        let map = json!({"metadata": {"name": name}});
        let (got, answer) = http
            .post("/api/v1/namespaces/default/configmaps", &map)
            .await;
        assert_eq!(got, code, "{answer}");
    }
    let error = server.register_webhook(&slow(half).timeout(Duration::from_secs(31)));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("timeoutSeconds"), "{error}");
}
