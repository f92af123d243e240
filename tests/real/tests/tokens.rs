//! Compares service account tokens of kube-apiserver and ours.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use kube::Client;
use pintle_apiserver::ApiServer;
use real_tests::{bare_client, client_of};
use serde_json::{Value, json};

async fn post(client: &Client, path: &str, body: &Value) -> Value {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap()
}

/// Decodes a part of a token. Replaces what differs between servers: times become relative to the
/// time of issue, UIDs become placeholders, and token and key IDs become their lengths.
fn part(token: &str, index: usize, uids: &[(&str, &str)]) -> Value {
    let text = token.split('.').nth(index).unwrap();
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
    let text = uids
        .iter()
        .fold(text, |text, (uid, name)| text.replace(uid, name));
    let mut part: Value = serde_json::from_str(&text).unwrap();
    let issued = part["iat"].as_i64().unwrap_or(0);
    for name in ["exp", "iat", "nbf"] {
        if let Some(time) = part[name].as_i64() {
            part[name] = (time - issued).into();
        }
    }
    if let Some(warned) = part["kubernetes.io"]["warnafter"].as_i64() {
        part["kubernetes.io"]["warnafter"] = (warned - issued).into();
    }
    for name in ["jti", "kid"] {
        let length = part.get(name).and_then(Value::as_str).map(str::len);
        part[name] = json!(length);
    }
    part
}

/// Requests all kinds of tokens. Returns their headers and claims.
async fn tokens(client: Client, namespace: &str) -> Vec<[Value; 2]> {
    let base = format!("/api/v1/namespaces/{namespace}");
    let named = |name: &str| json!({"metadata": {"name": name}});
    post(&client, "/api/v1/namespaces", &named(namespace)).await;
    let account = post(&client, &format!("{base}/serviceaccounts"), &named("s")).await;
    let secret = post(&client, &format!("{base}/secrets"), &named("x")).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "s",
        "nodeName": "nowhere", "containers": [{"name": "c", "image": "i"}]}});
    let pod = post(&client, &format!("{base}/pods"), &pod).await;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let (account, secret, pod) = (uid(&account), uid(&secret), uid(&pod));
    let uids = [
        (account.as_str(), "<account>"),
        (&secret, "<secret>"),
        (&pod, "<pod>"),
    ];
    let bound = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    let mut parts = Vec::new();
    for spec in [
        json!({}),
        json!({"audiences": ["a", "b"], "expirationSeconds": 601}),
        json!({"boundObjectRef": bound("Secret", "x")}),
        json!({"boundObjectRef": bound("Pod", "p")}),
        json!({"boundObjectRef": bound("Pod", "p"), "expirationSeconds": 3607}),
        json!({"boundObjectRef": bound("Pod", "p"), "expirationSeconds": 3607, "audiences": ["a"]}),
    ] {
        let path = format!("{base}/serviceaccounts/s/token");
        let response = post(&client, &path, &json!({"spec": spec})).await;
        let token = response["status"]["token"].as_str().unwrap();
        parts.push([part(token, 0, &uids), part(token, 1, &uids)]);
    }
    parts
}

/// Proves reviews/answered.
#[tokio::test]
async fn tokens_have_the_same_claims() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let namespace = format!("tokens-{}", std::process::id());
    let real = tokens(bare_client().await, &namespace).await;
    let ours = tokens(client_of(&bound.kubeconfig()).await, &namespace).await;
    assert_eq!(real, ours, "real, ours");
    assert_eq!(real[0][1]["exp"], 3600);
    bound.shutdown().await;
}
