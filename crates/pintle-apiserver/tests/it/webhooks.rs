//! Webhook configurations: webhooks over HTTPS, and the configurations themselves.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use pintle_apiserver::{AdmissionResponse, Webhook, WebhookTarget};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, Http, causes, config_map, http, server,
    webhooks::{WebhookServer, answer, patch, review},
};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Returns a webhook for creates of config maps.
fn entry(name: &str, client: &Value) -> Value {
    json!({"name": name, "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]})
}

async fn configure(http: &Http, path: &str, name: &str, webhooks: &Value) {
    let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
    let (code, created) = http.post(path, &configuration).await;
    assert_eq!(code, 201, "{created}");
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn validating_webhook_denies_over_https() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let webhook = WebhookServer::start(&["127.0.0.1"], move |path, asked| {
        record.lock().unwrap().push((path, asked.clone()));
        let allowed = asked["request"]["object"]["data"]["k"] != "bad";
        answer(&review(
            &asked,
            json!({"allowed": allowed, "status": {"message": "bad data"},
            "warnings": ["seen"]}),
        ))
    })
    .await;
    let server = server();
    let http = http(&server);
    let hook = entry("validate.example.com", &webhook.url("/validate"));
    configure(&http, VALIDATING, "v", &json!([hook])).await;
    assert_eq!(http.post(CONFIG_MAPS, &config_map("good")).await.0, 201);
    let mut bad = config_map("bad");
    bad["data"]["k"] = "bad".into();
    let (code, status) = http.post(CONFIG_MAPS, &bad).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "admission webhook \"validate.example.com\" denied the request: bad data"
    );
    {
        let seen = seen.lock().unwrap();
        let (path, asked) = &seen[0];
        assert_eq!(path, "/validate?timeout=5s");
        assert_eq!(asked["kind"], "AdmissionReview");
        assert_eq!(asked["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(asked["request"]["object"]["metadata"]["name"], "good");
    }
    assert_eq!(webhook.connections(), 1, "the connection is used again");
    // A deletion takes effect immediately.
    assert_eq!(http.delete(&format!("{VALIDATING}/v")).await.0, 200);
    assert_eq!(http.post(CONFIG_MAPS, &bad).await.0, 201);
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn mutating_webhooks_run_in_the_order_of_their_configurations() {
    let webhook = WebhookServer::start(&["127.0.0.1"], |path, asked| {
        let before = asked["request"]["object"]["data"]["trace"].as_str();
        let step = path.trim_start_matches('/').split('?').next().unwrap();
        let trace = format!("{}{step}", before.unwrap_or_default());
        let operations = json!([{"op": "add", "path": "/data/trace", "value": trace}]);
        answer(&review(&asked, patch(&operations)))
    })
    .await;
    let server = server();
    let http = http(&server);
    let hook = |name: &str| {
        entry(
            &format!("{name}.example.com"),
            &webhook.url(&format!("/{name}")),
        )
    };
    configure(&http, MUTATING, "second", &json!([hook("c")])).await;
    configure(&http, MUTATING, "first", &json!([hook("b"), hook("a")])).await;
    let (code, created) = http.post(CONFIG_MAPS, &config_map("m")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["data"]["trace"], "bac");
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn service_resolves_to_its_endpoints_or_a_registered_address() {
    let webhook = WebhookServer::start(&["hook.default.svc"], |_, asked| {
        answer(&review(&asked, json!({"allowed": false})))
    })
    .await;
    let server = server();
    let http = http(&server);
    let client = json!({"caBundle": webhook.bundle,
        "service": {"namespace": "default", "name": "hook", "path": "/check", "port": 8443}});
    configure(
        &http,
        VALIDATING,
        "v",
        &json!([entry("svc.example.com", &client)]),
    )
    .await;
    let failure = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"svc.example.com\": failed to call \
             webhook: Post \"https://hook.default.svc:8443/check?timeout=5s\": {why}"
        )
    };
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 500);
    assert_eq!(status["message"], failure("service \"hook\" not found"));
    let service = json!({"metadata": {"name": "hook"},
        "spec": {"ports": [{"name": "tls", "port": 8443, "targetPort": 9443}]}});
    http.post("/api/v1/namespaces/default/services", &service)
        .await;
    let (_, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(
        status["message"],
        failure("no endpoints available for service \"hook\"")
    );
    let slice = json!({"metadata": {"name": "hook-1",
            "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "ports": [{"name": "tls", "port": webhook.address.port()}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}},
            {"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    assert_eq!(http.post(slices, &slice).await.0, 201);
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 400, "{status}");
    assert_eq!(
        status["message"],
        "admission webhook \"svc.example.com\" denied the request without explanation"
    );
    // A registered address takes precedence.
    let dead = WebhookTarget::Address("127.0.0.1:1".parse().unwrap());
    server.route_webhooks("default", "hook", dead);
    let (_, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let why = failure("dial tcp 127.0.0.1:1: connect: connection refused");
    assert_eq!(status["message"], why);
}

/// Proves webhook-calls/https.
#[tokio::test(start_paused = true)]
async fn service_can_be_a_tower_service_in_this_process() {
    let server = server();
    let http = http(&server);
    let service = tower::service_fn(|request: http::Request<Full<Bytes>>| async move {
        let path = request.uri().path().to_owned();
        let body = http_body_util::BodyExt::collect(request.into_body())
            .await
            .unwrap();
        let asked: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let denied = review(
            &asked,
            json!({"allowed": false, "status": {"message": path}}),
        );
        Ok::<_, std::convert::Infallible>(answer(&denied))
    });
    server.route_webhooks("system", "hook", WebhookTarget::service(service));
    let client = json!({"service": {"namespace": "system", "name": "hook", "path": "/v"}});
    configure(
        &http,
        VALIDATING,
        "v",
        &json!([entry("svc.example.com", &client)]),
    )
    .await;
    let (_, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(
        status["message"],
        "admission webhook \"svc.example.com\" denied the request: /v"
    );
}

/// Proves webhook-calls/https, admission/builder.
#[tokio::test(start_paused = true)]
async fn in_process_and_configured_webhooks_share_one_order() {
    let server = server();
    let http = http(&server);
    let append = |step: &str, asked: &Value| {
        let before = asked["object"]["data"]["trace"].as_str();
        let trace = format!("{}{step}", before.unwrap_or_default());
        json!([{"op": "add", "path": "/data/trace", "value": trace}])
    };
    let local = |step: &'static str| {
        let webhook = Webhook::mutating(format!("{step}.example.com"), move |request| {
            let operations = append(step, request.as_value());
            async { AdmissionResponse::allow().patch(operations) }
        })
        .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
        server.register_webhook(&webhook).unwrap()
    };
    let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| async move {
        let body = http_body_util::BodyExt::collect(request.into_body())
            .await
            .unwrap();
        let asked: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let patched = review(&asked, patch(&append("m", &asked["request"])));
        Ok::<_, std::convert::Infallible>(answer(&patched))
    });
    server.route_webhooks("system", "hook", WebhookTarget::service(service));
    let client = json!({"service": {"namespace": "system", "name": "hook"}});
    let _last = local("z");
    let hooks = json!([entry("b.example.com", &client)]);
    configure(&http, MUTATING, "m.example.com", &hooks).await;
    let _first = local("a");
    let (code, created) = http.post(CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(code, 201, "{created}");
    // Sorted by configuration name; a webhook in this process counts as a configuration with its
    // name.
    assert_eq!(created["data"]["trace"], "amz");
}

/// Proves webhook-calls/errors.
#[tokio::test]
async fn malformed_response_gets_upstream_error() {
    let webhook = WebhookServer::start(&["127.0.0.1"], |path, asked| {
        let with = |response: Value| answer(&review(&asked, response));
        match path.split('?').next().unwrap() {
            "/uid" => {
                let mut lie = review(&asked, json!({"allowed": true}));
                lie["response"]["uid"] = "other".into();
                answer(&lie)
            }
            "/kind" => {
                let mut lie = review(&asked, json!({"allowed": true}));
                lie["apiVersion"] = Value::Null;
                lie["kind"] = Value::Null;
                answer(&lie)
            }
            "/absent" => answer(&json!({"apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview"})),
            "/patch" => with(json!({"allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
            "/text" => Response::new(Full::from("hello")),
            "/empty" => Response::new(Full::default()),
            "/large" => Response::new(Full::from(vec![b'x'; 17 * 1024 * 1024])),
            "/missing" => Response::builder()
                .status(404)
                .body(Full::default())
                .unwrap(),
            _ => Response::builder()
                .status(500)
                .body(Full::from("boom"))
                .unwrap(),
        }
    })
    .await;
    let server = server();
    let http = http(&server);
    let port = webhook.address.port();
    for (path, why) in [
        (
            "uid",
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "kind",
            "received invalid webhook response: expected webhook response of \
             admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            "absent",
            "received invalid webhook response: webhook response was absent",
        ),
        (
            "patch",
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "text",
            "failed to call webhook: couldn't get version/kind; json parse error: invalid \
             character 'h' looking for beginning of value",
        ),
        (
            "empty",
            "failed to call webhook: 0-length response with status code: 200",
        ),
        ("large", "failed to call webhook: Post \"https://127.0.0.1:"),
        (
            "missing",
            "failed to call webhook: the server could not find the requested resource",
        ),
        (
            "boom",
            "failed to call webhook: an error on the server (\"boom\") has prevented the request \
             from succeeding",
        ),
    ] {
        let client = webhook.url(&format!("/{path}"));
        let hook = entry("lie.example.com", &client);
        configure(&http, VALIDATING, path, &json!([hook])).await;
        let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(code, 500, "{path}: {status}");
        let message = status["message"].as_str().unwrap();
        let start = "Internal error occurred: failed calling webhook \"lie.example.com\": ";
        let rest = message
            .strip_prefix(start)
            .unwrap_or_else(|| panic!("{message}"));
        assert!(rest.starts_with(why), "{path}: {rest}");
        http.delete(&format!("{VALIDATING}/{path}")).await;
    }
    // Without a bundle, the authority is unknown.
    let mut client = webhook.url("/x");
    client["caBundle"] = "".into();
    configure(
        &http,
        VALIDATING,
        "t",
        &json!([entry("tls.example.com", &client)]),
    )
    .await;
    let (_, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(
        status["message"],
        format!(
            "Internal error occurred: failed calling webhook \"tls.example.com\": failed to call \
             webhook: Post \"https://127.0.0.1:{port}/x?timeout=5s\": tls: failed to verify \
             certificate: x509: certificate signed by unknown authority"
        )
    );
    // Ignoring failures lets the write pass.
    let mut hook = entry("tls.example.com", &client);
    hook["failurePolicy"] = "Ignore".into();
    let ignoring = json!({"webhooks": [hook]});
    assert_eq!(
        http.merge(&format!("{VALIDATING}/t"), &ignoring).await.0,
        200
    );
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves admission/exempt.
#[tokio::test(start_paused = true)]
async fn webhooks_are_not_called_for_configurations() {
    let server = server();
    let http = http(&server);
    let client = json!({"service": {"namespace": "n", "name": "missing"}});
    let mut hook = entry("all.example.com", &client);
    hook["rules"][0] = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*"]});
    configure(&http, VALIDATING, "v", &json!([hook])).await;
    assert_eq!(
        http.post(SECRETS, &json!({"metadata": {"name": "s"}}))
            .await
            .0,
        500
    );
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{VALIDATING}/v"), &labels).await.0, 200);
    assert_eq!(http.delete(&format!("{VALIDATING}/v")).await.0, 200);
    assert_eq!(
        http.post(SECRETS, &json!({"metadata": {"name": "s"}}))
            .await
            .0,
        201
    );
}

/// Proves admission/configuration.
#[tokio::test(start_paused = true)]
async fn invalid_configurations_are_rejected_with_field_errors() {
    let server = server();
    let http = http(&server);
    let good = entry("a.example.com", &json!({"url": "https://example.com/x"}));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut hook = good.clone();
        change(&mut hook);
        hook
    };
    for (webhooks, expected) in [
        (
            json!([with(&|hook| hook["name"] = "a".into())]),
            "webhooks[0].name: Invalid value: \"a\": should be a domain with at least three \
             segments separated by dots",
        ),
        (
            json!([with(&|hook| hook["sideEffects"] = "Some".into())]),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
             \"NoneOnDryRun\"",
        ),
        (
            json!([with(&|hook| hook["admissionReviewVersions"] = json!(["v2"]))]),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least \
             one of v1, v1beta1",
        ),
        (
            json!([with(&|hook| hook["timeoutSeconds"] = 31.into())]),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 \
             and 30 seconds",
        ),
        (
            json!([with(&|hook| hook["clientConfig"] = json!({}))]),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!([with(
                &|hook| hook["clientConfig"]["url"] = "http://example.com".into()
            )]),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed \
             URL scheme; desired format: https://host[/path]",
        ),
        (
            json!([with(
                &|hook| hook["rules"][0]["operations"] = json!(["*", "CREATE"])
            )]),
            "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is \
             present, must not specify other operations",
        ),
        (
            json!([with(
                &|hook| hook["rules"][0]["resources"] = json!(["pods/*", "pods/log"])
            )]),
            "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is \
             present, must not specify pods/log",
        ),
        (
            json!([good, good]),
            "webhooks[1].name: Duplicate value: \"a.example.com\"",
        ),
    ] {
        let configuration = json!({"metadata": {"name": "v"}, "webhooks": webhooks});
        let (code, status) = http.post(VALIDATING, &configuration).await;
        assert_eq!(code, 422, "{status}");
        assert_eq!(causes(&status), [expected]);
    }
    let configuration = json!({"metadata": {"name": "v"}, "webhooks": [good]});
    assert_eq!(http.post(VALIDATING, &configuration).await.0, 201);
}
