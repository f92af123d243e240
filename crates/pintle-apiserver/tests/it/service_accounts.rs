//! Service account tokens: issuing, reviewing, authenticating with them, and expiry.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use crate::support::{
    Http, PODS, http, server,
    tls::{admin_token, client_of, config_of},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http_body_util::{BodyExt, Full};
use kube::Client;
use pintle_apiserver::{ApiServer, Bound, Clock};
use serde_json::{Value, json};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const ISSUER: &str = "https://kubernetes.default.svc";

fn request(spec: &Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

fn bound_to(kind: &str, name: &str) -> Value {
    request(&json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}}))
}

async fn account(http: &Http) -> String {
    let robot = json!({"metadata": {"name": "robot"}});
    let (code, created) = http.post(ACCOUNTS, &robot).await;
    assert_eq!(code, 201);
    created["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn token(http: &Http, request: &Value) -> String {
    let (code, response) = http.post(TOKEN, request).await;
    assert_eq!(code, 201, "{response}");
    response["status"]["token"].as_str().unwrap().to_owned()
}

fn part(token: &str, index: usize) -> Value {
    let text = token.split('.').nth(index).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
}

async fn review(http: &Http, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    let (code, response) = http.post(REVIEWS, &body).await;
    assert_eq!(code, 201, "{response}");
    response["status"].clone()
}

async fn review_error(http: &Http, token: &str) -> String {
    let status = review(http, token, &[]).await;
    assert_eq!(status.get("authenticated"), None, "{status}");
    assert_eq!(status["user"], json!({}));
    status["error"].as_str().unwrap().to_owned()
}

/// Proves reviews/answered.
#[tokio::test]
async fn token_has_the_claims_of_kubernetes() {
    let server = server();
    let http = http(&server);
    let uid = account(&http).await;
    let (code, response) = http.post(TOKEN, &json!({})).await;
    assert_eq!(code, 201);
    assert_eq!(response["kind"], "TokenRequest");
    assert_eq!(response["apiVersion"], "authentication.k8s.io/v1");
    let metadata = &response["metadata"];
    assert_eq!(metadata["name"], "robot");
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"], uid.as_str());
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(
        response["spec"],
        json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null})
    );
    let expiry = &response["status"]["expirationTimestamp"];
    assert_eq!(expiry, "2026-01-01T01:00:00Z");

    let token = response["status"]["token"].as_str().unwrap();
    assert_eq!(part(token, 0)["alg"], "ES256");
    let mut claims = part(token, 1);
    let id = claims["jti"].take();
    assert_eq!(id.as_str().unwrap().len(), 36);
    let start = 1_767_225_600;
    assert_eq!(
        claims,
        json!({"aud": [ISSUER], "exp": start + 3600, "iat": start, "nbf": start, "iss": ISSUER, "jti": null,
            "sub": "system:serviceaccount:default:robot",
            "kubernetes.io": {"namespace": "default",
                "serviceaccount": {"name": "robot", "uid": uid}}})
    );
    let (_, keys) = http.get("/openid/v1/jwks").await;
    assert_eq!(keys["keys"][0]["kid"], part(token, 0)["kid"]);
    let (_, provider) = http.get("/.well-known/openid-configuration").await;
    assert_eq!(provider["issuer"], ISSUER);
    assert_eq!(http.post("/openid/v1/jwks", &json!({})).await.0, 405);
}

