//! Pods: changes of their CPU and memory through `pods/resize`.

use crate::support::*;
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";

/// Sends a strategic merge patch to the subresource.
async fn resize(http: &Http, name: &str, spec: Value) -> (u16, Value) {
    let patch = json!({"spec": spec}).to_string();
    let media = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/{name}/resize");
    http.raw("PATCH", &path, media, patch).await
}

async fn refused(http: &Http, name: &str, spec: Value) -> Vec<String> {
    let (code, status) = resize(http, name, spec).await;
    assert_eq!(code, 422, "{status}");
    causes(&status)
}

async fn resized(http: &Http, name: &str, spec: Value) -> Value {
    let (code, pod) = resize(http, name, spec).await;
    assert_eq!(code, 200, "{pod}");
    pod
}

fn container(name: &str, resources: &Value) -> Value {
    json!({"name": name, "image": "x", "resources": resources})
}

fn pod_of(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn requests(list: &Value) -> Value {
    json!({"requests": list})
}

/// Returns a patch of container `c`.
fn of_c(resources: &Value) -> Value {
    json!({"containers": [{"name": "c", "resources": resources}]})
}

/// Proves subresources/resize.
#[tokio::test]
async fn resize_changes_nothing_but_resources() {
    let server = server();
    let http = http(&server);
    let own = requests(&json!({"cpu": "1", "memory": "1Mi", "ephemeral-storage": "1Mi"}));
    let mut pod = pod_of("p", &json!({"containers": [container("c", &own)]}));
    pod["metadata"]["labels"] = json!({"a": "b"});
    created(&http, PODS, &pod).await;
    let patch = json!({
        "metadata": {"labels": {"a": "c"}, "annotations": {"a": "c"}},
        "spec": {
            "activeDeadlineSeconds": 5,
            "containers": [{"name": "c", "image": "y", "resources": {
                "requests": {"cpu": "2"}, "limits": {"memory": "4Mi"}}}],
        },
        "status": {"message": "m"},
    });
    let media = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/p/resize");
    let (code, pod) = http.raw("PATCH", &path, media, patch.to_string()).await;
    assert_eq!(code, 200, "{pod}");
    assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(pod["metadata"].get("annotations"), None);
    assert_eq!(pod["metadata"]["generation"], 2);
    assert_eq!(pod["spec"].get("activeDeadlineSeconds"), None);
    assert_eq!(pod["status"].get("message"), None);
    let found = &pod["spec"]["containers"][0];
    assert_eq!(found["image"], "x");
    assert_eq!(
        found["resources"],
        json!({"requests": {"cpu": "2", "memory": "1Mi", "ephemeral-storage": "1Mi"},
            "limits": {"memory": "4Mi"}})
    );
    let (_, stored) = http.get(&format!("{PODS}/p")).await;
    assert_eq!(stored["spec"], pod["spec"]);
}

/// Proves subresources/resize.
#[tokio::test]
async fn resize_that_changes_more_than_cpu_and_memory_is_rejected() {
    let server = server();
    let http = http(&server);
    let own = requests(&json!({"cpu": "1", "memory": "1Mi", "ephemeral-storage": "1Mi"}));
    let spec = json!({"containers": [container("c", &own), container("d", &json!({}))]});
    created(&http, PODS, &pod_of("p", &spec)).await;
    let only = "spec: Forbidden: only cpu and memory resources are mutable";
    let removed = "resources.requests: Forbidden: resource requests cannot be removed";
    let storage = requests(&json!({"ephemeral-storage": "2Mi"}));
    assert_eq!(refused(&http, "p", of_c(&storage)).await, [only]);
    let policy = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let policy = json!({"containers": [{"name": "c", "resizePolicy": policy}]});
    assert_eq!(refused(&http, "p", policy).await, [only]);
    let none = requests(&json!({"memory": null}));
    assert_eq!(
        refused(&http, "p", of_c(&none)).await,
        [format!("spec.containers[0].{removed}")]
    );
    let none = requests(&json!({"ephemeral-storage": null}));
    assert_eq!(
        refused(&http, "p", of_c(&none)).await,
        [format!("spec.containers[0].{removed}"), only.to_owned()]
    );
    let more = json!({"containers": [{"name": "e", "image": "x"}]});
    assert_eq!(
        refused(&http, "p", more).await,
        ["spec.containers: Forbidden: containers may not be added or removed on resize"]
    );
    let order = json!({"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
        "containers": [{"name": "c", "image": "y"}]});
    let why = "containers may not be renamed or reordered on resize";
    assert_eq!(
        refused(&http, "p", order).await,
        [
            format!("spec.containers[0].name: Forbidden: {why}"),
            format!("spec.containers[1].name: Forbidden: {why}")
        ]
    );
    let wrong = requests(&json!({"cpu": "-1"}));
    let wrong = refused(&http, "p", of_c(&wrong)).await;
    assert!(
        wrong[0].starts_with("spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\""),
        "{wrong:?}"
    );
    // Limits can be added, and then not removed.
    resized(&http, "p", of_c(&json!({"limits": {"cpu": "2"}}))).await;
    let none = json!({"limits": {"cpu": null}});
    assert_eq!(
        refused(&http, "p", of_c(&none)).await,
        ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]
    );
}

