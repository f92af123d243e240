//! Garbage collection, adoption and deletion of namespaces.

use std::time::Duration;

use crate::support::{
    Kubectl, gateway::Gateway, start, until_gone, virtual_cluster, virtual_server, wait_for,
};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

fn map(name: &str, owners: &[Value]) -> Value {
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

fn owner(map: &ConfigMap) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": map.name_any(), "uid": map.uid(),
        "blockOwnerDeletion": true,
    })
}

/// Returns the names of all `ConfigMap`s except the root CA.
async fn names(kubectl: &Kubectl) -> Vec<String> {
    let maps = kubectl.list::<ConfigMap>().await;
    maps.iter()
        .map(ResourceExt::name_any)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

/// Waits until exactly these `ConfigMap`s remain.
async fn until_left(kubectl: &Kubectl, left: &[&str]) {
    wait_for(&format!("{left:?} to remain"), async || {
        (names(kubectl).await == left).then_some(())
    })
    .await;
}

/// Proves gc/collects.
#[tokio::test(start_paused = true)]
async fn object_with_a_dangling_owner_is_deleted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let owner = kubectl.create::<ConfigMap>(map("owner", &[])).await;
    let mut stale = self::owner(&owner);
    stale["uid"] = json!("11111111-2222-3333-4444-555555555555");
    kubectl
        .create::<ConfigMap>(map("child", &[self::owner(&owner)]))
        .await;
    kubectl.create::<ConfigMap>(map("stale", &[stale])).await;
    until_left(&kubectl, &["child", "owner"]).await;
    cluster.stop().await;
}

/// Creates a CRD in the group example.com; the first version is the storage version.
async fn define(kubectl: &Kubectl, plural: &str, kind: &str, versions: &[&str]) {
    let served = |(index, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": index == 0,
            "schema": { "openAPIV3Schema": { "type": "object" } },
        })
    };
    let definition = json!({
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com",
            "names": { "plural": plural, "kind": kind },
            "scope": "Namespaced",
            "versions": versions.iter().enumerate().map(served).collect::<Vec<_>>(),
        },
    });
    Api::<CustomResourceDefinition>::all(kubectl.client.clone())
        .create(
            &PostParams::default(),
            &serde_json::from_value(definition).unwrap(),
        )
        .await
        .unwrap();
}

fn custom(kubectl: &Kubectl, plural: &str, kind: &str, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "example.com".into(),
        version: version.into(),
        api_version: format!("example.com/{version}"),
        kind: kind.into(),
        plural: plural.into(),
    };
    Api::namespaced_with(kubectl.client.clone(), &kubectl.namespace, &resource)
}

async fn create(
    api: &Api<DynamicObject>,
    version: &str,
    kind: &str,
    object: Value,
) -> DynamicObject {
    let mut object = object;
    object["apiVersion"] = json!(format!("example.com/{version}"));
    object["kind"] = json!(kind);
    let object = serde_json::from_value(object).unwrap();
    wait_for("the kind to be served", async || {
        api.create(&PostParams::default(), &object).await.ok()
    })
    .await
}

/// Proves gc/collects.
#[tokio::test(start_paused = true)]
async fn kind_without_the_preferred_version_is_collected() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    define(&kubectl, "foos", "Foo", &["v1"]).await;
    define(&kubectl, "bars", "Bar", &["v1beta1"]).await;
    let bars = custom(&kubectl, "bars", "Bar", "v1beta1");
    let absent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent",
    });
    create(&bars, "v1beta1", "Bar", map("bar", &[absent])).await;
    until_gone(&bars, "bar").await;
    cluster.stop().await;
}