/// Proves reviews/answered.
#[tokio::test]
async fn invalid_token_requests_are_rejected() {
    let server = server();
    let http = http(&server);
    account(&http).await;
    let missing = "/api/v1/namespaces/default/serviceaccounts/missing/token";
    assert_eq!(http.post(missing, &json!({})).await.0, 404);
    assert_eq!(http.get(TOKEN).await.0, 405);
    for (seconds, code) in [
        (0, 422),
        (599, 422),
        (600, 201),
        (1_i64 << 32, 201),
        ((1_i64 << 32) + 1, 422),
    ] {
        let request = request(&json!({"expirationSeconds": seconds}));
        assert_eq!(http.post(TOKEN, &request).await.0, code, "{seconds}");
    }
    for (field, value, code) in [
        ("name", "other", 422),
        ("namespace", "other", 400),
        ("uid", "other", 409),
    ] {
        let mut request = request(&json!({}));
        request["metadata"] = json!({field: value});
        assert_eq!(http.post(TOKEN, &request).await.0, code, "{field}");
    }
    http.post(SECRETS, &json!({"metadata": {"name": "s"}}))
        .await;
    http.post(ACCOUNTS, &json!({"metadata": {"name": "other"}}))
        .await;
    let others = json!({"metadata": {"name": "others"}, "spec": {"serviceAccountName": "other",
        "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(http.post(PODS, &others).await.0, 201);
    for (kind, name, code) in [
        ("Secret", "s", 201),
        ("Secret", "missing", 404),
        ("Pod", "missing", 404),
        ("Pod", "others", 400),
        ("Node", "missing", 404),
        ("ConfigMap", "s", 400),
    ] {
        let request = bound_to(kind, name);
        assert_eq!(http.post(TOKEN, &request).await.0, code, "{kind} {name}");
    }
    let mut request = bound_to("Secret", "s");
    request["spec"]["boundObjectRef"]["uid"] = "other".into();
    assert_eq!(http.post(TOKEN, &request).await.0, 409);
}

/// Proves reviews/answered.
#[tokio::test]
async fn token_expires_with_its_bound_object() {
    let server = server();
    let http = http(&server);
    account(&http).await;
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}}))
        .await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
        "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let secret = json!({"metadata": {"name": "s"}});
    for (kind, path, object) in [
        ("Pod", format!("{PODS}/p"), &pod),
        ("Secret", format!("{SECRETS}/s"), &secret),
        (
            "Node",
            "/api/v1/nodes/n".to_owned(),
            &json!({"metadata": {"name": "n"}}),
        ),
    ] {
        let (collection, name) = path.rsplit_once('/').unwrap();
        http.post(collection, object).await;
        let token = token(&http, &bound_to(kind, name)).await;
        let status = review(&http, &token, &[]).await;
        assert_eq!(status["authenticated"], true, "{status}");
        let extra = &status["user"]["extra"];
        let claim = |field: &str| extra.get(format!("authentication.kubernetes.io/{field}"));
        assert_eq!(claim("pod-name").is_some(), kind == "Pod");
        assert_eq!(claim("pod-uid").is_some(), kind == "Pod");
        assert_eq!(claim("node-name").is_some(), kind != "Secret");
        assert_eq!(claim("node-uid").is_some(), kind != "Secret");

        assert_eq!(http.delete(&path).await.0, 200);
        let gone = "[invalid bearer token, service account token has been invalidated]";
        assert_eq!(review_error(&http, &token).await, gone, "{kind}");
        assert_eq!(http.post(collection, object).await.0, 201);
        let other = review_error(&http, &token).await;
        assert!(other.contains(" UID ("), "{other}");
    }
}

/// Proves reviews/answered.
#[tokio::test]
async fn kubelet_token_gets_an_extended_lifetime() {
    let server = server();
    let http = http(&server);
    account(&http).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "i"}]}});
    http.post(PODS, &pod).await;
    let mut request = bound_to("Pod", "p");
    request["spec"]["expirationSeconds"] = 3607.into();
    let (_, response) = http.post(TOKEN, &request).await;
    assert_eq!(
        response["status"]["expirationTimestamp"],
        "2026-01-01T01:00:07Z"
    );
    let claims = part(response["status"]["token"].as_str().unwrap(), 1);
    let start = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["kubernetes.io"]["warnafter"], start + 3607);
    assert_eq!(claims["exp"], start + 365 * 24 * 3600);
}

