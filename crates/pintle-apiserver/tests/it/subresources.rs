//! Subresources: scale, binding, eviction; reviews and events.

use crate::support::*;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Proves patch/scale.
#[tokio::test]
async fn deployment_can_be_scaled() {
    let server = server();
    let http = http(&server);
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": template()}});
    let (code, made) = http.post(DEPLOYMENTS, &deployment).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{DEPLOYMENTS}/web/scale");
    let (_, scale) = http.get(&path).await;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(2))
    );
    assert_eq!(scale["status"]["selector"], "app=web");
    assert_eq!(
        scale["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let (code, after) = http.merge(&path, &json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &after["spec"]["replicas"]), (200, &json!(5)));
    let (_, deployment) = http.get(&format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(
        (
            &deployment["spec"]["replicas"],
            &deployment["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
    assert_eq!(
        http.put(&path, &scale).await.0,
        409,
        "stale resourceVersion"
    );
    let mut wrong = after.clone();
    wrong["spec"]["replicas"] = json!(-1);
    assert_eq!(http.put(&path, &wrong).await.0, 422);
}

/// Proves patch/scale.
#[tokio::test]
async fn custom_resource_scales_at_the_paths_of_its_crd() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.availableReplicas"});
    http.post(DEFINITIONS, &definition).await;
    http.post(FOOS, &foo("a")).await;
    let (code, scale) = http
        .merge(
            &format!("{FOOS}/a/scale"),
            &json!({"spec": {"replicas": 3}}),
        )
        .await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(
        http.get(&format!("{FOOS}/a")).await.1["spec"]["replicas"],
        3
    );
}

async fn pod(http: &Http, name: &str) {
    let mut pod = template();
    pod["metadata"]["name"] = name.into();
    let (code, made) = http.post(PODS, &pod).await;
    assert_eq!(code, 201, "{made}");
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn pod_is_bound_once() {
    let server = server();
    let http = http(&server);
    pod(&http, "p").await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/binding"), &binding).await.0,
        201
    );
    let (_, bound) = http.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(
        http.post("/api/v1/namespaces/default/bindings", &binding)
            .await
            .0,
        409
    );
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn budget() -> Value {
    json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "web"}}}})
}

