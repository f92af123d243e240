//! Quotas and limit ranges in admission.

mod limit_ranges;

use std::sync::Arc;

use crate::support::*;
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};

const V1: &str = "/api/v1/namespaces/default";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

async fn used(http: &Http, name: &str) -> Value {
    let (_, quota) = http.get(&format!("{QUOTAS}/{name}")).await;
    quota["status"]["used"].clone()
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// Proves quota/enforced.
#[tokio::test]
async fn objects_are_charged_and_rejected_at_the_limit() {
    let server = server();
    let http = http(&server);
    quota(
        &http,
        "q",
        &json!({"hard": {"configmaps": "2", "count/secrets": "1"}}),
    )
    .await;
    created(&http, CONFIG_MAPS, &config_map("a")).await;
    created(&http, CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(
        used(&http, "q").await,
        json!({"configmaps": "2", "count/secrets": "0"})
    );
    let (code, status) = http.post(CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        )
    );
    created(
        &http,
        &format!("{V1}/secrets"),
        &json!({"metadata": {"name": "s"}}),
    )
    .await;
    let other = "/api/v1/namespaces/kube-system/configmaps";
    created(&http, other, &config_map("c")).await;
    // An update without more usage is not charged, and a delete is not credited.
    let (code, _) = http
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"x": "y"}}))
        .await;
    assert_eq!(code, 200);
    http.delete(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(
        used(&http, "q").await["configmaps"],
        "2",
        "only a controller recounts after a delete"
    );
}

/// Proves quota/enforced.
#[tokio::test]
async fn dry_runs_are_checked_and_not_charged() {
    let server = server();
    let http = http(&server);
    quota(&http, "q", &json!({"hard": {"configmaps": "1"}})).await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    created(&http, &dry, &config_map("a")).await;
    assert_eq!(used(&http, "q").await, json!({"configmaps": "0"}));
    created(&http, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(http.post(&dry, &config_map("b")).await.0, 403);
}

/// Proves quota/enforced.
#[tokio::test]
async fn quota_without_status_is_ignored_and_without_usage_denies() {
    let server = server();
    let http = http(&server);
    let hard = json!({"hard": {"configmaps": "0"}});
    created(
        &http,
        QUOTAS,
        &json!({"metadata": {"name": "q"}, "spec": hard}),
    )
    .await;
    created(&http, CONFIG_MAPS, &config_map("a")).await;
    let status = json!({"status": hard});
    http.merge(&format!("{QUOTAS}/q/status"), &status).await;
    let (code, status) = http.post(CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "configmaps \"b\" is forbidden: status unknown for quota: q, resources: configmaps"
        )
    );
}

/// Proves quota/enforced.
#[tokio::test]
async fn several_quotas_are_charged_together_or_not_at_all() {
    let server = server();
    let http = http(&server);
    quota(&http, "a", &json!({"hard": {"configmaps": "5"}})).await;
    quota(&http, "b", &json!({"hard": {"count/configmaps": "0"}})).await;
    let (code, status) = http.post(CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(code, 403);
    assert!(message(&status).contains("exceeded quota: b"), "{status}");
    assert_eq!(used(&http, "a").await, json!({"configmaps": "0"}));
}

/// Proves quota/enforced.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creates_never_exceed_a_quota() {
    let server = Arc::new(ApiServer::builder().build());
    let admin = http(&server);
    quota(&admin, "q", &json!({"hard": {"configmaps": "10"}})).await;
    let tasks: Vec<_> = (0..40)
        .map(|i| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let name = format!("c{i}");
                http(&server).post(CONFIG_MAPS, &config_map(&name)).await.0
            })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap());
    }
    let count = |code: u16| codes.iter().filter(|found| **found == code).count();
    assert_eq!((count(201), count(403)), (10, 30), "{codes:?}");
    assert_eq!(used(&admin, "q").await, json!({"configmaps": "10"}));
}

/// Proves quota/enforced.
#[tokio::test]
async fn pods_are_charged_for_requests_and_limits() {
    let server = server();
    let http = http(&server);
    let hard = json!({"hard": {"pods": "5", "requests.cpu": "1", "limits.memory": "1Gi",
        "requests.example.com/gpu": "1"}});
    quota(&http, "q", &hard).await;
    let (code, status) = http.post(PODS, &pod_with("p", &json!({}))).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
        )
    );
    let resources = json!({"requests": {"cpu": "600m", "memory": "1Mi"},
        "limits": {"memory": "512Mi", "cpu": "2"}});
    created(&http, PODS, &pod_with("a", &resources)).await;
    assert_eq!(
        used(&http, "q").await,
        json!({"pods": "1", "requests.cpu": "600m", "limits.memory": "512Mi",
            "requests.example.com/gpu": "0"})
    );
    let (code, status) = http.post(PODS, &pod_with("b", &resources)).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
        )
    );
}

