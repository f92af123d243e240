//! Webhooks that are slow, fail, or call themselves or each other.

use super::*;

/// Proves admission/failure-policy.
#[tokio::test(start_paused = true)]
async fn failing_webhook_rejects_the_write_or_is_ignored() {
    let server = server();
    let http = http(&server);
    let panicking = |name: &str| {
        Webhook::validating(name, |_| async { panic!("oops") }).rule(
            ["CREATE"],
            [""],
            ["v1"],
            ["configmaps"],
        )
    };
    let registration = server
        .register_webhook(&panicking("panics.example.com"))
        .unwrap();
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert_eq!(
        status["message"],
        "Internal error occurred: failed calling webhook \"panics.example.com\": failed to call \
         webhook: the webhook panicked"
    );
    drop(registration);
    let ignored = panicking("ignored.example.com").ignore_failures();
    let _webhook = server.register_webhook(&ignored).unwrap();
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn slow_webhook_times_out_and_blocks_no_other_request() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::validating("slow.example.com", |_| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        AdmissionResponse::allow()
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .timeout(Duration::from_secs(3));
    let _webhook = server.register_webhook(&webhook).unwrap();
    let start = tokio::time::Instant::now();
    let map = config_map("a");
    let slow = http.post(CONFIG_MAPS, &map);
    let other = async {
        let mut watch = http
            .watch("/api/v1/namespaces/default/secrets?watch=true")
            .await;
        let secret = json!({"metadata": {"name": "s"}});
        let (code, _) = http
            .post("/api/v1/namespaces/default/secrets", &secret)
            .await;
        assert_eq!(
            (code, watch.take(1).await),
            (201, vec!["ADDED s".to_owned()])
        );
        start.elapsed()
    };
    let ((code, status), others) = tokio::join!(slow, other);
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "Internal error occurred: failed calling webhook \"slow.example.com\": failed to call \
         webhook: context deadline exceeded"
    );
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(others, Duration::ZERO);
}

