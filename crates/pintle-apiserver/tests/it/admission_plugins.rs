//! The admission plugins that Kubernetes enables by default.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use crate::support::{
    tls::{certificate, signing_request},
    *,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use pintle_apiserver::{ApiServer, Clock};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const STORAGE: &str = "/apis/storage.k8s.io/v1/storageclasses";
const RUNTIMES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

async fn created(http: &Http, path: &str, object: &Value) -> Value {
    let (code, created) = http.post(path, object).await;
    assert_eq!(code, 201, "{created}");
    created
}

async fn refused(http: &Http, path: &str, object: &Value) -> String {
    let (code, status) = http.post(path, object).await;
    assert_eq!(code, 403, "{status}");
    status["message"].as_str().unwrap().to_owned()
}

/// Proves objects/admission.
#[tokio::test]
async fn pod_gets_the_token_of_its_account() {
    let server = server();
    let http = http(&server);
    let bare = created(&http, PODS, &pod("bare")).await;
    assert!(bare["spec"]["volumes"].is_null(), "no account, no token");
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let full = created(&http, PODS, &pod("full")).await;
    let spec = &full["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-"), "{name}");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["path"],
        "token"
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    let mut none = pod("none");
    none["spec"]["automountServiceAccountToken"] = false.into();
    let none = created(&http, PODS, &none).await;
    assert!(none["spec"]["volumes"].is_null());
    let mut missing = pod("missing");
    missing["spec"]["serviceAccountName"] = "robot".into();
    assert_eq!(
        refused(&http, PODS, &missing).await,
        "pods \"missing\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn token_is_mounted_where_nothing_else_is() {
    let server = server();
    let http = http(&server);
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let mount = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut custom = pod("custom");
    custom["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    custom["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": mount}]);
    custom["spec"]["imagePullSecrets"] = json!([{"name": "mine"}]);
    let stored = created(&http, PODS, &custom).await;
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(
        stored["spec"]["imagePullSecrets"],
        json!([{"name": "mine"}])
    );
    custom["metadata"]["name"] = "init".into();
    custom["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}]);
    let stored = created(&http, PODS, &custom).await;
    let mounts = &stored["spec"]["initContainers"][0]["volumeMounts"];
    assert_eq!(mounts[0]["mountPath"], mount);
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 2);
    // A volume that another server has added is used again.
    let mut again = pod("again");
    again["spec"]["volumes"] = json!([{"name": "kube-api-access-x", "emptyDir": {}}]);
    let stored = created(&http, PODS, &again).await;
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 1);
    let mounts = &stored["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(mounts[0]["name"], "kube-api-access-x");
    // An account decides for Pods that do not, and the mirror of a static Pod has none.
    let mut mirror = pod("mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["spec"]["nodeName"] = "n".into();
    let mirror = created(&http, PODS, &mirror).await;
    assert!(mirror["spec"]["volumes"].is_null(), "{mirror}");
    let quiet = json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false});
    created(&http, ACCOUNTS, &quiet).await;
    let mut plain = pod("plain");
    plain["spec"]["serviceAccountName"] = "quiet".into();
    let stored = created(&http, PODS, &plain).await;
    assert!(stored["spec"]["volumes"].is_null());
}