/// Sets the status of a Pod as a kubelet would.
async fn run(http: &Http, pod: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    let path = format!("{PODS}/{pod}/status");
    assert_eq!(http.merge(&path, &json!({"status": status})).await.0, 200);
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn unhealthy_pods_are_evicted_by_policy() {
    let server = server();
    let http = http(&server);
    assert_eq!(http.post(BUDGETS, &budget()).await.0, 201);
    let path = format!("{BUDGETS}/b");
    let numbers = |desired: u32, healthy: u32| {
        json!({"status": {"disruptionsAllowed": 0, "observedGeneration": 1,
            "desiredHealthy": desired, "currentHealthy": healthy}})
    };
    let eviction = json!({"metadata": {"name": "p"}});
    let evict = async || http.post(&format!("{PODS}/p/eviction"), &eviction).await.0;
    pod(&http, "p").await;
    run(&http, "p", false).await;
    // The budget lacks healthy Pods or desires none, so it also protects unhealthy ones.
    for (desired, healthy) in [(2, 1), (0, 0)] {
        http.merge(&format!("{path}/status"), &numbers(desired, healthy))
            .await;
        assert_eq!(evict().await, 429);
    }
    http.merge(&format!("{path}/status"), &numbers(1, 1)).await;
    assert_eq!(evict().await, 201);
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
    let (_, after) = http.get(&path).await;
    assert_eq!(
        after["status"].get("disruptedPods"),
        None,
        "it was not counted"
    );

    pod(&http, "p").await;
    run(&http, "p", false).await;
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    assert_eq!(http.merge(&path, &always).await.0, 200);
    http.merge(&format!("{path}/status"), &numbers(2, 1)).await;
    assert_eq!(evict().await, 201);
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn evicted_pod_gets_a_disruption_condition() {
    let server = server();
    let http = http(&server);
    pod(&http, "p").await;
    run(&http, "p", true).await;
    let mut watch = http.watch(&format!("{PODS}?watch=1")).await;
    assert_eq!(watch.take(1).await, ["ADDED p"]);
    let eviction = json!({"metadata": {"name": "p"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/eviction?dryRun=All"), &eviction)
            .await
            .0,
        201
    );
    assert_eq!(
        http.post(&format!("{PODS}/p/eviction"), &eviction).await.0,
        201
    );
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    let conditions = event["object"]["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget");
    let target = target.expect("the condition");
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (
            &json!("True"),
            &json!("EvictionByEvictionAPI"),
            &json!("Eviction API: evicting")
        )
    );
    assert_eq!(watch.take(1).await, ["DELETED p"]);
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn eviction_honours_the_budget() {
    let server = server();
    let http = http(&server);
    pod(&http, "p").await;
    run(&http, "p", true).await;
    let budgets = BUDGETS;
    http.post(budgets, &budget()).await;
    let eviction = json!({"metadata": {"name": "p"}});
    let (code, status) = http.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!((code, &status["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(status["details"]["causes"][0]["reason"], "DisruptionBudget");
    let budget_status = format!("{budgets}/b/status");
    let why = |status: &Value| status["details"]["causes"][0]["message"].clone();
    for (healthy, words) in [
        (1, "needs 1 healthy pods and has 1 currently"),
        (2, "does not allow evicting pods currently"),
    ] {
        let none = json!({"status": {"disruptionsAllowed": 0, "observedGeneration": 1,
            "desiredHealthy": 1, "currentHealthy": healthy}});
        http.merge(&budget_status, &none).await;
        let (code, status) = http.post(&format!("{PODS}/p/eviction"), &eviction).await;
        assert_eq!(code, 429);
        assert_eq!(why(&status), format!("The disruption budget b {words}"));
    }
    let failed = json!({"status": {"conditions": [{"type": "DisruptionAllowed",
        "status": "False", "reason": "SyncFailed", "message": "no scale",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    http.merge(&budget_status, &failed).await;
    let (_, status) = http.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(
        why(&status),
        "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"
    );
    let negative = json!({"status": {"disruptionsAllowed": -1}});
    http.merge(&budget_status, &negative).await;
    let (code, status) = http.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(
        (code, &status["message"]),
        (
            403,
            &json!(
                "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative"
            )
        )
    );
    let allow = json!({"status": {"disruptionsAllowed": 1, "conditions": null}});
    http.merge(&format!("{budgets}/b/status"), &allow).await;
    assert_eq!(
        http.post(&format!("{PODS}/p/eviction"), &eviction).await.0,
        201
    );
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
    let (_, budget) = http.get(&format!("{budgets}/b")).await;
    let status = &budget["status"];
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(
        status["disruptedPods"],
        json!({"p": "2026-01-01T00:00:00Z"})
    );
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
}

/// Proves reviews/answered.
#[tokio::test]
async fn reviews_are_answered_and_not_stored() {
    let server = server();
    let http = http(&server);
    let before = server.resource_version();
    let reviews = "/apis/authorization.k8s.io/v1";
    let (code, review) = http
        .post(
            &format!("{reviews}/selfsubjectaccessreviews"),
            &json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        )
        .await;
    assert_eq!((code, &review["status"]["allowed"]), (201, &json!(true)));
    let (_, who) = http
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &json!({}),
        )
        .await;
    assert_eq!(who["status"]["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(server.resource_version(), before);
}

/// Proves reviews/answered.
#[tokio::test]
async fn access_reviews_are_validated() {
    let server = server();
    let http = http(&server);
    let all = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let path = json!({"verb": "get", "path": "/healthz"});
    let elsewhere = json!({"verb": "get", "resource": "pods", "namespace": "other"});
    for (at, spec, fields) in [
        (
            all,
            json!({"user": "a", "resourceAttributes": pods}),
            &[][..],
        ),
        (
            all,
            json!({"groups": ["g"], "nonResourceAttributes": path}),
            &[],
        ),
        (all, json!({"resourceAttributes": pods}), &["spec.user"]),
        (
            all,
            json!({"user": "a", "resourceAttributes": pods, "nonResourceAttributes": path}),
            &["spec.nonResourceAttributes"],
        ),
        (all, json!({"user": "a"}), &["spec.resourceAttributes"]),
        (local, json!({"user": "a", "resourceAttributes": pods}), &[]),
        (
            local,
            json!({"user": "a", "resourceAttributes": elsewhere}),
            &["spec.resourceAttributes.namespace"],
        ),
        (
            local,
            json!({"user": "a", "nonResourceAttributes": path}),
            &["spec.nonResourceAttributes"],
        ),
    ] {
        let (code, answer) = http.post(at, &json!({"spec": spec})).await;
        let causes = answer["details"]["causes"].as_array();
        let found: Vec<_> = causes.into_iter().flatten().map(|c| &c["field"]).collect();
        assert_eq!(found, fields, "{spec}");
        assert_eq!(code, if fields.is_empty() { 201 } else { 422 }, "{spec}");
    }
}

/// Proves objects/events-both-groups.
#[tokio::test]
async fn event_with_event_time_needs_reporter_and_action() {
    let server = server();
    let http = http(&server);
    let system = "/api/v1/namespaces/kube-system/events";
    let old = json!({"metadata": {"name": "old"}, "involvedObject": {"name": "n"}, "reason": "r"});
    let (code, status) = http.post(system, &old).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("involvedObject.namespace"))
    );
    let mut new = json!({"metadata": {"name": "new"}, "involvedObject": {"name": "n"},
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    let (code, status) = http.post(system, &new).await;
    let causes = status["details"]["causes"].as_array().unwrap();
    let required = causes
        .iter()
        .filter(|c| c["reason"] == "FieldValueRequired");
    let required: Vec<_> = required.map(|cause| &cause["field"]).collect();
    assert_eq!(code, 422);
    assert_eq!(
        required,
        [
            "reportingComponent",
            "reportingInstance",
            "action",
            "reason"
        ]
    );
    for (field, value) in [
        ("reportingComponent", "example.com/c"),
        ("reportingInstance", "c-1"),
        ("action", "Binding"),
        ("reason", "Scheduled"),
    ] {
        new[field] = value.into();
    }
    assert_eq!(http.post(system, &new).await.0, 201);
    // The reporter chooses the namespace of such an event.
    new["metadata"]["name"] = "far".into();
    new["involvedObject"]["namespace"] = "other".into();
    assert_eq!(http.post(system, &new).await.0, 201);
    new["metadata"]["name"] = "long".into();
    new["action"] = "a".repeat(129).into();
    let (code, status) = http.post(system, &new).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("action"))
    );
}

/// Proves errors/status-reasons.
#[tokio::test]
async fn logs_without_a_source_return_501() {
    let server = server();
    let http = http(&server);
    pod(&http, "p").await;
    let (code, status) = http.get(&format!("{PODS}/p/log")).await;
    assert_eq!((code, &status["kind"]), (501, &json!("Status")));
}

/// Proves delete/pod-grace.
#[tokio::test(start_paused = true)]
async fn scheduled_pod_gets_its_grace_period() {
    use pintle_apiserver::{ApiServer, PodDeletion};
    for (how, left) in [
        (PodDeletion::AtOnce, false),
        (PodDeletion::AfterGrace, true),
        (PodDeletion::Leave, true),
    ] {
        let server = ApiServer::builder().pod_deletion(how).build();
        let http = http(&server);
        pod(&http, "p").await;
        let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
        http.post(&format!("{PODS}/p/binding"), &binding).await;
        assert_eq!(http.delete(&format!("{PODS}/p")).await.0, 200);
        let (code, marked) = http.get(&format!("{PODS}/p")).await;
        assert_eq!(code, if left { 200 } else { 404 });
        if left {
            assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
            tokio::time::sleep(std::time::Duration::from_secs(31)).await;
            let code = http.get(&format!("{PODS}/p")).await.0;
            assert_eq!(code, if how == PodDeletion::Leave { 200 } else { 404 });
        }
        http.delete_with(&format!("{PODS}/p"), &json!({"gracePeriodSeconds": 0}))
            .await;
        assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
    }
}

/// Proves objects/events-both-groups.
#[tokio::test]
async fn events_expire_an_hour_after_the_last_write() {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };
    let hours = Arc::new(AtomicI64::new(0));
    let clock = {
        let hours = Arc::clone(&hours);
        let seconds = move || hours.load(Ordering::Relaxed) * 1800 + 1_767_225_600;
        pintle_apiserver::Clock::from_fn(move || jiff::Timestamp::from_second(seconds()).unwrap())
    };
    let server = pintle_apiserver::ApiServer::builder().clock(clock).build();
    let http = http(&server);
    let events = "/api/v1/namespaces/default/events";
    for name in ["old", "kept"] {
        http.post(
            events,
            &json!({"metadata": {"name": name}, "involvedObject": {}, "reason": "r"}),
        )
        .await;
    }
    hours.store(1, Ordering::Relaxed);
    http.merge(&format!("{events}/kept"), &json!({"count": 2}))
        .await;
    hours.store(2, Ordering::Relaxed);
    let (_, list) = http.get(events).await;
    let names: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["metadata"]["name"])
        .collect();
    assert_eq!(names, ["kept"]);
}

/// Proves objects/autoscaler-versions.
#[tokio::test]
async fn autoscaler_converts_between_versions() {
    let server = server();
    let http = http(&server);
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let memory = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "50Mi"}}});
    let cpu = |wanted: u32| {
        json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": wanted}}})
    };
    let newer = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": target, "metrics": [memory, cpu(60)]}});
    assert_eq!(http.post(&path("v2"), &newer).await.0, 201);

    let one = format!("{}/h", path("v1"));
    let (code, old) = http.get(&one).await;
    assert_eq!(code, 200);
    assert_eq!(old["apiVersion"], "autoscaling/v1");
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(old["spec"].get("metrics"), None);
    let kept = &old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"];
    assert_eq!(
        kept,
        "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"50Mi\"}}]"
    );

    // Writing the v1 form back keeps the fields of v2.
    let mut changed = old.clone();
    changed["spec"]["targetCPUUtilizationPercentage"] = 70.into();
    assert_eq!(http.put(&one, &changed).await.0, 200);
    let (_, new) = http.get(&format!("{}/h", path("v2"))).await;
    assert_eq!(new["spec"]["metrics"], json!([memory, cpu(70)]));
    assert_eq!(new["metadata"].get("annotations"), None);
    let (_, list) = http.get(&path("v1")).await;
    assert_eq!(
        list["items"][0]["spec"]["targetCPUUtilizationPercentage"],
        70
    );
    let behavior = "{\"ScaleDown\":{\"SelectPolicy\":\"Min\",\"Policies\":\
        [{\"Type\":\"Pods\",\"Value\":1,\"PeriodSeconds\":15}]}}";
    let change = json!({"metadata": {"annotations":
        {"autoscaling.alpha.kubernetes.io/behavior": behavior}}});
    assert_eq!(http.merge(&one, &change).await.0, 200);
    let (_, new) = http.get(&format!("{}/h", path("v2"))).await;
    assert_eq!(new["spec"]["behavior"]["scaleDown"]["selectPolicy"], "Min");
    assert_eq!(
        new["spec"]["behavior"]["scaleUp"]["selectPolicy"], "Max",
        "omitted fields have their defaults"
    );
    let (_, group) = http.get("/apis/autoscaling").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    assert_eq!(group["versions"][1]["version"], "v1");
    assert_eq!(http.delete(&one).await.0, 200);
    assert_eq!(http.get(&format!("{}/h", path("v2"))).await.0, 404);
}

/// Proves objects/events-both-groups.
#[tokio::test]
async fn events_k8s_io_is_strict() {
    let server = server();
    let http = http(&server);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "i", "action": "Act",
        "reason": "Because", "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}});
    for (field, value, place) in [
        ("type", json!("Loud"), "type"),
        ("deprecatedCount", json!(2), "count"),
        ("deprecatedSource", json!({"component": "c"}), "source"),
        ("eventTime", json!(null), "eventTime"),
        (
            "series",
            json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}),
            "series.count",
        ),
    ] {
        let mut wrong = event.clone();
        wrong[field] = value;
        let (code, status) = http.post(events, &wrong).await;
        assert_eq!(code, 422, "{field}");
        assert_eq!(status["details"]["causes"][0]["field"], place, "{status}");
    }
    assert_eq!(http.post(events, &event).await.0, 201);
    let one = format!("{events}/e");
    assert_eq!(http.merge(&one, &json!({"note": "other"})).await.0, 422);
    assert_eq!(http.merge(&one, &json!({"reason": "Other"})).await.0, 422);
    let again = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let (code, changed) = http.merge(&one, &again).await;
    assert_eq!(code, 200, "{changed}");
    // The core group allows changing the message.
    let core = "/api/v1/namespaces/default/events/e";
    assert_eq!(http.merge(core, &json!({"message": "other"})).await.0, 200);
}

/// Proves wire/formats.
#[tokio::test]
async fn head_response_has_no_body() {
    let server = server();
    let http = http(&server);
    let ask = async |method: &str| {
        let request = http::Request::builder().method(method);
        let request = request.uri("/api/v1/nodes/n/proxy/x");
        let response = http.send(request.body(Full::default()).unwrap()).await;
        let (head, body) = response.into_parts();
        (head, body.collect().await.unwrap().to_bytes())
    };
    let (get, whole) = ask("GET").await;
    let (head, none) = ask("HEAD").await;
    assert_eq!((head.status, none.len()), (get.status, 0));
    let length = head.headers["content-length"].to_str().unwrap();
    assert_eq!(length, whole.len().to_string());
}
