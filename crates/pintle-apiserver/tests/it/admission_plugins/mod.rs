//! The admission plugins that Kubernetes enables by default.

mod accounts;
mod storage;

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use crate::support::{
    tls::{certificate, signing_request},
    *,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use pintle_apiserver::{AdmissionResponse, ApiServer, Clock, Webhook};
use serde_json::{Value, json};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const STORAGE: &str = "/apis/storage.k8s.io/v1/storageclasses";
const RUNTIMES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn refused(http: &Http, path: &str, object: &Value) -> String {
    let (code, status) = http.post(path, object).await;
    assert_eq!(code, 403, "{status}");
    status["message"].as_str().unwrap().to_owned()
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

/// Two default classes pass the check if they are created concurrently. The lower one then applies.
///
/// Proves objects/admission.
#[tokio::test(start_paused = true)]
async fn lowest_of_two_default_priority_classes_applies() {
    let server = server();
    let http = http(&server);
    let gate = Arc::new(tokio::sync::Barrier::new(2));
    let webhook = Webhook::validating("gate.example.com", move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.wait().await;
            AdmissionResponse::allow()
        }
    })
    .rule(["CREATE"], ["*"], ["*"], ["priorityclasses"]);
    let registration = server.register_webhook(&webhook).unwrap();
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value, "globalDefault": true});
    let (high, low) = (class("a-high", 9), class("b-low", 3));
    tokio::join!(
        created(&http, classes, &high),
        created(&http, classes, &low)
    );
    drop(registration);
    let pod = created(&http, PODS, &pod("p")).await;
    assert_eq!(pod["spec"]["priorityClassName"], "b-low");
    assert_eq!(pod["spec"]["priority"], 3);
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

/// Returns a signing request whose subject has this organization: PEM in base64.
fn request(organization: &str) -> String {
    STANDARD.encode(signing_request("jane", organization))
}

/// Proves objects/admission.
#[tokio::test]
async fn approval_and_signing_need_permission_for_the_signer() {
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
    // A status update that neither signs nor decides needs no permission for the signer.
    let status = format!("{REQUESTS}/c/status");
    let (code, stored) = http_as(&server, "jane").merge(&status, &json!({})).await;
    assert_eq!(code, 200, "{stored}");
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
async fn pods_get_the_zone_and_region_of_their_node() {
    let server = server();
    let http = http(&server);
    let (zone, region) = (
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    );
    let node =
        json!({"metadata": {"name": "n1", "labels": {zone: "a", region: "r", "disk": "ssd"}}});
    created(&http, "/api/v1/nodes", &node).await;
    created(
        &http,
        "/api/v1/nodes",
        &json!({"metadata": {"name": "plain"}}),
    )
    .await;
    let labels = async |name: &str| {
        let (_, pod) = http.get(&format!("{PODS}/{name}")).await;
        pod["metadata"]["labels"].clone()
    };
    // The labels of the node replace those of the Pod.
    let mut direct = pod("direct");
    direct["metadata"]["labels"] = json!({zone: "b", "app": "web"});
    direct["spec"]["nodeName"] = "n1".into();
    created(&http, PODS, &direct).await;
    let expected = json!({zone: "a", region: "r", "app": "web"});
    assert_eq!(labels("direct").await, expected);
    let mut bound = pod("bound");
    bound["metadata"]["labels"] = json!({zone: "b", "app": "web"});
    created(&http, PODS, &bound).await;
    assert_eq!(labels("bound").await, json!({zone: "b", "app": "web"}));
    let binding = |name: &str, node: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    created(
        &http,
        &format!("{PODS}/bound/binding"),
        &binding("bound", "n1"),
    )
    .await;
    assert_eq!(labels("bound").await, expected);
    for node in ["plain", "missing"] {
        created(&http, PODS, &pod(node)).await;
        created(
            &http,
            &format!("{PODS}/{node}/binding"),
            &binding(node, node),
        )
        .await;
        assert_eq!(labels(node).await, Value::Null);
    }
    // Updates and the other resource for bindings copy nothing.
    let drop = json!({"metadata": {"labels": {zone: null}}});
    assert_eq!(http.merge(&format!("{PODS}/direct"), &drop).await.0, 200);
    assert_eq!(labels("direct").await, json!({region: "r", "app": "web"}));
    created(&http, PODS, &pod("other")).await;
    created(
        &http,
        "/api/v1/namespaces/default/bindings",
        &binding("other", "n1"),
    )
    .await;
    assert_eq!(labels("other").await, Value::Null);
}
