//! `CertificateSigningRequest`s: the server records the requester.

use crate::support::{
    tls::{certificate, signing_request},
    *,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use pintle_apiserver::{AdmissionResponse, Webhook};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// A CSR for the user ann in the group red.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIV01INENBUUF3SERFTU1Bb0dBMVVFQXd3RFlXNXVNUXd3Q2dZRFZRUUtEQU55WldRd1dUQVRCZ2NxaGtqTwpQUUlCQmdncWhrak9QUU1CQndOQ0FBUkpyZ3NQNUptZFNTamZoMExyWm4rYVJiN2RhdDZva2RmcldZYkduOW1jCkJVVHZVQ255aUoxQUpldXU0VG9QejErQUFKRVM4WmZsZlFGdnNWcGdOVlN6b0FBd0NnWUlLb1pJemowRUF3SUQKU0FBd1JRSWdKV2dYenk0SWdnaVRGb1pKc2hiR3JxTlF6WDhlTFlnVnBKQlhPQXhvSUw0Q0lRRHAwRThoTFZLNgpIcjZhd2hPbUtwWmIyZzMraGlQa0IxZGhrdGNSWjhUVUJnPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

fn request(name: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": CSR, "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"], "expirationSeconds": 86400,
            "username": "mallory", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}})
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m"})
}

/// Proves objects/csr-requester.
#[tokio::test]
async fn server_records_the_requester() {
    let server = server();
    let http = http(&server);
    let (code, made) = http.post(REQUESTS, &request("a")).await;
    assert_eq!(code, 201, "{made}");
    let spec = &made["spec"];
    assert_eq!(spec["username"], "kubernetes-admin");
    assert_eq!(
        spec["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!((spec.get("uid"), spec.get("extra")), (None, None));
    let applied = format!("{REQUESTS}/b?fieldManager=m");
    let body = request("b").to_string();
    let (code, applied) = http
        .raw("PATCH", &applied, "application/apply-patch+yaml", body)
        .await;
    assert_eq!(code, 201, "{applied}");
    assert_eq!(applied["spec"]["username"], "kubernetes-admin");
}

/// Proves objects/csr-requester.
#[tokio::test]
async fn spec_is_immutable() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(REQUESTS, &request("a")).await;
    let path = format!("{REQUESTS}/a");
    let patch = json!({"metadata": {"labels": {"x": "y"}},
        "spec": {"username": "mallory", "signerName": "example.com/other"}});
    let (code, patched) = http.merge(&path, &patch).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["spec"], made["spec"]);
    assert_eq!(patched["metadata"]["labels"], json!({"x": "y"}));
    let mut put = made.clone();
    put["spec"]["groups"] = json!(["system:masters"]);
    put["metadata"]["resourceVersion"] = patched["metadata"]["resourceVersion"].clone();
    let (code, put) = http.put(&path, &put).await;
    assert_eq!(code, 200, "{put}");
    assert_eq!(put["spec"], made["spec"]);
}

/// Proves objects/csr-requester.
#[tokio::test]
async fn only_the_approval_subresource_approves() {
    let server = server();
    let http = http(&server);
    http.post(REQUESTS, &request("a")).await;
    let status = format!("{REQUESTS}/a/status");
    let approve = json!({"status": {"conditions": [condition("Approved")]}});
    let (code, refused) = http.merge(&status, &approve).await;
    assert_eq!(code, 422, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("updates may not add a condition of type \"Approved\""));

    let mut approve = approve;
    let issued = STANDARD.encode(certificate());
    approve["status"]["certificate"] = issued.clone().into();
    let (code, approved) = http
        .merge(&format!("{REQUESTS}/a/approval"), &approve)
        .await;
    assert_eq!(code, 200, "{approved}");
    assert_eq!(approved["status"].get("certificate"), None);
    let condition = &approved["status"]["conditions"][0];
    assert_eq!(condition["lastUpdateTime"], "2026-01-01T00:00:00Z");
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");

    let (code, issued) = http
        .merge(&status, &json!({"status": {"certificate": issued}}))
        .await;
    assert_eq!(code, 200, "{issued}");
    assert_eq!(
        issued["status"]["conditions"],
        approved["status"]["conditions"]
    );
    let (code, _) = http
        .merge(&status, &json!({"status": {"conditions": []}}))
        .await;
    assert_eq!(code, 422);
}

