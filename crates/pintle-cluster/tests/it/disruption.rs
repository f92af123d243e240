//! Disruption budgets and evictions.

use std::time::Duration;

use crate::support::{Kubectl, gateway::Gateway, start, virtual_cluster, virtual_server, wait_for};
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Node, Pod},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, EvictParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use pintle_cluster::Loops;
use serde_json::{Value, json};

fn budget(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    json!({ "metadata": { "name": "web" }, "spec": spec })
}

async fn status_with(kubectl: &Kubectl, allowed: i32, expected: i32) -> PodDisruptionBudgetStatus {
    wait_for(&format!("{allowed} of {expected}"), async || {
        let budget = kubectl.get::<PodDisruptionBudget>("web").await;
        let status = budget.status?;
        let is_current = status.observed_generation == budget.metadata.generation;
        let counts = (status.disruptions_allowed, status.expected_pods);
        let counts = counts == (Some(allowed), Some(expected));
        (is_current && counts).then_some(status)
    })
    .await
}

async fn evict(kubectl: &Kubectl, pod: &str) -> Result<(), kube::core::Status> {
    let evicted = kubectl
        .api::<Pod>()
        .evict(pod, &EvictParams::default())
        .await;
    evicted.map(drop).map_err(|error| match error {
        kube::Error::Api(status) => *status,
        error => panic!("{error}"),
    })
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn status_follows_pods_and_spec() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "maxUnavailable": "25%" });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    let empty = status_with(&kubectl, 0, 0).await;
    assert_eq!(empty.conditions.unwrap()[0].reason, "InsufficientPods");

    kubectl.create_deployment("web", "nginx:1", 4).await;
    kubectl.rollout("web").await;
    let full = status_with(&kubectl, 1, 4).await;
    assert_eq!(
        (full.current_healthy, full.desired_healthy),
        (Some(4), Some(3))
    );
    let condition = &full.conditions.unwrap()[0];
    assert_eq!(
        (
            condition.type_.as_str(),
            condition.status.as_str(),
            condition.reason.as_str()
        ),
        ("DisruptionAllowed", "True", "SufficientPods")
    );
    kubectl.scale("web", 8).await;
    status_with(&kubectl, 2, 8).await;
    let patch = json!({ "spec": { "maxUnavailable": null, "minAvailable": 3 } });
    kubectl.patch::<PodDisruptionBudget>("web", patch).await;
    status_with(&kubectl, 5, 8).await;
    cluster.stop().await;
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn evictions_are_rejected_once_the_budget_is_used_up() {
    let (cluster, kubectl) =
        start(virtual_cluster().pod_ready_after(Duration::from_secs(20))).await;
    kubectl.create_deployment("web", "nginx:1", 3).await;
    kubectl.rollout("web").await;
    let spec = json!({ "minAvailable": 2 });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    status_with(&kubectl, 1, 3).await;
    let pods = kubectl.pods().await;
    evict(&kubectl, &pods[0].name_any()).await.unwrap();
    let rejected = evict(&kubectl, &pods[1].name_any()).await.unwrap_err();
    assert_eq!(rejected.code, 429);
    assert_eq!(
        rejected.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    // Once the replacement is ready, another eviction is allowed.
    status_with(&kubectl, 1, 3).await;
    evict(&kubectl, &pods[1].name_any()).await.unwrap();
    cluster.stop().await;
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn drain_with_a_budget_completes() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_deployment("web", "nginx:1", 6).await;
    kubectl.rollout("web").await;
    let spec = json!({ "maxUnavailable": 1 });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    status_with(&kubectl, 1, 6).await;

    let nodes = Api::<Node>::all(cluster.client());
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    nodes
        .patch("node-0", &PatchParams::default(), &cordon)
        .await
        .unwrap();
    let on_node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("node-0");
    let first: Vec<String> = kubectl
        .pods()
        .await
        .iter()
        .filter(|pod| on_node(pod))
        .map(ResourceExt::name_any)
        .collect();
    assert!(first.len() > 1, "several Pods to evict one by one");
    // Like kubectl drain: retry every five seconds.
    for pod in first {
        wait_for(&format!("the eviction of {pod}"), async || {
            match evict(&kubectl, &pod).await {
                Ok(()) => return Some(()),
                Err(status) => assert_eq!(status.code, 429, "{status:?}"),
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            None
        })
        .await;
        let budget = kubectl.get::<PodDisruptionBudget>("web").await;
        assert!(budget.status.unwrap().current_healthy >= Some(5));
    }
    kubectl.rollout("web").await;
    assert!(!kubectl.pods().await.iter().any(on_node));
    cluster.stop().await;
}

/// Creates a StatefulSet and returns a reference to it. Tests disable its loop and create its Pods.
async fn stateful_set(kubectl: &Kubectl, name: &str, replicas: i32) -> Value {
    let set: StatefulSet = kubectl
        .create(json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas, "serviceName": name,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
                },
            },
        }))
        .await;
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": set.uid(),
        "controller": true,
    })
}