/// Proves gc/collects, gc/propagation.
#[tokio::test(start_paused = true)]
async fn owner_in_another_version_orphans_its_dependent() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    define(&kubectl, "foos", "Foo", &["v1", "v1beta1"]).await;
    let foos = custom(&kubectl, "foos", "Foo", "v1");
    let foo = create(&foos, "v1", "Foo", map("foo", &[])).await;
    let owner = json!({
        "apiVersion": "example.com/v1beta1", "kind": "Foo", "name": "foo", "uid": foo.uid(),
    });
    kubectl.create::<ConfigMap>(map("child", &[owner])).await;
    sleep(Duration::from_secs(5)).await;
    foos.delete("foo", &DeleteParams::orphan()).await.unwrap();
    until_gone(&foos, "foo").await;
    sleep(Duration::from_secs(60)).await;
    let child = kubectl.get::<ConfigMap>("child").await;
    assert!(child.owner_references().is_empty());
    cluster.stop().await;
}

/// Proves gc/collects.
#[tokio::test(start_paused = true)]
async fn deleting_a_crd_collects_dependents_of_its_objects() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    define(&kubectl, "foos", "Foo", &["v1"]).await;
    let foos = custom(&kubectl, "foos", "Foo", "v1");
    let foo = create(&foos, "v1", "Foo", map("foo", &[])).await;
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": foo.uid(),
    });
    kubectl.create::<ConfigMap>(map("child", &[owner])).await;
    sleep(Duration::from_secs(5)).await;
    Api::<CustomResourceDefinition>::all(cluster.client())
        .delete("foos.example.com", &DeleteParams::default())
        .await
        .unwrap();
    until_left(&kubectl, &[]).await;
    cluster.stop().await;
}

/// Proves gc/collects, namespaces/missing-or-terminating.
#[tokio::test(start_paused = true)]
async fn deletion_waits_for_a_broken_conversion_webhook() {
    let cluster = virtual_cluster().start().await;
    let namespaces = Api::<Namespace>::all(cluster.client());
    create_namespace(&namespaces, "team").await;
    let kubectl = Kubectl::new(cluster.client()).in_namespace("team");
    // The group prefers v2, which requires a conversion webhook, so the namespace is emptied in v2.
    define(&kubectl, "foos", "Foo", &["v1", "v2"]).await;
    let webhook = json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": { "url": "https://example.com/" },
    } } } });
    Api::<CustomResourceDefinition>::all(cluster.client())
        .patch(
            "foos.example.com",
            &PatchParams::default(),
            &Patch::Merge(webhook),
        )
        .await
        .unwrap();
    let server = cluster.server();
    let broken = server.register_converter("foos.example.com", |_| async {
        Err("cannot convert".to_owned())
    });
    let foos = custom(&kubectl, "foos", "Foo", "v1");
    let foo = create(&foos, "v1", "Foo", map("foo", &[])).await;
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": foo.uid(),
    });
    kubectl.create::<ConfigMap>(map("child", &[owner])).await;
    create(&foos, "v1", "Foo", map("other", &[])).await;
    foos.delete("foo", &DeleteParams::default()).await.unwrap();
    until_left(&kubectl, &[]).await;
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_mins(2)).await;
    assert!(namespaces.get_opt("team").await.unwrap().is_some());

    drop(broken);
    let _repaired = server.register_converter("foos.example.com", |request| async move {
        let version = Value::from(request.desired_api_version());
        let mut objects = request.into_objects();
        for object in &mut objects {
            object["apiVersion"] = version.clone();
        }
        Ok(objects)
    });
    until_gone(&namespaces, "team").await;
    cluster.stop().await;
}

/// Proves gc/propagation.
#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_deployment_last() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    kubectl
        .delete::<Deployment>("web", &DeleteParams::foreground())
        .await;
    until_gone(&kubectl.api::<Deployment>(), "web").await;
    assert!(kubectl.list::<ReplicaSet>().await.is_empty());
    assert!(kubectl.list::<Pod>().await.is_empty());
    cluster.stop().await;
}

