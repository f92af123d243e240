//! Endpoints of Services: which Pods serve them.

use std::time::Duration;

use crate::support::{Kubectl, is_ready, start, until_gone, virtual_cluster, wait_for};
use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use pintle_cluster::Loops;
use serde_json::{Value, json};
use tokio::time::sleep;

fn service(spec: &Value) -> Value {
    let mut service = json!({
        "metadata": { "name": "web", "labels": { "team": "red" } },
        "spec": {
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

async fn slices(kubectl: &Kubectl, service: &str) -> Vec<EndpointSlice> {
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    kubectl
        .api::<EndpointSlice>()
        .list(&params)
        .await
        .unwrap()
        .items
}

/// Returns the addresses of the ready endpoints in all slices of a Service.
async fn ready(kubectl: &Kubectl, service: &str) -> Vec<String> {
    let slices = slices(kubectl, service).await;
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|it| it.conditions.as_ref().unwrap().ready == Some(true));
    let mut addresses: Vec<_> = ready.flat_map(|it| it.addresses.clone()).collect();
    addresses.sort_unstable();
    addresses
}

/// Returns the addresses of the ready Pods that are not being deleted.
async fn pod_addresses(kubectl: &Kubectl) -> Vec<String> {
    let pods = kubectl.pods().await.into_iter().filter(is_ready);
    let mut addresses: Vec<_> = pods.filter_map(|pod| pod.status?.pod_ip).collect();
    addresses.sort_unstable();
    addresses
}

/// Waits until exactly the ready Pods are endpoints.
async fn until_current(kubectl: &Kubectl, count: usize) {
    wait_for("endpoints", async || {
        let pods = pod_addresses(kubectl).await;
        (pods.len() == count && ready(kubectl, "web").await == pods).then_some(())
    })
    .await;
}

/// Proves endpoints/slices, endpoints/legacy.
#[tokio::test(start_paused = true)]
async fn endpoints_follow_a_rollout() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<Service>(service(&json!({}))).await;
    wait_for("an empty slice", async || {
        let slices = slices(&kubectl, "web").await;
        (slices.len() == 1 && slices[0].ports.iter().flatten().count() == 0).then_some(())
    })
    .await;
    kubectl.create_deployment("web", "nginx:1", 3).await;
    until_current(&kubectl, 3).await;
    kubectl.set_image("web", "nginx:2").await;
    kubectl.rollout("web").await;
    until_current(&kubectl, 3).await;
    kubectl.scale("web", 1).await;
    until_current(&kubectl, 1).await;

    let endpoints = kubectl.get::<Endpoints>("web").await;
    let subsets = endpoints.subsets.unwrap();
    let addresses: Vec<String> = subsets[0]
        .addresses
        .iter()
        .flatten()
        .map(|address| address.ip.clone())
        .collect();
    assert_eq!(addresses, pod_addresses(&kubectl).await);
    assert_eq!(slices(&kubectl, "web").await.len(), 1);

    kubectl
        .delete::<Service>("web", &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<Endpoints>(), "web").await;
    wait_for("no slices", async || {
        slices(&kubectl, "web").await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves endpoints/slices.
#[tokio::test(start_paused = true)]
async fn terminating_pod_serves_until_it_is_gone() {
    let slow = virtual_cluster().pod_stop_after(Duration::from_secs(20));
    let (cluster, kubectl) = start(slow).await;
    kubectl.create::<Service>(service(&json!({}))).await;
    kubectl.create_deployment("web", "nginx:1", 1).await;
    until_current(&kubectl, 1).await;
    kubectl.scale("web", 0).await;
    sleep(Duration::from_secs(5)).await;
    let slices = slices(&kubectl, "web").await;
    let endpoint = &slices[0].endpoints.as_ref().unwrap()[0];
    let conditions = endpoint.conditions.as_ref().unwrap();
    assert_eq!(
        (conditions.ready, conditions.serving, conditions.terminating),
        (Some(false), Some(true), Some(true))
    );
    // Endpoints do not list terminating Pods.
    assert_eq!(kubectl.get::<Endpoints>("web").await.subsets, None);
    until_current(&kubectl, 0).await;
    cluster.stop().await;
}

/// Proves endpoints/slices.
#[tokio::test(start_paused = true)]
async fn crashing_pods_leave_and_relabelled_pods_join() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<Service>(service(&json!({}))).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    until_current(&kubectl, 2).await;
    cluster.pods().matching("app=web").crash_loop().unwrap();
    wait_for("no endpoints", async || {
        ready(&kubectl, "web").await.is_empty().then_some(())
    })
    .await;
    cluster.pods().matching("app=web").run().unwrap();
    until_current(&kubectl, 2).await;
    let pod = kubectl.pods().await[0].metadata.name.clone().unwrap();
    let debug = json!({ "metadata": { "labels": { "app": "debug" } } });
    kubectl.patch::<Pod>(&pod, debug).await;
    wait_for("another Pod in its place", async || {
        let ready = ready(&kubectl, "web").await;
        let address = kubectl.get::<Pod>(&pod).await.status?.pod_ip?;
        (ready.len() == 2 && !ready.contains(&address)).then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves endpoints/mirrored.
#[tokio::test(start_paused = true)]
async fn endpoints_without_selector_are_mirrored() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    // Endpoints may be created before their Service.
    let subsets = json!([{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 5432 }] }]);
    let db = json!({ "metadata": { "name": "db" }, "subsets": subsets });
    kubectl.create::<Endpoints>(db).await;
    sleep(Duration::from_secs(5)).await;
    assert!(slices(&kubectl, "db").await.is_empty());
    let service = json!({ "metadata": { "name": "db" }, "spec": { "ports": [{ "port": 5432 }] } });
    kubectl.create::<Service>(service).await;
    wait_for("a mirrored slice", async || {
        (ready(&kubectl, "db").await == ["192.0.2.1"]).then_some(())
    })
    .await;
    let moved = json!({ "subsets": [{ "addresses": [{ "ip": "192.0.2.2" }] }] });
    kubectl.patch::<Endpoints>("db", moved).await;
    wait_for("the new address", async || {
        (ready(&kubectl, "db").await == ["192.0.2.2"]).then_some(())
    })
    .await;
    assert_eq!(slices(&kubectl, "db").await.len(), 1);
    kubectl
        .delete::<Service>("db", &DeleteParams::default())
        .await;
    wait_for("no slices", async || {
        slices(&kubectl, "db").await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves endpoints/slices, cluster/loops.
#[tokio::test(start_paused = true)]
async fn slices_are_repaired_only_while_the_loop_runs() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<Service>(service(&json!({}))).await;
    kubectl.create_deployment("web", "nginx:1", 1).await;
    until_current(&kubectl, 1).await;
    let name = slices(&kubectl, "web").await[0]
        .metadata
        .name
        .clone()
        .unwrap();
    kubectl
        .patch::<EndpointSlice>(&name, json!({ "endpoints": [] }))
        .await;
    until_current(&kubectl, 1).await;
    kubectl
        .delete::<EndpointSlice>(&name, &DeleteParams::default())
        .await;
    until_current(&kubectl, 1).await;
    cluster.stop().await;

    let loops = Loops::ALL.without(Loops::ENDPOINTS);
    let (cluster, kubectl) = start(virtual_cluster().loops(loops)).await;
    kubectl.create::<Service>(service(&json!({}))).await;
    sleep(Duration::from_mins(1)).await;
    assert!(slices(&kubectl, "web").await.is_empty());
    let api = Api::<Endpoints>::default_namespaced(cluster.client());
    assert!(api.get_opt("web").await.unwrap().is_none());
    cluster.stop().await;
}