async fn owned_pod(kubectl: &Kubectl, name: &str, owner: &Value) {
    kubectl
        .create::<Pod>(json!({
            "metadata": {
                "name": name, "labels": { "app": "web" }, "ownerReferences": [owner],
            },
            "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
        }))
        .await;
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn scale_of_other_owners_is_read_from_the_server() {
    let loops = Loops::ALL.without(Loops::STATEFUL_SET);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    let set = stateful_set(&kubectl, "web", 4).await;
    for number in 0..2 {
        owned_pod(&kubectl, &format!("web-{number}"), &set).await;
    }
    let spec = json!({ "minAvailable": "25%" });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    let status = status_with(&kubectl, 1, 4).await;
    assert_eq!(
        (status.current_healthy, status.desired_healthy),
        (Some(2), Some(1))
    );
    cluster.stop().await;
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn kinds_are_discovered_once_for_all_owners() {
    let server = virtual_server();
    let gateway = Gateway::new(&server, None);
    let (cluster, kubectl) = start(
        virtual_cluster()
            .server(server)
            .client(gateway.client())
            .loops(Loops::DISRUPTION),
    )
    .await;
    for name in ["a", "b", "c"] {
        let set = stateful_set(&kubectl, name, 2).await;
        owned_pod(&kubectl, &format!("{name}-0"), &set).await;
    }
    let spec = json!({ "maxUnavailable": 1 });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    status_with(&kubectl, 0, 6).await;
    for replicas in 3..8 {
        let scale = json!({ "spec": { "replicas": replicas } });
        kubectl.patch::<StatefulSet>("a", scale).await;
        let touch = json!({ "metadata": { "annotations": { "seen": replicas.to_string() } } });
        kubectl.patch::<Pod>("a-0", touch).await;
        status_with(&kubectl, 0, replicas + 4).await;
    }
    assert_eq!(gateway.traffic().lists["/apis"], 1);
    cluster.stop().await;
}

/// Proves disruption/status.
#[tokio::test(start_paused = true)]
async fn scale_lookup_follows_a_version_change() {
    let (cluster, kubectl) = start(virtual_cluster().loops(Loops::DISRUPTION)).await;
    let version = |name: &str, current: bool| {
        json!({
            "name": name, "served": current, "storage": current,
            "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } },
            "subresources": { "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            } },
        })
    };
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
    let definition = json!({
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "singular": "foo", "kind": "Foo" },
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let definition = serde_json::from_value(definition).unwrap();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let foos = |version: &str| {
        let kind = GroupVersionKind::gvk("example.com", version, "Foo");
        let kind = ApiResource::from_gvk_with_plural(&kind, "foos");
        Api::<DynamicObject>::namespaced_with(cluster.client(), "default", &kind)
    };
    let foo = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "metadata": { "name": "web" },
        "spec": { "replicas": 3 },
    });
    let foo = serde_json::from_value(foo).unwrap();
    let foo = foos("v1").create(&PostParams::default(), &foo).await;
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "name": "web",
        "uid": foo.unwrap().uid(), "controller": true,
    });
    owned_pod(&kubectl, "web-0", &owner).await;
    let spec = json!({ "maxUnavailable": 1 });
    kubectl.create::<PodDisruptionBudget>(budget(&spec)).await;
    status_with(&kubectl, 0, 3).await;

    let versions = json!([version("v1", false), version("v2", true)]);
    let patch = Patch::Merge(json!({ "spec": { "versions": versions } }));
    let params = PatchParams::default();
    definitions
        .patch("foos.example.com", &params, &patch)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    foos("v2").patch("web", &params, &patch).await.unwrap();
    let touch = json!({ "metadata": { "annotations": { "seen": "true" } } });
    kubectl.patch::<Pod>("web-0", touch).await;
    status_with(&kubectl, 0, 5).await;
    cluster.stop().await;
}
