//! Edge cases of quotas and limit ranges: updates, resizes, races and missing values.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use crate::support::*;
use futures::FutureExt;
use pintle_apiserver::{AdmissionResponse, ApiServer, ApiService, Clock, Webhook};
use serde_json::{Value, json};

const V1: &str = "/api/v1/namespaces/default";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn cpu(request: &str, limit: &str) -> Value {
    json!({"requests": {"cpu": request}, "limits": {"cpu": limit}})
}

/// Creates a quota with these limits and no usage.
async fn limit(http: &Http, name: &str, hard: &Value) {
    quota(http, name, &json!({"hard": hard})).await;
}

async fn used(http: &Http, name: &str, resource: &str) -> Value {
    let (_, quota) = http.get(&format!("{QUOTAS}/{name}")).await;
    quota["status"]["used"][resource].clone()
}

/// Proves quota/enforced.
#[tokio::test(start_paused = true)]
async fn update_that_loses_a_race_is_charged_once() {
    let server = server();
    let other = Arc::new(http(&server));
    let http = http(&server);
    limit(&http, "q", &json!({"services.nodeports": "5"})).await;
    let services = format!("{V1}/services");
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    created(&http, &services, &service).await;
    let raced = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&raced);
    let webhook = Webhook::validating("races.example.com", move |_| {
        let (other, is_first) = (Arc::clone(&other), !once.swap(true, Ordering::SeqCst));
        async move {
            if is_first {
                let label = json!({"metadata": {"labels": {"a": "b"}}});
                let path = format!("{V1}/services/s");
                assert_eq!(other.merge(&path, &label).await.0, 200);
            }
            AdmissionResponse::allow()
        }
    })
    .rule(["UPDATE"], [""], ["v1"], ["services"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let change = json!({"spec": {"type": "NodePort"}});
    let (code, stored) = http.merge(&format!("{services}/s"), &change).await;
    assert_eq!(code, 200, "{stored}");
    assert!(raced.load(Ordering::SeqCst));
    assert_eq!(stored["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(used(&http, "q", "services.nodeports").await, "1");
}

/// Proves quota/enforced.
#[tokio::test]
async fn update_is_charged_for_its_changes() {
    let server = server();
    let http = http(&server);
    created(&http, PODS, &pod_with("old", &json!({}))).await;
    limit(
        &http,
        "q",
        &json!({"requests.cpu": "2", "services.nodeports": "2"}),
    )
    .await;
    // A Pod that is older than the quota need not set what the quota requires.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{PODS}/old"), &label).await.0, 200);
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort",
        "ports": [{"port": 80}]}});
    created(&http, &format!("{V1}/services"), &service).await;
    assert_eq!(http.merge(&format!("{V1}/services/s"), &label).await.0, 200);
    assert_eq!(used(&http, "q", "services.nodeports").await, "1");
    created(&http, PODS, &pod_with("p", &cpu("1", "1"))).await;
    let resize = |amount: &str| {
        json!({"spec": {"containers": [{"name": "c", "image": "x",
            "resources": cpu(amount, amount)}]}})
    };
    let strategic = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/p/resize");
    let (code, status) = http
        .raw("PATCH", &path, strategic, resize("3").to_string())
        .await;
    assert_eq!(code, 403, "{status}");
    let (code, status) = http
        .raw("PATCH", &path, strategic, resize("1500m").to_string())
        .await;
    assert_eq!(code, 200, "{status}");
    assert_eq!(used(&http, "q", "requests.cpu").await, "1500m");
}

/// Proves quota/enforced.
#[tokio::test]
async fn status_of_a_claim_is_charged_and_never_rejected() {
    let server = server();
    let http = http(&server);
    limit(&http, "q", &json!({"requests.storage": "2Gi"})).await;
    let claims = format!("{V1}/persistentvolumeclaims");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    created(&http, &claims, &claim).await;
    let status = json!({"status": {"allocatedResources": {"storage": "5Gi"}}});
    let (code, status) = http.merge(&format!("{claims}/c/status"), &status).await;
    assert_eq!(code, 200, "{status}");
    assert_eq!(used(&http, "q", "requests.storage").await, "5Gi");
}

/// Proves quota/enforced.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn concurrent_creates_charge_all_quotas_alike() {
    let server = Arc::new(ApiServer::builder().build());
    let admin = http(&server);
    limit(&admin, "a", &json!({"configmaps": "50"})).await;
    limit(&admin, "b", &json!({"count/configmaps": "20"})).await;
    let tasks: Vec<_> = (0..200)
        .map(|i| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let map = config_map(&format!("c{i}"));
                http(&server).post(CONFIG_MAPS, &map).await.0
            })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += usize::from(task.await.unwrap() == 201);
    }
    assert_eq!(stored, 20);
    assert_eq!(
        used(&admin, "a", "configmaps").await,
        "20",
        "the rest is refunded"
    );
    assert_eq!(used(&admin, "b", "count/configmaps").await, "20");
}