/// Proves gc/propagation, workloads/adoption.
#[tokio::test(start_paused = true)]
async fn orphaned_set_is_adopted_by_the_next_deployment() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    let before: Vec<_> = kubectl.pods().await.iter().map(ResourceExt::uid).collect();
    kubectl
        .delete::<Deployment>("web", &DeleteParams::orphan())
        .await;
    until_gone(&kubectl.api::<Deployment>(), "web").await;
    let sets = kubectl.list::<ReplicaSet>().await;
    assert!(sets[0].owner_references().is_empty());

    let deployment = kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    let sets = kubectl.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 1);
    assert_eq!(
        Some(&sets[0].owner_references()[0].uid),
        deployment.uid().as_ref()
    );
    let after: Vec<_> = kubectl.pods().await.iter().map(ResourceExt::uid).collect();
    assert_eq!(before, after, "Pods are unchanged");
    cluster.stop().await;
}

/// Proves gc/cross-namespace.
#[tokio::test(start_paused = true)]
async fn owner_in_another_namespace_is_reported() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let elsewhere = kubectl.clone().in_namespace("kube-public");
    let owner = elsewhere.create::<ConfigMap>(map("owner", &[])).await;
    kubectl
        .create::<ConfigMap>(map("child", &[self::owner(&owner)]))
        .await;
    until_left(&kubectl, &[]).await;
    wait_for("the event", async || {
        let events = kubectl.list::<Event>().await;
        let matches = |event: &Event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace");
        events.iter().any(matches).then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves workloads/adoption.
#[tokio::test(start_paused = true)]
async fn two_sets_do_not_fight_over_a_pod() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let set = |name: &str| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "app": "shared" } },
                "template": {
                    "metadata": { "labels": { "app": "shared" } },
                    "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
                },
            },
        })
    };
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": "orphan", "labels": { "app": "shared" } },
            "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
        }))
        .await;
    kubectl.create::<ReplicaSet>(set("left")).await;
    kubectl.create::<ReplicaSet>(set("right")).await;
    wait_for("one Pod each", async || {
        let sets = kubectl.list::<ReplicaSet>().await;
        let ready = |set: &ReplicaSet| set.status.as_ref()?.ready_replicas;
        (sets.iter().filter_map(ready).sum::<i32>() == 2).then_some(())
    })
    .await;
    let pods = kubectl.pods().await;
    assert_eq!(pods.len(), 2, "one adopted, one created");
    let owners: std::collections::BTreeSet<_> = pods
        .iter()
        .map(|pod| pod.owner_references()[0].name.clone())
        .collect();
    assert_eq!(owners.len(), 2);
    cluster.stop().await;
}

/// Proves service-accounts/defaults.
#[tokio::test(start_paused = true)]
async fn default_account_and_root_ca_are_recreated() {
    let (cluster, kubectl) = start(virtual_cluster().root_ca("PEM")).await;
    let complete = async || {
        let account = kubectl
            .api::<ServiceAccount>()
            .get_opt("default")
            .await
            .unwrap();
        let map = kubectl
            .api::<ConfigMap>()
            .get_opt("kube-root-ca.crt")
            .await
            .unwrap();
        let pem = map.and_then(|map| map.data?.remove("ca.crt"));
        (account.is_some() && pem.as_deref() == Some("PEM")).then_some(())
    };
    wait_for("account and root CA", complete).await;
    kubectl
        .delete::<ServiceAccount>("default", &DeleteParams::default())
        .await;
    kubectl
        .delete::<ConfigMap>("kube-root-ca.crt", &DeleteParams::default())
        .await;
    wait_for("account and root CA again", complete).await;
    cluster.stop().await;
}