/// Returns a server and its clock, in seconds since the start of 2026.
fn clocked() -> (ApiServer, Arc<AtomicI64>) {
    let seconds = Arc::new(AtomicI64::new(0));
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let elapsed = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || {
        start + jiff::SignedDuration::from_secs(elapsed.load(Ordering::SeqCst))
    });
    let server = ApiServer::builder().clock(clock).seed(1).build();
    (server, seconds)
}

/// Proves reviews/answered, auth/identity.
#[tokio::test]
async fn review_checks_expiry_account_and_audience() {
    let (server, seconds) = clocked();
    let http = http(&server);
    let uid = account(&http).await;
    let good = token(&http, &json!({})).await;
    let status = review(&http, &good, &[]).await;
    let id = format!("JTI={}", part(&good, 1)["jti"].as_str().unwrap());
    assert_eq!(
        status,
        json!({"authenticated": true, "audiences": [ISSUER], "user": {
            "username": "system:serviceaccount:default:robot", "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default",
                "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [id]}}})
    );
    assert_eq!(
        review(&http, &good, &["x", ISSUER]).await["audiences"],
        json!([ISSUER])
    );
    let wrong = review(&http, &good, &["x"]).await;
    assert_eq!(
        wrong["error"],
        "[invalid bearer token, token audiences [\"https://kubernetes.default.svc\"] is invalid \
         for the target audiences [\"x\"]]"
    );
    let for_x = token(&http, &request(&json!({"audiences": ["x"]}))).await;
    assert_eq!(review(&http, &for_x, &["x"]).await["authenticated"], true);
    assert!(review_error(&http, &for_x).await.contains("audiences"));

    // A minute of clock skew is tolerated.
    seconds.store(3660, Ordering::SeqCst);
    assert_eq!(review(&http, &good, &[]).await["authenticated"], true);
    seconds.store(3661, Ordering::SeqCst);
    let expired = "[invalid bearer token, service account token has expired]";
    assert_eq!(review_error(&http, &good).await, expired);
    seconds.store(-61, Ordering::SeqCst);
    assert!(review_error(&http, &good).await.contains("not valid yet"));
    seconds.store(0, Ordering::SeqCst);

    let path = format!("{ACCOUNTS}/robot");
    assert_eq!(http.delete(&path).await.0, 200);
    let missing = "[invalid bearer token, serviceaccounts \"robot\" not found]";
    assert_eq!(review_error(&http, &good).await, missing);
    account(&http).await;
    assert!(
        review_error(&http, &good)
            .await
            .contains("does not match claim")
    );

    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    assert_eq!(
        review_error(&http, &forged).await,
        "[invalid bearer token, invalid signature]"
    );
    assert_eq!(review_error(&http, "wrong").await, "invalid bearer token");
    let empty = json!({"spec": {"token": ""}});
    assert_eq!(http.post(REVIEWS, &empty).await.0, 400);
}

/// Returns a client of a listener, with a bearer token.
async fn bearer(bound: &Bound, token: Option<&str>) -> Client {
    let mut config = config_of(&bound.kubeconfig()).await;
    if let Some(token) = token {
        config.auth_info.token = Some(token.to_owned().into());
    }
    Client::try_from(config).unwrap()
}

async fn post(client: &Client, path: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = http::Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = kube::client::Body::from(body.to_string().into_bytes());
    let response = client.send(request.body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

/// Proves reviews/answered, errors/status-reasons, auth/identity, auth/listener.
#[tokio::test]
async fn client_with_a_token_acts_as_its_account() {
    let (server, seconds) = clocked();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let http = http(&server);
    let uid = account(&http).await;
    let good = token(&http, &json!({})).await;
    let robot = bearer(&bound, Some(&good)).await;
    let (code, response) = post(&robot, SELF_REVIEWS, &json!({}), &[]).await;
    assert_eq!(code, 201);
    let user = &response["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], uid.as_str());
    assert!(user["extra"]["authentication.kubernetes.io/credential-id"].is_array());

    let other_audience = token(&http, &request(&json!({"audiences": ["x"]}))).await;
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    for wrong in [&other_audience, &forged] {
        let client = bearer(&bound, Some(wrong)).await;
        assert_eq!(post(&client, SELF_REVIEWS, &json!({}), &[]).await.0, 401);
    }
    seconds.store(3661, Ordering::SeqCst);
    assert_eq!(post(&robot, SELF_REVIEWS, &json!({}), &[]).await.0, 401);
    seconds.store(0, Ordering::SeqCst);
    assert_eq!(post(&robot, SELF_REVIEWS, &json!({}), &[]).await.0, 201);
    http.delete(&format!("{ACCOUNTS}/robot")).await;
    assert_eq!(post(&robot, SELF_REVIEWS, &json!({}), &[]).await.0, 401);
    bound.shutdown().await;
}

fn access(verb: &str) -> Value {
    json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "users", "name": "bob"}}})
}

/// Proves reviews/answered, auth/identity.
#[tokio::test]
async fn service_account_may_not_impersonate() {
    let server = server();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let http = http(&server);
    account(&http).await;
    let robot = bearer(&bound, Some(&token(&http, &json!({})).await)).await;
    let admin = bearer(&bound, None).await;
    for (client, allowed) in [(&robot, false), (&admin, true)] {
        let (_, response) = post(client, ACCESS, &access("impersonate"), &[]).await;
        assert_eq!(response["status"]["allowed"], allowed);
        let bob = [("impersonate-user", "bob")];
        let (code, _) = post(client, SELF_REVIEWS, &json!({}), &bob).await;
        assert_eq!(code, if allowed { 201 } else { 403 });
    }
    let headers = [
        ("impersonate-user", "bob"),
        ("impersonate-uid", "u"),
        ("impersonate-extra-example.com%2fteam", "a"),
        ("impersonate-extra-example.com%2Fteam", "b"),
    ];
    let (_, response) = post(&admin, SELF_REVIEWS, &json!({}), &headers).await;
    assert_eq!(
        response["status"]["userInfo"],
        json!({"username": "bob", "uid": "u", "groups": ["system:authenticated"],
            "extra": {"example.com/team": ["a", "b"]}})
    );
    bound.shutdown().await;
}

/// Proves reviews/answered, auth/listener.
#[tokio::test]
async fn listener_token_is_valid_until_shutdown() {
    let server = server();
    let http = http(&server);
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let token = &admin_token(&bound);
    let status = review(&http, token, &[]).await;
    assert_eq!(
        status,
        json!({"authenticated": true, "audiences": [ISSUER], "user": {"username": "kubernetes-admin",
            "groups": ["system:masters", "system:authenticated"]}})
    );
    let other_audience = review(&http, token, &["x"]).await;
    assert_eq!(other_audience["error"], "invalid bearer token");
    bound.shutdown().await;
    assert_eq!(review_error(&http, token).await, "invalid bearer token");
}

/// Proves auth/identity.
#[tokio::test]
async fn certificate_credential_id_is_its_fingerprint() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let alice = bound.user_kubeconfig("alice", None).unwrap();
    let client = client_of(&alice).await;
    let (_, response) = post(&client, SELF_REVIEWS, &json!({}), &[]).await;
    let extra = &response["status"]["userInfo"]["extra"];
    let credential = &extra["authentication.kubernetes.io/credential-id"];
    let fingerprint = credential[0].as_str().unwrap();
    assert!(fingerprint.starts_with("X509SHA256="), "{fingerprint}");
    bound.shutdown().await;
}

/// Proves reviews/answered.
#[tokio::test]
async fn access_reviews_reject_metadata() {
    let server = server();
    let http = http(&server);
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    for (path, why) in [
        (ACCESS, "must be empty"),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "must be empty",
        ),
        (local, "must be empty except for namespace"),
    ] {
        let mut review = json!({"spec": {"user": "bob", "resourceAttributes": attributes}});
        let (code, response) = http.post(path, &review).await;
        assert_eq!(code, 201, "{path}");
        assert!(response["metadata"]["managedFields"].is_array());
        review["metadata"] = json!({"labels": {"a": "b"}});
        let (code, response) = http.post(path, &review).await;
        assert_eq!(code, 422, "{path}");
        let cause = &response["details"]["causes"][0];
        assert_eq!(cause["field"], "metadata");
        assert!(cause["message"].as_str().unwrap().ends_with(why));
    }
}