/// The clock is read while a write is charged, so a quota can be deleted there.
///
/// Proves quota/enforced.
#[tokio::test]
async fn quota_deleted_during_a_write_limits_nothing() {
    let mut deleted = 0;
    for reading in 0..20 {
        let left = Arc::new(AtomicI64::new(-1));
        let service: Arc<OnceLock<ApiService>> = Arc::default();
        let (count, at) = (Arc::clone(&left), Arc::clone(&service));
        let server = ApiServer::builder()
            .clock(Clock::from_fn(move || {
                if count.fetch_sub(1, Ordering::SeqCst) == 0 {
                    let request = http::Request::delete(format!("{QUOTAS}/q"))
                        .body(http_body_util::Full::<bytes::Bytes>::default())
                        .unwrap();
                    let service = at.get().unwrap().clone();
                    let response = tower::ServiceExt::oneshot(service, request);
                    let response = response.now_or_never().unwrap().unwrap();
                    assert_eq!(response.status(), 200);
                }
                "2026-01-01T00:00:00Z".parse().unwrap()
            }))
            .build();
        let _ = service.set(server.service());
        let http = http(&server);
        limit(&http, "p", &json!({"configmaps": "1"})).await;
        limit(&http, "q", &json!({"configmaps": "1"})).await;
        left.store(reading, Ordering::SeqCst);
        let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(code, 201, "{reading}: {status}");
        left.store(-1, Ordering::SeqCst);
        assert_eq!(used(&http, "p", "configmaps").await, "1");
        deleted += usize::from(http.get(&format!("{QUOTAS}/q")).await.0 == 404);
    }
    assert!(deleted > 0, "the clock is read while a write is charged");
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_ignores_claims_that_are_deleted() {
    let server = server();
    let http = http(&server);
    let claims = format!("{V1}/persistentvolumeclaims");
    for name in ["live", "gone"] {
        let claim = json!({"metadata": {"name": name, "finalizers": ["example.com/f"]},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "2Gi"}}}});
        created(&http, &claims, &claim).await;
    }
    let limits = json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]);
    created(&http, RANGES, &range(&limits)).await;
    assert_eq!(http.delete(&format!("{claims}/gone")).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{claims}/live"), &label).await.0, 403);
    assert_eq!(http.merge(&format!("{claims}/gone"), &label).await.0, 200);
}

/// Proves quota/enforced.
#[tokio::test]
async fn negative_requests_release_no_quota() {
    let server = server();
    let http = http(&server);
    limit(
        &http,
        "q",
        &json!({"requests.cpu": "2", "requests.storage": "2Gi", "requests.example.com/gpu": "2",
            "requests.ephemeral-storage": "2"}),
    )
    .await;
    let claims = format!("{V1}/persistentvolumeclaims");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "-1Gi"}}}});
    assert_eq!(http.post(&claims, &claim).await.0, 422);
    for name in ["cpu", "example.com/gpu", "ephemeral-storage"] {
        let amounts = json!({"requests": {name: "-1"}, "limits": {name: "-1"}});
        let (code, status) = http.post(PODS, &pod_with("p", &amounts)).await;
        assert_eq!(code, 422, "{status}");
    }
}

