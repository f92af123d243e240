//! Webhook responses: patches, verdicts, warnings, and malformed responses.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{AdmissionResponse, ApiServer, Webhook, WebhookTarget};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, Http, PODS, config_map, http, pod, server,
    webhooks::{answer, review},
};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Stores a configuration whose webhook is a Service in this process. `respond` receives the
/// review.
async fn serve(
    server: &ApiServer,
    kind: &str,
    versions: &[&str],
    respond: impl Fn(Value) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) {
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let respond = respond.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked = serde_json::from_slice(&body).unwrap();
            Ok::<_, std::convert::Infallible>(respond(asked))
        }
    });
    server.route_webhooks("n", "hook", WebhookTarget::service(service));
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": versions,
        "clientConfig": {"service": {"namespace": "n", "name": "hook"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations");
    let (code, status) = http(server).post(&path, &configuration).await;
    assert_eq!(code, 201, "{status}");
}

/// Creates a config map and returns the code, the message and the warnings.
async fn create(http: &Http) -> (u16, String, Vec<String>) {
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .body(Full::from(config_map("a").to_string()))
        .unwrap();
    let response = http.send(request).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned());
    let warnings = warnings.collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = body["message"].as_str().unwrap_or_default();
    (code, message.to_owned(), warnings)
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn inconsistent_responses_fail_the_call() {
    let encoded = |text: &str| STANDARD.encode(text);
    let ok = encoded("[{\"op\":\"add\",\"path\":\"/data/x\",\"value\":\"y\"}]");
    for (kind, response, why) in [
        (
            "mutating",
            json!({"allowed": true, "patch": ok}),
            "received invalid webhook response: webhook returned response.patch but not \
             response.patchType",
        ),
        (
            "mutating",
            json!({"allowed": true, "patchType": "JSONPatch"}),
            "received invalid webhook response: webhook returned response.patchType but not \
             response.patch",
        ),
        (
            "mutating",
            json!({"allowed": true, "patch": ok, "patchType": ""}),
            "received invalid webhook response: webhook returned invalid response.patchType of \
             \"\"",
        ),
        (
            "mutating",
            json!({"allowed": true, "patch": ok, "patchType": "Strategic"}),
            "unsupported patch type \"Strategic\"",
        ),
        (
            "mutating",
            json!({"allowed": true, "patch": "%%", "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response: ",
        ),
        (
            "mutating",
            json!({"allowed": true, "patch": encoded("["), "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response: unexpected end of JSON input",
        ),
        (
            "mutating",
            json!({"allowed": true, "patch": encoded("{}"), "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response: json: cannot unmarshal object into \
             Go value of type jsonpatch.Patch",
        ),
        (
            "validating",
            json!({"allowed": true, "patch": ok}),
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "validating",
            json!({"allowed": true, "patchType": "JSONPatch"}),
            "received invalid webhook response: validating webhook may not return \
             response.patchType",
        ),
    ] {
        let server = server();
        let sent = response.clone();
        serve(&server, kind, &["v1"], move |asked| {
            answer(&review(&asked, sent.clone()))
        })
        .await;
        let (code, message, _) = create(&http(&server)).await;
        let start =
            format!("Internal error occurred: failed calling webhook \"hook.example.com\": {why}");
        assert_eq!(code, 500, "{response}: {message}");
        assert!(message.starts_with(&start), "{response}: {message}");
    }
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn older_review_is_not_verified() {
    let server = server();
    serve(&server, "mutating", &["v1beta1", "v1"], |asked| {
        assert_eq!(asked["apiVersion"], "admission.k8s.io/v1beta1");
        let patch = STANDARD.encode("[{\"op\":\"add\",\"path\":\"/data/x\",\"value\":\"y\"}]");
        answer(&json!({"response": {"allowed": true, "patch": patch, "patchType": "Other"}}))
    })
    .await;
    let http = http(&server);
    let (code, message, _) = create(&http).await;
    assert_eq!((code, message.as_str()), (201, ""));
    let (_, stored) = http.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(stored["data"]["x"], "y");
    // In the older version, a validating webhook may send a patch, which is ignored.
    let server = self::server();
    serve(&server, "validating", &["v1beta1"], |_| {
        answer(&json!({"response": {"allowed": true, "patch": "%%"}}))
    })
    .await;
    assert_eq!(create(&self::http(&server)).await.0, 201);
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn verdict_is_read_from_any_successful_response() {
    let server = server();
    serve(&server, "validating", &["v1"], |asked| {
        let body = answer(&review(&asked, json!({"warnings": ["first", "second"]})));
        let (_, body) = body.into_parts();
        Response::builder().status(201).body(body).unwrap()
    })
    .await;
    let (code, message, warnings) = create(&http(&server)).await;
    assert_eq!(
        (code, message.as_str()),
        (
            400,
            "admission webhook \"hook.example.com\" denied the request without explanation"
        ),
        "a response without a verdict denies the request"
    );
    assert_eq!(warnings, ["299 - \"first\"", "299 - \"second\""]);
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn failed_response_may_explain_itself() {
    let server = server();
    serve(&server, "validating", &["v1"], |_| {
        let status = json!({"kind": "Status", "status": "Failure",
            "message": "certificates are being renewed"});
        Response::builder()
            .status(503)
            .body(Full::from(status.to_string()))
            .unwrap()
    })
    .await;
    let (_, message, _) = create(&http(&server)).await;
    assert_eq!(
        message,
        "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call \
         webhook: certificates are being renewed"
    );
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn status_codes_of_webhooks_are_described() {
    for (code, body, why) in [
        (403, "no entry", "no entry"),
        (
            406,
            "",
            "the server was unable to respond with a content type that the client supports",
        ),
        (409, "", "the server reported a conflict"),
        (415, "JSON only", "JSON only"),
        (
            422,
            "",
            "the server rejected our request due to an error in our request",
        ),
        (
            418,
            "",
            "the server responded with the status code 418 but did not return more information",
        ),
    ] {
        let server = server();
        serve(&server, "validating", &["v1"], move |_| {
            let response = Response::builder().status(code);
            response.body(Full::from(body)).unwrap()
        })
        .await;
        let (_, message, _) = create(&http(&server)).await;
        let failed = "failed calling webhook \"hook.example.com\": failed to call webhook: ";
        assert_eq!(message, format!("Internal error occurred: {failed}{why}"));
    }
}

/// Proves webhook-calls/errors.
#[tokio::test(start_paused = true)]
async fn failed_response_that_is_not_text_is_not_shown() {
    let server = server();
    serve(&server, "validating", &["v1"], |_| {
        Response::builder()
            .status(500)
            .header("content-type", "application/json")
            .body(Full::from("[]"))
            .unwrap()
    })
    .await;
    let request = config_map("a");
    let (code, status) = http(&server).post(CONFIG_MAPS, &request).await;
    let why = "failed calling webhook \"hook.example.com\": failed to call webhook: an error on \
               the server (\"unknown\") has prevented the request from succeeding";
    assert_eq!(code, 500);
    assert_eq!(status["message"], format!("Internal error occurred: {why}"));
    assert_eq!(status["details"], json!({"causes": [{"message": why}]}));
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn oversized_response_of_a_service_fails_the_call() {
    let server = server();
    serve(&server, "validating", &["v1"], |asked| {
        let mut long = review(&asked, json!({"allowed": true}));
        long["padding"] = "x".repeat(17 * 1024 * 1024).into();
        answer(&long)
    })
    .await;
    let (code, message, _) = create(&http(&server)).await;
    assert_eq!(code, 500);
    assert!(message.contains("length limit exceeded"), "{message}");
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn webhook_receives_the_remaining_time() {
    let server = server();
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        seen.lock().unwrap().push(request.uri().to_string());
        async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            Ok::<_, std::convert::Infallible>(answer(&review(&asked, json!({"allowed": true}))))
        }
    });
    server.route_webhooks("n", "hook", WebhookTarget::service(service));
    let hooks = [("a", 20), ("b", 5), ("c", 20)].map(|(name, seconds)| {
        json!({"name": format!("{name}.example.com"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": seconds,
            "clientConfig": {"service": {"namespace": "n", "name": "hook", "path": format!("/{name}")}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"]}]})
    });
    let http = http(&server);
    let path = format!("{CONFIGURATIONS}/mutatingwebhookconfigurations");
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": hooks});
    assert_eq!(http.post(&path, &configuration).await.0, 201);
    for (query, expected) in [
        ("", ["/a?timeout=20s", "/b?timeout=5s", "/c?timeout=20s"]),
        (
            "&timeout=10s",
            ["/a?timeout=10s", "/b?timeout=5s", "/c?timeout=7s"],
        ),
    ] {
        let path = format!("{CONFIG_MAPS}?dryRun=All{query}");
        assert_eq!(http.post(&path, &config_map("a")).await.0, 201);
        assert_eq!(*told.lock().unwrap(), expected);
        told.lock().unwrap().clear();
    }
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn response_with_too_many_values_is_rejected() {
    let server = server();
    let many = Arc::new(format!("[0{}]", ",0".repeat(1_000_000)));
    let text = Arc::clone(&many);
    serve(&server, "validating", &["v1"], move |asked| {
        let mut review = review(&asked, json!({"allowed": true})).to_string();
        review.truncate(review.len() - 1);
        Response::new(Full::from(format!("{review},\"padding\":{text}}}")))
    })
    .await;
    let (code, message, _) = create(&http(&server)).await;
    assert_eq!(code, 500);
    let why = "more than 1000000 JSON values";
    assert!(message.contains(why), "{message}");

    let server = self::server();
    serve(&server, "mutating", &["v1"], move |asked| {
        let patch = STANDARD.encode(&*many);
        let response = json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
        answer(&review(&asked, response))
    })
    .await;
    let (code, message, _) = create(&http(&server)).await;
    assert_eq!(code, 500);
    let undecodable = "received undecodable patch in webhook response: ";
    assert!(
        message.contains(&format!("{undecodable}{why}")),
        "{message}"
    );
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn warnings_reach_the_client_of_an_allowed_write() {
    let server = server();
    let webhook = Webhook::mutating("warn.example.com", |_| async {
        AdmissionResponse::allow().warning("old field")
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let (code, _, warnings) = create(&http(&server)).await;
    assert_eq!(
        (code, warnings),
        (201, vec!["299 - \"old field\"".to_owned()])
    );
}

/// Registers a mutating webhook for config maps, scales and tokens that sends the current `patch`.
fn patching(
    server: &ApiServer,
    patch: &Arc<Mutex<Value>>,
) -> pintle_apiserver::WebhookRegistration {
    let current = Arc::clone(patch);
    let webhook = Webhook::mutating("patch.example.com", move |_| {
        let patch = current.lock().unwrap().clone();
        async { AdmissionResponse::allow().patch(patch) }
    })
    .rule(
        ["*"],
        ["*"],
        ["*"],
        ["configmaps", "deployments/scale", "serviceaccounts/token"],
    )
    .ignore_failures();
    server.register_webhook(&webhook).unwrap()
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn inapplicable_patch_fails_the_write() {
    let server = server();
    let http = http(&server);
    let patch = Arc::new(Mutex::new(json!([])));
    http.post(CONFIG_MAPS, &config_map("stored")).await;
    let _webhook = patching(&server, &patch);
    for (operations, why) in [
        (
            json!([{"op": "replace", "path": "", "value": []}]),
            "an object",
        ),
        (
            json!([{"op": "replace", "path": "/metadata", "value": 1}]),
            "metadata",
        ),
        (
            json!([{"op": "add", "path": "/metadata/labels", "value": {"a": 1}}]),
            "labels",
        ),
        (
            json!([{"op": "remove", "path": "/data/missing"}]),
            "missing",
        ),
    ] {
        *patch.lock().unwrap() = operations;
        // Only a failed call is subject to the failure policy.
        let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    *patch.lock().unwrap() = json!([{"op": "add", "path": "/data", "value": {}}]);
    let (code, status) = http.delete(&format!("{CONFIG_MAPS}/stored")).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "Internal error occurred: admission webhook \"patch.example.com\" attempted to modify \
         the object, which is not supported for this operation"
    );
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/stored")).await.0, 200);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn patched_subresource_is_decoded_and_gets_defaults() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    http.post(accounts, &json!({"metadata": {"name": "s"}}))
        .await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector":
        {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
    http.post(deployments, &deployment).await;
    let patch = Arc::new(Mutex::new(json!([])));
    let _webhook = patching(&server, &patch);
    *patch.lock().unwrap() = json!([{"op": "replace", "path": "/spec/replicas", "value": "two"}]);
    let scale = json!({"spec": {"replicas": 1}});
    let path = format!("{deployments}/d/scale");
    assert_eq!(http.merge(&path, &scale).await.0, 500);
    *patch.lock().unwrap() = json!([{"op": "remove", "path": "/spec/expirationSeconds"}]);
    let token = json!({"spec": {"expirationSeconds": 7200}});
    let (code, token) = http.post(&format!("{accounts}/s/token"), &token).await;
    assert_eq!(code, 201, "{token}");
    assert_eq!(token["spec"]["expirationSeconds"], 3600);
}

/// Proves admission/mutating-order.
#[tokio::test(start_paused = true)]
async fn webhook_is_reinvoked_if_a_plugin_changes_the_object() {
    for (limited, expected) in [(true, 2), (false, 1)] {
        let server = server();
        let http = http(&server);
        if limited {
            let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
                {"type": "Container", "default": {"cpu": "1"}}]}});
            let path = "/api/v1/namespaces/default/limitranges";
            assert_eq!(http.post(path, &range).await.0, 201);
        }
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let webhook = Webhook::mutating("sidecar.example.com", move |request| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let limits = request.object()["spec"]["containers"][1]["resources"].clone();
            assert!(first || limits["limits"]["cpu"] == "1", "{limits}");
            async move {
                let added = json!([{"op": "add", "path": "/spec/containers/-",
                    "value": {"name": "sidecar", "image": "y"}}]);
                AdmissionResponse::allow().patch(if first { added } else { json!([]) })
            }
        })
        .rule(["CREATE"], [""], ["v1"], ["pods"])
        .field("reinvocationPolicy", json!("IfNeeded"));
        let _webhook = server.register_webhook(&webhook).unwrap();
        let (code, pod) = http.post(PODS, &pod("p")).await;
        assert_eq!(code, 201, "{pod}");
        assert_eq!(calls.load(Ordering::SeqCst), expected, "limited: {limited}");
    }
}

/// Proves admission/mutating-order.
#[tokio::test(start_paused = true)]
async fn no_op_patch_does_not_reinvoke_webhooks() {
    let server = server();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let first = Webhook::mutating("a.example.com", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async { AdmissionResponse::allow() }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .field("reinvocationPolicy", json!("IfNeeded"));
    let second = Webhook::mutating("b.example.com", |_| async {
        let patch = json!([{"op": "replace", "path": "/data/k", "value": "v"}]);
        AdmissionResponse::allow().patch(patch)
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _webhooks = [&first, &second].map(|hook| server.register_webhook(hook).unwrap());
    assert_eq!(create(&http(&server)).await.0, 201);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn webhooks_run_between_the_other_plugins() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    http.post(accounts, &json!({"metadata": {"name": "default"}}))
        .await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let mutating = Webhook::mutating("first.example.com", move |request| {
        let account = request.object()["spec"]["serviceAccountName"].clone();
        record.lock().unwrap().push(account);
        async { AdmissionResponse::allow() }
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"]);
    let denying = Webhook::validating("deny.example.com", |_| async {
        AdmissionResponse::deny("no")
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"]);
    let _webhooks = [&mutating, &denying].map(|hook| server.register_webhook(hook).unwrap());
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let spec = json!({"hard": {"pods": "5"}});
    http.post(quotas, &json!({"metadata": {"name": "q"}, "spec": spec}))
        .await;
    let status = json!({"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}});
    http.merge(&format!("{quotas}/q/status"), &status).await;
    assert_eq!(http.post(PODS, &pod("p")).await.0, 400);
    assert_eq!(
        *seen.lock().unwrap(),
        [json!("default")],
        "the service account is set before webhooks see the Pod"
    );
    let (_, quota) = http.get(&format!("{quotas}/q")).await;
    assert_eq!(quota["status"]["used"]["pods"], "0", "quotas come last");
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn validating_webhooks_run_concurrently_and_all_count() {
    let server = server();
    let slow = |name: &str, seconds: u64, denied: bool| {
        Webhook::validating(name, move |_| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            if denied {
                AdmissionResponse::deny(format!("after {seconds} s"))
            } else {
                AdmissionResponse::allow()
            }
        })
        .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    };
    let hooks = [
        slow("a.example.com", 4, false),
        slow("b.example.com", 5, true),
        slow("c.example.com", 1, true),
    ];
    let _webhooks = hooks.map(|hook| server.register_webhook(&hook).unwrap());
    let start = tokio::time::Instant::now();
    let (code, message, _) = create(&http(&server)).await;
    assert_eq!(start.elapsed().as_secs(), 5, "the calls are concurrent");
    assert_eq!(
        (code, message.as_str()),
        (
            400,
            "admission webhook \"b.example.com\" denied the request: after 5 s"
        ),
        "the first denying webhook in order provides the message"
    );
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn concurrent_calls_of_a_webhook_are_limited() {
    let server = Arc::new(server());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (current, peak) = (Arc::clone(&now), Arc::clone(&most));
    let webhook = Webhook::validating("slow.example.com", move |_| {
        let (current, peak) = (Arc::clone(&current), Arc::clone(&peak));
        async move {
            peak.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(6)).await;
            current.fetch_sub(1, Ordering::SeqCst);
            AdmissionResponse::allow()
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let start = tokio::time::Instant::now();
    let writes = (0..200).map(|i| {
        let server = Arc::clone(&server);
        async move {
            let map = config_map(&format!("m{i}"));
            http(&server).post(CONFIG_MAPS, &map).await.0
        }
    });
    let codes = futures::future::join_all(writes).await;
    assert_eq!(most.load(Ordering::SeqCst), 64);
    // The second batch is cut off after the rest of its ten seconds, and the others never start.
    assert_eq!(start.elapsed().as_secs(), 10);
    let count = |code: u16| codes.iter().filter(|found| **found == code).count();
    assert_eq!((count(201), count(500)), (64, 136));
}
