//! `ServiceCIDR`s and `IPAddress`es.

use std::time::Duration;

use crate::support::{start, until_gone, virtual_cluster, wait_for};
use k8s_openapi::api::{
    core::v1::Service,
    networking::v1::{IPAddress, ServiceCIDR},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

fn service(name: &str, address: Option<&str>) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "clusterIP": address, "ports": [{ "port": 80 }] },
    })
}

/// Proves services/addresses.
#[tokio::test(start_paused = true)]
async fn every_service_address_has_an_object() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let addresses = Api::<IPAddress>::all(cluster.client());
    let parent = async |address: &str| {
        let address = addresses.get_opt(address).await.unwrap()?;
        Some(address.spec.parent_ref.name)
    };
    let web = kubectl.create::<Service>(service("web", None)).await;
    let address = web.spec.unwrap().cluster_ip.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(parent(&address).await.as_deref(), Some("web"));
    assert_eq!(parent("10.96.0.1").await.as_deref(), Some("kubernetes"));

    addresses
        .delete(&address, &DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(parent(&address).await.as_deref(), Some("web"), "restored");
    kubectl
        .delete::<Service>("web", &DeleteParams::default())
        .await;
    until_gone(&addresses, &address).await;
    cluster.stop().await;
}

fn ready(range: &ServiceCIDR) -> Option<String> {
    let conditions = range.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready")?;
    Some(ready.status.clone())
}

/// Proves services/ranges.
#[tokio::test(start_paused = true)]
async fn service_gets_an_address_of_a_new_range() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let ranges = Api::<ServiceCIDR>::all(cluster.client());
    let refused = kubectl.api::<Service>();
    let wanted = serde_json::from_value(service("web", Some("203.0.113.10"))).unwrap();
    let refused = refused.create(&PostParams::default(), &wanted).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("does not match the current range")
    );

    let range = json!({ "metadata": { "name": "test" }, "spec": { "cidrs": ["203.0.113.0/24"] } });
    let range = serde_json::from_value(range).unwrap();
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let until = async |status: &str| {
        wait_for("the condition", async || {
            let range = ranges.get("test").await.unwrap();
            (ready(&range)? == status).then_some(())
        })
        .await;
    };
    until("True").await;
    kubectl
        .create::<Service>(service("web", Some("203.0.113.10")))
        .await;

    ranges
        .delete("test", &DeleteParams::default())
        .await
        .unwrap();
    until("False").await;
    sleep(Duration::from_mins(5)).await;
    assert!(ranges.get_opt("test").await.unwrap().is_some(), "in use");
    kubectl
        .delete::<Service>("web", &DeleteParams::default())
        .await;
    until_gone(&ranges, "test").await;
    let default = ranges.get("kubernetes").await.unwrap();
    assert_eq!(ready(&default).as_deref(), Some("True"));
    cluster.stop().await;
}