/// Proves subresources/resize.
#[tokio::test]
async fn resize_does_not_change_the_class_of_a_pod() {
    let server = server();
    let http = http(&server);
    let full = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Mi"}});
    for (name, resources) in [
        ("guaranteed", full("1")),
        ("burstable", requests(&json!({"cpu": "1"}))),
        ("besteffort", json!({})),
    ] {
        let spec = json!({"containers": [container("c", &resources)]});
        created(&http, PODS, &pod_of(name, &spec)).await;
    }
    let why = |class: &str| {
        format!(
            "spec: Invalid value: {class:?}: Pod QOS Class may not change as a result of resizing"
        )
    };
    let less = of_c(&requests(&json!({"cpu": "500m"})));
    assert_eq!(
        refused(&http, "guaranteed", less.clone()).await,
        [why("Guaranteed")]
    );
    assert_eq!(
        refused(&http, "burstable", of_c(&full("1"))).await,
        [why("Burstable")]
    );
    assert_eq!(
        refused(&http, "besteffort", less.clone()).await,
        [why("BestEffort")]
    );
    resized(&http, "burstable", less).await;
    let more = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}});
    let pod = resized(&http, "guaranteed", of_c(&more)).await;
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
}

/// Proves subresources/resize.
#[tokio::test]
async fn init_containers_are_resized_unless_their_policy_restarts_them() {
    let server = server();
    let http = http(&server);
    let own = requests(&json!({"cpu": "1", "ephemeral-storage": "1Mi"}));
    let restarts = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let mut sidecar = container("sidecar", &own);
    sidecar["restartPolicy"] = "Always".into();
    sidecar["resizePolicy"] = restarts.clone();
    // An older server may have stored one: 1.36 no longer accepts it in a new Pod.
    let mut restarted = container("restarted", &own);
    restarted["resizePolicy"] = restarts;
    let spec = json!({"containers": [container("c", &own)],
        "initContainers": [container("plain", &own), sidecar, restarted]});
    created(&http, PODS, &pod_of("p", &spec)).await;
    let of = |name: &str, resources: &Value| json!({"initContainers": [{"name": name, "resources": resources}]});
    let more = requests(&json!({"cpu": "2"}));
    resized(&http, "p", of("plain", &more)).await;
    resized(&http, "p", of("sidecar", &more)).await;
    assert_eq!(
        refused(&http, "p", of("restarted", &more)).await,
        [
            "spec.initContainers[2]: Forbidden: non-sidecar init containers with a resize policy \
             of RestartContainer cannot be resized"
        ]
    );
    let storage = requests(&json!({"ephemeral-storage": "2Mi"}));
    assert_eq!(
        refused(&http, "p", of("sidecar", &storage)).await,
        [
            "spec.initContainers[1]: Forbidden: only cpu and memory resources for init or sidecar \
             containers are mutable"
        ]
    );
    assert_eq!(
        refused(&http, "p", of("plain", &requests(&json!({"cpu": null})))).await,
        [
            "spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be \
             removed"
        ]
    );
}

/// Proves subresources/resize.
#[tokio::test]
async fn resources_of_the_pod_are_resized_and_not_removed() {
    let server = server();
    let http = http(&server);
    let spec = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "containers": [container("c", &json!({}))]});
    created(&http, PODS, &pod_of("p", &spec)).await;
    let pod = resized(&http, "p", json!({"resources": {"limits": {"cpu": "3"}}})).await;
    assert_eq!(pod["spec"]["resources"]["limits"]["cpu"], "3");
    let none = json!({"resources": {"limits": {"cpu": null}}});
    assert_eq!(
        refused(&http, "p", none).await,
        ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"]
    );
    let all = refused(&http, "p", json!({"resources": null})).await;
    assert_eq!(
        all,
        [
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of \
             resizing",
            "spec.resources: Forbidden: pod-level resources cannot be removed"
        ]
    );
    let pages = json!({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}});
    assert_eq!(
        refused(&http, "p", pages).await,
        ["spec: Forbidden: only cpu and memory resources are mutable at pod-level"]
    );
}