/// Proves quota/enforced.
#[tokio::test]
async fn scopes_select_the_pods_that_count() {
    let server = server();
    let http = http(&server);
    let hard = json!({"pods": "1"});
    quota(
        &http,
        "best",
        &json!({"hard": hard, "scopes": ["BestEffort"]}),
    )
    .await;
    quota(
        &http,
        "short",
        &json!({"hard": hard, "scopes": ["Terminating"]}),
    )
    .await;
    let critical = json!({"hard": hard, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
    quota(&http, "high", &critical).await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    created(
        &http,
        classes,
        &json!({"metadata": {"name": "high"}, "value": 10}),
    )
    .await;
    let some = json!({"requests": {"cpu": "1"}});
    created(&http, PODS, &pod_with("plain", &some)).await;
    for name in ["best", "short", "high"] {
        assert_eq!(used(&http, name).await, json!({"pods": "0"}), "{name}");
    }
    created(&http, PODS, &pod_with("best", &json!({}))).await;
    assert_eq!(used(&http, "best").await, json!({"pods": "1"}));
    assert_eq!(http.post(PODS, &pod_with("more", &json!({}))).await.0, 403);
    let mut short = pod_with("short", &some);
    short["spec"]["activeDeadlineSeconds"] = 60.into();
    created(&http, PODS, &short).await;
    assert_eq!(used(&http, "short").await, json!({"pods": "1"}));
    let mut high = pod_with("high", &some);
    high["spec"]["priorityClassName"] = "high".into();
    created(&http, PODS, &high).await;
    assert_eq!(used(&http, "high").await, json!({"pods": "1"}));
    // A deadline moves a Pod into a scope that is full.
    let deadline = json!({"spec": {"activeDeadlineSeconds": 60}});
    let (code, status) = http.merge(&format!("{PODS}/plain"), &deadline).await;
    assert_eq!(code, 403, "{status}");
    assert!(
        message(&status).contains("exceeded quota: short"),
        "{status}"
    );
}

/// Proves quota/enforced.
#[tokio::test]
async fn services_and_claims_are_charged_by_their_spec() {
    let server = server();
    let http = http(&server);
    let hard = json!({"hard": {"services": "3", "services.nodeports": "2",
        "services.loadbalancers": "0", "persistentvolumeclaims": "2", "requests.storage": "10Gi",
        "gold.storageclass.storage.k8s.io/requests.storage": "5Gi"}});
    quota(&http, "q", &hard).await;
    let service = |name: &str, kind: &str, ports: usize| {
        let ports: Vec<Value> = (0..ports)
            .map(|i| json!({"name": format!("p{i}"), "port": 80 + i}))
            .collect();
        json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
    };
    let services = format!("{V1}/services");
    created(&http, &services, &service("a", "NodePort", 2)).await;
    assert_eq!(
        http.post(&services, &service("b", "NodePort", 1)).await.0,
        403
    );
    assert_eq!(
        http.post(&services, &service("b", "LoadBalancer", 1))
            .await
            .0,
        403
    );
    created(&http, &services, &service("b", "ClusterIP", 1)).await;
    // A change of the type is charged like a new service.
    let node_port = json!({"spec": {"type": "NodePort"}});
    let (code, status) = http.merge(&format!("{services}/b"), &node_port).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "services \"b\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, limited: services.nodeports=2"
        )
    );
    let claim = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "gold",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    };
    let claims = format!("{V1}/persistentvolumeclaims");
    created(&http, &claims, &claim("a", "4Gi")).await;
    let (code, status) = http.post(&claims, &claim("b", "4Gi")).await;
    assert_eq!(code, 403);
    assert!(
        message(&status).contains("requested: gold.storageclass.storage.k8s.io/requests.storage=4Gi, used: gold.storageclass.storage.k8s.io/requests.storage=4Gi"),
        "{status}"
    );
    let usage = used(&http, "q").await;
    assert_eq!(usage["persistentvolumeclaims"], "1");
    assert_eq!(usage["requests.storage"], "4Gi");
}