/// Proves objects/csr-requester.
#[tokio::test(start_paused = true)]
async fn webhooks_cannot_forge_the_requester() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::mutating("forge.example.com", |request| {
        // The requester is recorded after mutating admission.
        let sent = request.object()["spec"]["username"] == "mallory";
        async move {
            if !sent {
                return AdmissionResponse::deny("the requester was recorded too early");
            }
            AdmissionResponse::allow().patch(json!([
                {"op": "replace", "path": "/spec/username", "value": "system:admin"},
                {"op": "add", "path": "/spec/groups", "value": ["forged"]}]))
        }
    })
    .rule(["CREATE"], ["*"], ["*"], ["certificatesigningrequests"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let (code, made) = http.post(REQUESTS, &request("a")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "kubernetes-admin");
    let groups = json!(["system:masters", "system:authenticated"]);
    assert_eq!(made["spec"]["groups"], groups);
    assert_eq!(made["spec"].get("uid"), None);
}

/// Proves objects/csr-validation.
#[tokio::test]
async fn invalid_requests_are_rejected() {
    let server = server();
    let http = http(&server);
    let with = |field: &str, value: Value| {
        let mut request = request("a");
        request["spec"][field] = value;
        request
    };
    let pem = String::from_utf8(STANDARD.decode(CSR).unwrap()).unwrap();
    let encoded = |text: &str| Value::from(STANDARD.encode(text));
    let mut forged = pem_body(&pem);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let relabelled = pem.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    for (request, expected) in [
        (
            with("request", encoded("x")),
            "spec.request: Invalid value: ",
        ),
        (
            with("request", encoded(&relabelled)),
            "PEM block type must be CERTIFICATE REQUEST",
        ),
        (
            with("request", encoded(&in_pem(b"x"))),
            "spec.request: Invalid value: ",
        ),
        (
            with("request", encoded(&in_pem(&forged))),
            "spec.request: Invalid value: ",
        ),
        (with("usages", json!([])), "spec.usages: Required value"),
        (
            with("usages", json!(["server auth", "x"])),
            "spec.usages[1]: Unsupported value: \"x\"",
        ),
        (
            with("usages", json!(["any", "any"])),
            "spec.usages[1]: Duplicate value: \"any\"",
        ),
        (
            with("expirationSeconds", json!(599)),
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
        (
            with("signerName", json!("kubernetes.io/legacy-unknown")),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
        ),
        (
            with("signerName", json!("")),
            "spec.signerName: Required value",
        ),
        (
            with("signerName", json!("x")),
            "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            with("signerName", json!("example.com/a/b/c")),
            "spec.signerName: Invalid value: \"example.com/a/b/c\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            with("signerName", json!("Example.com/a")),
            "spec.signerName: Invalid value: ",
        ),
        (
            with("signerName", json!("localhost/a")),
            "should be a domain with at least two segments separated by dots",
        ),
    ] {
        let (code, status) = http.post(REQUESTS, &request).await;
        assert_eq!(code, 422, "{expected}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(http.get(&format!("{REQUESTS}/a")).await.0, 404);
}

/// Proves objects/csr-validation.
#[tokio::test]
async fn conditions_and_certificates_are_validated() {
    let server = server();
    let http = http(&server);
    http.post(REQUESTS, &request("a")).await;
    let approval = format!("{REQUESTS}/a/approval");
    let mut vague = condition("Approved");
    vague["status"] = "False".into();
    let mut open = condition("Other");
    open["status"] = "".into();
    let path = "status.conditions";
    for (conditions, expected) in [
        (
            json!([condition("Approved"), condition("Denied")]),
            format!(
                "{path}: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
            ),
        ),
        (
            json!([vague]),
            format!("{path}[0].status: Unsupported value: \"False\": supported values: \"True\""),
        ),
        (json!([open]), format!("{path}[0].status: Required value")),
        (
            json!([condition("")]),
            format!("{path}[0].type: Required value"),
        ),
        (
            json!([condition("X"), condition("X")]),
            format!("{path}[1].type: Duplicate value: \"X\""),
        ),
    ] {
        let (code, status) = http
            .merge(&approval, &json!({"status": {"conditions": conditions}}))
            .await;
        assert_eq!(code, 422, "{expected}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(&expected), "{message}");
    }
    let status = format!("{REQUESTS}/a/status");
    let issue = |pem: &str| json!({"status": {"certificate": STANDARD.encode(pem)}});
    let shown = "status.certificate: Invalid value: \"<certificate data>\": ";
    let key = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
    let garbled = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    for (pem, why) in [
        ("x", "must contain at least one CERTIFICATE PEM block"),
        (
            key,
            "only CERTIFICATE PEM blocks are allowed, found \"EC PRIVATE KEY\"",
        ),
        (garbled, "x509: malformed tbs certificate"),
    ] {
        let (code, status) = http.merge(&status, &issue(pem)).await;
        assert_eq!(code, 422, "{pem}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(&format!("{shown}{why}")), "{message}");
    }
    let chain = certificate() + &certificate();
    let (code, issued) = http.merge(&status, &issue(&chain)).await;
    assert_eq!(code, 200, "{issued}");
    let (code, refused) = http.merge(&status, &issue(&certificate())).await;
    assert_eq!(code, 422, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("updates may not modify existing certificate content"));
}

/// Proves objects/admission.
#[tokio::test]
async fn system_masters_is_rejected_in_any_encoding() {
    let server = server();
    let http = http(&server);
    let masters = signing_request("eve", "system:masters");
    let other = signing_request("eve", "developers");
    let spaced = masters.replacen('\n', " \n", 3).replacen(" \n", "\n", 1);
    for pem in [
        masters.clone(),
        spaced,
        format!("{masters}{other}"),
        masters.replace('\n', "\r\n"),
    ] {
        let mut wants = request("a");
        wants["spec"]["request"] = STANDARD.encode(&pem).into();
        let (code, status) = http.post(REQUESTS, &wants).await;
        assert_eq!(code, 403, "{pem}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.ends_with("signer with system:masters group is not allowed"));
    }
    // Only the organization counts.
    let named = signing_request("system:masters", "developers");
    let mut wants = request("a");
    wants["spec"]["request"] = STANDARD.encode(&named).into();
    let (code, status) = http.post(REQUESTS, &wants).await;
    assert_eq!(code, 201, "{status}");
}

/// Returns the DER in a PEM block.
fn pem_body(pem: &str) -> Vec<u8> {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    STANDARD.decode(lines.collect::<String>()).unwrap()
}

/// Returns DER as a PEM certificate request.
fn in_pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}