/// Proves subresources/resize.
#[tokio::test]
async fn pods_that_cannot_be_resized_are_rejected() {
    let server = server();
    let http = http(&server);
    let containers = json!([container("c", &requests(&json!({"cpu": "1"})))]);
    let mut mirror = pod_of("static", &json!({"containers": containers.clone()}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["spec"]["nodeName"] = "n".into();
    created(&http, PODS, &mirror).await;
    let spec = json!({"os": {"name": "windows"}, "containers": containers.clone()});
    created(&http, PODS, &pod_of("windows", &spec)).await;
    let more = of_c(&requests(&json!({"cpu": "2"})));
    for name in ["static", "windows"] {
        assert_eq!(
            refused(&http, name, more.clone()).await,
            [format!("[]: Forbidden: {name} pods cannot be resized")]
        );
    }
    created(
        &http,
        PODS,
        &pod_of("old", &json!({"containers": containers})),
    )
    .await;
    let mut running = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c",
        "image": "x", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {}}}]}});
    let path = format!("{PODS}/old/status");
    assert_eq!(http.merge(&path, &running).await.0, 200);
    assert_eq!(
        refused(&http, "old", more.clone()).await,
        ["spec: Forbidden: Pod running on node without support for resize"]
    );
    running["status"]["containerStatuses"][0]["resources"] = requests(&json!({"cpu": "1"}));
    running["status"]["nodeAllocatableResourceClaimStatuses"] =
        json!([{"resourceClaimName": "r", "containers": ["c"], "resources": {"cpu": "1"}}]);
    assert_eq!(http.merge(&path, &running).await.0, 200);
    assert_eq!(
        refused(&http, "old", more.clone()).await,
        ["spec: Forbidden: pods with node allocatable resource claims cannot be resized"]
    );
    running["status"]["nodeAllocatableResourceClaimStatuses"] = Value::Null;
    assert_eq!(http.merge(&path, &running).await.0, 200);
    resized(&http, "old", more).await;
}

/// Proves objects/admission.
#[tokio::test]
async fn resized_pod_must_fit_its_node() {
    let server = server();
    let http = http(&server);
    let node = |name: &str, os: &str| {
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
            "status": {"allocatable": {"cpu": "2", "memory": "2Mi"}}})
    };
    for (name, os) in [("n", "linux"), ("w", "windows")] {
        created(&http, NODES, &node(name, os)).await;
    }
    for name in ["n", "w", "missing"] {
        let spec = json!({"nodeName": name, "containers": [
            container("c", &requests(&json!({"cpu": "1"}))), container("d", &json!({}))]});
        created(&http, PODS, &pod_of(name, &spec)).await;
    }
    let of = |cpu: &str, memory: &str| of_c(&requests(&json!({"cpu": cpu, "memory": memory})));
    for (name, patch, reason, why) in [
        (
            "n",
            of("2001m", "1Mi"),
            Some("NodeCapacity"),
            "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: \
             2000",
        ),
        (
            "n",
            of("3", "3Mi"),
            Some("NodeCapacity"),
            "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: \
             2000; memory, requested: 3145728, allocatable: 2097152",
        ),
        (
            "w",
            of("2", "1Mi"),
            Some("UnsupportedPlatform"),
            "pod resize is only supported on linux nodes, node \"w\" is \"windows\"",
        ),
        (
            "missing",
            of("2", "1Mi"),
            None,
            "node \"missing\" not found",
        ),
    ] {
        let (code, status) = resize(&http, name, patch).await;
        assert_eq!(code, 403, "{status}");
        let expected = format!("pods {name:?} is forbidden: {why}");
        assert_eq!(status["message"], expected.as_str());
        let expected = reason.map_or(Value::Null, |reason| json!([{"reason": reason}]));
        assert_eq!(status["details"]["causes"], expected);
    }
    resized(&http, "n", of("2", "2Mi")).await;
    // A request that changes nothing is not compared with the node.
    resized(&http, "w", of_c(&json!({}))).await;
}