/// Proves reviews/answered.
#[tokio::test]
async fn token_outlives_a_pending_deletion_by_a_minute() {
    for held in [ACCOUNTS, SECRETS] {
        let (server, seconds) = clocked();
        let http = http(&server);
        account(&http).await;
        http.post(SECRETS, &json!({"metadata": {"name": "robot"}}))
            .await;
        let path = format!("{held}/robot");
        let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
        assert_eq!(http.merge(&path, &finalizer).await.0, 200);
        let token = token(&http, &bound_to("Secret", "robot")).await;
        assert_eq!(http.delete(&path).await.0, 200);
        for after in [0, 60] {
            seconds.store(after, Ordering::SeqCst);
            let status = review(&http, &token, &[]).await;
            assert_eq!(status["authenticated"], true, "{held} {after}");
        }
        seconds.store(61, Ordering::SeqCst);
        let why = review_error(&http, &token).await;
        let account = "service account default/robot has been deleted";
        let secret = "service account token has been invalidated";
        let expected = if held == ACCOUNTS { account } else { secret };
        assert_eq!(why, format!("[invalid bearer token, {expected}]"));

        // Removing the finalizer deletes the object, which invalidates the token immediately.
        seconds.store(0, Ordering::SeqCst);
        let free = json!({"metadata": {"finalizers": null}});
        assert_eq!(http.merge(&path, &free).await.0, 200);
        review_error(&http, &token).await;
    }
}

