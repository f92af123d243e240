//! The operator converges under faults.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use pintle_trials::{Cx, check};
use webapp::{Dns, WebApp, WebAppSpec};

async fn operator(cx: Cx) {
    let _ = webapp::run(cx.client(), Dns::default(), cx.shutdown()).await;
}

/// Proves trials/own-controllers.
#[test]
fn webapp_converges() {
    let secret: Secret = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "key", "namespace": "default" },
        "stringData": { "TOKEN": "a" },
    }))
    .unwrap();
    let spec = WebAppSpec {
        image: "web:1".to_owned(),
        page: "<p>Hi".to_owned(),
        replicas: 2,
        secret_name: "key".to_owned(),
    };
    let report = check(operator)
        .walk(&WebApp::new("shop", spec))
        .given(&secret)
        .sample(60)
        .budget(Duration::MAX)
        .run();
    if std::env::var_os("PINTLE_TRIALS_BUDGET").is_none() {
        assert_eq!(report.left_out, 0, "{report}");
    }
}
