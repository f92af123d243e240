//! Limit ranges: defaults and bounds.

use super::*;

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_sets_defaults() {
    let server = server();
    let http = http(&server);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container",
        "default": {"cpu": "500m", "memory": "256Mi"}, "defaultRequest": {"cpu": "100m"}}]}});
    created(&http, RANGES, &range).await;
    let pod = created(
        &http,
        PODS,
        &pod_with("p", &json!({"limits": {"memory": "1Gi"}})),
    )
    .await;
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "1Gi"},
            "requests": {"cpu": "100m", "memory": "1Gi"}})
    );
    assert_eq!(
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(pod["status"]["qosClass"], "Burstable");
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_rejects_values_outside_its_bounds() {
    let server = server();
    let http = http(&server);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"},
            "maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "500m"}},
        {"type": "Pod", "max": {"cpu": "1500m"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]}});
    created(&http, RANGES, &range).await;
    let cpu = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
    for (resources, why) in [
        (
            cpu("50m", "100m"),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            cpu("1", "2"),
            "[maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per Pod is 1500m, but limit is 2]",
        ),
        (
            cpu("100m", "300m"),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ] {
        let (code, status) = http.post(PODS, &pod_with("p", &resources)).await;
        assert_eq!(code, 403, "{status}");
        assert_eq!(message(&status), format!("pods \"p\" is forbidden: {why}"));
    }
    let mut two = pod_with("p", &cpu("500m", "1"));
    let one = two["spec"]["containers"][0].clone();
    two["spec"]["containers"].as_array_mut().unwrap().push(one);
    two["spec"]["containers"][1]["name"] = "d".into();
    let (_, status) = http.post(PODS, &two).await;
    assert_eq!(
        message(&status),
        "pods \"p\" is forbidden: maximum cpu usage per Pod is 1500m, but limit is 2"
    );
    created(&http, PODS, &pod_with("p", &json!({}))).await;
    let claims = format!("{V1}/persistentvolumeclaims");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "3Gi"}}}});
    let (code, status) = http.post(&claims, &claim).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
        )
    );
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn limit_range_ignores_the_overhead_of_a_runtime() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}}});
    created(&http, "/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "1"}}]}});
    created(&http, RANGES, &range).await;
    let cpu = |amount: &str| {
        let mut pod = pod_with(
            "p",
            &json!({"requests": {"cpu": amount}, "limits": {"cpu": "1"}}),
        );
        pod["spec"]["runtimeClassName"] = "vm".into();
        pod
    };
    let (code, status) = http.post(PODS, &cpu("800m")).await;
    assert_eq!(code, 403, "{status}");
    assert_eq!(
        message(&status),
        "pods \"p\" is forbidden: minimum cpu usage per Pod is 1, but request is 800m"
    );
    created(&http, PODS, &cpu("1")).await;
}

/// Proves quota/limit-ranges.
#[tokio::test]
async fn every_limit_range_of_the_namespace_counts() {
    let server = server();
    let http = http(&server);
    for (name, most) in [("a", "4"), ("b", "2"), ("c", "3")] {
        let range = json!({"metadata": {"name": name}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": most}}]}});
        created(&http, RANGES, &range).await;
    }
    let cpu = |amount: &str| {
        let amount = json!({"cpu": amount});
        pod_with("p", &json!({"requests": amount, "limits": amount}))
    };
    let (code, status) = http.post(PODS, &cpu("2500m")).await;
    assert_eq!(code, 403, "{status}");
    assert_eq!(
        message(&status),
        "pods \"p\" is forbidden: maximum cpu usage per Container is 2, but limit is 2500m"
    );
    created(&http, PODS, &cpu("2")).await;
}
