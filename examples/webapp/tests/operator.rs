//! Tests the operator on an in-process cluster, under virtual time.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{fmt::Debug, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Event, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use pintle::cache::ObjectKey;
use pintle_cluster::Cluster;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use webapp::{Dns, WebApp};

/// A cluster with the operator running on it.
struct Fixture {
    client: Client,
    dns: Dns,
    shutdown: CancellationToken,
    _cluster: Cluster,
}

impl Fixture {
    async fn start() -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        // A wall clock that follows the virtual time of the test.
        let cluster = Cluster::builder().starting_at(start).start().await;
        let client = cluster.client();
        let crds = Api::<CustomResourceDefinition>::all(client.clone());
        let crd = WebApp::crd();
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let (dns, shutdown) = (Dns::default(), CancellationToken::new());
        let (theirs, stop, operator) = (dns.clone(), shutdown.clone(), client.clone());
        tokio::spawn(async move { webapp::run(operator, theirs, &stop).await.unwrap() });
        Self {
            client,
            dns,
            shutdown,
            _cluster: cluster,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api = self.api::<K>();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create_secret(&self) {
        let secret = json!({ "metadata": { "name": "key" }, "stringData": { "TOKEN": "a" } });
        self.create::<Secret>(secret).await;
    }

    async fn create_webapp(&self) {
        let spec = json!({ "image": "web:1", "page": "<p>Hi", "replicas": 2, "secretName": "key" });
        self.create::<WebApp>(json!({ "metadata": { "name": "shop" }, "spec": spec }))
            .await;
    }

    /// Returns status and reason of the condition `Ready`.
    async fn ready(&self) -> (String, String) {
        let webapp = self.api::<WebApp>().get("shop").await.unwrap();
        let conditions = webapp.status.unwrap_or_default().conditions;
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        let ready = ready.unwrap();
        (ready.status.clone(), ready.reason.clone())
    }

    /// Returns type and reason of the events about the WebApp.
    async fn events(&self) -> Vec<(String, String)> {
        let events = self
            .api::<Event>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let about = |event: &Event| event.involved_object.kind.as_deref() == Some("WebApp");
        let events = events.items.into_iter().filter(about);
        events
            .map(|event| (event.type_.unwrap(), event.reason.unwrap()))
            .collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Advances virtual time far enough for the cluster to become idle.
async fn wait_until_idle() {
    tokio::time::sleep(Duration::from_secs(20)).await;
}

fn both(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[tokio::test(start_paused = true)]
async fn webapp_gets_its_children_and_becomes_ready() {
    let fixture = Fixture::start().await;
    fixture.create_secret().await;
    fixture.create_webapp().await;
    wait_until_idle().await;
    let config = fixture.api::<ConfigMap>().get("shop").await.unwrap();
    assert_eq!(config.data.unwrap()["index.html"], "<p>Hi");
    let service = fixture.api::<Service>().get("shop").await.unwrap();
    assert_eq!(service.spec.unwrap().selector.unwrap()["app"], "shop");
    let deployment = fixture.api::<Deployment>().get("shop").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    assert_eq!(fixture.ready().await, both("True", "Available"));
    assert!(
        fixture
            .dns
            .0
            .lock()
            .contains(&ObjectKey::namespaced("default", "shop"))
    );
    assert_eq!(fixture.events().await, [both("Normal", "Applied")]);
}

#[tokio::test(start_paused = true)]
async fn missing_secret_is_reported_once_and_awaited() {
    let fixture = Fixture::start().await;
    fixture.create_webapp().await;
    wait_until_idle().await;
    assert_eq!(fixture.ready().await, both("False", "NotApplied"));
    assert_eq!(fixture.events().await, [both("Warning", "NotApplied")]);
    fixture.create_secret().await;
    wait_until_idle().await;
    assert_eq!(fixture.ready().await, both("True", "Available"));
}

#[tokio::test(start_paused = true)]
async fn changed_secret_restarts_the_pods() {
    let fixture = Fixture::start().await;
    fixture.create_secret().await;
    fixture.create_webapp().await;
    wait_until_idle().await;
    let revision = async || {
        let deployment = fixture.api::<Deployment>().get("shop").await.unwrap();
        deployment.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"].clone()
    };
    assert_eq!(revision().await, "1");
    let rotated = Patch::Merge(json!({ "stringData": { "TOKEN": "b" } }));
    let (secrets, params) = (fixture.api::<Secret>(), PatchParams::default());
    secrets.patch("key", &params, &rotated).await.unwrap();
    wait_until_idle().await;
    assert_eq!(revision().await, "2");
    assert_eq!(fixture.ready().await, both("True", "Available"));
}

#[tokio::test(start_paused = true)]
async fn foreign_service_is_left_alone_and_reported() {
    let fixture = Fixture::start().await;
    fixture.create_secret().await;
    let spec = json!({ "ports": [{ "port": 1 }] });
    fixture
        .create::<Service>(json!({ "metadata": { "name": "shop" }, "spec": spec }))
        .await;
    fixture.create_webapp().await;
    wait_until_idle().await;
    let service = fixture.api::<Service>().get("shop").await.unwrap();
    assert_eq!(service.metadata.owner_references, None);
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 1);
    assert_eq!(fixture.ready().await, both("False", "NotApplied"));
}

#[tokio::test(start_paused = true)]
async fn dns_name_and_children_are_deleted_with_the_webapp() {
    let fixture = Fixture::start().await;
    fixture.create_secret().await;
    fixture.create_webapp().await;
    wait_until_idle().await;
    let webapps = fixture.api::<WebApp>();
    webapps
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    wait_until_idle().await;
    assert!(webapps.get_opt("shop").await.unwrap().is_none());
    assert!(fixture.dns.0.lock().is_empty());
    let deployments = fixture.api::<Deployment>();
    assert!(deployments.get_opt("shop").await.unwrap().is_none());
    let services = fixture.api::<Service>();
    assert!(services.get_opt("shop").await.unwrap().is_none());
}

/// Proves controller/short-operator.
#[test]
fn operator_fits_in_180_lines() {
    let lines = |text: &str| text.lines().count();
    let total = lines(include_str!("../src/lib.rs")) + lines(include_str!("../src/main.rs"));
    assert!(total < 180, "{total} lines");
}