/// Proves objects/admission.
#[tokio::test]
async fn account_can_limit_the_secrets_of_its_pods() {
    let server = server();
    let http = http(&server);
    let account = json!({"metadata": {"name": "default", "annotations":
        {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "known"}], "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let env = json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]);
    let end = "is not allowed because service account default does not reference that";
    for (field, value, why) in [
        (
            "/spec/volumes",
            json!([{"name": "v", "secret": {"secretName": "other"}}]),
            format!("volume with secret.secretName=\"other\" {end} secret"),
        ),
        (
            "/spec/containers/0/env",
            env,
            format!(
                "container c with envVar V referencing secret.secretName=\"other\" {end} secret"
            ),
        ),
        (
            "/spec/imagePullSecrets",
            json!([{"name": "other"}]),
            format!("imagePullSecrets[0].name=\"other\" {end} imagePullSecret"),
        ),
    ] {
        let mut wants = pod("p");
        let (parent, key) = field.rsplit_once('/').unwrap();
        wants.pointer_mut(parent).unwrap()[key] = value.clone();
        let message = refused(&http, PODS, &wants).await;
        assert_eq!(message, format!("pods \"p\" is forbidden: {why}"));
        let known = match key {
            "imagePullSecrets" => "pull",
            _ => "known",
        };
        let known = value.to_string().replace("other", known);
        wants.pointer_mut(parent).unwrap()[key] = serde_json::from_str(&known).unwrap();
        wants["metadata"]["name"] = key.to_lowercase().into();
        created(&http, PODS, &wants).await;
    }
}

/// Proves objects/admission.
#[tokio::test]
async fn pod_cannot_contradict_its_priority_class() {
    let server = server();
    let http = http(&server);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, default: bool| {
        json!({"metadata": {"name": name}, "value": 5, "globalDefault": default,
            "preemptionPolicy": "Never"})
    };
    created(&http, classes, &class("first", true)).await;
    created(&http, classes, &class("second", false)).await;
    let default = json!({"globalDefault": true});
    let (code, _) = http.merge(&format!("{classes}/second"), &default).await;
    assert_eq!(code, 403, "only one class is the default");
    let mut wants = pod("p");
    wants["spec"]["preemptionPolicy"] = "PreemptLowerPriority".into();
    assert_eq!(
        refused(&http, PODS, &wants).await,
        "pods \"p\" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) \
         must not be provided in pod spec; priority admission controller computed Never from the \
         given PriorityClass name"
    );
    wants["spec"]["preemptionPolicy"] = "Never".into();
    created(&http, PODS, &wants).await;
}

/// Proves objects/admission.
#[tokio::test]
async fn only_one_priority_class_is_the_default() {
    let server = server();
    let http = http(&server);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str| json!({"metadata": {"name": name}, "value": 5, "globalDefault": true});
    created(&http, classes, &class("first")).await;
    assert_eq!(
        refused(&http, classes, &class("second")).await,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass first is already marked as default. Only one default can exist"
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{classes}/first"), &label).await.0, 200);
    let pod = created(&http, PODS, &pod("p")).await;
    assert_eq!(pod["spec"]["priorityClassName"], "first");
    assert_eq!(pod["spec"]["priority"], 5);
}

/// Proves objects/admission.
#[tokio::test]
async fn names_of_system_priority_classes_are_reserved() {
    let server = server();
    let http = http(&server);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    for name in ["system-node-critical", "system-cluster-critical"] {
        let (code, body) = http.delete(&format!("{classes}/{name}")).await;
        assert!(code == 200 || code == 404, "{body}");
    }
    for (name, value, why) in [
        (
            "system-mine",
            1,
            "system-mine is not a known system priority class",
        ),
        (
            "system-node-critical",
            7,
            "value of system-node-critical PriorityClass must be 2000001000",
        ),
    ] {
        let (code, body) = http.post(classes, &class(name, value)).await;
        assert_eq!(code, 422, "{body}");
        assert_eq!(
            body["message"],
            format!(
                "PriorityClass.scheduling.k8s.io {name:?} is invalid: metadata.name: Forbidden: \
                 priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            )
        );
    }
    created(
        &http,
        classes,
        &class("system-node-critical", 2_000_001_000),
    )
    .await;
}

/// Proves objects/admission.
#[tokio::test]
async fn claims_and_ingresses_get_the_default_class() {
    let server = server();
    let http = http(&server);
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let first = created(&http, CLAIMS, &claim("a")).await;
    assert!(first["spec"]["storageClassName"].is_null());
    let class = |name: &str, default: &str| {
        json!({"metadata": {"name": name, "annotations":
            {"storageclass.kubernetes.io/is-default-class": default}}, "provisioner": "x"})
    };
    created(&http, STORAGE, &class("slow", "false")).await;
    created(&http, STORAGE, &class("fast", "true")).await;
    let second = created(&http, CLAIMS, &claim("b")).await;
    assert_eq!(second["spec"]["storageClassName"], "fast");
    let mut none = claim("c");
    none["spec"]["storageClassName"] = "".into();
    let none = created(&http, CLAIMS, &none).await;
    assert_eq!(
        none["spec"]["storageClassName"], "",
        "a claim may want none"
    );

    let mut legacy = claim("d");
    legacy["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    let legacy = created(&http, CLAIMS, &legacy).await;
    assert!(
        legacy["spec"]["storageClassName"].is_null(),
        "it has a class"
    );

    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = json!({"metadata": {"name": "web", "annotations":
        {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "example.com/c"}});
    created(&http, classes, &class).await;
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend":
        {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let ingress = created(&http, ingresses, &ingress).await;
    assert_eq!(ingress["spec"]["ingressClassName"], "web");
}

/// Proves objects/admission.
#[tokio::test]
async fn newest_default_class_applies() {
    let now = Arc::new(AtomicI64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let server = ApiServer::builder()
        .clock(Clock::from_fn(move || {
            jiff::Timestamp::from_second(clock.load(Ordering::SeqCst)).unwrap()
        }))
        .build();
    let http = http(&server);
    let class = |name: &str, mark: &str| json!({"metadata": {"name": name, "annotations": {mark: "true"}}, "provisioner": "x"});
    let mark = "storageclass.kubernetes.io/is-default-class";
    created(&http, STORAGE, &class("a-old", mark)).await;
    now.fetch_add(60, Ordering::SeqCst);
    let beta = "storageclass.beta.kubernetes.io/is-default-class";
    created(&http, STORAGE, &class("b-new", beta)).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let stored = created(&http, CLAIMS, &claim).await;
    assert_eq!(stored["spec"]["storageClassName"], "b-new");
}

/// Proves objects/admission.
#[tokio::test]
async fn claims_grow_only_if_their_class_allows_it() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "fixed"}, "provisioner": "x"});
    created(&http, STORAGE, &class).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "fixed", "resources": {"requests": {"storage": "1Gi"}}}});
    created(&http, CLAIMS, &claim).await;
    let path = format!("{CLAIMS}/c");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 403, "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with("Only bound persistent volume claims can be expanded"),
        "{message}"
    );
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{path}/status"), &bound).await;
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            403,
            "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        )
    );
    let grows = json!({"allowVolumeExpansion": true});
    http.merge(&format!("{STORAGE}/fixed"), &grows).await;
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 200, "{status}");
}

