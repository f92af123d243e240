//! The flows of Kubernetes' end-to-end tests for authentication and authorization.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::*;
use crate::support::tls::{certificate, signing_request};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Proves objects/csr-requester.
#[tokio::test]
async fn signing_requests_support_every_operation() {
    let server = server();
    let http = http(&server);
    let (_, resources) = http.get("/apis/certificates.k8s.io/v1").await;
    let resources = resources["resources"].as_array().unwrap();
    for name in ["", "/approval", "/status"] {
        let name = format!("certificatesigningrequests{name}");
        assert!(resources.iter().any(|resource| resource["name"] == name));
    }
    let request = json!({"metadata": {"generateName": "csr-"}, "spec": {
        "request": STANDARD.encode(signing_request("e2e.example.com", "e2e")),
        "signerName": "example.com/e2e", "expirationSeconds": 3600,
        "usages": ["digital signature", "key encipherment", "server auth"]}});
    for _ in 0..2 {
        created(&http, REQUESTS, &request).await;
    }
    let one = created(&http, REQUESTS, &request).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    let path = format!("{REQUESTS}/{name}");
    let (_, read) = http.get(&path).await;
    assert_eq!(read["metadata"]["uid"], one["metadata"]["uid"]);
    assert_eq!(read["spec"]["expirationSeconds"], 3600);
    let ours = format!("{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com%2Fe2e");
    let (_, list) = http.get(&ours).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let selected = format!("fieldSelector=metadata.name%3D{name}&resourceVersion={version}");
    let mut watch = http
        .watch(&format!("{REQUESTS}?watch=true&{selected}"))
        .await;
    let annotate = |key: &str| json!({"metadata": {"annotations": {key: "true"}}});
    let (code, mut patched) = http.merge(&path, &annotate("patched")).await;
    assert_eq!(code, 200);
    patched["metadata"]["annotations"]["updated"] = "true".into();
    assert_eq!(http.put(&path, &patched).await.0, 200);
    let expected = [format!("MODIFIED {name}"), format!("MODIFIED {name}")];
    assert_eq!(watch.take(2).await, expected);

    let approval = format!("{path}/approval");
    let (_, read) = http.get(&approval).await;
    assert_eq!(read["kind"], "CertificateSigningRequest");
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "e2e"});
    let mut change = annotate("patchedapproval");
    change["status"] = json!({"conditions": [condition("ApprovalPatch")]});
    let (code, mut patched) = http.merge(&approval, &change).await;
    assert_eq!(code, 200, "{patched}");
    let conditions = |object: &Value| object["status"]["conditions"].as_array().unwrap().clone();
    assert_eq!(conditions(&patched).len(), 1);
    assert_eq!(
        patched["metadata"]["annotations"]["patchedapproval"],
        "true"
    );
    let mut more = conditions(&patched);
    more.push(condition("Approved"));
    patched["status"]["conditions"] = more.into();
    let (code, updated) = http.put(&approval, &patched).await;
    assert_eq!((code, conditions(&updated).len()), (200, 2), "{updated}");

    let status = format!("{path}/status");
    let mut change = annotate("patchedstatus");
    change["status"] = json!({"certificate": STANDARD.encode(certificate())});
    let (code, mut patched) = http.merge(&status, &change).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(
        patched["status"]["certificate"],
        change["status"]["certificate"]
    );
    assert_eq!(patched["metadata"]["annotations"]["patchedstatus"], "true");
    let mut more = conditions(&patched);
    more.push(condition("StatusUpdate"));
    patched["status"]["conditions"] = more.into();
    let (code, updated) = http.put(&status, &patched).await;
    assert_eq!((code, conditions(&updated).len()), (200, 3), "{updated}");

    assert_eq!(http.delete(&path).await.0, 200);
    assert_eq!(http.get(&path).await.0, 404);
    assert_eq!(http.delete(&ours).await.0, 200);
    let (_, list) = http.get(&ours).await;
    assert!(list["items"].as_array().unwrap().is_empty());
}