/// A webhook that writes an object it is called for would call itself forever without the timeout
/// and the limit on concurrent calls.
///
/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn webhook_that_calls_itself_terminates() {
    let server = server();
    let depth = Arc::new(AtomicUsize::new(0));
    let (service, count) = (server.service(), Arc::clone(&depth));
    let webhook = Webhook::validating("loop.example.com", move |_| {
        let (service, count) = (service.clone(), Arc::clone(&count));
        async move {
            let name = format!("n{}", count.fetch_add(1, Ordering::SeqCst));
            let request = Request::post(CONFIG_MAPS)
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(config_map(&name).to_string())))
                .unwrap();
            let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
            match response.status().as_u16() {
                201 => AdmissionResponse::allow(),
                code => AdmissionResponse::deny(format!("inner write: {code}")),
            }
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .timeout(Duration::from_secs(1));
    let registration = server.register_webhook(&webhook).unwrap();
    let http = http(&server);
    let start = tokio::time::Instant::now();
    let map = config_map("a");
    let others = async {
        let secrets = "/api/v1/namespaces/default/secrets";
        let mut watch = http.watch(&format!("{secrets}?watch=true")).await;
        for i in 0..20 {
            let name = format!("s{i}");
            let (code, _) = http
                .post(secrets, &json!({"metadata": {"name": name}}))
                .await;
            assert_eq!(code, 201);
            assert_eq!(watch.take(1).await, [format!("ADDED {name}")]);
        }
        start.elapsed()
    };
    let ((code, _), waited) = tokio::join!(http.post(CONFIG_MAPS, &map), others);
    assert!(code >= 400, "{code}");
    assert_eq!(waited, Duration::ZERO, "no other request waits for it");
    let depth = depth.load(Ordering::SeqCst);
    assert!((10..=64).contains(&depth), "{depth}");
    drop(registration);
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn webhook_timeout_is_ten_seconds_by_default() {
    let server = server();
    let http = http(&server);
    let hang = |name: &str| {
        Webhook::validating(name, |_| std::future::pending())
            .rule(["CREATE"], [""], ["v1"], ["configmaps"])
            .ignore_failures()
    };
    for webhook in [
        hang("plain.example.com"),
        hang("unset.example.com").field("timeoutSeconds", Value::Null),
    ] {
        let _webhook = server.register_webhook(&webhook).unwrap();
        let start = tokio::time::Instant::now();
        let (code, _) = http
            .post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a"))
            .await;
        assert_eq!((code, start.elapsed().as_secs()), (201, 10));
    }
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "c.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com"}}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let (_, stored) = http.post(path, &configuration).await;
    assert_eq!(stored["webhooks"][0]["timeoutSeconds"], 10);
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn trickling_response_ends_at_the_timeout() {
    let server = server();
    let http = http(&server);
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = tower::service_fn(move |_: Request<Full<Bytes>>| {
        let count = Arc::clone(&count);
        async move {
            let frames = futures::stream::unfold((), move |()| {
                let count = Arc::clone(&count);
                async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    count.fetch_add(1, Ordering::SeqCst);
                    let frame = http_body::Frame::data(Bytes::from_static(b" "));
                    Some((Ok::<_, std::convert::Infallible>(frame), ()))
                }
            });
            let body = http_body_util::StreamBody::new(frames);
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    server.route_webhooks("n", "hook", WebhookTarget::service(service));
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "c.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "hook"}}, "timeoutSeconds": 2,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(http.post(path, &configuration).await.0, 201);
    let start = tokio::time::Instant::now();
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((code, start.elapsed().as_secs()), (500, 2), "{status}");
    // The rest is not read.
    let read = sent.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(sent.load(Ordering::SeqCst), read);
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn webhook_is_cancelled_with_its_request() {
    let server = server();
    let http = http(&server);
    let running = Arc::new(());
    let held = Arc::clone(&running);
    let webhook = Webhook::mutating("slow.example.com", move |_| {
        let held = Arc::clone(&held);
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(held);
            AdmissionResponse::allow()
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let idle = Arc::strong_count(&running);
    let map = config_map("a");
    let gone = tokio::time::timeout(Duration::from_secs(1), http.post(CONFIG_MAPS, &map));
    assert!(gone.await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&running), idle, "the call was cancelled");
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
}

/// Two webhooks, each of which writes an object that the other one is called for.
///
/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn webhooks_that_call_each_other_terminate() {
    let server = server();
    let calls = Arc::new(AtomicUsize::new(0));
    let writes = |name: &str, on: &'static str, other: &'static str| {
        let (service, calls) = (server.service(), Arc::clone(&calls));
        let webhook = Webhook::mutating(name, move |_| {
            let (service, calls) = (service.clone(), Arc::clone(&calls));
            async move {
                let n = calls.fetch_add(1, Ordering::SeqCst);
                let object = json!({"metadata": {"name": format!("n{n}")}});
                let request = Request::post(format!("/api/v1/namespaces/default/{other}"))
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from(object.to_string())))
                    .unwrap();
                let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
                match response.status().as_u16() {
                    201 => AdmissionResponse::allow(),
                    code => AdmissionResponse::deny(format!("inner write: {code}")),
                }
            }
        })
        .rule(["CREATE"], [""], ["v1"], [on])
        .timeout(Duration::from_secs(1));
        server.register_webhook(&webhook).unwrap()
    };
    let _webhooks = [
        writes("a.example.com", "configmaps", "secrets"),
        writes("b.example.com", "secrets", "configmaps"),
    ];
    let http = http(&server);
    let start = tokio::time::Instant::now();
    let map = config_map("a");
    let other = async {
        let services = "/api/v1/namespaces/default/serviceaccounts";
        let account = json!({"metadata": {"name": "s"}});
        assert_eq!(http.post(services, &account).await.0, 201);
        start.elapsed()
    };
    let ((code, _), waited) = tokio::join!(http.post(CONFIG_MAPS, &map), other);
    assert!(code >= 400, "{code}");
    assert_eq!(waited, Duration::ZERO);
    assert!(start.elapsed() <= Duration::from_secs(2));
    let calls = calls.load(Ordering::SeqCst);
    assert!((10..=128).contains(&calls), "{calls}");
}