/// Proves objects/admission.
#[tokio::test]
async fn pod_gets_the_overhead_and_node_selector_of_its_runtime() {
    let server = server();
    let http = http(&server);
    let mut wants = pod("p");
    wants["spec"]["runtimeClassName"] = "vm".into();
    assert_eq!(
        refused(&http, PODS, &wants).await,
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"vm\" not found"
    );
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"},
            "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    created(&http, RUNTIMES, &class).await;
    let admitted = created(&http, PODS, &wants).await;
    assert_eq!(admitted["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(admitted["spec"]["nodeSelector"], json!({"vm": "yes"}));
    assert_eq!(admitted["spec"]["tolerations"][0]["key"], "vm");
    let mut contradicts = wants.clone();
    contradicts["metadata"]["name"] = "s".into();
    contradicts["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(
        refused(&http, PODS, &contradicts).await,
        "pods \"s\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    );
    contradicts["spec"]["overhead"] = json!({"cpu": "250m"});
    contradicts["spec"]["tolerations"] = json!([{"key": "vm", "operator": "Exists"}]);
    let stored = created(&http, PODS, &contradicts).await;
    let tolerations = stored["spec"]["tolerations"].as_array().unwrap().iter();
    assert_eq!(tolerations.filter(|one| one["key"] == "vm").count(), 1);
    let mut other = pod("q");
    other["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(
        refused(&http, PODS, &other).await,
        "pods \"q\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
    wants["metadata"]["name"] = "r".into();
    wants["spec"]["nodeSelector"] = json!({"vm": "no"});
    assert_eq!(
        refused(&http, PODS, &wants).await,
        "pods \"r\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"
    );
}

/// A request in PEM whose subject has this organization.
fn request(organization: &str) -> String {
    STANDARD.encode(signing_request("jane", organization))
}

/// Proves objects/admission.
#[tokio::test]
async fn approval_and_signing_need_rights_to_the_signer() {
    let server = server();
    let admin = http(&server);
    let signing = |name: &str, organization: &str| {
        json!({"metadata": {"name": name}, "spec": {"request": request(organization),
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}})
    };
    assert_eq!(
        refused(&admin, REQUESTS, &signing("c", "system:masters")).await,
        "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    created(&admin, REQUESTS, &signing("c", "developers")).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = |name: &str, more: &[Value]| {
        let mut rules = vec![json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
            "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
                "certificatesigningrequests/status"]})];
        rules.extend_from_slice(more);
        json!({"metadata": {"name": name}, "rules": rules})
    };
    let approves = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["kubernetes.io/*"], "verbs": ["approve"]});
    for (name, more) in [("jane", vec![]), ("boss", vec![approves])] {
        created(&admin, &format!("{rbac}/clusterroles"), &role(name, &more)).await;
        let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole",
            "apiGroup": "rbac.authorization.k8s.io", "name": name}, "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
        created(&admin, &format!("{rbac}/clusterrolebindings"), &binding).await;
    }
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True",
        "reason": "r", "message": "m"}]}});
    let path = format!("{REQUESTS}/c/approval");
    let (code, status) = http_as(&server, "jane").merge(&path, &approval).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            403,
            "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\""
        )
    );
    let boss = http_as(&server, "boss");
    assert_eq!(boss.merge(&path, &approval).await.0, 200);
    let signed = json!({"status": {"certificate": STANDARD.encode(certificate())}});
    let (code, status) = boss.merge(&format!("{REQUESTS}/c/status"), &signed).await;
    assert_eq!(code, 403, "{status}");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("not permitted to sign"),
        "{status}"
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn mirror_pods_reference_neither_accounts_nor_secrets() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    created(&http, accounts, &json!({"metadata": {"name": "s"}})).await;
    let mirror = |spec: Value| {
        let mut pod = pod("p");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
    let published = json!({"driver": "d", "nodePublishSecretRef": {"name": "x"}});
    let from = json!([{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": "x"}}]}]);
    for (spec, why) in [
        (
            json!({"serviceAccountName": "s"}),
            "may not reference service accounts",
        ),
        (
            json!({"imagePullSecrets": [{"name": "x"}]}),
            "may not reference secrets",
        ),
        (json!({"containers": from}), "may not reference secrets"),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}),
            "may not reference secrets",
        ),
        (
            json!({"volumes": [{"name": "v", "csi": published}]}),
            "may not reference secrets",
        ),
        (
            json!({"volumes": [{"name": "v", "projected": token}]}),
            "may not use ServiceAccountToken volume projections",
        ),
    ] {
        assert_eq!(
            refused(&http, PODS, &mirror(spec)).await,
            format!("pods \"p\" is forbidden: a mirror pod {why}")
        );
    }
    let made = created(&http, PODS, &mirror(json!({}))).await;
    assert_eq!(made["spec"].get("serviceAccountName"), None);
}