/// Proves rbac/enforced.
#[tokio::test]
async fn access_reviews_agree_with_requests() {
    let server = server();
    let http = http(&server);
    let account = created(&http, ACCOUNTS, &json!({"metadata": {"name": "e2e"}})).await;
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let name = "system:serviceaccount:default:e2e";
    let groups = [
        "system:authenticated",
        "system:serviceaccounts",
        "system:serviceaccounts:default",
    ];
    let spec = json!({"spec": {"user": name, "groups": groups, "uid": uid, "resourceAttributes":
        {"verb": "list", "resource": "configmaps", "namespace": "default", "version": "v1"}}});
    let group = "/apis/authorization.k8s.io/v1";
    let everywhere = format!("{group}/subjectaccessreviews");
    let local = format!("{group}/namespaces/default/localsubjectaccessreviews");
    let agree = async |expected: bool| {
        for path in [&everywhere, &local] {
            let mut review = spec.clone();
            if *path == local {
                review["metadata"] = json!({"namespace": "default"});
            }
            let review = created(&http, path, &review).await;
            assert_eq!(review["status"]["allowed"], expected, "{path}");
        }
        let mut request = Request::get(CONFIG_MAPS)
            .header("impersonate-user", name)
            .header("impersonate-uid", uid);
        for group in groups {
            request = request.header("impersonate-group", group);
        }
        let response = http.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.status() == 200, expected);
    };
    agree(false).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "list"}, "rules": [{"apiGroups": [""],
        "resources": ["configmaps"], "verbs": ["list"]}]});
    created(&http, &format!("{rbac}/roles"), &role).await;
    let binding = json!({"metadata": {"name": "list"}, "roleRef": {"kind": "Role",
            "apiGroup": "rbac.authorization.k8s.io", "name": "list"},
        "subjects": [{"kind": "ServiceAccount", "name": "e2e", "namespace": "default"}]});
    created(&http, &format!("{rbac}/rolebindings"), &binding).await;
    agree(true).await;
}

/// Proves objects/admission.
#[tokio::test]
async fn pods_and_accounts_opt_out_of_tokens() {
    let server = server();
    let http = http(&server);
    for (name, automount) in [
        ("default", None),
        ("mount", Some(true)),
        ("nomount", Some(false)),
    ] {
        let mut account = json!({"metadata": {"name": name}});
        if let Some(automount) = automount {
            account["automountServiceAccountToken"] = automount.into();
        }
        created(&http, ACCOUNTS, &account).await;
    }
    for (account, spec, expected) in [
        ("default", None, true),
        ("mount", None, true),
        ("nomount", None, false),
        ("default", Some(true), true),
        ("mount", Some(true), true),
        ("nomount", Some(true), true),
        ("default", Some(false), false),
        ("mount", Some(false), false),
        ("nomount", Some(false), false),
    ] {
        let mut pod = pod("p");
        pod["spec"]["serviceAccountName"] = account.into();
        if let Some(spec) = spec {
            pod["spec"]["automountServiceAccountToken"] = spec.into();
        }
        let pod = created(&http, &format!("{PODS}?dryRun=All"), &pod).await;
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array();
        let mut mounts = mounts.into_iter().flatten();
        let token = "/var/run/secrets/kubernetes.io/serviceaccount";
        let mounted = mounts.any(|mount| mount["mountPath"] == token);
        assert_eq!(mounted, expected, "{account} {spec:?}");
    }
}

/// Proves objects/admission.
#[tokio::test]
async fn service_account_lifecycle_and_token_review_work() {
    let server = server();
    let http = http(&server);
    let labels = json!({"static": "true"});
    let account = json!({"metadata": {"name": "a", "labels": labels},
        "automountServiceAccountToken": true});
    created(&http, ACCOUNTS, &account).await;
    let mut watch = http
        .watch(&format!(
            "{ACCOUNTS}?watch=true&labelSelector=static%3Dtrue"
        ))
        .await;
    let change = json!({"automountServiceAccountToken": false});
    let media = "application/strategic-merge-patch+json";
    let one = format!("{ACCOUNTS}/a");
    let (code, _) = http.raw("PATCH", &one, media, change.to_string()).await;
    assert_eq!(code, 200);
    let (_, list) = http
        .get("/api/v1/serviceaccounts?labelSelector=static%3Dtrue")
        .await;
    assert_eq!(list["items"][0]["automountServiceAccountToken"], false);
    let (_, mut stored) = http.get(&one).await;
    stored["automountServiceAccountToken"] = true.into();
    let (_, updated) = http.put(&one, &stored).await;
    assert_eq!(updated["automountServiceAccountToken"], true);
    let token = created(&http, &format!("{one}/token"), &json!({})).await;
    let token = &token["status"]["token"];
    let review = json!({"spec": {"token": token}});
    let review = created(
        &http,
        "/apis/authentication.k8s.io/v1/tokenreviews",
        &review,
    )
    .await;
    assert_eq!(review["status"]["authenticated"], true);
    assert_eq!(http.delete(ACCOUNTS).await.0, 200);
    let events = ["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"];
    assert_eq!(watch.take(4).await, events);
}