async fn create_namespace(namespaces: &Api<Namespace>, name: &str) {
    let namespace = json!({ "metadata": { "name": name } });
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// Proves namespaces/emptied.
#[tokio::test(start_paused = true)]
async fn namespace_can_be_deleted_during_a_rollout() {
    let server = virtual_server();
    let gateway = Gateway::new(&server, None);
    // Slow enough for the deletion to arrive between the batches of 1, 2, 4 and more Pods.
    gateway.delay_writes(Duration::from_millis(100));
    let cluster = virtual_cluster()
        .server(server)
        .client(gateway.client())
        .start()
        .await;
    let namespaces = Api::<Namespace>::all(cluster.client());
    create_namespace(&namespaces, "team").await;
    let kubectl = Kubectl::new(cluster.client()).in_namespace("team");
    kubectl.create_deployment("web", "nginx:1", 50).await;
    wait_for("some Pods", async || {
        (kubectl.list::<Pod>().await.len() > 2).then_some(())
    })
    .await;
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    let created = kubectl.list::<Pod>().await.len();
    assert!(created < 30, "all Pods were already created: {created}");
    gateway.reset();
    until_gone(&namespaces, "team").await;
    assert!(kubectl.list::<Pod>().await.is_empty());
    let creates = |writes: &[String]| {
        let pods = |write: &&String| write.starts_with("POST") && write.ends_with("team/pods");
        writes.iter().filter(pods).count()
    };
    let attempts = creates(&gateway.traffic().writes);
    assert!(attempts < 40, "{attempts} attempts to create Pods");
    gateway.reset();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(gateway.traffic().writes, Vec::<String>::new());
    cluster.stop().await;
}

/// Proves cluster/loops.
#[tokio::test(start_paused = true)]
async fn collector_that_fails_to_start_is_restarted() {
    let server = virtual_server();
    let gateway = Gateway::new(&server, None);
    gateway.fail_reads(Some("/apis"));
    let (cluster, kubectl) = start(virtual_cluster().server(server).client(gateway.client())).await;
    kubectl.create_deployment("web", "nginx:1", 2).await;
    kubectl.rollout("web").await;
    kubectl
        .delete::<Deployment>("web", &DeleteParams::background())
        .await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(kubectl.pods().await.len(), 2, "no collector is running");
    gateway.fail_reads(None);
    wait_for("the collector to restart", async || {
        kubectl.list::<Pod>().await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Proves gc/collects, namespaces/emptied.
#[tokio::test(start_paused = true)]
async fn kind_removed_after_discovery_does_not_stop_loops() {
    let server = virtual_server();
    let gateway = Gateway::new(&server, None);
    // As if a CRD were deleted after the loops had read the list of groups.
    let removed = "/apis/example.com/v1";
    gateway.hide(Some(removed));
    let (cluster, kubectl) = start(virtual_cluster().server(server).client(gateway.client())).await;
    define(&kubectl, "foos", "Foo", &["v1"]).await;
    wait_for("the collector to discover the kind", async || {
        gateway.traffic().lists.contains_key(removed).then_some(())
    })
    .await;
    gateway.reset();
    let absent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent",
    });
    kubectl.create::<ConfigMap>(map("child", &[absent])).await;
    until_left(&kubectl, &[]).await;
    let namespaces = Api::<Namespace>::all(cluster.client());
    create_namespace(&namespaces, "team").await;
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    until_gone(&namespaces, "team").await;
    let lists = gateway.traffic().lists;
    // One discovery per pass of the namespace loop, none by a restarted collector.
    let passes = lists.get("/apis").copied().unwrap_or_default();
    assert!(passes < 5, "a loop was restarted: {passes}");
    cluster.stop().await;
}

/// Proves namespaces/emptied.
#[tokio::test(start_paused = true)]
async fn terminating_namespace_reports_remaining_finalizers() {
    let cluster = virtual_cluster().start().await;
    let namespaces = Api::<Namespace>::all(cluster.client());
    create_namespace(&namespaces, "team").await;
    let kubectl = Kubectl::new(cluster.client()).in_namespace("team");
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/hold"] } });
    kubectl.create::<ConfigMap>(held).await;
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    wait_for("the condition", async || {
        let status = namespaces.get("team").await.unwrap().status?;
        let mut conditions = status.conditions?.into_iter();
        let held = conditions.find(|c| c.type_ == "NamespaceFinalizersRemaining")?;
        (held.status == "True" && held.message?.contains("example.com/hold")).then_some(())
    })
    .await;
    kubectl
        .patch::<ConfigMap>("held", json!({ "metadata": { "finalizers": null } }))
        .await;
    until_gone(&namespaces, "team").await;
    cluster.stop().await;
}