/// Proves quota/enforced.
#[tokio::test]
async fn quantities_with_many_digits_are_charged() {
    let server = server();
    let http = http(&server);
    let hard = json!({"requests.storage": "10Gi", "requests.cpu": "1",
        "requests.ephemeral-storage": "1Gi"});
    quota(&http, "q", &json!({"hard": hard})).await;
    let claim = |size: &str| {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
    };
    let claims = format!("{V1}/persistentvolumeclaims");
    for size in [
        "10000000000000000000",
        "100000000000.00000000",
        "99999999999999999999999999999999999999999999",
        "10E",
        "9e30",
        "8Ei",
    ] {
        let (code, status) = http.post(&claims, &claim(size)).await;
        assert_eq!(code, 403, "{size}: {status}");
        assert!(message(&status).contains("exceeded quota: q, requested: requests.storage="));
    }
    created(&http, &claims, &claim("1073741824.00000000000000000000")).await;
    assert_eq!(used(&http, "q").await["requests.storage"], "1073741824");
    let small = json!({"requests": {"cpu": "0.1000000000000000000", "ephemeral-storage": "1"}});
    created(&http, PODS, &pod_with("p", &small)).await;
    assert_eq!(used(&http, "q").await["requests.cpu"], "100m");
    let large = json!({"requests": {"cpu": "1m", "ephemeral-storage": "10000000000000000000"}});
    assert_eq!(http.post(PODS, &pod_with("q", &large)).await.0, 403);
    // A limit may have as many digits.
    let hard = json!({"requests.storage": "10000000000000000000"});
    quota(&http, "large", &json!({"hard": hard})).await;
    let mut small = claim("1Gi");
    small["metadata"]["name"] = "d".into();
    created(&http, &claims, &small).await;
}

/// Proves quota/enforced.
#[tokio::test]
async fn claims_count_by_the_attribute_classes_they_name() {
    let server = server();
    let http = http(&server);
    let scoped = |operator: &str, values: &Value| {
        json!({"hard": {"persistentvolumeclaims": "0"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]}})
    };
    quota(&http, "others", &scoped("NotIn", &json!(["gold"]))).await;
    let claims = format!("{V1}/persistentvolumeclaims");
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "volumeAttributesClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    created(&http, &claims, &claim("a", "gold")).await;
    assert_eq!(http.post(&claims, &claim("b", "silver")).await.0, 403);
    http.delete(&format!("{QUOTAS}/others")).await;
    quota(&http, "none", &scoped("DoesNotExist", &json!([]))).await;
    created(&http, &claims, &claim("b", "silver")).await;
    let mut plain = claim("c", "");
    plain["spec"]
        .as_object_mut()
        .unwrap()
        .remove("volumeAttributesClassName");
    assert_eq!(http.post(&claims, &plain).await.0, 403);
}

/// Proves quota/enforced.
#[tokio::test]
async fn events_count_towards_no_quota() {
    let server = server();
    let http = http(&server);
    let hard = json!({"count/events": "0", "count/events.events.k8s.io": "0"});
    quota(&http, "q", &json!({"hard": hard})).await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    created(&http, &format!("{V1}/events"), &event).await;
    let counted = pintle_apiserver::quota::Quota::new(&json!({"hard": hard}));
    assert!(counted.kinds().is_empty());
}

/// Proves quota/enforced.
#[tokio::test]
async fn resized_pods_are_charged_for_held_resources() {
    let server = server();
    let http = http(&server);
    quota(
        &http,
        "q",
        &json!({"hard": {"requests.cpu": "2", "limits.cpu": "2"}}),
    )
    .await;
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}, "limits": {"cpu": amount}});
    created(&http, PODS, &pod_with("p", &cpu("2"))).await;
    let running = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c",
        "image": "x", "imageID": "", "ready": true, "restartCount": 0,
        "resources": cpu("2"), "allocatedResources": {"cpu": "2"}}]}});
    let (code, status) = http.merge(&format!("{PODS}/p/status"), &running).await;
    assert_eq!(code, 200, "{status}");
    let resize = |amount: &str| json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": cpu(amount)}]}});
    let path = format!("{PODS}/p/resize");
    let (code, status) = http.merge(&path, &resize("1")).await;
    assert_eq!(code, 200, "{status}");
    // Until the kubelet has resized it, it counts as before.
    let (_, pod) = http.get(&format!("{PODS}/p")).await;
    let counted = pintle_apiserver::quota::Quota::new(&json!({"hard": {"requests.cpu": "2",
        "limits.cpu": "2"}}));
    let objects = [&pod];
    let used = |pod: &[&Value]| counted.used(&[("", "pods", pod)], jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(used(&objects)["requests.cpu"], "2");
    assert_eq!(used(&objects)["limits.cpu"], "2");
    let (code, status) = http.merge(&path, &resize("2")).await;
    assert_eq!(code, 200, "{status}");
    let (code, status) = http.merge(&path, &resize("3")).await;
    assert_eq!(code, 403, "{status}");
    // A size that the node can never provide does not count.
    let mut infeasible = pod.clone();
    infeasible["spec"]["containers"][0]["resources"] = cpu("3");
    infeasible["status"]["conditions"] =
        json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    assert_eq!(used(&[&infeasible])["requests.cpu"], "2");
}
