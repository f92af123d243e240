//! Quotas: the loop counts usage, admission enforces it, and deleted objects free their share.

use std::time::Duration;

use crate::support::{Kubectl, start, virtual_cluster, wait_for};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use pintle_apiserver::ConversionRequest;
use serde_json::{Value, json};

async fn quota(kubectl: &Kubectl, hard: &Value) {
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    kubectl.create::<ResourceQuota>(quota).await;
}

/// Waits until the quota shows this usage.
async fn used(kubectl: &Kubectl, expected: &Value) {
    wait_for(&format!("usage {expected}"), async || {
        let quota = kubectl.get::<ResourceQuota>("q").await;
        let used = quota.status.and_then(|status| status.used);
        (json!(used) == *expected).then_some(())
    })
    .await;
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

/// Proves quota/counted.
#[tokio::test(start_paused = true)]
async fn deleted_objects_free_their_quota() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let kubectl = kubectl.in_namespace("kube-node-lease");
    // kube-root-ca.crt counts as well.
    quota(&kubectl, &json!({ "configmaps": "2" })).await;
    used(&kubectl, &json!({ "configmaps": "1" })).await;
    let maps = kubectl.api::<ConfigMap>();
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let error = maps
        .create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("expected a status, got {error}")
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            403,
            "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        )
    );
    kubectl
        .delete::<ConfigMap>("a", &DeleteParams::default())
        .await;
    used(&kubectl, &json!({ "configmaps": "1" })).await;
    maps.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    cluster.stop().await;
}

/// Proves quota/counted.
#[tokio::test(start_paused = true)]
async fn charge_of_a_failed_create_is_corrected() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    quota(&kubectl, &json!({ "secrets": "5" })).await;
    used(&kubectl, &json!({ "secrets": "0" })).await;
    let secret = json!({ "metadata": { "name": "s" } });
    kubectl.create::<Secret>(secret.clone()).await;
    used(&kubectl, &json!({ "secrets": "1" })).await;
    let again = serde_json::from_value(secret).unwrap();
    let secrets = kubectl.api::<Secret>();
    secrets
        .create(&PostParams::default(), &again)
        .await
        .unwrap_err();
    tokio::time::sleep(Duration::from_secs(5)).await;
    used(&kubectl, &json!({ "secrets": "1" })).await;
    cluster.stop().await;
}

/// Proves quota/counted.
#[tokio::test(start_paused = true)]
async fn rollout_stops_at_the_quota_and_continues_when_it_is_raised() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let hard = json!({ "pods": "2", "count/deployments.apps": "1" });
    quota(&kubectl, &hard).await;
    used(
        &kubectl,
        &json!({ "pods": "0", "count/deployments.apps": "0" }),
    )
    .await;
    kubectl.create_deployment("web", "nginx", 3).await;
    used(
        &kubectl,
        &json!({ "pods": "2", "count/deployments.apps": "1" }),
    )
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(kubectl.list::<Pod>().await.len(), 2);
    kubectl
        .patch::<ResourceQuota>("q", json!({ "spec": { "hard": { "pods": "3" } } }))
        .await;
    used(
        &kubectl,
        &json!({ "pods": "3", "count/deployments.apps": "1" }),
    )
    .await;
    assert_eq!(kubectl.list::<Pod>().await.len(), 3);
    cluster.stop().await;
}

/// Proves quota/enforced.
#[tokio::test(start_paused = true)]
async fn charge_of_a_slow_create_is_not_reverted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let definition = json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "conversion": { "strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": "https://example.com" },
            }},
            "versions": [
                { "name": "v1", "served": true, "storage": true, "schema": schema },
                { "name": "v2", "served": true, "storage": false, "schema": schema },
            ],
        },
    });
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
    let definition = serde_json::from_value(definition).unwrap();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let convert = |request: ConversionRequest| async move {
        // Between the charge and the store, the loop has time to count.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let version = request.desired_api_version().to_owned();
        let mut objects = request.into_objects();
        for object in &mut objects {
            object["apiVersion"] = json!(version);
        }
        Ok(objects)
    };
    let server = cluster.server();
    let _converter = server.register_converter("widgets.example.com", convert);
    quota(&kubectl, &json!({ "count/widgets.example.com": "1" })).await;
    used(&kubectl, &json!({ "count/widgets.example.com": "0" })).await;

    let kind = GroupVersionKind::gvk("example.com", "v2", "Widget");
    let resource = ApiResource::from_gvk_with_plural(&kind, "widgets");
    let widgets = Api::<DynamicObject>::namespaced_with(cluster.client(), "default", &resource);
    let create = async |name: &str, after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        let widget = DynamicObject::new(name, &resource);
        widgets.create(&PostParams::default(), &widget).await
    };
    let (first, second) = futures::join!(create("a", 0), create("b", 3));
    first.unwrap();
    let refused = second.unwrap_err().to_string();
    assert!(refused.contains("exceeded quota: q"), "{refused}");
    cluster.stop().await;
}
