//! Certificate signing requests: approved, signed by the cluster's authority, and cleaned up.

use std::time::Duration;

use crate::support::{start, virtual_cluster, wait_for};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use pintle_cluster::{Cluster, Loops};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Returns a request and its key, both in PEM.
fn request(user: &str, group: &str, names: Vec<SanType>) -> (String, String) {
    let mut params = CertificateParams::default();
    let subject = &mut params.distinguished_name;
    subject.push(DnType::CommonName, user);
    subject.push(DnType::OrganizationName, group);
    params.subject_alt_names = names;
    let key = KeyPair::generate().unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    (request, key.serialize_pem())
}

fn object(name: &str, request: &str, signer: &str, usages: &[&str]) -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "request": STANDARD.encode(request), "signerName": signer, "usages": usages,
            "expirationSeconds": 3600,
        },
    }))
    .unwrap()
}

fn requests(client: Client) -> Api<CertificateSigningRequest> {
    Api::all(client)
}

async fn approve(requests: &Api<CertificateSigningRequest>, name: &str) {
    let condition = json!({
        "type": "Approved", "status": "True", "reason": "E2E", "message": "Set from a test",
    });
    let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    requests
        .patch_approval(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn issued(requests: &Api<CertificateSigningRequest>, name: &str) -> String {
    let certificate = wait_for("the certificate", async || {
        requests.get(name).await.unwrap().status?.certificate
    });
    String::from_utf8(certificate.await.0).unwrap()
}

fn conditions(request: CertificateSigningRequest) -> Vec<(String, String)> {
    let conditions = request.status.and_then(|it| it.conditions);
    let conditions = conditions.unwrap_or_default().into_iter();
    conditions
        .map(|it| (it.type_, it.message.unwrap_or_default()))
        .collect()
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Proves certificates/signed.
#[tokio::test]
async fn signed_certificate_authenticates_over_tls() {
    let cluster = Cluster::start().await;
    let bound = cluster.serve("127.0.0.1:0").await.unwrap();
    let admin = requests(cluster.client());
    let (request, key) = request("jane", "red", Vec::new());
    let wanted = object(
        "jane",
        &request,
        CLIENT,
        &["client auth", "digital signature"],
    );
    admin.create(&PostParams::default(), &wanted).await.unwrap();
    approve(&admin, "jane").await;
    let certificate = issued(&admin, "jane").await;

    let bindings = Api::<RoleBinding>::namespaced(cluster.client(), "default");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "red" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": group, "kind": "Group", "name": "red" }],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();

    let mut kubeconfig = Kubeconfig::from_yaml(&bound.kubeconfig()).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.token = None;
    user.client_certificate_data = Some(STANDARD.encode(certificate));
    user.client_key_data = Some(STANDARD.encode(key).into());
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let jane = Client::try_from(config.unwrap()).unwrap();
    let review: Value = {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .unwrap();
        jane.request(request).await.unwrap()
    };
    let user = &review["status"]["userInfo"];
    assert_eq!(user["username"], "jane");
    assert_eq!(user["groups"], json!(["red", "system:authenticated"]));
    Api::<RoleBinding>::namespaced(jane, "default")
        .list(&ListParams::default())
        .await
        .unwrap_err();
    bound.shutdown().await;
    cluster.stop().await;
}

/// Proves certificates/approved.
#[tokio::test(start_paused = true)]
async fn kubelet_requests_are_approved_if_rbac_allows_it() {
    let (cluster, _) = start(virtual_cluster()).await;
    let node = requests(cluster.client_as("system:node:node-9"));
    let anyone = requests(cluster.client());
    let (request, _) = request("system:node:node-9", "system:nodes", Vec::new());
    let usages = ["client auth", "digital signature"];
    for name in ["refused", "allowed"] {
        let wanted = object(name, &request, KUBELET, &usages);
        if name == "allowed" {
            let bindings = Api::<ClusterRoleBinding>::all(cluster.client());
            let group = "rbac.authorization.k8s.io";
            let role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
            let creator =
                json!([{ "apiGroup": group, "kind": "User", "name": "system:node:node-9" }]);
            for (name, role) in [("self", role), ("creator", "system:node-bootstrapper")] {
                let binding = json!({
                    "metadata": { "name": name },
                    "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
                    "subjects": creator,
                });
                let binding = serde_json::from_value(binding).unwrap();
                bindings
                    .create(&PostParams::default(), &binding)
                    .await
                    .unwrap();
            }
            node.create(&PostParams::default(), &wanted).await.unwrap();
        } else {
            anyone
                .create(&PostParams::default(), &wanted)
                .await
                .unwrap();
        }
    }
    issued(&anyone, "allowed").await;
    let allowed = conditions(anyone.get("allowed").await.unwrap());
    let why = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    assert_eq!(allowed, [("Approved".to_owned(), why.to_owned())]);
    cluster.stop().await;
}

/// Proves certificates/signed.
#[tokio::test(start_paused = true)]
async fn signer_reports_why_it_rejects_a_request() {
    let (cluster, _) = start(virtual_cluster()).await;
    let admin = requests(cluster.client());
    let serving = "kubernetes.io/kubelet-serving";
    let dns = SanType::DnsName("node-9".try_into().unwrap());
    let usages = ["server auth", "digital signature", "key encipherment"];
    let node = "system:node:node-9";
    for (name, (request, _), refusal) in [
        (
            "good",
            request(node, "system:nodes", vec![dns.clone()]),
            None,
        ),
        (
            "nameless",
            request(node, "system:nodes", Vec::new()),
            Some("DNS or IP subjectAltName is required"),
        ),
        (
            "stranger",
            request("node-9", "system:nodes", vec![dns]),
            Some("subject common name does not begin with system:node:"),
        ),
    ] {
        let wanted = object(name, &request, serving, &usages);
        admin.create(&PostParams::default(), &wanted).await.unwrap();
        approve(&admin, name).await;
        sleep(Duration::from_secs(1)).await;
        let answered = admin.get(name).await.unwrap();
        let failed = conditions(answered).into_iter();
        let failed = failed
            .filter(|(type_, _)| type_ == "Failed")
            .map(|it| it.1)
            .next();
        assert_eq!(failed.as_deref(), refusal, "{name}");
    }
    issued(&admin, "good").await;
    cluster.stop().await;
}

/// Proves certificates/cleaned.
#[tokio::test(start_paused = true)]
async fn old_requests_are_deleted() {
    let (cluster, _) = start(virtual_cluster().loops(Loops::CERTIFICATES)).await;
    let admin = requests(cluster.client());
    let (request, _) = request("jane", "red", Vec::new());
    for name in ["pending", "issued"] {
        let wanted = object(name, &request, CLIENT, &["client auth"]);
        admin.create(&PostParams::default(), &wanted).await.unwrap();
    }
    approve(&admin, "issued").await;
    sleep(Duration::from_mins(59)).await;
    assert!(admin.get_opt("issued").await.unwrap().is_some());
    sleep(Duration::from_mins(2)).await;
    assert!(admin.get_opt("issued").await.unwrap().is_none());
    sleep(Duration::from_hours(22)).await;
    assert!(admin.get_opt("pending").await.unwrap().is_some());
    sleep(Duration::from_hours(2)).await;
    assert!(admin.get_opt("pending").await.unwrap().is_none());
    cluster.stop().await;
}