/// Proves auth/identity.
#[tokio::test]
async fn response_that_depends_on_host_is_not_cached() {
    const PROVIDER: &str = "/.well-known/openid-configuration";
    let server = server();
    let request = || {
        let request = http::Request::get(PROVIDER).header("host", "elsewhere.example.com");
        request.body(Vec::new()).unwrap()
    };
    let cache_and_uri = |response: http::Response<Vec<u8>>| {
        let caching = response.headers()["cache-control"].to_str().unwrap();
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        (caching.to_owned(), body["jwks_uri"].clone())
    };
    let response = http(&server)
        .send(request().map(Into::into).map(Full::new))
        .await;
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    let (caching, uri) = cache_and_uri(http::Response::from_parts(head, bytes));
    assert_eq!(uri, "https://elsewhere.example.com/openid/v1/jwks");
    assert_eq!(caching, "no-cache, private");

    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let client = bearer(&bound, None).await;
    let response = client.send(request().map(Into::into)).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    let (caching, uri) = cache_and_uri(http::Response::from_parts(head, bytes));
    assert_eq!(uri, format!("{}/openid/v1/jwks", bound.url()));
    assert_eq!(caching, "public, max-age=3600");
    bound.shutdown().await;
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn webhooks_see_validated_token_requests_with_defaults() {
    let server = server();
    let http = http(&server);
    let webhook = pintle_apiserver::Webhook::validating("no.example.com", |request| {
        let audiences = request.object()["spec"]["audiences"].clone();
        async move { pintle_apiserver::AdmissionResponse::deny(format!("for {audiences}")) }
    })
    .rule(["CREATE"], [""], ["v1"], ["serviceaccounts/token"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let (code, status) = http.post(TOKEN, &request(&json!({}))).await;
    assert_eq!(code, 404, "{status}");
    assert_eq!(status["message"], "serviceaccounts \"robot\" not found");
    http.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}}))
        .await;
    let short = json!({"expirationSeconds": 1});
    assert_eq!(http.post(TOKEN, &request(&short)).await.0, 422);
    let (code, status) = http.post(TOKEN, &request(&json!({}))).await;
    assert_eq!(code, 400, "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("for [{ISSUER:?}]")), "{message}");
}