fn range(limits: &Value) -> Value {
    json!({"metadata": {"name": "r"}, "spec": {"limits": limits}})
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_needs_both_request_and_limit() {
    let limits = json!([{"type": "Container", "min": {"cpu": "200m"}, "max": {"cpu": "1"},
        "maxLimitRequestRatio": {"memory": "2"}}]);
    let server = server();
    let admin = http(&server);
    created(&admin, RANGES, &range(&limits)).await;
    let ratio = "memory max limit to request ratio per Container is 2";
    let no_request = format!("{ratio}, but no request is specified or request is 0");
    let no_limit = format!("{ratio}, but no limit is specified or limit is 0");
    for (resources, expected) in [
        (
            json!({"requests": {"cpu": "500m", "memory": "1Mi"}, "limits": {"cpu": "500m"}}),
            no_limit,
        ),
        (cpu("500m", "500m"), no_request.clone()),
        (
            json!({"requests": {"cpu": "300m", "memory": "0"}, "limits": {"cpu": "1", "memory": "1"}}),
            no_request,
        ),
    ] {
        let (code, status) = admin.post(PODS, &pod_with("p", &resources)).await;
        assert_eq!(code, 403, "{status}");
        let expected = format!("pods \"p\" is forbidden: {expected}");
        assert_eq!(status["message"], expected.as_str());
    }
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_of_pods_sets_no_defaults() {
    let server = server();
    let http = http(&server);
    let limits = json!([{"type": "Pod", "min": {"memory": "2Mi"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}]);
    created(&http, RANGES, &range(&limits)).await;
    let message = async |resources: Value| -> String {
        let (code, status) = http.post(PODS, &pod_with("p", &resources)).await;
        assert_eq!(code, 403, "{status}");
        let message = status["message"].as_str().unwrap();
        message
            .trim_start_matches("pods \"p\" is forbidden: ")
            .to_owned()
    };
    assert_eq!(
        message(json!({})).await,
        "[minimum memory usage per Pod is 2Mi.  No request is specified, maximum cpu usage per \
         Pod is 1.  No limit is specified]"
    );
    let memory = |request: &str, limit: &str| json!({"requests": {"memory": request}, "limits": {"memory": limit, "cpu": "1"}});
    assert_eq!(
        message(memory("1Mi", "3Mi")).await,
        "minimum memory usage per Pod is 2Mi, but request is 1Mi"
    );
    created(&http, PODS, &pod_with("p", &memory("2Mi", "3Mi"))).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let (_, status) = http
        .post(&format!("{V1}/persistentvolumeclaims"), &claim)
        .await;
    assert_eq!(
        status["message"],
        "persistentvolumeclaims \"c\" is forbidden: minimum storage usage per \
         PersistentVolumeClaim is 2Gi, but request is 1Gi"
    );
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_applies_to_new_containers_and_resizes() {
    let server = server();
    let http = http(&server);
    created(&http, PODS, &pod_with("old", &cpu("2", "2"))).await;
    created(
        &http,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await;
    let limits = json!([{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"},
        "defaultRequest": {"cpu": "500m"}}]);
    created(&http, RANGES, &range(&limits)).await;
    // The limits apply to this namespace only, and existing Pods are not checked again.
    let elsewhere = "/api/v1/namespaces/other/pods";
    created(&http, elsewhere, &pod_with("p", &cpu("2", "2"))).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{PODS}/old"), &label).await.0, 200);

    let mut init = pod_with("init", &json!({}));
    init["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}]);
    let stored = created(&http, PODS, &init).await;
    assert_eq!(
        stored["spec"]["initContainers"][0]["resources"],
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(
        stored["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c; cpu \
         request for init container i; cpu limit for init container i"
    );
    // Both containers exceed the limit, which is one error.
    init["metadata"]["name"] = "big".into();
    init["spec"]["initContainers"][0]["resources"] = cpu("2", "2");
    init["spec"]["containers"][0]["resources"] = cpu("2", "2");
    let (_, status) = http.post(PODS, &init).await;
    let why = "maximum cpu usage per Container is 1, but limit is 2";
    let expected = format!("pods \"big\" is forbidden: {why}");
    assert_eq!(status["message"], expected.as_str());
    init["spec"]["containers"][0]["resources"] = cpu("1", "1");
    let (_, status) = http.post(PODS, &init).await;
    assert_eq!(
        status["message"],
        expected.as_str(),
        "init containers count"
    );
    let resize = json!({"spec": {"containers": [{"name": "c", "resources": cpu("3", "3")}]}});
    created(&http, PODS, &pod_with("small", &cpu("1", "1"))).await;
    let strategic = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/small/resize");
    let (code, status) = http
        .raw("PATCH", &path, strategic, resize.to_string())
        .await;
    assert_eq!(code, 403, "{status}");
}

/// Proves quota/enforced.
#[tokio::test]
async fn devices_of_a_class_are_limited() {
    let server = server();
    let http = http(&server);
    let gpus = "gpu.deviceclass.resource.k8s.io/devices";
    limit(
        &http,
        "q",
        &json!({gpus: "3", "count/resourceclaims.resource.k8s.io": "2"}),
    )
    .await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str, class: &str, count: usize| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": class, "count": count}}]}}})
    };
    created(&http, claims, &claim("a", "gpu", 2)).await;
    let (code, refused) = http.post(claims, &claim("b", "gpu", 2)).await;
    assert_eq!(code, 403, "{refused}");
    assert_eq!(
        refused["message"],
        format!(
            "resourceclaims.resource.k8s.io \"b\" is forbidden: exceeded quota: q, requested: \
             {gpus}=2, used: {gpus}=2, limited: {gpus}=3"
        )
    );
    let more = json!({"spec": claim("a", "gpu", 3)["spec"]});
    let (code, refused) = http.merge(&format!("{claims}/a"), &more).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        causes(&refused)[0].ends_with("field is immutable"),
        "{refused}"
    );
    created(&http, claims, &claim("b", "nic", 8)).await;
    let (code, refused) = http.post(claims, &claim("c", "nic", 1)).await;
    assert_eq!(code, 403, "{refused}");
    assert_eq!(used(&http, "q", gpus).await, "2");
}
