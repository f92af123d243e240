//! `CertificateSigningRequest`s: the server records the requester.

use crate::support::*;
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
    approve["status"]["certificate"] = "Y2VydA==".into();
    let (code, approved) = http
        .merge(&format!("{REQUESTS}/a/approval"), &approve)
        .await;
    assert_eq!(code, 200, "{approved}");
    assert_eq!(approved["status"].get("certificate"), None);
    let condition = &approved["status"]["conditions"][0];
    assert_eq!(condition["lastUpdateTime"], "2026-01-01T00:00:00Z");
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");

    let (code, issued) = http
        .merge(&status, &json!({"status": {"certificate": "Y2VydA=="}}))
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