/// Proves objects/admission.
#[tokio::test(start_paused = true)]
async fn pods_use_only_the_secrets_of_an_enforcing_account() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "s", "annotations":
            {"kubernetes.io/enforce-mountable-secrets": "T"}},
        "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}],
        "automountServiceAccountToken": false});
    // Go's ParseBool knows more than "true".
    for value in ["1", "t", "TRUE", "True", "true", "T"] {
        let mut account = account.clone();
        account["metadata"]["name"] = format!("s{}", value.to_lowercase()).into();
        account["metadata"]["annotations"]["kubernetes.io/enforce-mountable-secrets"] =
            value.into();
        http.post(accounts, &account).await;
    }
    created(&http, accounts, &account).await;
    let under = |account: &str, spec: Value| {
        let mut pod = pod("p");
        pod["spec"]["serviceAccountName"] = account.into();
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let from = |secret: &str| json!([{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": secret}}]}]);
    let variable = |secret: &str| {
        json!([{"name": "c", "image": "x", "env": [{"name": "V",
            "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}])
    };
    let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
    let main = json!([{"name": "m", "image": "x"}]);
    let with_init = |init: Value| json!({"initContainers": init, "containers": main.clone()});
    for (spec, what) in [
        (
            json!({"volumes": volume("x")}),
            "volume with secret.secretName=\"x\"",
        ),
        (
            json!({"containers": from("x")}),
            "container c with envFrom referencing secret.secretName=\"x\"",
        ),
        (
            with_init(from("x")),
            "init container c with envFrom referencing secret.secretName=\"x\"",
        ),
        (
            json!({"containers": variable("x")}),
            "container c with envVar V referencing secret.secretName=\"x\"",
        ),
        (
            with_init(variable("x")),
            "init container c with envVar V referencing secret.secretName=\"x\"",
        ),
    ] {
        for account in ["s", "s1", "st", "strue"] {
            assert_eq!(
                refused(&http, PODS, &under(account, spec.clone())).await,
                format!(
                    "pods \"p\" is forbidden: {what} is not allowed because service account {account} does not reference that secret"
                )
            );
        }
    }
    let pulls = json!({"imagePullSecrets": [{"name": "pull"}, {"name": "x"}]});
    assert_eq!(
        refused(&http, PODS, &under("s", pulls)).await,
        "pods \"p\" is forbidden: imagePullSecrets[1].name=\"x\" is not allowed because service account s does not reference that imagePullSecret"
    );
    let own = json!({"containers": from("own"), "volumes": volume("own")});
    created(&http, PODS, &under("s", own)).await;
    let debug = |secret: &str| {
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "x",
            "envFrom": [{"secretRef": {"name": secret}}]}]}})
    };
    let path = format!("{PODS}/p/ephemeralcontainers");
    let (code, status) = http.merge(&path, &debug("x")).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            500,
            "ephemeral container e with envFrom referencing secret.secretName=\"x\" is not allowed because service account s does not reference that secret"
        )
    );
    let (code, status) = http.merge(&path, &debug("own")).await;
    assert_eq!(code, 200, "{status}");
}

/// Proves objects/admission.
#[tokio::test(start_paused = true)]
async fn secrets_that_a_webhook_adds_are_checked() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "s", "annotations":
        {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    created(&http, accounts, &account).await;
    // Changes the Pod in the second round only, after the last mutating plugin has run.
    let rounds = Arc::new(AtomicUsize::new(0));
    let sneaky = pintle_apiserver::Webhook::mutating("a.example.com", move |_| {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        let patch = json!([{"op": "add", "path": "/spec/volumes",
            "value": [{"name": "v", "secret": {"secretName": "x"}}]}]);
        let patch = if round == 0 { json!([]) } else { patch };
        async move { pintle_apiserver::AdmissionResponse::allow().patch(patch) }
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"])
    .field("reinvocationPolicy", json!("IfNeeded"));
    let label = pintle_apiserver::Webhook::mutating("b.example.com", |_| async {
        pintle_apiserver::AdmissionResponse::allow()
            .patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"b": "b"}}]))
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"]);
    let _sneaky = server.register_webhook(&sneaky).unwrap();
    let _label = server.register_webhook(&label).unwrap();
    let mut wants = pod("p");
    wants["spec"]["serviceAccountName"] = "s".into();
    wants["spec"]["automountServiceAccountToken"] = false.into();
    assert_eq!(
        refused(&http, PODS, &wants).await,
        "pods \"p\" is forbidden: volume with secret.secretName=\"x\" is not allowed because service account s does not reference that secret"
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn tolerations_of_a_runtime_are_merged() {
    let server = server();
    let http = http(&server);
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let equal = |key: &str| json!({"key": key, "operator": "Equal", "value": "v"});
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm",
        "scheduling": {"tolerations": [equal("a"), exists("b"), exists("c")]}});
    created(&http, RUNTIMES, &class).await;
    let mut wants = pod("p");
    wants["spec"]["runtimeClassName"] = "vm".into();
    wants["spec"]["tolerations"] = json!([exists("a"), equal("b"), exists("c")]);
    let admitted = created(&http, PODS, &wants).await;
    let tolerations = admitted["spec"]["tolerations"].as_array().unwrap();
    let own = tolerations.iter().filter(|toleration| {
        let key = toleration["key"].as_str().unwrap_or_default();
        key.len() == 1
    });
    let own: Vec<&Value> = own.collect();
    assert_eq!(own, [&exists("a"), &exists("c"), &exists("b")]);
}

/// Proves objects/admission.
#[tokio::test]
async fn claim_that_names_its_class_in_an_annotation_can_grow() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "grows"}, "provisioner": "x",
        "allowVolumeExpansion": true});
    created(&http, STORAGE, &class).await;
    let claim = json!({"metadata": {"name": "c", "annotations":
            {"volume.beta.kubernetes.io/storage-class": "grows"}},
        "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
    created(&http, CLAIMS, &claim).await;
    let path = format!("{CLAIMS}/c");
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{path}/status"), &bound).await;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 200, "{status}");
}
